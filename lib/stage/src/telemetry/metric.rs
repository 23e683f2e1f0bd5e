//! Metrics as fields of a struct: name and help text stand together, and what a hot path touches is
//! the atomic itself, with no name or label left to hash.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

pub use metrics::{Counter, Gauge, Histogram};
use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, SharedString, with_recorder};

use super::described::{Described, Kind, Labels};

/// Something that [`metrics!`](crate::metrics!) can register.
pub trait Metric {
    #[doc(hidden)]
    const KIND: Kind;
    #[doc(hidden)]
    const LABELS: Labels = Labels::None;
    /// Describes and registers it with the current recorder under `name`.
    fn register(name: &'static str, help: &'static str) -> Self
    where
        Self: Sized;
}

/// A metric that may carry labels.
pub trait Series: Clone {
    #[doc(hidden)]
    const KIND: Kind;
    #[doc(hidden)]
    fn describe(recorder: &dyn Recorder, name: &'static str, help: &'static str);
    #[doc(hidden)]
    fn make(recorder: &dyn Recorder, key: &Key) -> Self;
    #[doc(hidden)]
    fn noop() -> Self;
}

static METADATA: Metadata<'static> = Metadata::new("onlooker", Level::INFO, None);

macro_rules! series {
    ($type:ident, $describe:ident, $register:ident) => {
        impl Series for $type {
            const KIND: Kind = Kind::$type;

            fn describe(recorder: &dyn Recorder, name: &'static str, help: &'static str) {
                recorder.$describe(KeyName::from(name), None, SharedString::from(help));
            }
            fn make(recorder: &dyn Recorder, key: &Key) -> Self {
                recorder.$register(key, &METADATA)
            }
            fn noop() -> Self {
                $type::noop()
            }
        }

        impl Metric for $type {
            const KIND: Kind = Kind::$type;

            fn register(name: &'static str, help: &'static str) -> Self {
                with_recorder(|recorder| {
                    Self::describe(recorder, name, help);
                    Self::make(recorder, &Key::from_name(name))
                })
            }
        }
    };
}

series!(Counter, describe_counter, register_counter);
series!(Gauge, describe_gauge, register_gauge);
series!(Histogram, describe_histogram, register_histogram);

/// One series with labels, for those who cannot use [`metrics!`](crate::metrics!) because a label is
/// known at run time only. The values must come from a small fixed set.
pub(crate) fn series<M: Series>(
    name: &'static str,
    help: &'static str,
    labels: &[(&'static str, &'static str)],
) -> M {
    let labels: Vec<_> = labels.iter().map(|(key, value)| Label::from_static_parts(key, value)).collect();
    with_recorder(|recorder| {
        M::describe(recorder, name, help);
        M::make(recorder, &Key::from_parts(name, labels))
    })
}

/// One series for each value of a closed enum, all registered at the start: a reason that has not
/// happened yet shows as 0.
#[derive(Clone, Debug)]
pub struct Family<L, M> {
    series: Vec<(L, M)>,
    unlisted: M,
}

impl<L: Copy + PartialEq, M: Series> Family<L, M> {
    /// Registers one series per value, with the label `key` set to its text.
    pub fn over(
        name: &'static str,
        help: &'static str,
        key: &'static str,
        values: &[L],
        text: impl Fn(L) -> &'static str,
    ) -> Self {
        with_recorder(|recorder| {
            M::describe(recorder, name, help);
            let series = |value: L| {
                let labels = vec![Label::from_static_parts(key, text(value))];
                (value, M::make(recorder, &Key::from_parts(name, labels)))
            };
            Self { series: values.iter().copied().map(series).collect(), unlisted: M::noop() }
        })
    }

    /// What [`over`](Self::over) would register.
    pub fn described(
        name: &'static str,
        help: &'static str,
        key: &'static str,
        values: &[L],
        text: impl Fn(L) -> &'static str,
    ) -> Described {
        let values = values.iter().copied().map(text).collect();
        Described { name, kind: M::KIND, labels: vec![(key, values)], help }
    }

    /// The series of a value. A value that was left out at registration counts nowhere, and stops a
    /// debug build.
    pub fn get(&self, value: L) -> &M {
        // A scan: the enums have about ten values, and comparing them beats hashing one.
        let found = self.series.iter().find(|(other, _)| *other == value);
        debug_assert!(found.is_some(), "a label value was not registered");
        found.map_or(&self.unlisted, |(_, series)| series)
    }
}

/// A gauge for each partition that this process owns at the moment, labelled `partition`.
#[derive(Clone, Debug)]
pub struct PartitionGauge {
    name: &'static str,
    gauges: Arc<Mutex<HashMap<i32, Gauge>>>,
}

impl Metric for PartitionGauge {
    const KIND: Kind = Kind::Gauge;
    const LABELS: Labels = Labels::Open("partition");

    fn register(name: &'static str, help: &'static str) -> Self {
        with_recorder(|recorder| Gauge::describe(recorder, name, help));
        Self { name, gauges: Arc::default() }
    }
}

impl PartitionGauge {
    /// Sets the partition's value.
    pub fn set(&self, partition: i32, value: f64) {
        let mut gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        let gauge = gauges.entry(partition).or_insert_with(|| {
            let labels = vec![Label::new("partition", partition.to_string())];
            with_recorder(|recorder| Gauge::make(recorder, &Key::from_parts(self.name, labels)))
        });
        gauge.set(value);
    }

    /// Takes the partition off the page. Call it when the partition is revoked, or its last value is
    /// shown for ever beside the true one of its next owner.
    pub fn clear(&self, partition: i32) {
        if let Some(gauge) = self.gauges.lock().unwrap_or_else(PoisonError::into_inner).get(&partition) {
            // The recorder cannot forget a series, so the page leaves out what is not a number.
            gauge.set(f64::NAN);
        }
    }
}

/// Declares a room's metrics: the doc comment of a field is the help text, and
/// `register()` describes and registers all of them with the current recorder.
///
/// A field is a [`Counter`], [`Gauge`], [`Histogram`] or [`PartitionGauge`] with its name, or a
/// [`Family`] over a closed enum with a label, all its values and their texts.
///
/// ```
/// use onlooker_stage::telemetry::{Counter, Family, Histogram};
///
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// pub enum Door { Front, Back }
/// impl Door {
///     const ALL: &'static [Door] = &[Door::Front, Door::Back];
///     fn as_str(self) -> &'static str {
///         match self { Door::Front => "front", Door::Back => "back" }
///     }
/// }
///
/// onlooker_stage::metrics! {
///     /// What the hall measures.
///     pub struct HallMetrics {
///         /// People who came in, by door
///         pub entered: Family<Door, Counter> = "hall_entered_total", "door" in Door::ALL as Door::as_str;
///         /// Time that a person stays, in seconds
///         pub stay: Histogram = "hall_stay_seconds";
///     }
/// }
///
/// let metrics = HallMetrics::register();
/// metrics.entered.get(Door::Back).increment(1);
/// metrics.stay.record(0.25);
/// ```
#[macro_export]
macro_rules! metrics {
    (
        $(#[$attr:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $help:literal])+
                $fvis:vis $field:ident : $type:ty = $metric:literal
                    $(, $key:literal in $values:path as $text:expr)? ;
            )+
        }
    ) => {
        $(#[$attr])*
        #[derive(Clone, Debug)]
        $vis struct $name {
            $( $(#[doc = $help])+ $fvis $field: $type, )+
        }

        impl $name {
            /// Describes and registers every metric with the current recorder. Before there is one,
            /// the handles do nothing, for ever.
            $vis fn register() -> Self {
                Self {
                    $( $field: $crate::metrics!(
                        @register $type, $metric, ::core::concat!($($help),+).trim()
                        $(, $key, $values, $text)?
                    ), )+
                }
            }

            /// Name, kind, labels and help of each, for the table of all metrics.
            #[allow(dead_code, reason = "a struct of metrics need not stand in a table")]
            $vis fn described() -> ::std::vec::Vec<$crate::telemetry::Described> {
                ::std::vec![
                    $( $crate::metrics!(
                        @describe $type, $metric, ::core::concat!($($help),+).trim()
                        $(, $key, $values, $text)?
                    ), )+
                ]
            }
        }
    };
    (@register $type:ty, $metric:literal, $help:expr) => {
        <$type as $crate::telemetry::Metric>::register($metric, $help)
    };
    (@register $type:ty, $metric:literal, $help:expr, $key:literal, $values:path, $text:expr) => {
        <$type>::over($metric, $help, $key, $values, $text)
    };
    (@describe $type:ty, $metric:literal, $help:expr) => {
        $crate::telemetry::Described::plain::<$type>($metric, $help)
    };
    (@describe $type:ty, $metric:literal, $help:expr, $key:literal, $values:path, $text:expr) => {
        <$type>::described($metric, $help, $key, $values, $text)
    };
}
