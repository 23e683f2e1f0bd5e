//! Wrong passwords, rights and certificates are told by name and at once.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, Instant};

use onlooker_ports::{CountStore, PortError, Secret};
use onlooker_redis::{Client, Layout, RedisConfig, RedisCounters, Role, TlsConfig};
use onlooker_testkit::certificates::Certificates;
use onlooker_testkit::redis::{RedisCluster, RedisServer};
use support::{Bench, PASSWORD};

/// "Within seconds", on a machine that does other things too.
const SECONDS: Duration = Duration::from_secs(8);

fn counters(config: &RedisConfig) -> RedisCounters {
    let config = RedisConfig { response_timeout_ms: 5_000, connect_timeout_ms: 3_000, ..config.clone() };
    RedisCounters::new(Client::new(Role::Counters, &config).unwrap(), Layout::new("1", 4).unwrap())
}

async fn refusal(config: &RedisConfig) -> String {
    let begun = Instant::now();
    let error = counters(config).applied(0).await.unwrap_err();
    assert!(begun.elapsed() < SECONDS, "{:?}", begun.elapsed());
    let PortError::Denied { server: "counters redis", detail } = error else { panic!("{error:?}") };
    assert!(!detail.contains(PASSWORD) && !detail.contains("staple"), "{detail}");
    detail
}

#[tokio::test]
async fn passwords() {
    let bench = Bench::with_password();
    assert_eq!(counters(bench.config()).applied(0).await, Ok(None));
    let wrong = RedisConfig { password: Some(Secret::new("staple")), ..bench.config().clone() };
    refusal(&wrong).await;
    refusal(&RedisConfig { password: None, ..bench.config().clone() }).await;
    refusal(&RedisConfig { username: Some("nobody".into()), ..bench.config().clone() }).await;
    // Put right on the server, it works without a restart of ours.
    let store = counters(&wrong);
    store.applied(0).await.unwrap_err();
    bench.node().cli(&["ACL", "SETUSER", "default", ">staple"]).unwrap();
    let again = || async { store.applied(0).await == Ok(None) };
    onlooker_testkit::wait_until_async("the login", SECONDS, again).await.unwrap();
}

#[tokio::test]
async fn rights() {
    let bench = Bench::alone();
    bench.node().cli(&["ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@read"]).unwrap();
    let limited = RedisConfig {
        username: Some("reader".into()),
        password: Some(Secret::new("pw")),
        ..bench.config().clone()
    };
    let detail = refusal(&limited).await;
    assert!(detail.to_lowercase().contains("perm"), "{detail}");
}

#[tokio::test]
async fn passwords_in_a_cluster() {
    let node = RedisServer::builder().password(PASSWORD);
    let bench = Bench::of_cluster(RedisCluster::builder().node(node).start().unwrap());
    let right = RedisConfig { password: Some(Secret::new(PASSWORD)), ..bench.config().clone() };
    assert_eq!(counters(&right).applied(0).await, Ok(None));
    refusal(&RedisConfig { password: Some(Secret::new("staple")), ..right.clone() }).await;
    refusal(bench.config()).await;
}

#[tokio::test]
async fn certificates() {
    let (bench, trusted) = Bench::with_tls();
    let tls = bench.config().tls.clone().unwrap();
    assert_eq!(counters(bench.config()).applied(0).await, Ok(None));

    let other = Certificates::make().unwrap();
    let with = |tls: TlsConfig| RedisConfig { tls: Some(tls), ..bench.config().clone() };
    let detail = refusal(&with(TlsConfig { ca_file: Some(other.authority()), ..tls.clone() })).await;
    assert!(detail.contains("certificate"), "{detail}");
    // Without an authority of its own it trusts the public ones alone.
    refusal(&with(TlsConfig { ca_file: None, ..tls.clone() })).await;
    // The server wants a certificate from us, and one that it trusts.
    refusal(&with(TlsConfig { cert_file: None, key_file: None, ..tls.clone() })).await;
    let stranger = TlsConfig { cert_file: Some(other.certificate()), key_file: Some(other.key()), ..tls };
    refusal(&with(stranger)).await;
    // A server that speaks no TLS at all.
    let plain =
        RedisConfig { nodes: vec![format!("localhost:{}", bench.node().port())], ..bench.config().clone() };
    let error = counters(&plain).applied(0).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("TLS port"), "{error:?}");
    drop(trusted);

    let missing = TlsConfig { ca_file: Some("/nowhere/ca.pem".into()), ..TlsConfig::default() };
    let error = Client::new(Role::Counters, &with(missing)).unwrap_err();
    assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
}
