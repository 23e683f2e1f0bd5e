//! What the collector is told.

use ipnet::IpNet;
use onlooker_event::SiteId;
use onlooker_ports::Secret;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The collector's settings.
#[derive(Debug, Clone)]
pub struct CollectorConfig {
    /// Largest request body in bytes, as sent and after unpacking alike.
    pub max_body_bytes: usize,
    /// Most views in one request.
    pub max_items: usize,
    /// Most bytes of bodies and records that all requests together hold; beyond it a request is answered 503.
    pub max_inflight_bytes: usize,
    /// How long a client may take to send its body.
    pub body_timeout: Duration,
    /// How long a request may wait for the log before it is answered 503.
    pub append_timeout: Duration,
    /// Open connections.
    pub max_connections: usize,
    /// How long to serve as usual after a stop was asked for.
    pub lame_duck: Duration,
    /// How long requests in flight and the log may take after that.
    pub drain: Duration,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// The keys of the viewers' hashes.
    pub identity: IdentityConfig,
    /// The sites that views are taken for.
    pub sites: BTreeMap<String, SiteConfig>,
}

impl Default for CollectorConfig {
    fn default() -> Self {
        Self {
            max_body_bytes: 1 << 20,
            max_items: 1000,
            max_inflight_bytes: 64 << 20,
            body_timeout: Duration::from_secs(10),
            append_timeout: Duration::from_secs(10),
            max_connections: 10_000,
            lame_duck: Duration::ZERO,
            drain: Duration::from_secs(15),
            trusted_proxies: Vec::new(),
            identity: IdentityConfig::default(),
            sites: BTreeMap::new(),
        }
    }
}

/// The key that turns a viewer into a hash. It must be the same on every collector, and stay the same: with another key
/// every viewer is somebody new.
#[derive(Debug, Clone, Default, Deserialize)]
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
    /// header (no browser, or the pixel) is not held to it.
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

/// How item ids are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemMode {
    /// Byte for byte.
    #[default]
    Opaque,
    /// As the path of a URL: percent-decoded, Unicode-normalised (NFC) and encoded again in one way, so that
    /// `/%C3%BCber`, `/%c3%bcber` and `/über` are one item.
    Url,
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

/// A site, ready for use.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) id: SiteId,
    pub(crate) config: SiteConfig,
}

/// Smallest token, in bytes.
const MIN_TOKEN_BYTES: usize = 16;

impl CollectorConfig {
    /// Checks all sites; every fault is reported.
    pub(crate) fn checked_sites(&self) -> Result<Vec<Site>, ConfigError> {
        let mut sites = Vec::new();
        for (name, config) in &self.sites {
            let key = format!("sites.{name}");
            let id = SiteId::new(name).map_err(|e| ConfigError::new(&key, format!("the name {e}")))?;
            if let Some(token) = &config.token
                && token.expose().len() < MIN_TOKEN_BYTES
            {
                let problem =
                    format!("is {} bytes long, at least {MIN_TOKEN_BYTES} are needed", token.expose().len());
                return Err(ConfigError::new(format!("{key}.token"), problem));
            }
            for origin in &config.origins {
                let scheme = origin.starts_with("https://") || origin.starts_with("http://");
                let path = origin.splitn(4, '/').count() > 3;
                if origin != "*" && (!scheme || path) {
                    let problem = format!("{origin:?} is not scheme://host[:port]");
                    return Err(ConfigError::new(format!("{key}.origins"), problem));
                }
            }
            sites.push(Site { id, config: config.clone() });
        }
        for (i, a) in sites.iter().enumerate() {
            for b in &sites[i + 1..] {
                let same = |x: Option<&str>, y: Option<&str>| x.is_some() && x == y;
                let tokens = (a.config.token.as_ref(), b.config.token.as_ref());
                if same(a.config.key.as_deref(), b.config.key.as_deref())
                    || same(tokens.0.map(Secret::expose), tokens.1.map(Secret::expose))
                {
                    let problem = format!("has the same key or token as {}", b.id);
                    return Err(ConfigError::new(format!("sites.{}", a.id), problem));
                }
            }
        }
        Ok(sites)
    }
}
