//! What the flusher measures. No label names an item or a viewer.

use onlooker_stage::telemetry::{Counter, Described, Family, Gauge, Histogram, PartitionGauge};

/// Which server a call went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Counters,
    Archive,
}

impl Server {
    const ALL: &'static [Server] = &[Server::Counters, Server::Archive];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Server::Counters => "counters",
            Server::Archive => "archive",
        }
    }
}

onlooker_stage::metrics! {
    /// What the flusher measures.
    pub(crate) struct FlusherMetrics {
        /// Rounds, by how they ended
        pub(crate) rounds: Family<&'static str, Counter> = "onlooker_flusher_rounds_total", "ending" in ENDINGS as std::convert::identity;
        /// Turns that another flusher took
        pub(crate) taken: Counter = "onlooker_flusher_turns_taken_total";
        /// Numbers that the archive acknowledged
        pub(crate) numbers: Counter = "onlooker_flusher_numbers_total";
        /// Sketches that the archive acknowledged
        pub(crate) sketches: Counter = "onlooker_flusher_sketches_total";
        /// Bytes of sketches that the archive acknowledged
        pub(crate) bytes: Counter = "onlooker_flusher_sketch_bytes_total";
        /// Cells that the archive did not acknowledge; they stay dirty
        pub(crate) failed: Counter = "onlooker_flusher_failed_cells_total";
        /// Changed sketches and numbers that were absent or damaged. Above 0: empty the counters store
        pub(crate) corrupt: Counter = "onlooker_flusher_corrupt_total";
        /// Calls that failed, by server
        pub(crate) errors: Family<Server, Counter> = "onlooker_flusher_errors_total", "server" in Server::ALL as Server::as_str;
        /// Archived numbers that were removed from the store because nobody changed them for long
        pub(crate) swept: Counter = "onlooker_flusher_swept_numbers_total";
        /// When the last sweep of all its partitions' numbers was complete, in seconds since 1970
        pub(crate) swept_at: Gauge = "onlooker_flusher_swept_timestamp_seconds";
        /// Keys that were dirty when the partition's last round began
        pub(crate) dirty: PartitionGauge = "onlooker_flusher_dirty_keys";
        /// The offset below which everything is in the archive, as this process wrote it last
        pub(crate) durable: PartitionGauge = "onlooker_flusher_durable_offset";
        /// When the partition's last complete round by this process ended, or before the first one when the process began, in seconds since 1970. Of several flushers the latest counts
        pub(crate) flushed_at: PartitionGauge = "onlooker_flusher_flushed_timestamp_seconds";
        /// Time that a round takes, in seconds
        pub(crate) round: Histogram = "onlooker_flusher_round_seconds";
    }
}

const ENDINGS: &[&str] = &["durable", "lost", "stale", "incomplete", "corrupt", "given_up"];

/// What the flusher measures, for the table of all metrics.
pub fn described_metrics() -> Vec<Described> {
    FlusherMetrics::described()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round::Ending;

    #[test]
    fn every_ending_has_a_series() {
        let texts: Vec<_> = Ending::ALL.iter().map(|ending| ending.as_str()).collect();
        assert_eq!(texts, ENDINGS);
    }
}
