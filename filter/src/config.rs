//! Settings of the room.

use onlooker_event::SiteId;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The `[filter]` section.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FilterConfig {
    /// Records of one partition that are looked up in one round trip, at most.
    pub batch_records: usize,
    /// How long a record may wait for company before it is looked up, in milliseconds. A full batch does not wait.
    pub linger_ms: u64,
    /// Records in one transaction, about at most.
    pub transaction_records: usize,
    /// Length of a slice of append time, in seconds: a counted view is remembered for one to two slices. At least the
    /// longest window plus `lateness_s`. To change it, see the README.
    pub slice_s: u32,
    /// How far a view's event time may lie from its append time, in seconds, as the collector lets through.
    pub lateness_s: u32,
    /// How far the clocks of the log's servers may be apart, in seconds. A rebuild reads that much more.
    pub clock_skew_s: u32,
    /// A partition waits, and readiness says so, rather than give up more than this share of (at least 1,000) records
    /// as unreadable. 100 lets everything through.
    pub dead_limit_percent: u8,
    /// The dedup store is in this process and begins empty: that is no news.
    #[serde(skip)]
    pub volatile: bool,
    /// The name of the topic that is read, for records that are set aside.
    #[serde(skip)]
    pub source_topic: String,
    /// Time to finish what was begun when shutdown is requested, in milliseconds.
    pub drain_ms: u64,
    /// The room fails when a partition has records to read and none arrived for this long, in seconds.
    pub stall_s: u64,
}

/// More in one step would be more than memory should hold.
const MOST_RECORDS: usize = 1_000_000;

impl Default for FilterConfig {
    fn default() -> Self {
        Self {
            batch_records: 4_000,
            linger_ms: 50,
            transaction_records: 50_000,
            slice_s: 3_600,
            lateness_s: 900,
            clock_skew_s: 300,
            dead_limit_percent: 50,
            volatile: false,
            source_topic: "views".into(),
            drain_ms: 10_000,
            stall_s: 180,
        }
    }
}

impl FilterConfig {
    /// Everything that is wrong with it, as (key, problem).
    pub fn faults(&self, sites: &Sites) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        let least = u64::from(sites.longest_window_s()) + u64::from(self.lateness_s);
        if u64::from(self.slice_s) < least || self.slice_s == 0 {
            // A shorter slice could forget a view while another one within its window is still on its way.
            faults.push((
                "slice_s",
                format!("must be at least the longest window plus lateness_s, {} s", least.max(1)),
            ));
        }
        for (key, value) in
            [("batch_records", self.batch_records), ("transaction_records", self.transaction_records)]
        {
            if value == 0 {
                faults.push((key, "must be at least 1".to_owned()));
            }
            if value > MOST_RECORDS {
                faults.push((key, format!("must be at most {MOST_RECORDS}, and is {value}")));
            }
        }
        if sites.0.values().any(|rules| rules.window_s == 0) {
            faults.push(("sites", "a window must be at least 1 s".to_owned()));
        }
        if self.dead_limit_percent > 100 {
            faults.push(("dead_limit_percent", "must be 0 to 100".to_owned()));
        }
        if self.stall_s == 0 {
            faults.push(("stall_s", "must be at least 1".to_owned()));
        }
        faults
    }
}

/// What the filter knows of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteRules {
    /// A viewer's views of an item less than this apart, in event time, are one. In seconds, at least 1.
    pub window_s: u32,
}

impl Default for SiteRules {
    fn default() -> Self {
        Self { window_s: 1_800 }
    }
}

/// The configured sites. A view of any other one goes to `views.dead`.
#[derive(Debug, Clone, Default)]
pub struct Sites(HashMap<Box<str>, SiteRules, foldhash::fast::RandomState>);

impl Sites {
    /// The rules of a site; none if it is not configured.
    pub fn get(&self, site: &str) -> Option<SiteRules> {
        self.0.get(site).copied()
    }

    fn longest_window_s(&self) -> u32 {
        self.0.values().map(|rules| rules.window_s).max().unwrap_or(0)
    }
}

impl FromIterator<(SiteId, SiteRules)> for Sites {
    fn from_iter<I: IntoIterator<Item = (SiteId, SiteRules)>>(sites: I) -> Self {
        let sites = sites.into_iter().map(|(site, rules)| (site.as_str().into(), rules));
        Self(sites.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_outlasts_window_and_lateness() {
        let sites: Sites = [(SiteId::new("a").unwrap(), SiteRules { window_s: 3_000 })].into_iter().collect();
        let config = FilterConfig::default();
        assert_eq!(
            config.faults(&sites),
            [("slice_s", "must be at least the longest window plus lateness_s, 3900 s".to_owned())]
        );
        assert_eq!(FilterConfig { slice_s: 3_900, ..config }.faults(&sites), []);
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let config = FilterConfig {
            batch_records: 0,
            transaction_records: 0,
            slice_s: 0,
            dead_limit_percent: 101,
            stall_s: 0,
            ..FilterConfig::default()
        };
        let keys: Vec<_> = config.faults(&Sites::default()).into_iter().map(|(key, _)| key).collect();
        assert_eq!(
            keys,
            ["slice_s", "batch_records", "transaction_records", "dead_limit_percent", "stall_s"]
        );
    }
}
