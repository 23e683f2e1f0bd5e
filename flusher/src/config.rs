//! Settings of the room.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The `[flusher]` section.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlusherConfig {
    /// How often a partition is flushed, in milliseconds, by all flushers together: what changed is archived at most
    /// once an interval. So much of the log is read again after a loss of the counters store.
    pub interval_ms: u64,
    /// Partitions that one process flushes at once.
    pub concurrency: usize,
    /// Keys that one step reads and writes, about: a sketch is up to 12 KB.
    pub page_keys: usize,
    /// How long an archived sketch that nobody changes stays in the counters store unless it is evicted earlier, in
    /// seconds.
    pub sketch_ttl_s: u64,
    /// How often a partition's numbers are swept, in milliseconds.
    pub sweep_ms: u64,
    /// How long an archived number that nobody changes stays in the counters store, in seconds. Numbers cannot be
    /// evicted: with this and `sweep_ms` their memory is bounded.
    pub number_age_s: u64,
    /// Time for the last rounds when shutdown is requested, in milliseconds.
    pub drain_ms: u64,
}

impl Default for FlusherConfig {
    fn default() -> Self {
        Self {
            interval_ms: 10_000,
            concurrency: 4,
            page_keys: 256,
            sketch_ttl_s: 7 * 86_400,
            sweep_ms: 60_000,
            number_age_s: 86_400,
            drain_ms: 15_000,
        }
    }
}

impl FlusherConfig {
    /// Everything that is wrong with it, as (key, problem).
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let at_least_1 = [
            ("interval_ms", self.interval_ms),
            ("concurrency", self.concurrency as u64),
            ("page_keys", self.page_keys as u64),
            ("sketch_ttl_s", self.sketch_ttl_s),
            ("sweep_ms", self.sweep_ms),
            ("number_age_s", self.number_age_s),
        ];
        let zeros = at_least_1.iter().filter(|(_, value)| *value == 0);
        let mut faults: Vec<_> = zeros.map(|(key, _)| (*key, "must be at least 1".to_owned())).collect();
        if self.page_keys > 10_000 {
            faults.push((
                "page_keys",
                "must be at most 10000: all sketches of a page are in memory".to_owned(),
            ));
        }
        faults
    }

    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_are_reported_at_once() {
        assert_eq!(FlusherConfig::default().faults(), []);
        let config = FlusherConfig { interval_ms: 0, page_keys: 10_001, ..FlusherConfig::default() };
        let keys: Vec<_> = config.faults().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["interval_ms", "page_keys"]);
    }
}
