//! The client library's settings.

use crate::config::KafkaConfig;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

/// What every client is told.
fn base(config: &KafkaConfig) -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set_log_level(RDKafkaLogLevel::Info);
    client.set("bootstrap.servers", config.brokers.join(","));
    client.set("client.id", &config.client_id);
    // The default of 10 s delays the first acknowledgement after a broker's restart by as much.
    client.set("reconnect.backoff.ms", "50").set("reconnect.backoff.max.ms", "500");
    client.set("socket.timeout.ms", config.request_timeout_ms.max(1_000).to_string());
    client.set("socket.connection.setup.timeout.ms", "5000");
    // Small requests must not wait for each other's acknowledgements.
    client.set("socket.nagle.disable", "true");
    client.set("topic.metadata.propagation.max.ms", "5000");
    // Partitions that were added are seen within half a minute, not after five.
    client.set("topic.metadata.refresh.interval.ms", "30000");
    security(config, &mut client);
    client
}

fn security(config: &KafkaConfig, client: &mut ClientConfig) {
    let protocol = match (&config.tls, &config.sasl) {
        (None, None) => return,
        (Some(_), None) => "ssl",
        (None, Some(_)) => "sasl_plaintext",
        (Some(_), Some(_)) => "sasl_ssl",
    };
    client.set("security.protocol", protocol);
    if let Some(tls) = &config.tls {
        let files = [
            ("ssl.ca.location", &tls.ca_file),
            ("ssl.certificate.location", &tls.cert_file),
            ("ssl.key.location", &tls.key_file),
        ];
        for (name, file) in files {
            if let Some(file) = file {
                client.set(name, file.to_string_lossy());
            }
        }
        if let Some(password) = &tls.password {
            client.set("ssl.key.password", password.expose());
        }
    }
    if let Some(sasl) = &config.sasl {
        client.set("sasl.mechanism", sasl.mechanism.as_str());
        client.set("sasl.username", &sasl.username);
        client.set("sasl.password", sasl.password.expose());
    }
}

/// What every producer is told. Acknowledgements and idempotence are no matter of configuration: with less, "durable"
/// would not be true.
fn producer(config: &KafkaConfig) -> ClientConfig {
    let mut client = base(config);
    client.set("acks", "all").set("enable.idempotence", "true");
    // Kafka's own partitioner: whoever else writes, a replay tool or a console, sends a key to the same place.
    client.set("partitioner", "murmur2_random");
    client.set("compression.type", config.compression.as_str());
    client
}

/// A producer that acknowledges each record.
pub(crate) fn writer(config: &KafkaConfig) -> ClientConfig {
    let mut client = producer(config);
    client.set("linger.ms", config.linger_ms.to_string());
    client.set("message.timeout.ms", config.delivery_timeout_ms.to_string());
    // The writer counts for itself, so that a batch is taken or refused as a whole; these stand above its limits.
    client.set(
        "queue.buffering.max.messages",
        config.queue_records.saturating_add(1_000).min(10_000_000).to_string(),
    );
    client.set(
        "queue.buffering.max.kbytes",
        kbytes(config.queue_bytes.saturating_mul(2).saturating_add(4 << 20)),
    );
    client
}

/// A producer of transactions.
pub(crate) fn transactor(config: &KafkaConfig, transactional_id: &str) -> ClientConfig {
    let mut client = producer(config);
    client.set("transactional.id", transactional_id);
    client.set("transaction.timeout.ms", config.transaction_timeout_ms.to_string());
    client.set("message.timeout.ms", config.transaction_timeout_ms.to_string());
    // The library insists that a request fails before its transaction does.
    let request = config.request_timeout_ms.min(config.transaction_timeout_ms).max(1_000);
    client.set("socket.timeout.ms", request.to_string());
    // A transaction is one burst and then a flush, which sends at once: nothing is gained by waiting longer.
    client.set("linger.ms", "1");
    // The coordinator still writes the last transaction's markers when the next one begins, and asks to be asked again.
    // With the default of 100 ms that was what a transaction took; measured, 100 ms became 18.
    client.set("retry.backoff.ms", "5");
    // A record that failed makes the transaction fail; nobody asks about the others.
    client.set("delivery.report.only.error", "true");
    client.set("queue.buffering.max.messages", "1000000");
    client.set("queue.buffering.max.kbytes", "1048576");
    client
}

/// A consumer that only fetches, and belongs to no group.
pub(crate) fn fetcher(config: &KafkaConfig, committed: bool) -> ClientConfig {
    let mut client = base(config);
    client.set("isolation.level", if committed { "read_committed" } else { "read_uncommitted" });
    client.set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
    // Never jump: an offset that is gone is told, with what is missing.
    client.set("auto.offset.reset", "error").set("enable.partition.eof", "true");
    // A partition that is started joins the next request to its broker, so that an idle one must not last long.
    client.set("fetch.wait.max.ms", config.fetch_wait_ms.to_string());
    client.set("fetch.min.bytes", config.fetch_min_bytes.to_string());
    // With the default of 1 s a reader that was full for a moment stands still for that long.
    client.set("fetch.queue.backoff.ms", "5");
    client.set("fetch.error.backoff.ms", "200");
    client.set("queued.max.messages.kbytes", kbytes(config.buffer_bytes));
    client
}

/// A member of a group, which fetches nothing.
pub(crate) fn member(config: &KafkaConfig, group: &str) -> ClientConfig {
    let mut client = base(config);
    client.set("group.id", group);
    client.set("partition.assignment.strategy", "range");
    client.set("session.timeout.ms", config.session_timeout_ms.to_string());
    client.set("heartbeat.interval.ms", (config.session_timeout_ms / 5).min(3_000).to_string());
    client.set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
    // Makes questions for committed offsets wait for transactions under way (`require_stable`).
    client.set("isolation.level", "read_committed");
    client.set("auto.offset.reset", "error");
    client
}

/// A client for administration.
pub(crate) fn admin(config: &KafkaConfig) -> ClientConfig {
    base(config)
}

fn kbytes(bytes: usize) -> String {
    (bytes / 1024).clamp(1_024, 2_097_151).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Mechanism, SaslConfig, TlsConfig};
    use onlooker_ports::Secret;

    #[test]
    fn producers_wait_for_all_replicas() {
        let config = KafkaConfig::default();
        for client in [writer(&config), transactor(&config, "t")] {
            assert_eq!(client.get("acks"), Some("all"));
            assert_eq!(client.get("enable.idempotence"), Some("true"));
            assert_eq!(client.get("partitioner"), Some("murmur2_random"));
        }
    }

    #[test]
    fn library_takes_any_time_outs() {
        let config = KafkaConfig {
            request_timeout_ms: 60_000,
            transaction_timeout_ms: 5_000,
            ..KafkaConfig::default()
        };
        for client in [writer(&config), transactor(&config, "t")] {
            client.create::<rdkafka::producer::BaseProducer>().unwrap();
        }
        for client in [fetcher(&config, true), member(&config, "g")] {
            client.create::<rdkafka::consumer::BaseConsumer>().unwrap();
        }
    }

    #[test]
    fn consumers_never_jump() {
        let config = KafkaConfig::default();
        for client in [fetcher(&config, true), member(&config, "g")] {
            assert_eq!(client.get("auto.offset.reset"), Some("error"));
            assert_eq!(client.get("isolation.level"), Some("read_committed"));
            assert_eq!(client.get("enable.auto.commit"), Some("false"));
        }
    }

    #[test]
    fn security_follows_from_what_is_there() {
        let mut config = KafkaConfig::default();
        assert_eq!(admin(&config).get("security.protocol"), None);
        let sasl = SaslConfig {
            mechanism: Mechanism::ScramSha512,
            username: "u".into(),
            password: Secret::new("p"),
        };
        config.sasl = Some(sasl);
        assert_eq!(admin(&config).get("security.protocol"), Some("sasl_plaintext"));
        let tls = TlsConfig { ca_file: Some("/ca".into()), cert_file: None, key_file: None, password: None };
        config.tls = Some(tls);
        let client = admin(&config);
        assert_eq!(client.get("security.protocol"), Some("sasl_ssl"));
        assert_eq!(client.get("sasl.mechanism"), Some("SCRAM-SHA-512"));
        assert_eq!(client.get("ssl.ca.location"), Some("/ca"));
    }
}
