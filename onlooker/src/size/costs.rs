//! What work costs: our own measurements, in one file.

use anyhow::{Context, Result};
use serde::Deserialize;

/// A figure; beside it in the file stands where it comes from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    value: f64,
    #[cfg_attr(not(test), expect(dead_code, reason = "for people, and for the test that wants one"))]
    source: String,
}

macro_rules! costs {
    ($($section:ident: $type:ident { $($field:ident),+ })+) => {
        $(
            #[derive(Debug, Clone, Deserialize)]
            #[serde(deny_unknown_fields)]
            pub(super) struct $type { $($field: Figure),+ }

            impl $type {
                $(pub(super) fn $field(&self) -> f64 { self.$field.value })+

                #[cfg(test)]
                fn sources(&self) -> Vec<&str> { vec![$(&self.$field.source),+] }
            }
        )+

        /// CPU times in microseconds of one core, memory in GiB where the name says so, else in bytes.
        #[derive(Debug, Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct Costs {
            $(pub(super) $section: $type,)+
            pub(super) item: Item,
        }

        impl Costs {
            #[cfg(test)]
            pub(super) fn sources(&self) -> Vec<&str> {
                [$(self.$section.sources()),+].concat()
            }
        }
    };
}

costs! {
    collector: Collector { view_us, memory_gib }
    filter: Filter { view_us, memory_gib }
    counter: Counter { counted_us, memory_gib }
    flusher: Flusher { sketch_us, memory_gib }
    counts_api: CountsApi { read_us, memory_gib }
    kafka: Kafka { view_us, memory_gib }
    dedup: Dedup { view_us, claim_bytes }
    counters: Counters { counted_us, read_us, sketch_us, memory_factor }
    cassandra: Cassandra { sketch_us, restore_us, memory_gib }
    alone: Alone { view_us, read_us, claim_bytes, memory_gib }
    load: Load {
        counted_share, restored_share, popularity, record_bytes, history_days, archive_days, archive_factor,
        slice_s, flush_s, views_hours, counted_hours, copies, zone_crossings
    }
}

/// Bytes of an item, by its viewers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Item {
    viewers: Vec<f64>,
    bytes: Vec<f64>,
    #[cfg_attr(not(test), expect(dead_code, reason = "for people"))]
    source: String,
}

impl Item {
    /// Bytes of an item with so many viewers: two sketches, two numbers, its name. A sketch stops to grow.
    pub(super) fn bytes(&self, viewers: f64) -> f64 {
        let mut points = self.viewers.iter().copied().zip(self.bytes.iter().copied());
        let Some(mut below) = points.next() else { return 0.0 };
        for above in points {
            if viewers <= above.0 {
                let share = ((viewers - below.0) / (above.0 - below.0)).max(0.0);
                return below.1 + share * (above.1 - below.1);
            }
            below = above;
        }
        below.1
    }
}

impl Costs {
    /// The ones that were measured.
    ///
    /// # Errors
    /// Never for the file that is built in.
    pub(super) fn measured() -> Result<Self> {
        toml::from_str(include_str!("costs.toml")).context("the costs that are built in")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_says_where_it_comes_from() {
        let costs = Costs::measured().unwrap();
        assert!(costs.sources().into_iter().all(|source| source.len() > 3) && !costs.item.source.is_empty());
        assert_eq!(costs.item.viewers.len(), costs.item.bytes.len());
    }

    #[test]
    fn settings_are_the_programs_own() {
        let load = Costs::measured().unwrap().load;
        let config = crate::config::Config::read(&crate::config::Layers::default()).unwrap();
        assert_eq!(load.slice_s(), config.filter.slice_s as f64);
        assert_eq!(load.flush_s() * 1_000.0, config.flusher.interval_ms as f64);
        let topics: toml::Table = include_str!("../../../schemas/topics.toml").parse().unwrap();
        let hours = |topic: &str| topics[topic]["retention_hours"].as_integer().unwrap() as f64;
        assert_eq!((load.views_hours(), load.counted_hours()), (hours("views"), hours("counted")));
    }

    #[test]
    fn an_item_grows_with_its_viewers_until_its_sketches_are_full() {
        let item = Costs::measured().unwrap().item;
        assert_eq!(item.bytes(0.0), 156.0);
        assert_eq!(item.bytes(10.0), 252.0);
        assert_eq!(item.bytes(55.0), (252.0 + 760.0) / 2.0);
        assert_eq!(item.bytes(1e9), 25_109.0);
    }
}
