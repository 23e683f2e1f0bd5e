//! What the collector measures.

use onlooker_stage::telemetry::{Counter, Described, Family, Gauge, Histogram};

/// Codes of refused views and requests; the label of `onlooker_collector_rejected_total`.
pub(crate) const CODES: &[&str] = &[
    "bad_gzip",
    "body_broken",
    "body_timeout",
    "body_too_large",
    "empty_body",
    "id_must_be_string",
    "invalid_at",
    "invalid_id",
    "invalid_ip",
    "invalid_viewer",
    "log_full",
    "log_unavailable",
    "malformed",
    "missing_field",
    "origin_not_allowed",
    "overloaded",
    "too_many_items",
    "trusted_only",
    "unknown_key",
    "unknown_site",
    "unknown_token",
    "unsupported_encoding",
    "view_too_large",
    "wrong_site",
    "other",
];

fn text(code: &'static str) -> &'static str {
    code
}

onlooker_stage::metrics! {
    /// The collector's metrics.
    pub(crate) struct CollectorMetrics {
        /// Views that were acknowledged by the log and answered 202
        pub(crate) accepted: Counter = "onlooker_collector_accepted_total";
        /// Views and requests that were refused, by the error's code
        pub(crate) rejected: Family<&'static str, Counter> = "onlooker_collector_rejected_total", "code" in CODES as text;
        /// Views whose viewer id could not be used and that count as anonymous
        pub(crate) bad_viewer: Counter = "onlooker_collector_bad_viewer_total";
        /// Requests with an X-Forwarded-For header from a peer that is no trusted proxy: probably a proxy is missing in trusted_proxies, and all its viewers count as one
        pub(crate) untrusted_forwarded: Counter = "onlooker_collector_xff_seen_but_untrusted_total";
        /// Anonymous requests whose address is private or loopback: many of them mean that a proxy hides the viewers
        pub(crate) private_address: Counter = "onlooker_collector_private_address_total";
        /// Times that nearly all of 1,000 anonymous requests came from one private address, which hides the viewers behind it
        pub(crate) crowded_address: Counter = "onlooker_collector_crowded_address_total";
        /// Time that the log took to acknowledge a request's views, in seconds; refused requests count too
        pub(crate) append: Histogram = "onlooker_collector_append_seconds";
        /// Bytes of bodies and records that requests hold at the moment
        pub(crate) inflight: Gauge = "onlooker_collector_inflight_bytes";
    }
}

impl CollectorMetrics {
    /// Counts a refusal. A code that is not in the list counts as "other".
    pub(crate) fn reject(&self, code: &'static str) {
        let known = CODES.iter().find(|c| **c == code).copied().unwrap_or("other");
        self.rejected.get(known).increment(1);
    }
}

/// What the collector measures, for the table of all metrics.
pub fn described_metrics() -> Vec<Described> {
    CollectorMetrics::described()
}
