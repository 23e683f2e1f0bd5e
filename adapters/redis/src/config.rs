//! Settings of one Redis, Valkey or Redis Cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use onlooker_ports::Secret;
use serde::{Deserialize, Serialize};

/// TLS towards the server. The certificate is always checked, against its host name too.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// PEM file of the authority that signed the server's certificate; none: the usual public ones.
    pub ca_file: Option<PathBuf>,
    /// PEM file of a client certificate, if the server asks for one; `key_file` goes with it.
    pub cert_file: Option<PathBuf>,
    /// PEM file of the client certificate's private key.
    pub key_file: Option<PathBuf>,
}

/// How to reach one Redis, and how long to wait for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedisConfig {
    /// `host:port`; several for a cluster, of which any that answers will do to find the others.
    pub nodes: Vec<String>,
    /// Whether the nodes are a Redis Cluster.
    pub cluster: bool,
    /// User name of Redis's ACL; none: the default user.
    pub username: Option<String>,
    /// That user's password; the executable resolves it.
    pub password: Option<Secret>,
    /// Present: speak TLS.
    pub tls: Option<TlsConfig>,
    /// Put before every key's name, so that several namespaces share one server. At most 64 bytes of
    /// `A-Z a-z 0-9 . _ : -`.
    pub prefix: String,
    /// How long one attempt to connect may take. Milliseconds.
    pub connect_timeout_ms: u64,
    /// How long a command may take until it counts as unanswered (and may still be carried out). Milliseconds.
    pub response_timeout_ms: u64,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            nodes: vec!["127.0.0.1:6379".to_owned()],
            cluster: false,
            username: None,
            password: None,
            tls: None,
            prefix: String::new(),
            connect_timeout_ms: 1_000,
            response_timeout_ms: 2_000,
        }
    }
}

/// Everything that is wrong with the settings, one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct ConfigError(pub Vec<String>);

impl RedisConfig {
    /// Settings for one server without a password.
    pub fn single(host: &str, port: u16) -> Self {
        Self { nodes: vec![format!("{host}:{port}")], ..Self::default() }
    }

    /// Checks everything that can be checked without a server, and reports all faults at once.
    ///
    /// # Errors
    /// One line for each fault, naming the field, the limit and what came.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mut faults = Vec::new();
        if self.nodes.is_empty() {
            faults.push("nodes: at least one host:port is needed".to_owned());
        }
        if !self.cluster && self.nodes.len() > 1 {
            faults.push(format!("nodes: {} are named; without cluster = true it is one", self.nodes.len()));
        }
        faults.extend(
            self.nodes
                .iter()
                .filter(|node| split_node(node).is_none())
                .map(|node| format!("nodes: {node:?} is not host:port")),
        );
        if let Err(fault) = check_prefix(&self.prefix) {
            faults.push(fault);
        }
        for (name, value) in [
            ("connect_timeout_ms", self.connect_timeout_ms),
            ("response_timeout_ms", self.response_timeout_ms),
        ] {
            if !(1..=600_000).contains(&value) {
                faults.push(format!("{name}: {value} is not within 1 to 600000"));
            }
        }
        if let Some(tls) = &self.tls {
            if tls.cert_file.is_some() != tls.key_file.is_some() {
                faults.push("tls: cert_file and key_file go together".to_owned());
            }
            let files =
                [("ca_file", &tls.ca_file), ("cert_file", &tls.cert_file), ("key_file", &tls.key_file)];
            for (name, path) in files {
                if let Some(Err(error)) = path.as_deref().map(readable) {
                    faults.push(format!("tls.{name}: {error}"));
                }
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(ConfigError(faults)) }
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        Duration::from_millis(self.response_timeout_ms)
    }
}

fn readable(path: &Path) -> Result<(), String> {
    std::fs::File::open(path).map(drop).map_err(|error| format!("{}: {error}", path.display()))
}

/// Longest key prefix, in bytes.
const MAX_PREFIX_BYTES: usize = 64;

/// A prefix must not move the hash tag: Redis Cluster takes the first brace of a key for one.
fn check_prefix(prefix: &str) -> Result<(), String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
    if prefix.len() > MAX_PREFIX_BYTES || !prefix.bytes().all(plain) {
        return Err(format!(
            "prefix: {prefix:?} is not at most {MAX_PREFIX_BYTES} bytes of A-Z a-z 0-9 . _ : -"
        ));
    }
    Ok(())
}

/// Splits `host:port`; an IPv6 address stands in brackets.
pub(crate) fn split_node(node: &str) -> Option<(&str, u16)> {
    let (host, port) = node.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let bare_v6 = host.contains(':') && !node.starts_with('[');
    if host.is_empty() || bare_v6 || host.contains(['/', '@', ' ']) {
        return None;
    }
    Some((host, port.parse().ok().filter(|port| *port != 0)?))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_host_and_port() {
        assert_eq!(split_node("redis.internal:6379"), Some(("redis.internal", 6379)));
        assert_eq!(split_node("[::1]:7000"), Some(("::1", 7000)));
        for bad in ["redis", "redis:", ":6379", "::1:7000", "redis://h:1", "u:p@h:1", "h:0", "h:70000"] {
            assert_eq!(split_node(bad), None, "{bad}");
        }
    }

    #[test]
    fn all_faults_come_at_once() {
        let config = RedisConfig {
            nodes: vec!["a".into(), "b:1".into()],
            prefix: "{x}".into(),
            response_timeout_ms: 0,
            tls: Some(TlsConfig { cert_file: Some("/nowhere".into()), ..TlsConfig::default() }),
            ..RedisConfig::default()
        };
        let ConfigError(faults) = config.validate().unwrap_err();
        assert_eq!(faults.len(), 6, "{faults:#?}");
        RedisConfig::default().validate().unwrap();
    }

    #[test]
    fn secrets_are_read_and_never_shown() {
        let text = "nodes = [\"h:1\"]\npassword = \"hunter2\"\nprefix = \"shadow:\"";
        let config: RedisConfig = toml::from_str(text).unwrap();
        assert_eq!(config.password.as_ref().unwrap().expose(), "hunter2");
        assert!(!format!("{config:?}").contains("hunter2"));
        assert!(!toml::to_string(&config).unwrap().contains("hunter2"));
        let error = toml::from_str::<RedisConfig>("pasword = \"x\"").unwrap_err();
        assert!(error.to_string().contains("pasword"), "{error}");
    }
}
