//! What the log measures.

use super::config::Kind;
use onlooker_ports::Topic;
use onlooker_stage::telemetry::{Counter, Described, Family, Gauge, Histogram, PartitionGauge};

onlooker_stage::metrics! {
    /// Of the journals.
    pub(crate) struct JournalMetrics {
        /// Records that were appended and are as durable as configured, by journal
        pub(crate) appended: Family<Kind, Counter> = "onlooker_embedded_log_appended_records_total", "journal" in Kind::ALL as Kind::name;
        /// Appends and transactions that failed or were refused, by journal
        pub(crate) failed: Family<Kind, Counter> = "onlooker_embedded_log_failed_appends_total", "journal" in Kind::ALL as Kind::name;
        /// Bytes that wait to be written, by journal
        pub(crate) queued: Family<Kind, Gauge> = "onlooker_embedded_log_queued_bytes", "journal" in Kind::ALL as Kind::name;
        /// Bytes of all files, by journal
        pub(crate) size: Family<Kind, Gauge> = "onlooker_embedded_log_size_bytes", "journal" in Kind::ALL as Kind::name;
        /// Bytes that would have been removed by age or size and are kept because a group has not read them, by journal
        pub(crate) pinned: Family<Kind, Gauge> = "onlooker_embedded_log_pinned_bytes", "journal" in Kind::ALL as Kind::name;
        /// Files that retention removed, by journal
        pub(crate) removed: Family<Kind, Counter> = "onlooker_embedded_log_removed_segments_total", "journal" in Kind::ALL as Kind::name;
        /// Writes and syncs that the system refused, by journal
        pub(crate) faults: Family<Kind, Counter> = "onlooker_embedded_log_write_faults_total", "journal" in Kind::ALL as Kind::name;
        /// Time that one sync of a journal takes, in seconds
        pub(crate) sync: Histogram = "onlooker_embedded_log_sync_seconds";
    }
}

onlooker_stage::metrics! {
    /// Of a group's reader.
    pub(crate) struct ReaderMetrics {
        /// Bytes that readers read from files, because they were no longer in memory
        pub(crate) read: Counter = "onlooker_embedded_log_read_bytes_total";
        /// Records between what the filter was given and the end of the partition of views
        views_lag: PartitionGauge = "onlooker_embedded_views_lag_records";
        /// Records between what the counter was given and the end of the partition of counted views
        counted_lag: PartitionGauge = "onlooker_embedded_counted_lag_records";
    }
}

impl ReaderMetrics {
    /// The lag of a topic that is read; a process reads both.
    pub(crate) fn lag(&self, topic: Topic) -> Option<&PartitionGauge> {
        match topic {
            Topic::Views => Some(&self.views_lag),
            Topic::Counted => Some(&self.counted_lag),
            Topic::Ignored | Topic::Dead => None,
        }
    }
}

/// What the embedded log measures, for the table of all metrics.
pub fn described_metrics() -> Vec<Described> {
    [JournalMetrics::described(), ReaderMetrics::described()].concat()
}
