//! The admin listener, asked as a probe and as Prometheus would.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use onlooker_stage::Health;
use onlooker_stage::admin::{AdminState, serve};
use onlooker_stage::shutdown::channel;
use onlooker_stage::telemetry::{Counter, MetricsHandle};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

onlooker_stage::metrics! {
    struct TestMetrics {
        /// Things that happened
        things: Counter = "test_things_total";
    }
}

async fn ask(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn probes_follow_health_and_readiness_fails_first() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (trigger, shutdown) = channel();
    let (stop_admin, stop) = channel();
    let health = Health::new();
    let metrics = MetricsHandle::detached().unwrap();
    metrics.within(TestMetrics::register).things.increment(2);
    let state = AdminState { health: health.clone(), metrics, shutdown };
    let extra = Router::new().route("/debug/partitions", get(async || "0 1 2"));
    let admin = tokio::spawn(serve(listener, state, extra, stop));

    let dedup = health.component("filter.dedup");
    dedup.unready("redis is away");
    let (status, body) = ask(address, "/readyz").await;
    assert_eq!(status, 503);
    assert_eq!(
        body,
        r#"{"ready":false,"live":true,"shutting_down":false,"components":[{"name":"filter.dedup","status":"unready","reason":"redis is away"}]}"#
    );
    assert_eq!(ask(address, "/livez").await.0, 200);

    dedup.ready();
    assert_eq!(ask(address, "/readyz").await.0, 200);
    let (status, page) = ask(address, "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "# HELP test_things_total Things that happened",
        "test_things_total 2",
        "onlooker_component_ready{component=\"filter.dedup\"} 1",
        "onlooker_component_live{component=\"filter.dedup\"} 1",
        "# TYPE process_cpu_seconds_total counter",
    ] {
        assert!(page.lines().any(|other| other == line), "{line:?} is missing in\n{page}");
    }
    assert_eq!(ask(address, "/debug/partitions").await, (200, "0 1 2".into()));
    assert_eq!(ask(address, "/nowhere").await.0, 404);

    trigger.request();
    let (status, body) = ask(address, "/readyz").await;
    assert_eq!((status, body.contains("\"shutting_down\":true")), (503, true), "{body}");
    assert_eq!(ask(address, "/livez").await.0, 200, "a draining process must not be killed");
    dedup.failed("the log has another id");
    assert_eq!(ask(address, "/livez").await.0, 503);

    stop_admin.request();
    tokio::time::timeout(Duration::from_secs(10), admin).await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}
