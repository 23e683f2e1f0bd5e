//! Settings of the counts API.

use onlooker_event::{ItemMode, SiteId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Settings of the counts API. The defaults suit a site's own servers and pages.
#[derive(Debug, Clone)]
pub struct CountsApiConfig {
    /// The sites whose counts are given out; none: any, with opaque item ids.
    pub sites: BTreeMap<String, SiteConfig>,
    /// Items of one request.
    pub max_items: usize,
    /// Days that one request may read, over all its items. Each is up to 12 KB and 50 µs of CPU time.
    pub max_day_reads: usize,
    /// Days of one range.
    pub max_days: usize,
    /// Requests over days under way at once; others wait. Together they hold about 3 MB each.
    pub max_ranges: usize,
    /// Bytes of a request's body.
    pub max_body_bytes: usize,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// How long an answer may take before it is 503.
    pub answer_timeout: Duration,
    /// How long caches may keep an answer whose counts are whole, in seconds.
    pub max_age_s: u32,
    /// Open connections.
    pub max_connections: usize,
    /// How long to serve on after shutdown was requested, before connections are refused.
    pub lame_duck: Duration,
    /// From then on, how long requests in flight may take.
    pub drain: Duration,
}

/// One site, as far as reading goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SiteConfig {
    /// How item ids are read: as the collector reads them, or what was counted is not found.
    pub items: ItemMode,
}

impl Default for CountsApiConfig {
    fn default() -> Self {
        Self {
            sites: BTreeMap::new(),
            max_items: 1_000,
            max_day_reads: 4_000,
            max_days: 366,
            max_ranges: 4,
            // A thousand of the longest ids, each byte escaped, and some room.
            max_body_bytes: 8 << 20,
            body_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(5),
            max_age_s: 1,
            max_connections: 10_000,
            lame_duck: Duration::ZERO,
            drain: Duration::from_secs(10),
        }
    }
}

/// More would serve nobody sooner.
const MOST_RANGES: usize = 10_000;

/// A setting that the counts API cannot start with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConfigError {
    /// The setting, as in the configuration file.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
}

impl CountsApiConfig {
    /// Everything that is wrong.
    pub fn faults(&self) -> Vec<ConfigError> {
        let zero = [
            ("max_items", self.max_items),
            ("max_day_reads", self.max_day_reads),
            ("max_days", self.max_days),
            ("max_ranges", self.max_ranges),
            ("max_body_bytes", self.max_body_bytes),
            ("max_connections", self.max_connections),
        ];
        let zero = zero.into_iter().filter(|(_, value)| *value == 0);
        let zero = zero.map(|(key, _)| ConfigError { key: key.into(), problem: "must not be 0".into() });
        let sites = self.sites.keys().filter_map(|name| {
            let problem = SiteId::new(name).err()?.to_string();
            Some(ConfigError { key: format!("sites.{name}"), problem })
        });
        let many = (self.max_ranges > MOST_RANGES).then(|| ConfigError {
            key: "max_ranges".into(),
            problem: format!("must be at most {MOST_RANGES}: each holds the sketches of its days"),
        });
        zero.chain(many).chain(sites).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_sound_and_faults_are_named() {
        assert_eq!(CountsApiConfig::default().faults(), []);
        let config = CountsApiConfig {
            max_days: 0,
            sites: BTreeMap::from([("A b".into(), SiteConfig::default())]),
            ..CountsApiConfig::default()
        };
        let faults: Vec<_> = config.faults().into_iter().map(|f| f.key).collect();
        assert_eq!(faults, ["max_days", "sites.A b"]);
    }
}
