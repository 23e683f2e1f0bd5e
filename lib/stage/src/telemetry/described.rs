//! What a metric is called, and what it says: the table of all metrics is made of it.

use super::{Metric, process};
use crate::{admin, http};

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Only rises, and begins at 0 with the process.
    Counter,
    /// A value of the moment.
    Gauge,
    /// Counts of values by size, with their sum.
    Histogram,
}

impl Kind {
    /// As Prometheus writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Labels of a metric whose values are not listed where it is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Labels {
    /// It has none.
    None,
    /// One, whose values are known when the process runs.
    Open(&'static str),
}

/// One metric, as it stands on the page of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// Its labels, each with all values that it can have; without values where only the running process knows them.
    pub labels: Vec<(&'static str, Vec<&'static str>)>,
    /// Its help text.
    pub help: &'static str,
}

impl Described {
    /// A metric without a closed set of label values.
    pub fn plain<M: Metric>(name: &'static str, help: &'static str) -> Self {
        let labels = match M::LABELS {
            Labels::None => Vec::new(),
            Labels::Open(key) => vec![(key, Vec::new())],
        };
        Self { name, kind: M::KIND, labels, help }
    }
}

/// What every process of ours shows: its HTTP servers, its components' health, and what the kernel knows about it.
pub fn described_metrics() -> Vec<Described> {
    [admin::described(), http::described(), process::described()].concat()
}
