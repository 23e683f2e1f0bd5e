//! Faults under load: after each, every acknowledged view has exactly one outcome, every number is exact, and every
//! sketch equals, register for register, the one built from the log.

use crate::support::{Http, LONG, Ledger, Role, System, Wishes, view};
use onlooker_testkit::redis::RedisServer;
use onlooker_testkit::wait_until;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::interval;

/// Clients that send views, and send each again with the same id until it is acknowledged.
struct Load {
    stop: Arc<AtomicBool>,
    senders: Vec<JoinHandle<HashSet<String>>>,
}

impl Load {
    fn start(system: &System, items: usize, senders: u64) -> Self {
        // No two loads share an id.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let first = NUMBER.fetch_add(senders, Ordering::Relaxed);
        let stop = Arc::new(AtomicBool::new(false));
        let senders = (first..first + senders)
            .map(|n| tokio::spawn(send(system.http(), n, items, Arc::clone(&stop))))
            .collect();
        Self { stop, senders }
    }

    /// Ends the load. Returns every acknowledged id.
    async fn end(self) -> HashSet<String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut acknowledged = HashSet::new();
        for sender in self.senders {
            acknowledged.extend(sender.await.unwrap());
        }
        acknowledged
    }
}

async fn send(http: Http, sender: u64, items: usize, stop: Arc<AtomicBool>) -> HashSet<String> {
    let mut random = StdRng::seed_from_u64(sender);
    let mut acknowledged = HashSet::new();
    let mut pause = interval(Duration::from_millis(15));
    for batch in 0.. {
        let views: Vec<Value> = (0..10)
            .map(|n| {
                // Skewed to low numbers, with repeats of viewers and items.
                let item = (random.random::<f64>().powi(3) * items as f64) as usize;
                let mut v =
                    view(&format!("item {item}"), &format!("viewer {}", random.random_range(0..2_000)));
                v["id"] = json!(format!("{sender}-{batch}-{n}"));
                v
            })
            .collect();
        // To its end, even if the load is to stop: an id that was tried is in the log or not, and the client knows.
        loop {
            pause.tick().await;
            if let Some((202, answer)) = http.try_send(&json!(views)).await {
                assert_eq!(answer["accepted"], 10, "{answer}");
                break;
            }
        }
        acknowledged.extend(views.iter().map(|v| v["id"].as_str().unwrap().to_owned()));
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    acknowledged
}

fn wishes() -> Wishes {
    let config = "[flusher]\ninterval_ms = 1000\n".to_owned();
    Wishes { own_kafka: true, own_cassandra: true, config, ..Wishes::default() }
}

/// Two of each, so that partitions change hands.
fn two_of_each(system: &System) -> Vec<Role> {
    let mut roles = vec![Role::launch(system, "collector", &[])];
    for role in ["filter", "counter", "flusher"] {
        roles.extend([Role::launch(system, role, &[]), Role::launch(system, role, &[])]);
    }
    roles.iter().for_each(Role::wait_ready);
    roles
}

async fn check(system: &System, acknowledged: &HashSet<String>) {
    let views = Ledger::check(system, acknowledged);
    assert!(views >= acknowledged.len());
    let counts = Ledger::check_counts(system).await;
    eprintln!("{views} views, {} acknowledged, {} sketches", acknowledged.len(), counts.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_kills_lose_and_repeat_nothing() {
    let system = System::start(wishes());
    let roles = two_of_each(&system);
    let load = Load::start(&system, 400, 6);
    let mut random = StdRng::seed_from_u64(50);
    let mut pause = interval(Duration::from_millis(10));
    for _ in 0..50 {
        for _ in 0..random.random_range(10..80) {
            pause.tick().await;
        }
        roles[random.random_range(0..roles.len())].restart();
    }
    let acknowledged = load.end().await;
    assert!(acknowledged.len() > 1_000, "{}", acknowledged.len());
    check(&system, &acknowledged).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_memory_and_restarted_servers_lose_and_repeat_nothing() {
    let system = System::start(wishes());
    let roles = two_of_each(&system);
    let mut all = HashSet::new();
    let faults: [(&str, &dyn Fn()); 6] = [
        ("flushall of dedup", &|| system.dedup_eyes().flush_all()),
        ("flushall of counters", &|| system.counters_eyes().flush_all()),
        ("restart of dedup", &|| system.dedup.restart().unwrap()),
        ("restart of counters", &|| system.counters.restart().unwrap()),
        ("restart of cassandra", &|| system.cassandra.restart().unwrap()),
        ("restart of kafka", &|| system.kafka.restart().unwrap()),
    ];
    for (what, fault) in faults {
        eprintln!("{what}");
        let load = Load::start(&system, 300, 4);
        let collector = &roles[0];
        let sent = collector.metric("onlooker_collector_accepted_total");
        wait_until("load", LONG, || collector.metric("onlooker_collector_accepted_total") > sent + 400.0)
            .unwrap();
        tokio::task::block_in_place(fault);
        wait_until("load after it", LONG, || {
            collector.metric("onlooker_collector_accepted_total") > sent + 1_000.0
        })
        .unwrap();
        all.extend(load.end().await);
        check(&system, &all).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_for_a_few_sketches_is_enough() {
    let wishes = Wishes {
        counters: RedisServer::builder().policy("volatile-lru").maxmemory("4mb"),
        config: "[flusher]\ninterval_ms = 300\nnumber_age_s = 1\n".to_owned(),
        ..wishes()
    };
    let system = System::start(wishes);
    let _roles = two_of_each(&system);
    let load = Load::start(&system, 20_000, 6);
    let eyes = system.counters_eyes();
    wait_until("sketches to be evicted", LONG, || eyes.evicted() > 2_000).unwrap();
    let acknowledged = load.end().await;
    check(&system, &acknowledged).await;
    assert!(eyes.evicted() > 2_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_processes_and_servers_change_nothing() {
    let system = System::start(wishes());
    let roles = two_of_each(&system);
    let load = Load::start(&system, 300, 4);
    let mut pause = interval(Duration::from_secs(9));
    pause.tick().await;
    // Longer than the session time-out: others take over, and the old owner wakes up as a zombie.
    for role in [&roles[1], &roles[3]] {
        role.signal(libc::SIGSTOP);
    }
    pause.tick().await;
    for role in [&roles[1], &roles[3]] {
        role.signal(libc::SIGCONT);
    }
    system.dedup.pause().unwrap();
    system.counters.pause().unwrap();
    pause.tick().await;
    system.dedup.resume().unwrap();
    system.counters.resume().unwrap();
    let acknowledged = load.end().await;
    check(&system, &acknowledged).await;
}
