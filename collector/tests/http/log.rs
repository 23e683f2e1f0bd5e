//! A log that is away, full or slow; too much at once; and stopping in the middle of it.

use crate::support::{Answer, LONG, Mode, Server, config, post, start, within};
use onlooker_collector::CollectorConfig;
use std::collections::HashSet;
use std::time::{Duration, Instant};

const VIEW: &str = r#"{"site":"blog","item":"/a"}"#;

fn view(id: usize) -> String {
    format!(r#"{{"site":"blog","item":"/a","id":"v-{id}"}}"#)
}

fn assert_comes_back(answer: Answer, code: &str) {
    let answer = answer.expect(503);
    assert_eq!(answer.code(), code);
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=5).contains(&wait), "{answer:?}");
}

#[tokio::test]
async fn nothing_is_acknowledged_before_the_log_has_acknowledged() {
    let server = start(config()).await;
    server.log.set(Mode::Wait);
    let mut client = server.connect().await;
    client.write(&post(format!("[{VIEW},{VIEW}]")).bytes()).await;
    server.log.until_waiting(1).await;
    assert_eq!(server.log.take().len(), 2, "both are on their way");
    assert_eq!(server.metric("onlooker_collector_accepted_total"), 0.0);
    server.log.acknowledge(1);
    client.answer().await.expect(202);
    assert_eq!(server.metric("onlooker_collector_accepted_total"), 2.0);
}

#[tokio::test]
async fn a_log_that_is_away_or_full_is_told_and_recovered_from() {
    let server = start(config()).await;
    server.until("readiness", |s| s.health.report(false).ready).await;
    for (mode, code) in [(Mode::Away, "log_unavailable"), (Mode::Full, "log_full")] {
        server.log.set(mode);
        assert_comes_back(server.post(VIEW).await, code);
        let page = post(format!("[{VIEW},{{}}]")).header("Origin", "https://blog.example.com");
        let answer = server.send(page).await;
        assert_eq!(answer.header("access-control-expose-headers"), Some("retry-after"));
        assert_comes_back(answer, code);
        assert_comes_back(server.get("/v1/view.gif?site=blog&item=a").await, code);
        server.log.set(Mode::Take);
        server.post(VIEW).await.expect(202);
        let counted = format!("onlooker_collector_rejected_total{{code=\"{code}\"}}");
        assert_eq!(server.metric(&counted), 3.0);
    }
    // What is wrong with the request itself is told without the log.
    server.log.set(Mode::Away);
    server.post("{}").await.expect(400);
    server.until("unreadiness", |s| !s.health.report(false).ready).await;
    assert!(server.health.report(false).live, "a restart would not help");
    server.log.set(Mode::Take);
    server.until("readiness", |s| s.health.report(false).ready).await;
    assert_eq!(server.metric("onlooker_collector_accepted_total"), 2.0);
    assert_eq!(server.log.take().len(), 2);
}

#[tokio::test]
async fn it_starts_without_a_log() {
    let server = start(config()).await;
    server.log.set(Mode::Away);
    assert_comes_back(server.post(VIEW).await, "log_unavailable");
    server.log.set(Mode::Take);
    server.post(VIEW).await.expect(202);
}

#[tokio::test]
async fn a_slow_log_is_given_up_in_bounded_time() {
    let server = start(CollectorConfig { append_timeout: Duration::from_millis(100), ..config() }).await;
    server.log.set(Mode::Wait);
    let start = Instant::now();
    assert_comes_back(server.post(VIEW).await, "log_unavailable");
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert_eq!(server.log.take().len(), 1, "it may be in the log nevertheless");
    assert_eq!(server.metric("onlooker_collector_append_seconds_count"), 1.0);
    // The log itself has seen nothing wrong.
    server.until("unreadiness", |s| !s.health.report(false).ready).await;
    server.log.set(Mode::Take);
    server.post(VIEW).await.expect(202);
    server.until("readiness", |s| s.health.report(false).ready).await;
}

#[tokio::test]
async fn what_all_requests_hold_is_bounded_and_given_back() {
    let config = CollectorConfig { max_body_bytes: 64 << 10, max_inflight_bytes: 128 << 10, ..config() };
    let server = start(config).await;
    server.log.set(Mode::Wait);
    let batch = (0..100).map(view).collect::<Vec<_>>().join("\n");
    // Each holds its records, about 10 kB; the bodies are gone by then.
    let mut waiting = Vec::new();
    let refused = loop {
        let mut client = server.connect().await;
        client.write(&post(&batch).bytes()).await;
        let before = server.log.take().len();
        assert_eq!(before % 100, 0);
        let answered = tokio::select! {
            answer = client.answer() => Some(answer),
            () = server.log.until_waiting(1) => None,
        };
        match answered {
            Some(answer) => break answer,
            None => waiting.push(client),
        }
        assert!(waiting.len() < 40, "more than twice the limit is on its way");
    };
    assert_comes_back(refused, "overloaded");
    assert!(waiting.len() >= 5, "{}", waiting.len());
    server.until("the gauge", |s| s.metric("onlooker_collector_inflight_bytes") > 50_000.0).await;
    server.log.acknowledge(waiting.len());
    for mut client in waiting {
        client.answer().await.expect(202);
    }
    server.until("the memory", |s| s.metric("onlooker_collector_inflight_bytes") == 0.0).await;
    server.log.set(Mode::Take);
    server.post(&batch).await.expect(202);
}

#[tokio::test]
async fn what_is_announced_and_not_sent_takes_no_room() {
    let config = CollectorConfig { max_body_bytes: 64 << 10, max_inflight_bytes: 128 << 10, ..config() };
    let server = start(config).await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut client = server.connect().await;
        client.write(b"POST /v1/views HTTP/1.1\r\nHost: x\r\nContent-Length: 65536\r\n\r\n[").await;
        idle.push(client);
    }
    server.until("their first bytes", |s| s.metric("onlooker_collector_inflight_bytes") == 20.0).await;
    server.post(VIEW).await.expect(202);
    drop(idle);
    server.until("the memory", |s| s.metric("onlooker_collector_inflight_bytes") == 0.0).await;
}

#[tokio::test]
async fn a_client_that_leaves_gives_back_what_it_held() {
    let server = start(config()).await;
    server.log.set(Mode::Wait);
    let mut client = server.connect().await;
    client.write(&post(VIEW).bytes()).await;
    server.log.until_waiting(1).await;
    server.until("the gauge", |s| s.metric("onlooker_collector_inflight_bytes") > 0.0).await;
    drop(client);
    server.until("the memory", |s| s.metric("onlooker_collector_inflight_bytes") == 0.0).await;
}

/// Sends views one after another until the server closes; returns the ids that were answered 202.
async fn sender(server: &Server, from: usize) -> Vec<String> {
    let mut accepted = Vec::new();
    let Ok(stream) = tokio::net::TcpStream::connect(server.address).await else { return accepted };
    let mut client = crate::support::Client::over(stream);
    for id in from.. {
        let Some(answer) = client.try_send(&post(view(id)).bytes()).await else { break };
        assert_eq!(answer.status, 202);
        accepted.push(format!("v-{id}"));
        if answer.header("connection") == Some("close") {
            break;
        }
    }
    accepted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_in_the_middle_of_a_burst_loses_no_answered_view() {
    let server = start(config()).await;
    let (accepted, ()) = tokio::join!(
        async {
            let senders = (0..16).map(|i| sender(&server, i * 1_000_000));
            futures::future::join_all(senders).await.concat()
        },
        async {
            server.until("the burst", |s| s.metric("onlooker_collector_accepted_total") > 1_000.0).await;
            server.trigger.request();
        }
    );
    let log = server.log.clone();
    within(server.task).await.unwrap().unwrap();
    let stored: Vec<_> = log.take().into_iter().map(|v| v.client_id.unwrap().to_string()).collect();
    let distinct: HashSet<_> = stored.iter().collect();
    assert_eq!(stored.len(), distinct.len(), "once each");
    assert!(accepted.len() > 1_000);
    let lost: Vec<_> = accepted.iter().filter(|id| !distinct.contains(id)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!(log.flushes(), 1);
}

#[tokio::test]
async fn a_drain_waits_for_the_log_and_then_cuts() {
    let config = CollectorConfig { drain: Duration::from_millis(200), ..config() };
    let server = start(config).await;
    server.log.set(Mode::Wait);
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    for client in [&mut first, &mut second] {
        client.write(&post(VIEW).bytes()).await;
        server.log.until_waiting(1).await;
    }
    server.trigger.request();
    let no_more = async || while tokio::net::TcpStream::connect(server.address).await.is_ok() {};
    within(no_more()).await;
    server.log.acknowledge(1);
    let mut answered = None;
    tokio::select! {
        answer = first.answer() => answered = Some(answer),
        answer = second.answer() => answered = Some(answer),
        () = tokio::time::sleep(LONG) => {}
    }
    let answer = answered.unwrap().expect(202);
    assert_eq!(answer.header("connection"), Some("close"));
    let log = server.log.clone();
    // The other one is never acknowledged, and so never answered 202.
    within(server.task).await.unwrap().unwrap();
    assert_eq!(log.flushes(), 1);
}

#[tokio::test]
async fn a_wrong_setting_ends_it_before_it_serves() {
    let mut config = config();
    config.identity.secret = onlooker_ports::Secret::new("");
    let server = start(config).await;
    let error = within(server.task).await.unwrap().unwrap_err();
    assert_eq!(error.key, "identity.secret");
    assert!(error.problem.contains("openssl rand"), "{error}");
}
