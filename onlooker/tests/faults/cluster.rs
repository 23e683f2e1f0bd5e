//! On real Kafka, Redis and Cassandra.

use crate::proxy::Proxy;
use crate::reader::Reader;
use crate::schedule::{Planned, Tally, Timeline, plan};
use crate::support::{Http, LONG, Ledger, RedisEyes, Role, System, Wishes, view};
use crate::wish::Wish;
use onlooker_testkit::{Managed, wait_until_async};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, sleep, sleep_until};

/// What is done to the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// kill -9 of one of our processes, which is started again.
    Kill,
    /// SIGTERM under load.
    Stop,
    /// SIGSTOP for longer than the session time-out, then SIGCONT: an owner who does not know that it is none any more.
    Zombie,
    /// One more instance comes and goes, in peace or by kill -9.
    Guest,
    /// A server is killed and started again.
    ServerKill,
    /// A server stands still for a while.
    ServerPause,
    DedupFlush,
    CountersFlush,
    /// A replica takes over that lacks the last writes.
    DedupFailover,
    CountersFailover,
    /// Memory for a few sketches only, for a while.
    Eviction,
    /// The wire to one of the Redis servers is cut in the middle of messages.
    Cut,
    /// The wire to one of the Redis servers is slow.
    Slow,
    /// Records that no program of ours wrote: null, empty, garbage, a newer version's, and large ones.
    Poison,
    /// Bytes that are no sketch in a sketch's place; then FLUSHALL, which is always a safe cure.
    Corruption,
    /// Five hundred views, and the same once more with the same ids.
    Repeats,
}

use Kind::*;

const ALL: [Kind; 16] = [
    Kill,
    Stop,
    Zombie,
    Guest,
    ServerKill,
    ServerPause,
    DedupFlush,
    CountersFlush,
    DedupFailover,
    CountersFailover,
    Eviction,
    Cut,
    Slow,
    Poison,
    Corruption,
    Repeats,
];

/// Rounds on one set of topics: what is checked after each grows with them.
const ROUNDS_A_SYSTEM: u64 = 12;
const SPAN: Duration = Duration::from_secs(3);
const ITEMS: usize = 250;

struct Field {
    // Before the folder with their logs goes.
    roles: Vec<Role>,
    dedup: Proxy,
    counters: Proxy,
    acknowledged: HashSet<String>,
    system: System,
}

impl Field {
    async fn new() -> Self {
        let config = "[flusher]\ninterval_ms = 500\n".to_owned();
        let system =
            System::start(Wishes { own_kafka: true, own_cassandra: true, config, ..Wishes::default() });
        let (dedup, counters) =
            (Proxy::start(system.dedup.port()).await, Proxy::start(system.counters.port()).await);
        let mut field = Self { roles: Vec::new(), dedup, counters, acknowledged: HashSet::new(), system };
        for (role, count) in
            [("collector", 1), ("filter", 2), ("counter", 2), ("flusher", 2), ("counts-api", 1)]
        {
            for _ in 0..count {
                let role = field.launch(role);
                field.roles.push(role);
            }
        }
        field.roles.iter().for_each(Role::wait_ready);
        field
    }

    fn launch(&self, role: &str) -> Role {
        let nodes = |name: &str, proxy: &Proxy| format!("{name}.nodes=[\"127.0.0.1:{}\"]", proxy.port);
        let sets = [nodes("dedup", &self.dedup), nodes("counters", &self.counters)];
        Role::launch(&self.system, role, &["--set", &sets[0], "--set", &sets[1]])
    }

    fn server(&self, pick: usize) -> (&'static str, &Managed) {
        let servers: [(&str, &Managed); 4] = [
            ("kafka", &self.system.kafka),
            ("cassandra", &self.system.cassandra),
            ("dedup", &self.system.dedup),
            ("counters", &self.system.counters),
        ];
        servers[pick % servers.len()]
    }

    /// What a fault is done to, so that no two are done to one thing at once. None: to nothing of its own.
    fn target(&self, fault: &Planned<Kind>) -> Option<String> {
        let redis = |dedup: bool| Some(if dedup { "dedup" } else { "counters" }.to_owned());
        match fault.kind {
            Kill | Stop => Some(self.role(fault.pick).name().to_owned()),
            Zombie => Some(self.owner(fault.pick).name().to_owned()),
            ServerKill | ServerPause => Some(self.server(fault.pick).0.to_owned()),
            DedupFlush | DedupFailover => redis(true),
            CountersFlush | CountersFailover | Eviction | Corruption => redis(false),
            // The wire, and not the server behind it.
            Cut | Slow => Some(format!("wire {}", fault.pick % 2)),
            // What writes needs the log.
            Poison => Some("kafka".to_owned()),
            Guest | Repeats => None,
        }
    }

    fn role(&self, pick: usize) -> &Role {
        &self.roles[pick % self.roles.len()]
    }

    /// A process that owns partitions.
    fn owner(&self, pick: usize) -> &Role {
        let owns = |role: &&Role| ["filter-", "counter-"].iter().any(|name| role.name().starts_with(name));
        let owners: Vec<&Role> = self.roles.iter().filter(owns).collect();
        owners[pick % owners.len()]
    }

    /// Does it, and undoes what can be undone.
    async fn inflict(&self, fault: &Planned<Kind>, timeline: &Timeline) {
        let Planned { kind, lasts, pick, .. } = fault.clone();
        let role = self.role(pick);
        match kind {
            Kill => {
                timeline.note(format!("kill -9 {}", role.name()));
                role.restart();
            }
            Stop => {
                timeline.note(format!("SIGTERM {}", role.name()));
                tokio::task::block_in_place(|| role.stop(LONG));
                timeline.note("it has ended, and starts again");
                role.restart();
            }
            Zombie => {
                let role = self.owner(pick);
                timeline.note(format!("SIGSTOP {}", role.name()));
                role.signal(libc::SIGSTOP);
                sleep(Duration::from_millis(6_500) + lasts).await;
                timeline.note("SIGCONT");
                role.signal(libc::SIGCONT);
            }
            Guest => {
                let name = ["filter", "counter", "flusher"][pick % 3];
                timeline.note(format!("one more {name}"));
                let guest = self.launch(name);
                sleep(Duration::from_secs(1) + lasts).await;
                timeline.note("it goes");
                if pick % 2 == 0 {
                    guest.kill()
                } else {
                    let _ = tokio::task::block_in_place(|| guest.stop(LONG));
                }
            }
            ServerKill => {
                let (name, server) = self.server(pick);
                timeline.note(format!("kill -9 {name}"));
                server.kill().unwrap();
                sleep(lasts).await;
                tokio::task::block_in_place(|| server.restart()).unwrap();
                timeline.note(format!("{name} is back"));
            }
            ServerPause => {
                let (name, server) = self.server(pick);
                timeline.note(format!("SIGSTOP {name}"));
                server.pause().unwrap();
                sleep(lasts * 2).await;
                server.resume().unwrap();
                timeline.note(format!("SIGCONT {name}"));
            }
            DedupFlush | CountersFlush => {
                timeline.note(format!("{kind:?}"));
                let eyes =
                    if kind == DedupFlush { self.system.dedup_eyes() } else { self.system.counters_eyes() };
                tokio::task::block_in_place(|| eyes.flush_all());
            }
            DedupFailover | CountersFailover => {
                let (eyes, server): (_, &Managed) = if kind == DedupFailover {
                    (self.system.dedup_eyes(), &self.system.dedup)
                } else {
                    (self.system.counters_eyes(), &self.system.counters)
                };
                timeline.note(format!("{kind:?}: its state is kept"));
                tokio::task::block_in_place(|| eyes.command(&["SAVE"]));
                sleep(lasts).await;
                timeline.note("and comes back");
                tokio::task::block_in_place(|| server.restart()).unwrap();
                let eyes = if kind == DedupFailover {
                    self.system.dedup_eyes()
                } else {
                    self.system.counters_eyes()
                };
                // The next restart is one without data again.
                std::fs::remove_file(folder(&eyes).join("dump.rdb")).unwrap();
            }
            Eviction => {
                let eyes = self.system.counters_eyes();
                let used = used(&eyes.command(&["INFO", "memory"]));
                timeline.note(format!("maxmemory {used}, which is what it uses"));
                eyes.command(&["CONFIG", "SET", "maxmemory", &used.to_string()]);
                sleep(lasts).await;
                eyes.command(&["CONFIG", "SET", "maxmemory", "256mb"]);
                timeline.note("maxmemory 256mb");
            }
            Cut | Slow => {
                let (name, proxy) =
                    if pick % 2 == 0 { ("dedup", &self.dedup) } else { ("counters", &self.counters) };
                timeline.note(format!("{kind:?} the wire to {name}"));
                if kind == Cut {
                    proxy.cut()
                } else {
                    proxy.delay(Duration::from_millis(5 + pick as u64 % 200))
                }
                sleep(lasts).await;
                proxy.mend();
                timeline.note("mended");
            }
            Poison => {
                let topic = ["views", "views.counted"][pick % 2];
                timeline.note(format!("poison in {topic}"));
                let large = vec![b'x'; 500_000];
                let bad: [Option<&[u8]>; 5] =
                    [None, Some(b""), Some(b"garbage"), Some(b"\x08\x63\x12\x03abc"), Some(&large)];
                tokio::task::block_in_place(|| {
                    for payload in bad {
                        self.system.log().append_raw(topic, 0, Some(b"key"), payload);
                    }
                });
            }
            Corruption => {
                let eyes = self.system.counters_eyes();
                let keys = tokio::task::block_in_place(|| eyes.keys());
                let sketches: Vec<&String> = keys.iter().filter(|key| key.starts_with("sketch:")).collect();
                if let Some(key) = sketches.get(pick % sketches.len().max(1)) {
                    timeline.note(format!("no sketch in {key}"));
                    eyes.command(&["SET", key, "no sketch at all"]);
                    sleep(lasts).await;
                }
                timeline.note("FLUSHALL of the counters");
                tokio::task::block_in_place(|| eyes.flush_all());
            }
            Repeats => {
                timeline.note("repeats");
                let http = self.system.http();
                let views: Vec<Value> = (0..500).map(|n| wire(n % ITEMS, n, &format!("again-{n}"))).collect();
                for _ in 0..2 {
                    // Nobody may be there to take them.
                    let _ = http.try_send(&json!(views)).await;
                }
            }
        }
    }

    /// Everything has come to rest and is exact.
    async fn check(&self, timeline: &Timeline) {
        for role in &self.roles {
            assert!(role.is_alive(), "{} has ended by itself:\n{}", role.name(), tail(&role.log()));
        }
        timeline.note("the load has ended, all is looked at");
        let views = tokio::task::block_in_place(|| Ledger::check(&self.system, &self.acknowledged));
        assert!(views >= self.acknowledged.len());
        Ledger::check_counts(&self.system).await;
        timeline.note("counts are exact");
        // No key outlives what it is for: archived sketches may be evicted, and nothing is staged for ever.
        let keys_are_bounded = || async {
            let (counters, dedup) = (self.system.counters_eyes(), self.system.dedup_eyes());
            tokio::task::block_in_place(|| {
                let lasting = |key: &&String| counters.ttl(key) == -1 && key.starts_with("sketch:");
                let staged = |key: &&String| dedup.ttl(key) == -1 && key.starts_with("staged:");
                counters.keys().iter().filter(lasting).count() == 0
                    && dedup.keys().iter().filter(staged).count() == 0
            })
        };
        wait_until_async("keys to be bounded", LONG, keys_are_bounded).await.unwrap();
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Where a Redis keeps its files.
fn folder(eyes: &RedisEyes) -> PathBuf {
    let answer = tokio::task::block_in_place(|| eyes.command(&["CONFIG", "GET", "dir"]));
    let answer: Vec<String> = redis::from_redis_value(answer).unwrap();
    answer[1].clone().into()
}

fn used(info: &redis::Value) -> u64 {
    let text: String = redis::from_redis_value(info.clone()).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    line.trim().parse().unwrap()
}

fn wire(item: usize, viewer: usize, id: &str) -> Value {
    let mut view = view(&format!("item {item}"), &format!("viewer {viewer}"));
    view["id"] = json!(id);
    view
}

/// Clients that send each request again, with the same ids, until it is acknowledged.
struct Load {
    stop: Arc<AtomicBool>,
    senders: Vec<JoinHandle<HashSet<String>>>,
}

impl Load {
    fn start(system: &System) -> Self {
        // No two loads share an id.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let stop = Arc::new(AtomicBool::new(false));
        let sender = |_| {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(send(system.http(), number, Arc::clone(&stop)))
        };
        Self { senders: (0..3).map(sender).collect(), stop }
    }

    async fn end(self) -> HashSet<String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut acknowledged = HashSet::new();
        for sender in self.senders {
            acknowledged.extend(sender.await.unwrap());
        }
        acknowledged
    }
}

async fn send(http: Http, sender: u64, stop: Arc<AtomicBool>) -> HashSet<String> {
    let mut random = StdRng::seed_from_u64(sender);
    let mut acknowledged = HashSet::new();
    let mut pause = interval(Duration::from_millis(25));
    for batch in 0.. {
        let ids: Vec<String> = (0..5).map(|n| format!("{sender}-{batch}-{n}")).collect();
        let views: Vec<Value> = ids
            .iter()
            .map(|id| {
                let item = (random.random::<f64>().powi(3) * ITEMS as f64) as usize;
                wire(item, random.random_range(0..2_000), id)
            })
            .collect();
        // To its end, even if the load is to stop: an id that was tried is in the log or not, and the client knows.
        loop {
            pause.tick().await;
            if let Some((202, answer)) = http.try_send(&json!(views)).await {
                assert_eq!(answer["accepted"], 5, "{answer}");
                break;
            }
        }
        acknowledged.extend(ids);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_on_a_cluster_lose_and_repeat_nothing() {
    let wish = Wish::or(2_026, 6);
    let kinds: Vec<Kind> =
        ALL.into_iter().filter(|kind| format!("{kind:?}").starts_with(&wish.only)).collect();
    assert!(!kinds.is_empty(), "no kind begins with {}: {ALL:?}", wish.only);
    let (mut tally, mut views) = (Tally::default(), 0);
    let mut field = Field::new().await;
    for round in wish.first..wish.first + wish.rounds {
        if round > wish.first && (round - wish.first).is_multiple_of(ROUNDS_A_SYSTEM) {
            views += field.acknowledged.len();
            drop(field);
            field = Field::new().await;
        }
        let replay = format!("cargo x faults --cluster --seed {} --first {round} --rounds 1", wish.seed);
        let timeline = Timeline::new(round, replay);
        let faults = plan(&kinds, wish.seed, round, SPAN);
        let load = Load::start(&field.system);
        let reader = {
            let (url, client) = (field.system.counts_url(), reqwest::Client::new());
            Reader::start((0..5).map(|n| format!("item {n}")).collect(), move |items| {
                let request =
                    client.post(format!("{url}/v1/counts")).json(&json!({ "site": "blog", "items": items }));
                async move {
                    let mut answer: Value = request.send().await.ok()?.json().await.ok()?;
                    serde_json::from_value(answer["counts"].take()).ok()
                }
            })
        };
        let begun = Instant::now();
        let targets: BTreeMap<String, Mutex<()>> =
            faults.iter().filter_map(|fault| Some((field.target(fault)?, Mutex::default()))).collect();
        let all = faults.iter().map(|fault| async {
            sleep_until(begun + fault.at).await;
            let target = field.target(fault);
            // Several at once, but one after the other to one thing.
            let _one = match &target {
                Some(target) => Some(targets[target].lock().await),
                None => None,
            };
            field.inflict(fault, &timeline).await;
        });
        futures::future::join_all(all).await;
        faults.iter().for_each(|fault| tally.add(&fault.kind));
        sleep_until(begun + SPAN).await;
        field.acknowledged.extend(load.end().await);
        field.check(&timeline).await;
        reader.end().await;
        let kinds: Vec<String> = faults.iter().map(|fault| format!("{:?}", fault.kind)).collect();
        eprintln!("round {round}: {} in {} s", kinds.join(", "), begun.elapsed().as_secs());
    }
    tally.tell("cluster", wish.rounds, views + field.acknowledged.len());
}
