//! What the clients measure.

use onlooker_stage::telemetry::{Counter, Gauge, Histogram, PartitionGauge};

onlooker_stage::metrics! {
    /// Of a writer.
    pub(crate) struct WriterMetrics {
        /// Records that Kafka has acknowledged
        pub(crate) appended: Counter = "kafka_appended_records_total";
        /// Appends that failed, were refused or were given up
        pub(crate) failed: Counter = "kafka_failed_appends_total";
        /// Records that wait for an acknowledgement
        pub(crate) queued: Gauge = "kafka_queued_records";
    }
}

onlooker_stage::metrics! {
    /// Of a group's reader.
    pub(crate) struct ReaderMetrics {
        /// Records that were fetched
        pub(crate) fetched: Counter = "kafka_fetched_records_total";
        /// Bytes of keys and values that wait for the room
        pub(crate) buffered: Gauge = "kafka_reader_buffered_bytes";
        /// Times that partitions were assigned to this member
        pub(crate) assignments: Counter = "kafka_assignments_total";
        /// Partitions that stood still although records waited, and were started again
        pub(crate) stalls: Counter = "kafka_stalled_partitions_total";
        /// Records between what the room was given and the end of the partition
        pub(crate) lag: PartitionGauge = "kafka_reader_lag_records";
    }
}

onlooker_stage::metrics! {
    /// Of a transactor.
    pub(crate) struct TransactorMetrics {
        /// Transactions that committed
        pub(crate) committed: Counter = "kafka_committed_transactions_total";
        /// Transactions that were aborted
        pub(crate) aborted: Counter = "kafka_aborted_transactions_total";
        /// Transactions whose outcome is not known
        pub(crate) unknown: Counter = "kafka_unknown_transactions_total";
        /// Time from the start of a transaction to its known outcome, in seconds
        pub(crate) duration: Histogram = "kafka_transaction_seconds";
    }
}
