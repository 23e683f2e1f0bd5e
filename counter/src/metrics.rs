//! What the counter measures. No label names an item or a viewer.

use onlooker_event::DeadReason;
use onlooker_stage::telemetry::{Counter, Described, Family, Histogram, PartitionGauge};

/// Which server a call went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Counters,
    Archive,
    Log,
}

impl Server {
    const ALL: &'static [Server] = &[Server::Counters, Server::Archive, Server::Log];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Server::Counters => "counters",
            Server::Archive => "archive",
            Server::Log => "log",
        }
    }
}

onlooker_stage::metrics! {
    /// What the counter measures.
    pub(crate) struct CounterMetrics {
        /// Records of counted views that were applied to the counters store, unreadable ones included
        pub(crate) records: Counter = "onlooker_counter_records_total";
        /// Steps that were applied with records in them
        pub(crate) batches: Counter = "onlooker_counter_batches_total";
        /// Records that could not be read and were set aside in views.dead, by reason
        pub(crate) dead: Family<DeadReason, Counter> = "onlooker_counter_dead_total", "reason" in DeadReason::ALL as DeadReason::as_str;
        /// Times that the store did not stand where this process had left it: another owner, or a loss
        pub(crate) gaps: Counter = "onlooker_counter_gaps_total";
        /// Times that the store stood nowhere: it had lost everything of a partition, or no counter had run yet
        pub(crate) losses: Counter = "onlooker_counter_store_losses_total";
        /// Sketches that were made in the store, with or without an archived base
        pub(crate) created: Counter = "onlooker_counter_sketches_created_total";
        /// Sketches that were restored from the archive
        pub(crate) restored: Counter = "onlooker_counter_sketches_restored_total";
        /// Keys that were read from the archive because the store did not hold them
        pub(crate) archive_reads: Counter = "onlooker_counter_archive_reads_total";
        /// Members that were sent to the store
        pub(crate) sent: Counter = "onlooker_counter_members_sent_total";
        /// Members that were left out because they raise no register
        pub(crate) spared: Counter = "onlooker_counter_members_left_out_total";
        /// Times that an archived sketch was found damaged. Above 0: a person has to restore it
        pub(crate) damaged_archived: Counter = "onlooker_counter_damaged_archived_sketches_total";
        /// Times that a sketch in the store was found damaged, or removed by somebody else. Above 0: empty the counters store
        pub(crate) corrupt_stored: Counter = "onlooker_counter_corrupt_stored_sketches_total";
        /// Keys that readers asked for and did not find in the store
        pub(crate) wishes: Counter = "onlooker_counter_wishes_total";
        /// Keys that readers asked for and the archive does not know either
        pub(crate) absent: Counter = "onlooker_counter_absent_total";
        /// Calls that failed, by server
        pub(crate) errors: Family<Server, Counter> = "onlooker_counter_errors_total", "server" in Server::ALL as Server::as_str;
        /// Times that reading a partition was begun anew because no records came
        pub(crate) stalls: Counter = "onlooker_counter_stalls_total";
        /// Offsets that were skipped because the log had lost their records
        pub(crate) lost_offsets: Counter = "onlooker_counter_lost_offsets_total";
        /// The store's offset: every earlier record is counted
        pub(crate) applied: PartitionGauge = "onlooker_counter_applied_offset";
        /// The archive's offset: every earlier record survives the loss of the store
        pub(crate) durable: PartitionGauge = "onlooker_counter_durable_offset";
        /// Every counted view that was appended to the partition before this moment is in the store, in seconds since 1970. Now less this is the lag in time
        pub(crate) applied_until: PartitionGauge = "onlooker_counter_applied_timestamp_seconds";
        /// The same for the archive: what was appended before survives the loss of the store. After a start at first a moment that may be too late
        pub(crate) durable_until: PartitionGauge = "onlooker_counter_durable_timestamp_seconds";
        /// Offsets between the store and the log's end
        pub(crate) lag: PartitionGauge = "onlooker_counter_lag_offsets";
        /// Offsets between the log's first record and the first that a loss of the store would need. Below 0: such a loss would lose counts
        pub(crate) retention_margin: PartitionGauge = "onlooker_counter_retention_margin_offsets";
        /// 1 while a partition stands still because the log has lost the records that come next
        pub(crate) out_of_range: PartitionGauge = "onlooker_counter_out_of_range";
        /// Keys whose numbers are remembered
        pub(crate) known: PartitionGauge = "onlooker_counter_known_keys";
        /// Time from a record's append to its being counted, the oldest of each batch, in seconds
        pub(crate) age: Histogram = "onlooker_counter_age_seconds";
        /// Time that a step takes, in seconds
        pub(crate) apply: Histogram = "onlooker_counter_apply_seconds";
        /// Records in a batch
        pub(crate) batch: Histogram = "onlooker_counter_batch_size";
    }
}

impl CounterMetrics {
    /// The partition is no longer ours: its next owner shows it.
    pub(crate) fn clear(&self, partition: i32) {
        let gauges = [
            &self.applied,
            &self.durable,
            &self.applied_until,
            &self.durable_until,
            &self.lag,
            &self.retention_margin,
            &self.out_of_range,
            &self.known,
        ];
        gauges.into_iter().for_each(|gauge| gauge.clear(partition));
    }
}

/// What the counter measures, for the table of all metrics.
pub fn described_metrics() -> Vec<Described> {
    CounterMetrics::described()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_stage::telemetry::MetricsHandle;

    #[test]
    fn a_partition_that_is_gone_leaves_the_page() {
        let page = MetricsHandle::detached().unwrap();
        let metrics = page.within(CounterMetrics::register);
        page.within(|| {
            for partition in [3, 4] {
                metrics.applied.set(partition, 7.0);
                metrics.lag.set(partition, 1.0);
            }
        });
        metrics.clear(3);
        let page = page.render();
        assert!(!page.contains("partition=\"3\""), "{page}");
        assert!(page.contains("onlooker_counter_applied_offset{partition=\"4\"} 7"), "{page}");
        assert!(page.contains("onlooker_counter_dead_total{reason=\"newer_version\"} 0"), "{page}");
    }
}
