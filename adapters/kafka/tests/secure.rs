//! Encryption and login, right and wrong.

#![cfg(feature = "tls")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use onlooker_kafka::admin::{WantedTopic, apply_topics, group_positions, topic_id};
use onlooker_kafka::{
    KafkaConfig, KafkaHistory, KafkaReader, KafkaTransactor, KafkaWriter, Mechanism, SaslConfig, TlsConfig,
    check_login,
};
use onlooker_ports::conformance::log as suite;
use onlooker_ports::{
    CommitError, GroupEvent, GroupReader, LogWriter, OutgoingBatch, PortError, Secret, Topic, Transactor,
    VerdictHistory,
};
use onlooker_testkit::certificates::Certificates;
use onlooker_testkit::kafka::KafkaServer;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use support::{KafkaLog, config, next, spec};

const WITHIN: Duration = Duration::from_secs(10);

fn server() -> &'static (KafkaServer, Certificates) {
    static SERVER: OnceLock<(KafkaServer, Certificates)> = OnceLock::new();
    SERVER.get_or_init(|| {
        let certificates = Certificates::make().unwrap();
        let server = KafkaServer::builder().login("app", "s3cret", &certificates).start().unwrap();
        (server, certificates)
    })
}

fn secure(mechanism: Mechanism, password: &str, authority: &Path) -> KafkaConfig {
    let mut config = config(&server().0.secure_bootstrap().unwrap());
    let ca_file = Some(authority.to_owned());
    config.tls = Some(TlsConfig { ca_file, cert_file: None, key_file: None, password: None });
    config.sasl = Some(SaslConfig { mechanism, username: "app".into(), password: Secret::new(password) });
    assert_eq!(config.faults(), []);
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn promises_hold_over_tls_and_scram() {
    let authority = server().1.authority();
    let fresh = async |partitions| {
        let config = secure(Mechanism::ScramSha256, "s3cret", &authority);
        KafkaLog::create(config, partitions, 1).await
    };
    suite::acknowledged_records_are_read_in_order(&fresh(4).await).await;
    suite::outputs_and_positions_are_one(&fresh(2).await).await;
    suite::history_is_read_from_a_time_to_the_ends(&fresh(3).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn promises_hold_over_tls_and_plain() {
    let config = secure(Mechanism::Plain, "s3cret", &server().1.authority());
    check_login(&config).await.unwrap();
    suite::keys_decide_the_partition(&KafkaLog::create(config, 5, 1).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_named_by_everybody() {
    let authority = server().1.authority();
    everybody_is_denied(secure(Mechanism::ScramSha256, "wrong", &authority)).await;
    everybody_is_denied(secure(Mechanism::Plain, "wrong", &authority)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_certificate_is_named_by_everybody() {
    let stranger = Certificates::make().unwrap();
    everybody_is_denied(secure(Mechanism::ScramSha256, "s3cret", &stranger.authority())).await;
}

async fn everybody_is_denied(config: KafkaConfig) {
    let begun = Instant::now();
    let denied = |error: &PortError| {
        let text = error.to_string();
        assert!(matches!(error, PortError::Denied { .. }), "{text}");
        assert!(text.starts_with("kafka refused the login"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    };
    denied(&check_login(&config).await.unwrap_err());
    denied(&topic_id(&config, Topic::Views).await.unwrap_err());
    denied(&group_positions(&config, Topic::Views, "g").await.unwrap_err());
    let wanted = [WantedTopic { topic: Topic::Views, spec: spec(1, 1) }];
    denied(&apply_topics(&config, &wanted, false).await.unwrap_err());

    let mut batch = OutgoingBatch::default();
    batch.push(Topic::Views, b"k", b"v");
    let writer = KafkaWriter::open(&config).unwrap();
    denied(&writer.append(batch.clone()).await.unwrap_err());
    assert!(!writer.is_reachable());
    let mut reader = KafkaReader::open(&config, Topic::Views, "g").unwrap();
    denied(&reader.next(WITHIN).await.unwrap_err());
    let mut transactor = KafkaTransactor::open(&config, Topic::Views).unwrap();
    let membership = a_membership().await;
    match transactor.commit(&batch, &[], &membership).await {
        Err(CommitError::Port(error)) => denied(&error),
        other => panic!("{other:?}"),
    }
    denied(&KafkaHistory::new(&config).ends().await.unwrap_err());
    assert!(begun.elapsed() < 3 * WITHIN, "{:?}", begun.elapsed());
}

/// Any membership: of the plain listener.
async fn a_membership() -> onlooker_kafka::KafkaMembership {
    let log = KafkaLog::create(config(&server().0.bootstrap()), 1, 1).await;
    let mut reader = KafkaReader::open(&log.config, Topic::Views, "any").unwrap();
    loop {
        if let Some(GroupEvent::Assigned { membership, .. }) = next(&mut reader, WITHIN).await {
            return membership;
        }
    }
}
