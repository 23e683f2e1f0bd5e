//! What the collector is told.

use crate::identity::Hasher;
use crate::sites::Sites;
use ipnet::IpNet;
use onlooker_event::ItemMode;
use onlooker_ports::Secret;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The collector's settings.
#[derive(Debug, Clone)]
pub struct CollectorConfig {
    /// Largest request body in bytes, as sent and after unpacking alike.
    pub max_body_bytes: usize,
    /// Largest view in bytes of JSON. A larger one is refused alone, the others of its request are not.
    pub max_view_bytes: usize,
    /// Most views in one request.
    pub max_items: usize,
    /// Most bytes of bodies and records that all requests together hold; beyond it a request is answered 503. What a
    /// client announces and does not send counts for nothing.
    pub max_inflight_bytes: usize,
    /// How long a client may take to send its body.
    pub body_timeout: Duration,
    /// How long a request may wait for the log before it is answered 503. Longer than the log's own delivery time-out,
    /// so that the log's error comes first, which says more.
    pub append_timeout: Duration,
    /// Open connections.
    pub max_connections: usize,
    /// How long to serve as usual after a stop was asked for.
    pub lame_duck: Duration,
    /// How long requests in flight and the log may take after that, together.
    pub drain: Duration,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Whose `traceparent` is carried along.
    pub accept_traces: AcceptTraces,
    /// The keys of the viewers' hashes.
    pub identity: IdentityConfig,
    /// The sites that views are taken for.
    pub sites: BTreeMap<String, SiteConfig>,
}

impl Default for CollectorConfig {
    fn default() -> Self {
        Self {
            max_body_bytes: 4 << 20,
            // What `sendBeacon` sends at most.
            max_view_bytes: 64 << 10,
            max_items: 1000,
            max_inflight_bytes: 64 << 20,
            body_timeout: Duration::from_secs(10),
            append_timeout: Duration::from_secs(12),
            max_connections: 10_000,
            lame_duck: Duration::ZERO,
            drain: Duration::from_secs(15),
            trusted_proxies: Vec::new(),
            accept_traces: AcceptTraces::default(),
            identity: IdentityConfig::default(),
            sites: BTreeMap::new(),
        }
    }
}

/// Whose requests are part of a trace that began elsewhere (the header `traceparent`). Anybody can send one, and name any
/// trace in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AcceptTraces {
    /// Nobody's.
    None,
    /// Those of back ends, by their site's server token.
    #[default]
    Trusted,
    /// Everybody's.
    All,
}

/// The key that turns a viewer into a hash. It must be the same on every collector, and stay the same: with another key
/// every viewer is somebody new.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct IdentityConfig {
    /// The key's version, stamped on each view. 1 or more.
    pub version: u32,
    /// The key: at least 32 bytes, in base64 or hex.
    pub secret: Secret,
}

/// One site.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SiteConfig {
    /// The public key that pages send; none: the site's name is enough.
    pub key: Option<String>,
    /// Origins whose pages may send views, e.g. `https://blog.example.com`; `*` for any. A request without an Origin
    /// header (no browser, or the pixel) is not held to it, nor is `Origin: null`: browsers send that for pages that
    /// hide where they are (`Referrer-Policy: no-referrer`), whose viewers count like others.
    pub origins: Vec<String>,
    /// The token of the site's own back ends, which may name viewers and past times. At least 16 bytes.
    pub token: Option<Secret>,
    /// How item ids are read.
    pub items: ItemMode,
    /// Whether a `session` that a page sends is its viewer's identity, instead of address and user agent.
    pub sessions: bool,
}

impl Default for SiteConfig {
    fn default() -> Self {
        Self { key: None, origins: vec!["*".into()], token: None, items: ItemMode::Opaque, sessions: false }
    }
}

/// A setting that the collector cannot start with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConfigError {
    /// The setting, as in the configuration file.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
}

impl ConfigError {
    pub(crate) fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into() }
    }
}

impl CollectorConfig {
    /// Everything that is wrong with it, all at once.
    pub fn faults(&self) -> Vec<ConfigError> {
        let mut faults = self.limit_faults();
        let _sites = Sites::read(self, &mut faults);
        faults.extend(Hasher::new(&self.identity).err());
        faults
    }

    fn limit_faults(&self) -> Vec<ConfigError> {
        let mut faults = Vec::new();
        for (key, value) in [
            ("max_view_bytes", self.max_view_bytes),
            ("max_body_bytes", self.max_body_bytes),
            ("max_items", self.max_items),
            ("max_connections", self.max_connections),
        ] {
            if value == 0 {
                faults.push(ConfigError::new(format!("collector.{key}"), "must be at least 1"));
            }
        }
        for (key, value) in
            [("body_timeout_ms", self.body_timeout), ("append_timeout_ms", self.append_timeout)]
        {
            if value.is_zero() {
                faults.push(ConfigError::new(format!("collector.{key}"), "must be at least 1"));
            }
        }
        if self.max_inflight_bytes < self.max_body_bytes.saturating_mul(2) {
            let problem =
                "must be at least twice max_body_bytes, or the largest body could never be taken in";
            faults.push(ConfigError::new("collector.max_inflight_bytes", problem));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> CollectorConfig {
        let identity = IdentityConfig { version: 1, secret: Secret::new("ab".repeat(32)) };
        CollectorConfig { identity, ..CollectorConfig::default() }
    }

    #[test]
    fn all_faults_are_named_at_once_and_no_secret_is() {
        assert_eq!(good().faults(), []);
        let site = SiteConfig { token: Some(Secret::new("hunter2")), ..SiteConfig::default() };
        let config = CollectorConfig {
            max_items: 0,
            append_timeout: Duration::ZERO,
            max_inflight_bytes: 10,
            identity: IdentityConfig { version: 0, secret: Secret::new("c2hvcnQ=") },
            sites: [("blog".to_owned(), site)].into(),
            ..good()
        };
        let faults = config.faults();
        let keys: Vec<_> = faults.iter().map(|f| f.key.as_str()).collect();
        let expected = [
            "collector.max_items",
            "collector.append_timeout_ms",
            "collector.max_inflight_bytes",
            "sites.blog.token",
            "identity.secret",
        ];
        assert_eq!(keys, expected);
        let shown = format!("{faults:?} {config:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("c2hvcnQ"), "{shown}");
    }
}
