//! The executable's own behaviour: configuration, faults at the start, draining, and bad records.

use crate::support::{LONG, Ledger, Role, System, Wishes, text, view};
use onlooker_testkit::wait_until;
use serde_json::json;
use std::collections::HashSet;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn set_up_may_be_repeated() {
    let system = System::start(Wishes::default());
    for command in [["topics", "apply"], ["schema", "apply"], ["schema", "check"], ["config", "check"]] {
        let output = system.onlooker(&command);
        assert!(output.status.success(), "{command:?}: {}", text(&output));
    }
    let printed = text(&system.onlooker(&["config", "print"]));
    assert!(printed.contains("***") && !printed.contains("server-token"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_faults_of_a_configuration_come_at_once() {
    let system = System::start(Wishes::default());
    let output = system.onlooker(&[
        "config",
        "check",
        "--set",
        "filter.bathc_records=1",
        "--set",
        "collector.listen=nowhere",
        "--set",
        "oops.x=1",
        "--set",
        "sites.A.window_s=0",
        "--set",
        "layout.generation=\"a new one\"",
    ]);
    assert!(!output.status.success());
    let said = text(&output);
    for key in ["filter.bathc_records", "collector.listen", "oops", "sites.A", "layout.generation"] {
        assert!(said.contains(key), "{key} in {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_passwords_are_named_within_seconds() {
    let system = System::start(Wishes::default());
    let locked = onlooker_testkit::redis::RedisServer::builder().password("right").start().unwrap();
    for (role, section) in [("filter", "dedup"), ("counts-api", "counters")] {
        let node = format!("{section}.nodes=[\"127.0.0.1:{}\"]", locked.port());
        let password = format!("{section}.password=\"wrong-one\"");
        let begun = Instant::now();
        let output = system.onlooker(&[role, "--set", &node, "--set", &password]);
        assert!(!output.status.success());
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        let said = text(&output).to_lowercase();
        assert!(said.contains("redis") && said.contains("refused the login"), "{said}");
        assert!(!said.contains("wrong-one"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn evicting_policies_are_refused_at_the_start() {
    let system = System::start(Wishes::default());
    system.dedup_eyes().command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let said = text(&system.onlooker(&["filter"]));
    assert!(said.contains("allkeys-lru") && said.contains("noeviction"), "{said}");
    system.counters_eyes().command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lfu"]);
    let said = text(&system.onlooker(&["counter"]));
    assert!(said.contains("allkeys-lfu") && said.contains("volatile"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_missing_is_named() {
    let system = System::start(Wishes::default());
    let filter = Role::launch(&system, "filter", &["--set", "log.topics.views=nothing"]);
    wait_until("a line that says so", LONG, || filter.log().contains("describing topic nothing")).unwrap();
    assert!(filter.log().contains("`onlooker topics apply` creates the topics"), "{}", filter.log());
    assert!(filter.is_alive(), "it waits for somebody to create it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_changes_later_stops_who_relies_on_it() {
    let system = System::start(Wishes::default());
    let roles = ["filter", "counter", "flusher"].map(|role| system.role(role));
    for eyes in [system.dedup_eyes(), system.counters_eyes()] {
        eyes.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    }
    for role in roles {
        role.wait_end();
        assert!(role.log().contains("maxmemory-policy is allkeys-lru"), "{}", role.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_outlives_its_broker() {
    let system = System::start(Wishes { own_kafka: true, ..Wishes::default() });
    system.kafka.kill().unwrap();
    let collector = Role::launch(&system, "collector", &["--set", "collector.append_timeout_ms=2000"]);
    wait_until("the collector to listen", LONG, || collector.admin_status("livez") == Some(200)).unwrap();
    wait_until("the collector to notice", LONG, || collector.admin_status("readyz") == Some(503)).unwrap();
    let http = system.http();
    let begun = Instant::now();
    let (status, answer) = http.try_send(&view("a", "v")).await.unwrap();
    assert_eq!(status, 503, "{answer}");
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    system.kafka.restart().unwrap();
    collector.wait_ready();
    http.send(&[view("a", "v")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_in_a_burst_loses_nothing() {
    let system = System::start(Wishes::default());
    let collector = system.role("collector");
    let http = std::sync::Arc::new(system.http());
    let senders: Vec<_> = (0..8)
        .map(|s| {
            let http = std::sync::Arc::clone(&http);
            tokio::spawn(async move {
                let mut acknowledged = HashSet::new();
                for n in 0.. {
                    let id = format!("{s}-{n}");
                    let mut v = view("burst", &format!("viewer {s} {n}"));
                    v["id"] = json!(id);
                    match http.try_send(&v).await {
                        Some((202, _)) => acknowledged.insert(id),
                        Some((503, _)) => continue,
                        _ => break,
                    };
                }
                acknowledged
            })
        })
        .collect();
    wait_until("the burst to run", LONG, || collector.metric("onlooker_collector_accepted_total") > 300.0)
        .unwrap();
    let status = collector.stop(Duration::from_secs(30));
    assert!(status.success(), "{status} {}", collector.log());
    let mut acknowledged = HashSet::new();
    for sender in senders {
        acknowledged.extend(sender.await.unwrap());
    }
    assert!(acknowledged.len() >= 300);
    let ids: Vec<String> =
        system.log().views().into_iter().map(|(_, v)| v.client_id.unwrap().to_string()).collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "an id stands in the log twice");
    let ids: HashSet<String> = ids.into_iter().collect();
    assert!(acknowledged.is_subset(&ids));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_records_go_to_views_dead_and_stop_nothing() {
    let system = System::start(Wishes::default());
    let _roles = system.all_roles();
    let log = system.log();
    let newer = [&[0x08, 0x63][..], b"\x12\x03abc"].concat();
    let bad: [(&str, Option<&[u8]>); 4] = [
        ("malformed", Some(b"garbage")),
        ("empty", Some(b"")),
        ("empty", None),
        ("newer_version", Some(&newer)),
    ];
    for topic in ["views", "views.counted"] {
        for (_, payload) in bad {
            log.append_raw(topic, 0, Some(b"key"), payload);
        }
    }
    let http = system.http();
    let good: Vec<_> = (0..40).map(|n| view("good", &format!("viewer {n}"))).collect();
    http.send(&good).await;
    onlooker_testkit::wait_until_async("the good views to count", LONG, || async {
        http.counts(&["good"]).await[0]["views"] == 40
    })
    .await
    .unwrap();
    wait_until("the dead letters", LONG, || log.records("views.dead").len() >= 8).unwrap();
    let mut dead: Vec<_> =
        log.dead().into_iter().map(|d| (d.source_topic, d.reason.as_str(), d.key, d.payload)).collect();
    dead.sort();
    dead.dedup();
    assert_eq!(dead.len(), 6, "an empty value and none are one: {dead:?}");
    assert!(dead.iter().all(|(_, _, key, _)| &key[..] == b"key"));
    for (topic, reasons) in [("views", 3), ("views.counted", 3)] {
        assert_eq!(
            dead.iter().filter(|(t, ..)| t.ends_with(&format!("{}.{topic}", system.name))).count(),
            reasons
        );
    }
    // A good record that another program's partitioner put elsewhere. Counted there, its number would have two owners.
    let strayed = log.records("views.counted").into_iter().find(|record| record.key == b"blog:good").unwrap();
    let elsewhere = (strayed.partition + 1) % 4;
    log.append_raw("views.counted", elsewhere, Some(&strayed.key), Some(&strayed.payload));
    wait_until("its dead letter", LONG, || log.dead().iter().any(|d| &d.key[..] == b"blog:good")).unwrap();
    assert_eq!(http.counts(&["good"]).await[0]["views"], 40);
    let keys = system.counters_eyes().keys();
    let is_sketch = |key: &&String| key.starts_with("sketch:") && key.ends_with("}:*:blog:good");
    let owners: Vec<_> = keys.iter().filter(is_sketch).collect();
    assert_eq!(owners.len(), 1, "{owners:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_stops_in_good_order() {
    let system = System::start(Wishes::default());
    let roles = system.all_roles();
    system.http().send(&[view("a", "v")]).await;
    for role in roles {
        let status = role.stop(Duration::from_secs(30));
        assert!(status.success(), "{status} {}", role.log());
    }
    let _flusher = system.role("flusher");
    let _counter = system.role("counter");
    let _filter = system.role("filter");
    Ledger::check(&system, &HashSet::new());
    Ledger::check_counts(&system).await;
}
