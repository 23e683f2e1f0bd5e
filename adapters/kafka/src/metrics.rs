//! What the clients measure.

use onlooker_ports::Topic;
use onlooker_stage::telemetry::{Counter, Described, Gauge, Histogram, PartitionGauge};

onlooker_stage::metrics! {
    /// Of a writer.
    pub(crate) struct WriterMetrics {
        /// Records that Kafka has acknowledged
        pub(crate) appended: Counter = "onlooker_kafka_appended_records_total";
        /// Appends that failed, were refused or were given up
        pub(crate) failed: Counter = "onlooker_kafka_failed_appends_total";
        /// Records that wait for an acknowledgement
        pub(crate) queued: Gauge = "onlooker_kafka_queued_records";
    }
}

onlooker_stage::metrics! {
    /// Of a group's reader.
    pub(crate) struct ReaderMetrics {
        /// Records that were fetched
        pub(crate) fetched: Counter = "onlooker_kafka_fetched_records_total";
        /// Bytes of keys and values that wait for the room
        pub(crate) buffered: Gauge = "onlooker_kafka_reader_buffered_bytes";
        /// Times that partitions were assigned to this member
        pub(crate) assignments: Counter = "onlooker_kafka_assignments_total";
        /// Partitions that stood still although records waited, and were started again
        pub(crate) stalls: Counter = "onlooker_kafka_stalled_partitions_total";
        /// Records between what the filter was given and the end of the partition of views
        views_lag: PartitionGauge = "onlooker_kafka_views_lag_records";
        /// Records between what the counter was given and the end of the partition of counted views
        counted_lag: PartitionGauge = "onlooker_kafka_counted_lag_records";
    }
}

impl ReaderMetrics {
    /// The lag of a topic that is read; a process may read both.
    pub(crate) fn lag(&self, role: Topic) -> Option<&PartitionGauge> {
        match role {
            Topic::Views => Some(&self.views_lag),
            Topic::Counted => Some(&self.counted_lag),
            Topic::Ignored | Topic::Dead => None,
        }
    }
}

onlooker_stage::metrics! {
    /// Of a transactor.
    pub(crate) struct TransactorMetrics {
        /// Transactions that committed
        pub(crate) committed: Counter = "onlooker_kafka_committed_transactions_total";
        /// Transactions that were aborted
        pub(crate) aborted: Counter = "onlooker_kafka_aborted_transactions_total";
        /// Transactions whose outcome is not known
        pub(crate) unknown: Counter = "onlooker_kafka_unknown_transactions_total";
        /// Time from the start of a transaction to its known outcome, in seconds
        pub(crate) duration: Histogram = "onlooker_kafka_transaction_seconds";
    }
}

/// What the clients of Kafka measure, for the table of all metrics.
pub fn described_metrics() -> Vec<Described> {
    [WriterMetrics::described(), ReaderMetrics::described(), TransactorMetrics::described()].concat()
}
