//! How the archive is reached and laid out.

use onlooker_ports::Secret;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Connection and layout of the archive. The password is resolved by the executable and never printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScyllaConfig {
    /// Nodes to ask first, each `host:port`; the others are found through them.
    pub nodes: Vec<String>,
    /// The keyspace: lower case letters, digits and `_`, starting with a letter.
    pub keyspace: String,
    /// The data centre whose replicas form the quorum. Without one every node is asked, which is right for a cluster
    /// of one data centre alone.
    pub local_dc: Option<String>,
    /// User, if the cluster wants one.
    pub username: Option<String>,
    /// That user's password.
    pub password: Option<Secret>,
    /// Encryption; none: plain text.
    pub tls: Option<TlsConfig>,
    /// Copies per data centre, for creating and checking the keyspace.
    pub replication: BTreeMap<String, u16>,
    /// How long one statement may take, retries on other nodes included. Milliseconds.
    pub request_timeout_ms: u64,
    /// How long a node may take to accept a connection. Milliseconds.
    pub connect_timeout_ms: u64,
    /// Requests under way at once, of all callers together. A request carries up to ten items or 32 rows, so that few keep
    /// a cluster busy; more of them only wait in its queues.
    pub max_in_flight: usize,
    /// Compress what goes over the network (LZ4). Sketches hardly shrink, so it costs more than it gives on a LAN.
    pub compression: bool,
}

/// Encryption of the connections. A node's certificate must name the node's IP address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// Authorities to trust, PEM.
    pub ca_file: PathBuf,
    /// The client's certificate chain, PEM, if the cluster wants one.
    pub cert_file: Option<PathBuf>,
    /// The key of `cert_file`, PEM.
    pub key_file: Option<PathBuf>,
}

impl Default for ScyllaConfig {
    fn default() -> Self {
        Self {
            nodes: vec!["127.0.0.1:9042".into()],
            keyspace: "onlooker".into(),
            local_dc: None,
            username: None,
            password: None,
            tls: None,
            replication: BTreeMap::new(),
            request_timeout_ms: 3_000,
            connect_timeout_ms: 2_000,
            max_in_flight: 32,
            compression: false,
        }
    }
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value that cannot work.
    #[error("{key}: {problem}")]
    Invalid {
        /// Which key of the section.
        key: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A file of the TLS section cannot be used.
    #[error("tls: {file}: {problem}")]
    Tls {
        /// Its path.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl ScyllaConfig {
    /// Checks the values, all at once.
    pub fn faults(&self) -> Vec<ConfigError> {
        let mut faults = Vec::new();
        let mut fault =
            |key, problem: &str| faults.push(ConfigError::Invalid { key, problem: problem.to_owned() });
        if self.nodes.is_empty() {
            fault("nodes", "names no node");
        }
        if !is_plain_name(&self.keyspace) {
            // The name stands in statements unescaped.
            fault("keyspace", "may have a-z, 0-9 and _, starts with a letter and has at most 48 characters");
        }
        if self.username.is_some() != self.password.is_some() {
            fault("username", "username and password go together");
        }
        if self.request_timeout_ms == 0 {
            fault("request_timeout_ms", "must not be 0");
        }
        if self.connect_timeout_ms == 0 {
            fault("connect_timeout_ms", "must not be 0");
        }
        if self.max_in_flight == 0 {
            fault("max_in_flight", "must not be 0");
        }
        if self.replication.iter().any(|(dc, copies)| *copies == 0 || dc.contains('\'')) {
            fault("replication", "wants at least one copy for each data centre it names");
        }
        if self.tls.as_ref().is_some_and(|tls| tls.cert_file.is_some() != tls.key_file.is_some()) {
            fault("tls", "cert_file and key_file go together");
        }
        faults
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }
}

fn is_plain_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.len() <= 48 && name.chars().all(plain) && name.starts_with(|c: char| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_strictly_and_hides_the_password() {
        let text = "nodes = ['a:9042']\nusername = 'u'\npassword = 'hunter2'\nreplication = { dc1 = 3 }";
        let config: ScyllaConfig = toml::from_str(text).unwrap();
        assert_eq!(config.replication.get("dc1"), Some(&3));
        assert_eq!(config.keyspace, "onlooker");
        assert!(config.faults().is_empty());
        let shown = format!("{config:?} {}", toml::to_string(&config).unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
        let error = toml::from_str::<ScyllaConfig>("keyspaces = 'x'").unwrap_err().to_string();
        assert!(error.contains("unknown field `keyspaces`"), "{error}");
    }

    #[test]
    fn names_every_fault() {
        let config = ScyllaConfig {
            nodes: vec![],
            keyspace: "x; DROP".into(),
            username: Some("u".into()),
            max_in_flight: 0,
            request_timeout_ms: 0,
            replication: BTreeMap::from([("dc1".into(), 0)]),
            ..ScyllaConfig::default()
        };
        let faults: Vec<_> = config.faults().iter().map(ToString::to_string).collect();
        let keys: Vec<_> = faults.iter().filter_map(|f| f.split(':').next()).collect();
        assert_eq!(
            keys,
            ["nodes", "keyspace", "username", "request_timeout_ms", "max_in_flight", "replication"]
        );
    }
}
