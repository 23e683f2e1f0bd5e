//! What the memory of one machine measures.

use onlooker_stage::telemetry::{Counter, Described, Family, Gauge};

/// Whose memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Store {
    Claims,
    Counts,
}

impl Store {
    const ALL: &'static [Store] = &[Store::Claims, Store::Counts];

    fn as_str(self) -> &'static str {
        match self {
            Store::Claims => "claims",
            Store::Counts => "counts",
        }
    }
}

onlooker_stage::metrics! {
    /// Of both.
    pub(super) struct StoreMetrics {
        /// Bytes in memory, by store: the filter's claims, or sketches and numbers
        used: Family<Store, Gauge> = "onlooker_embedded_store_used_bytes", "store" in Store::ALL as Store::as_str;
        /// Bytes that it may take. Counts that are archived make room; when claims reach it, views wait
        limit: Family<Store, Gauge> = "onlooker_embedded_store_limit_bytes", "store" in Store::ALL as Store::as_str;
        /// Bytes of archived sketches and numbers that made room for others
        pub(super) evicted: Counter = "onlooker_embedded_evicted_bytes_total";
    }
}

#[expect(clippy::cast_precision_loss, reason = "gauges; bytes of a machine stay below 2^53")]
impl StoreMetrics {
    /// For a store with this limit.
    pub(super) fn of(store: Store, limit_bytes: usize) -> Self {
        let metrics = Self::register();
        metrics.limit.get(store).set(limit_bytes as f64);
        metrics
    }

    /// What it takes now.
    pub(super) fn used(&self, store: Store, bytes: usize) {
        self.used.get(store).set(bytes as f64);
    }
}

/// What the memory of one machine measures, for the table of all metrics.
pub fn described_metrics() -> Vec<Described> {
    StoreMetrics::described()
}
