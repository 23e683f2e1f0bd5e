//! The archive while nodes are killed, paused and restarted, and with logins and certificates that are wrong.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use onlooker_ports::conformance::archive as suite;
use onlooker_ports::{Archive, ArchiveCell, PortError, Secret};
use onlooker_scylla::{ScyllaArchive, ScyllaConfig, TlsConfig};
use onlooker_testkit::cassandra::{CassandraCluster, CassandraServer};
use onlooker_testkit::certificates::Certificates;
use onlooker_testkit::wait_until_async;
use std::time::{Duration, Instant};
use support::{archive, config};

const SOON: Duration = Duration::from_secs(60);

/// Short time-outs; the tables exist already.
fn hasty(config: &ScyllaConfig) -> ScyllaArchive {
    let config = ScyllaConfig { request_timeout_ms: 1_000, connect_timeout_ms: 1_000, ..config.clone() };
    ScyllaArchive::new(&config, "test").unwrap()
}

fn numbers(n: u64) -> Vec<ArchiveCell> {
    (0..200)
        .map(|i| ArchiveCell::Number { key: suite::key("fault", &i.to_string(), None), n, u: n as i64 })
        .collect()
}

/// Every number of `numbers(n)` is there, with its timestamp.
async fn stands_at(archive: &ScyllaArchive, n: u64) -> bool {
    let keys: Vec<_> = numbers(n).iter().map(|cell| cell.key().clone()).collect();
    archive.read(&keys).await.is_ok_and(|found| found.iter().all(|a| a.number == Some((n, n as i64))))
}

async fn written(archive: &ScyllaArchive, n: u64) -> bool {
    archive.write(&numbers(n)).await.iter().all(Result::is_ok)
}

/// Fails as `Unavailable`, and not much later than its time-outs.
async fn is_away(archive: &ScyllaArchive) {
    let start = Instant::now();
    let errors: Vec<_> = archive.write(&numbers(1)).await.into_iter().filter_map(Result::err).collect();
    assert_eq!(errors.len(), 200);
    assert!(errors.iter().all(PortError::is_transient), "{:?}", errors[0]);
    assert!(start.elapsed() < Duration::from_secs(10), "200 writes failed after {:?}", start.elapsed());
}

#[tokio::test]
async fn the_only_node_is_killed_paused_and_restarted() {
    let node = CassandraServer::start().unwrap();
    let config = config(vec![node.address()], 1);
    let patient = archive(&config).await;
    assert!(written(&patient, 10).await);
    let archive = hasty(&config);
    archive.connect().await.unwrap();

    // Paused: connections stay open and nobody answers.
    node.pause().unwrap();
    is_away(&archive).await;
    let fresh = hasty(&config);
    assert!(fresh.connect().await.unwrap_err().is_transient(), "a node that is silent");
    node.resume().unwrap();
    wait_until_async("an answer after the pause", SOON, || written(&archive, 11)).await.unwrap();
    // What had timed out may have been written meanwhile, and loses against what is newer.
    assert!(stands_at(&archive, 11).await);

    // Killed in the moment of the acknowledgement: what was acknowledged is there after the restart.
    assert!(written(&archive, 12).await);
    node.kill().unwrap();
    is_away(&archive).await;
    assert!(!archive.is_connected());
    // One that never had a connection fails as well, and comes up by itself.
    is_away(&fresh).await;
    node.restart().unwrap();
    let ready = Instant::now();
    wait_until_async("the numbers after the restart", SOON, || stands_at(&archive, 12)).await.unwrap();
    println!("read again {:?} after the node was ready", ready.elapsed());
    wait_until_async("a first connection", SOON, || stands_at(&fresh, 12)).await.unwrap();
    assert!(written(&archive, 13).await && stands_at(&fresh, 13).await);
}

#[tokio::test]
async fn a_wrong_password_is_named_at_once() {
    let node = CassandraServer::builder().authenticated().start().unwrap();
    let mut config = config(vec![node.address()], 1);
    let login = |config: &ScyllaConfig, password: Option<&str>| ScyllaConfig {
        username: password.map(|_| "cassandra".to_owned()),
        password: password.map(Secret::new),
        ..config.clone()
    };
    config = login(&config, Some("cassandra"));
    assert!(written(&archive(&config).await, 1).await);
    for password in [Some("hunter2"), None] {
        let start = Instant::now();
        let error = hasty(&login(&config, password)).connect().await.unwrap_err();
        let PortError::Denied { server, detail } = &error else { panic!("{error:?}") };
        assert_eq!(*server, "archive");
        assert!(!detail.contains("hunter2"), "{detail}");
        assert!(start.elapsed() < Duration::from_secs(3), "told after {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn an_untrusted_certificate_is_named_at_once() {
    let certificates = Certificates::make().unwrap();
    let stores = certificates.keystore().display().to_string();
    let options = format!(
        "{{enabled: true, optional: false, keystore: {stores}, truststore: {stores}, \
         ssl_context_factory: {{class_name: org.apache.cassandra.security.PEMBasedSslContextFactory}}}}"
    );
    let node = CassandraServer::builder().setting("client_encryption_options", &options).start().unwrap();
    let trusting = |authority| {
        let tls = TlsConfig { ca_file: authority, cert_file: None, key_file: None };
        ScyllaConfig { tls: Some(tls), ..config(vec![node.address()], 1) }
    };
    let right = trusting(certificates.authority());
    assert!(written(&archive(&right).await, 1).await);

    let others = Certificates::make().unwrap();
    let error = hasty(&trusting(others.authority())).connect().await.unwrap_err();
    let PortError::Denied { detail, .. } = &error else { panic!("{error:?}") };
    assert!(detail.contains("certificate"), "{detail}");

    let error = hasty(&ScyllaConfig { tls: None, ..right.clone() }).connect().await.unwrap_err();
    println!("plain text to a node that wants TLS: {error}");
    let mut missing = right;
    missing.tls = Some(TlsConfig { ca_file: "nowhere.pem".into(), cert_file: None, key_file: None });
    let error = ScyllaArchive::new(&missing, "test").err().unwrap();
    assert!(error.to_string().contains("nowhere.pem"), "{error}");
}

/// Three nodes take over a gigabyte, so this runs where all slow tests are asked for.
#[tokio::test]
async fn one_of_three_nodes_may_be_lost() {
    if std::env::var_os("ONLOOKER_FULL").is_none() {
        return;
    }
    let cluster = CassandraCluster::start().unwrap();
    let config = config(cluster.addresses(), 3);
    let archive = archive(&config).await;
    suite::all(&archive, "three", 0).await;

    let mut n = 100;
    let mut slowest = Duration::ZERO;
    for (i, node) in cluster.nodes().iter().enumerate() {
        // Acknowledged writes go on while the node dies, is away, and comes back.
        for step in 0..6 {
            match step {
                1 => node.kill().unwrap(),
                4 => node.restart().unwrap(),
                _ => {}
            }
            n += 1;
            let start = Instant::now();
            let mut tries = 0;
            while !written(&archive, n).await {
                tries += 1;
                assert!(tries < 5, "node {i} step {step}: not written in {tries} tries");
            }
            slowest = slowest.max(start.elapsed());
            assert!(stands_at(&archive, n).await, "node {i} step {step}");
        }
    }
    println!("200 writes took {slowest:?} at most");
    // A silent node is asked no more; its share is taken by the others.
    cluster.nodes()[1].pause().unwrap();
    wait_until_async("writes around the silent node", SOON, || written(&archive, n + 1)).await.unwrap();
    wait_until_async("reads around the silent node", SOON, || stands_at(&archive, n + 1)).await.unwrap();
    cluster.nodes()[1].resume().unwrap();
    assert!(stands_at(&archive, n + 1).await);
}
