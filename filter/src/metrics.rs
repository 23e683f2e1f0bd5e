//! What the filter measures. No label names an item or a viewer.

use crate::heart::{Cause, Tally};
use onlooker_event::{DeadReason, Reason};
use onlooker_stage::telemetry::{Counter, Described, Family, Gauge, Histogram, PartitionGauge};

/// What became of a view that could be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Counted,
    Ignored(Reason),
}

impl Outcome {
    const ALL: &'static [Outcome] = &[
        Outcome::Counted,
        Outcome::Ignored(Reason::RecentView),
        Outcome::Ignored(Reason::DuplicateId),
        Outcome::Ignored(Reason::Prefetch),
        Outcome::Ignored(Reason::SelfView),
    ];

    fn as_str(self) -> &'static str {
        match self {
            Outcome::Counted => "counted",
            Outcome::Ignored(reason) => reason.as_str(),
        }
    }
}

onlooker_stage::metrics! {
    /// What the filter measures.
    pub(crate) struct FilterMetrics {
        /// Views whose verdict is committed, by outcome: counted, or the reason for which they do not count
        pub(crate) verdicts: Family<Outcome, Counter> = "onlooker_filter_verdicts_total", "outcome" in Outcome::ALL as Outcome::as_str;
        /// Records that could not be read and were set aside in views.dead, by reason
        pub(crate) dead: Family<DeadReason, Counter> = "onlooker_filter_dead_total", "reason" in DeadReason::ALL as DeadReason::as_str;
        /// Counted views whose client id was counted on another item before
        pub(crate) reused_ids: Counter = "onlooker_filter_reused_ids_total";
        /// Transactions that are known to be committed
        pub(crate) commits: Counter = "onlooker_filter_commits_total";
        /// Time of a transaction, whatever its end, in seconds
        pub(crate) commit: Histogram = "onlooker_filter_commit_seconds";
        /// Time of a look-up in the dedup store, repetitions included, in seconds
        pub(crate) lookup: Histogram = "onlooker_filter_lookup_seconds";
        /// Keys in a look-up
        pub(crate) lookup_keys: Histogram = "onlooker_filter_lookup_size";
        /// Time of writing claims to the dedup store, repetitions included, in seconds
        pub(crate) claim: Histogram = "onlooker_filter_claim_seconds";
        /// Times that a partition had to find out where it stands, by cause
        pub(crate) syncs: Family<Cause, Counter> = "onlooker_filter_syncs_total", "cause" in Cause::ALL as Cause::as_str;
        /// Times that a partition's dedup state had to be made from verdicts
        pub(crate) rebuilds: Counter = "onlooker_filter_rebuilds_total";
        /// Claims that were made from verdicts
        pub(crate) rebuilt_claims: Counter = "onlooker_filter_rebuilt_claims_total";
        /// Records that retention removed before they were judged. Above 0: views are lost
        pub(crate) lost_records: Counter = "onlooker_filter_lost_records_total";
        /// Calls of the dedup store that failed and were repeated
        pub(crate) dedup_errors: Counter = "onlooker_filter_dedup_errors_total";
        /// Whether the dedup store is unavailable. 1: views wait, none is lost or waved through
        pub(crate) dedup_unavailable: Gauge = "onlooker_filter_dedup_unavailable";
        /// Partitions that stand still until a person has looked
        pub(crate) refused_partitions: Gauge = "onlooker_filter_refused_partitions";
        /// Every view that was appended to the partition before this moment has its verdict, in seconds since 1970. Now less this is the lag in time
        pub(crate) decided_until: PartitionGauge = "onlooker_filter_decided_timestamp_seconds";
        /// Append time of the last record whose verdict is committed, in seconds since 1970
        pub(crate) judged_until: PartitionGauge = "onlooker_filter_judged_until_seconds";
        /// Offsets between the next record to be read and the end of the log, as of some seconds ago
        pub(crate) lag: PartitionGauge = "onlooker_filter_lag_records";
    }
}

impl FilterMetrics {
    /// A partition's share of a committed transaction.
    pub(crate) fn committed(&self, tally: &Tally) {
        self.verdicts.get(Outcome::Counted).increment(tally.counted);
        for (reason, views) in Reason::ALL.iter().zip(tally.ignored).filter(|(_, views)| *views > 0) {
            self.verdicts.get(Outcome::Ignored(*reason)).increment(views);
        }
        for (reason, records) in DeadReason::ALL.iter().zip(tally.dead).filter(|(_, records)| *records > 0) {
            self.dead.get(*reason).increment(records);
        }
        self.reused_ids.increment(tally.reused_ids);
    }

    /// How far a partition of ours is.
    pub(crate) fn judged(&self, partition: i32, tally: &Tally) {
        self.judged_until.set(partition, seconds(tally.last_append_ms));
    }

    /// Until when all views of a partition of ours are decided.
    pub(crate) fn decided(&self, partition: i32, until_ms: i64) {
        self.decided_until.set(partition, seconds(until_ms));
    }

    /// The partition is somebody else's.
    pub(crate) fn clear(&self, partition: i32) {
        self.judged_until.clear(partition);
        self.decided_until.clear(partition);
        self.lag.clear(partition);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge; milliseconds since 1970 stay below 2^53")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}

/// What the filter measures, for the table of all metrics.
pub fn described_metrics() -> Vec<Described> {
    FilterMetrics::described()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_stage::telemetry::MetricsHandle;

    #[test]
    fn every_reason_has_a_series() {
        let handle = MetricsHandle::detached().unwrap();
        let metrics = handle.within(FilterMetrics::register);
        let tally = Tally { counted: 5, ignored: [1, 2, 3, 4], dead: [1, 1, 1, 1, 7], ..Tally::default() };
        metrics.committed(&tally);
        let page = handle.render();
        for line in [
            "filter_verdicts_total{outcome=\"counted\"} 5",
            "filter_verdicts_total{outcome=\"recent_view\"} 1",
            "filter_verdicts_total{outcome=\"self_view\"} 4",
            "filter_dead_total{reason=\"unknown_site\"} 7",
        ] {
            assert!(page.contains(line), "{line} is missing in\n{page}");
        }
    }
}
