//! What the ledger measures.

use metrics::{Gauge, describe_gauge, gauge};
#[cfg(all(test, feature = "cluster"))]
use onlooker_stage::telemetry::Described;
use onlooker_stage::telemetry::{Kind, Labels, Metric};
use std::collections::{HashMap, HashSet};

/// The site of what has none that is configured.
const OTHER: &str = "other";

/// A gauge for each configured site, labelled `site`, and one for all others together.
#[derive(Debug, Clone)]
pub(super) struct SiteGauge(&'static str);

impl Metric for SiteGauge {
    const KIND: Kind = Kind::Gauge;
    const LABELS: Labels = Labels::Open("site");

    fn register(name: &'static str, help: &'static str) -> Self {
        describe_gauge!(name, help);
        Self(name)
    }
}

impl SiteGauge {
    /// Sets every site's value; what is not named is 0. Names that are not configured are a label together.
    pub(super) fn set(&self, configured: &HashSet<String>, values: &[(&str, i64)]) {
        let mut sums: HashMap<&str, i64> = configured.iter().map(|site| (site.as_str(), 0)).collect();
        sums.insert(OTHER, 0);
        for (site, value) in values {
            let label = if configured.contains(*site) { site } else { OTHER };
            *sums.entry(label).or_default() += value;
        }
        for (site, sum) in sums {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
            gauge!(self.0, "site" => site.to_owned()).set(sum as f64);
        }
    }
}

onlooker_stage::metrics! {
    /// What the ledger measures.
    pub(super) struct LedgerMetrics {
        /// Accepted views of closed hours that have no outcome, of the last 48 hours; below 0: so many outcomes are too many
        pub(super) open: SiteGauge = "onlooker_ledger_open_views";
        /// When the ledger was last brought up to date, in seconds since 1970
        pub(super) checked: Gauge = "onlooker_ledger_checked_timestamp_seconds";
    }
}

/// For the table of all metrics.
#[cfg(all(test, feature = "cluster"))]
pub(crate) fn described_metrics() -> Vec<Described> {
    LedgerMetrics::described()
}
