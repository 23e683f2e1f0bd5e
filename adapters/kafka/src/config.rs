//! How Kafka is reached, and what the topics and groups are called.

use onlooker_ports::{Secret, Topic};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Connection, names and limits. Secrets are resolved by the executable and never printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KafkaConfig {
    /// Brokers to ask first, each `host:port`; the others are found through them.
    pub brokers: Vec<String>,
    /// What the brokers' logs and quotas call these clients.
    pub client_id: String,
    /// What the topics are called.
    pub topics: TopicNames,
    /// What the consumer groups are called.
    pub groups: GroupNames,
    /// Encryption; none: plain text.
    pub tls: Option<TlsConfig>,
    /// Login; none: the brokers let anybody in.
    pub sasl: Option<SaslConfig>,
    /// How long an append may take before it is given up, all retries included. Milliseconds.
    pub delivery_timeout_ms: u64,
    /// How long a record waits for others that can travel with it. Milliseconds; 0 to 5.
    pub linger_ms: u64,
    /// How records travel and are kept.
    pub compression: Compression,
    /// Records that may wait for an acknowledgement; more are refused at once.
    pub queue_records: usize,
    /// Bytes that may wait for an acknowledgement; more are refused at once.
    pub queue_bytes: usize,
    /// Records in one batch that a reader hands out, at most.
    pub batch_records: usize,
    /// Bytes that a reader keeps for its room, at most; as much again may wait in the client library.
    pub buffer_bytes: usize,
    /// Bytes that a broker gathers before it answers a reader, at most for `fetch_wait_ms`.
    pub fetch_min_bytes: usize,
    /// How long a broker waits for more, and so what reading adds to a view's way at most. Milliseconds.
    pub fetch_wait_ms: u64,
    /// How long one question to a broker may take. Milliseconds.
    pub request_timeout_ms: u64,
    /// How long a group waits for a member that fell silent. Milliseconds.
    pub session_timeout_ms: u64,
    /// How long a dead instance's open transaction may hold up readers. Milliseconds.
    pub transaction_timeout_ms: u64,
    /// How long a reader may stand still although records wait, before it says so. Milliseconds.
    pub stall_timeout_ms: u64,
    /// How many partitions the logs of views and of counted views have; 0: as many as are found. Comes from the layout.
    #[serde(skip)]
    pub partitions: u32,
}

/// Names of the topics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopicNames {
    /// Every accepted view.
    pub views: String,
    /// Every counted view.
    pub counted: String,
    /// Every ignored view.
    pub ignored: String,
    /// Every record that could not be judged.
    pub dead: String,
}

/// Names of the consumer groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroupNames {
    /// The filters.
    pub filter: String,
    /// The counters.
    pub counter: String,
}

/// Encryption of the connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// Authorities to trust, PEM; none: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate chain, PEM, if the brokers want one.
    pub cert_file: Option<PathBuf>,
    /// The key of `cert_file`, PEM.
    pub key_file: Option<PathBuf>,
    /// The password of `key_file`, if it has one.
    pub password: Option<Secret>,
}

/// Login by user and password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaslConfig {
    /// How the password is proved.
    pub mechanism: Mechanism,
    /// The user.
    pub username: String,
    /// That user's password.
    pub password: Secret,
}

/// Ways to prove a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mechanism {
    /// The password itself, hence only with `tls`.
    #[serde(rename = "PLAIN")]
    Plain,
    /// RFC 7677.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// The same with SHA-512.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

impl Mechanism {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

/// Compression of record batches, which the brokers keep as they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// None.
    None,
    /// Fast, about half the bytes on our records.
    Lz4,
}

impl Compression {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
        }
    }
}

impl Default for KafkaConfig {
    fn default() -> Self {
        Self {
            brokers: vec!["127.0.0.1:9092".into()],
            client_id: "onlooker".into(),
            topics: TopicNames::default(),
            groups: GroupNames::default(),
            tls: None,
            sasl: None,
            delivery_timeout_ms: 10_000,
            linger_ms: 2,
            // Costs the clients little and saves the brokers half of what a record costs them.
            compression: Compression::Lz4,
            queue_records: 100_000,
            queue_bytes: 64 << 20,
            batch_records: 10_000,
            buffer_bytes: 16 << 20,
            // Answering as soon as there is one record costs a quarter more, and brings it no sooner.
            fetch_min_bytes: 16 << 10,
            fetch_wait_ms: 20,
            request_timeout_ms: 10_000,
            session_timeout_ms: 10_000,
            transaction_timeout_ms: 10_000,
            stall_timeout_ms: 30_000,
            partitions: 0,
        }
    }
}

impl Default for TopicNames {
    fn default() -> Self {
        Self {
            views: "views".into(),
            counted: "views.counted".into(),
            ignored: "views.ignored".into(),
            dead: "views.dead".into(),
        }
    }
}

impl TopicNames {
    /// The name of a role's topic.
    pub fn get(&self, topic: Topic) -> &str {
        match topic {
            Topic::Views => &self.views,
            Topic::Counted => &self.counted,
            Topic::Ignored => &self.ignored,
            Topic::Dead => &self.dead,
        }
    }
}

impl Default for GroupNames {
    fn default() -> Self {
        Self { filter: "filter".into(), counter: "counter".into() }
    }
}

/// What is wrong with a value of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConfigError {
    /// Which key of the section.
    pub key: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

impl KafkaConfig {
    /// Over how many partitions a topic's keys are spread; 0: as many as it has at first.
    pub(crate) fn spread(&self, topic: Topic) -> u32 {
        if matches!(topic, Topic::Views | Topic::Counted) { self.partitions } else { 0 }
    }

    /// Checks the values, all at once.
    pub fn faults(&self) -> Vec<ConfigError> {
        let mut faults = Vec::new();
        let mut fault = |key, problem: &str| faults.push(ConfigError { key, problem: problem.to_owned() });
        if self.brokers.is_empty() || self.brokers.iter().any(|b| b.is_empty() || b.contains(',')) {
            fault("brokers", "wants one host:port each");
        }
        let names = [&self.topics.views, &self.topics.counted, &self.topics.ignored, &self.topics.dead];
        if !names.iter().all(|name| is_topic_name(name)) {
            fault("topics", "a name has 1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'");
        }
        if names.iter().enumerate().any(|(i, name)| names.iter().skip(i + 1).any(|other| other == name)) {
            fault("topics", "two of them have the same name");
        }
        if self.groups.filter.is_empty() || self.groups.filter == self.groups.counter {
            fault("groups", "filter and counter want names of their own");
        }
        if self.linger_ms > 5 {
            fault("linger_ms", "must be 0 to 5: it is added to every answer of the collector");
        }
        for (key, value) in self.positive() {
            if value == 0 {
                fault(key, "must not be 0");
            }
        }
        if self.session_timeout_ms < 6_000 {
            fault("session_timeout_ms", "must be at least 6000, which brokers insist on");
        }
        if self.tls.as_ref().is_some_and(|tls| tls.cert_file.is_some() != tls.key_file.is_some()) {
            fault("tls", "cert_file and key_file go together");
        }
        if self.tls.is_none() && self.sasl.as_ref().is_some_and(|s| s.mechanism == Mechanism::Plain) {
            fault("sasl", "PLAIN shows the password to the network: add tls, or use SCRAM");
        }
        if !cfg!(feature = "tls") && (self.tls.is_some() || self.sasl.is_some()) {
            fault("tls", "tls and sasl want a program built with the feature kafka-tls");
        }
        faults
    }

    fn positive(&self) -> [(&'static str, usize); 11] {
        let wide = |ms: u64| usize::try_from(ms).unwrap_or(usize::MAX);
        [
            ("delivery_timeout_ms", wide(self.delivery_timeout_ms)),
            ("queue_records", self.queue_records),
            ("queue_bytes", self.queue_bytes),
            ("batch_records", self.batch_records),
            ("buffer_bytes", self.buffer_bytes),
            ("fetch_min_bytes", self.fetch_min_bytes),
            ("fetch_wait_ms", wide(self.fetch_wait_ms)),
            ("request_timeout_ms", wide(self.request_timeout_ms)),
            ("session_timeout_ms", wide(self.session_timeout_ms)),
            ("transaction_timeout_ms", wide(self.transaction_timeout_ms)),
            ("stall_timeout_ms", wide(self.stall_timeout_ms)),
        ]
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }

    pub(crate) fn delivery_timeout(&self) -> Duration {
        Duration::from_millis(self.delivery_timeout_ms)
    }

    pub(crate) fn stall_timeout(&self) -> Duration {
        Duration::from_millis(self.stall_timeout_ms)
    }
}

fn is_topic_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=249).contains(&name.len()) && name.chars().all(plain) && name != "." && name != ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_strictly_and_hides_the_password() {
        let text = "brokers = ['a:1', 'b:2']\n[topics]\nviews = 'v'\n[tls]\nca_file = '/ca'\n\
                    [sasl]\nmechanism = 'SCRAM-SHA-256'\nusername = 'u'\npassword = 'hunter2'";
        let config: KafkaConfig = toml::from_str(text).unwrap();
        assert_eq!(config.topics.get(Topic::Views), "v");
        assert_eq!(config.topics.get(Topic::Dead), "views.dead");
        let shown = format!("{config:?} {}", toml::to_string(&config).unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
        let error = toml::from_str::<KafkaConfig>("broker = 'x'").unwrap_err().to_string();
        assert!(error.contains("unknown field `broker`"), "{error}");
    }

    #[test]
    fn default_has_no_fault() {
        assert_eq!(KafkaConfig::default().faults(), []);
    }

    #[test]
    fn acknowledgements_cannot_be_turned_off() {
        for key in ["acks", "enable_idempotence"] {
            let error = toml::from_str::<KafkaConfig>(&format!("{key} = 0")).unwrap_err().to_string();
            assert!(error.contains("unknown field"), "{error}");
        }
    }

    #[test]
    fn names_every_fault() {
        let config = KafkaConfig {
            brokers: vec![],
            topics: TopicNames { views: "a b".into(), dead: "views.counted".into(), ..Default::default() },
            groups: GroupNames { filter: String::new(), counter: "c".into() },
            sasl: Some(SaslConfig {
                mechanism: Mechanism::Plain,
                username: "u".into(),
                password: Secret::new("p"),
            }),
            linger_ms: 50,
            batch_records: 0,
            session_timeout_ms: 10,
            ..KafkaConfig::default()
        };
        let faults = config.faults();
        let mut keys: Vec<_> = faults.iter().map(|fault| fault.key).collect();
        // Without the feature there is one fault more.
        keys.retain(|key| *key != "tls");
        assert_eq!(
            keys,
            [
                "brokers",
                "topics",
                "topics",
                "groups",
                "linger_ms",
                "batch_records",
                "session_timeout_ms",
                "sasl"
            ]
        );
    }
}
