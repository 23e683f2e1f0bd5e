//! What the counts API measures.

use crate::heart::Status;
use onlooker_stage::telemetry::{Counter, Described, Family, Histogram};

/// Codes of refused requests; the label of `onlooker_counts_api_refused_total`.
pub(crate) const CODES: &[&str] = &[
    "body_broken",
    "body_timeout",
    "body_too_large",
    "counters_unavailable",
    "id_must_be_string",
    "internal",
    "invalid_day",
    "invalid_id",
    "invalid_range",
    "invalid_site",
    "malformed",
    "method_not_allowed",
    "missing_field",
    "not_found",
    "overloaded",
    "too_many_day_reads",
    "too_many_days",
    "too_many_items",
    "unknown_field",
    "unknown_site",
    "other",
];

fn text(code: &'static str) -> &'static str {
    code
}

onlooker_stage::metrics! {
    /// The counts API's metrics.
    pub(crate) struct CountsApiMetrics {
        /// Counts that were answered, by what they are worth; "repairing" means that a sketch in Redis is damaged
        pub(crate) counts: Family<Status, Counter> = "onlooker_counts_api_counts_total", "status" in Status::ALL as Status::as_str;
        /// Requests that were refused, by the error's code
        pub(crate) refused: Family<&'static str, Counter> = "onlooker_counts_api_refused_total", "code" in CODES as text;
        /// Answers that the client had already (304)
        pub(crate) unchanged: Counter = "onlooker_counts_api_unchanged_total";
        /// Keys that counters were asked to bring back
        pub(crate) wished: Counter = "onlooker_counts_api_wished_total";
        /// Reads of the counters that failed
        pub(crate) failed_reads: Counter = "onlooker_counts_api_failed_reads_total";
        /// Time of one read of the counters, for all requests that share it, in seconds
        pub(crate) read: Histogram = "onlooker_counts_api_read_seconds";
        /// Keys that one read fetches, for all requests that share it
        pub(crate) read_keys: Histogram = "onlooker_counts_api_read_size";
    }
}

impl CountsApiMetrics {
    /// Counts a refusal. A code that is not in the list counts as "other".
    pub(crate) fn refuse(&self, code: &'static str) {
        let known = CODES.iter().find(|c| **c == code).copied().unwrap_or("other");
        self.refused.get(known).increment(1);
    }
}

/// What the counts API measures, for the table of all metrics.
pub fn described_metrics() -> Vec<Described> {
    CountsApiMetrics::described()
}
