//! What is checked before a server is trusted, and that keys are those of the catalogue.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use onlooker_ports::conformance::counts::{key, member};
use onlooker_ports::conformance::dedup::digest;
use onlooker_ports::{
    Apply, ApplyOutcome, Base, Claim, CountReader, CountRepair, CountStore, DedupStore, Hold, Number,
    PortError, Put, Secret, SketchAdd,
};
use onlooker_redis::{Client, Layout, RedisConfig, RedisCounters, RedisDedup, RedisReader, Role};
use onlooker_sketch::Sketch;
use onlooker_stage::telemetry::MetricsHandle;
use onlooker_testkit::redis::RedisServer;
use support::Bench;

const CATALOGUE: &str = include_str!("../../../schemas/redis-keys.md");
const LONG: Duration = Duration::from_secs(3_600);

fn counters(config: &RedisConfig, generation: &str, partitions: u32) -> RedisCounters {
    let client = Client::new(Role::Counters, config).unwrap();
    RedisCounters::new(client, Layout::new(generation, partitions).unwrap())
}

fn dedup(config: &RedisConfig, generation: &str, partitions: u32) -> RedisDedup {
    let client = Client::new(Role::Dedup, config).unwrap();
    RedisDedup::new(client, Layout::new(generation, partitions).unwrap())
}

fn misconfigured<T: std::fmt::Debug>(outcome: Result<T, PortError>) -> String {
    match outcome.unwrap_err() {
        PortError::Misconfigured { detail, .. } => detail,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn policies_are_judged() {
    let bench = Bench::alone();
    let (counters, dedup) = (counters(bench.config(), "1", 4), dedup(bench.config(), "1", 4));
    let set = |policy: &str, limit: &str| {
        bench.node().cli(&["CONFIG", "SET", "maxmemory-policy", policy, "maxmemory", limit]).unwrap();
    };
    set("noeviction", "0");
    assert_eq!(dedup.check().await, Ok(vec![]));
    let warnings = counters.check().await.unwrap();
    assert!(warnings[0].contains("maxmemory"), "{warnings:?}");
    set("noeviction", "100mb");
    assert!(counters.check().await.unwrap()[0].contains("noeviction"));
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
        set(policy, "100mb");
        assert_eq!(counters.check().await, Ok(vec![]), "{policy}");
        assert!(misconfigured(dedup.check().await).contains(policy));
    }
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        set(policy, "100mb");
        assert!(misconfigured(counters.check().await).contains(policy));
        assert!(misconfigured(dedup.check().await).contains(policy));
    }
    // What the check leaves behind is nothing but the layout.
    let mut left = Vec::new();
    bench.for_keys(b"", |_, name| left.push(String::from_utf8_lossy(name).into_owned()));
    left.sort();
    assert_eq!(left, ["flayout", "layout"]);
}

#[tokio::test]
async fn memory_of_all_masters_is_shown() {
    let bench = Bench::cluster();
    let page = MetricsHandle::detached().unwrap();
    let counters = page.within(|| counters(bench.config(), "1", 12));
    let shown = |name: &str| {
        let (page, series) = (page.render(), format!("onlooker_redis_{name}{{server=\"counters\"}} "));
        let line =
            page.lines().find_map(|line| line.strip_prefix(&series)).unwrap_or_else(|| panic!("{page}"));
        line.parse::<u64>().unwrap()
    };
    for node in bench.nodes() {
        node.cli(&["CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "volatile-lru"]).unwrap();
    }
    counters.check_again().await.unwrap();
    assert_eq!(shown("max_memory_bytes"), 3 * 100 * 1024 * 1024);
    assert!(shown("used_memory_bytes") > 3 * 500_000, "{}", shown("used_memory_bytes"));
    assert_eq!(shown("evicted_keys"), 0);
    bench.nodes()[1].cli(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    counters.check_again().await.unwrap();
    assert_eq!(shown("max_memory_bytes"), 0, "one of them has no limit");
}

#[tokio::test]
async fn every_master_of_a_cluster_is_checked() {
    let bench = Bench::cluster();
    let (counters, dedup) = (counters(bench.config(), "1", 12), dedup(bench.config(), "1", 12));
    counters.check().await.unwrap();
    dedup.check().await.unwrap();
    bench.nodes()[2].cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    misconfigured(counters.check().await);
    misconfigured(dedup.check().await);
}

#[tokio::test]
async fn a_server_that_merges_otherwise_is_refused() {
    // What it calls PFMERGE removes the keys that it should unite.
    let server = RedisServer::builder()
        .arg("--rename-command", "PFMERGE")
        .arg("HIDDEN", "--rename-command")
        .arg("DEL", "PFMERGE");
    let bench = Bench::of(server.start().unwrap());
    let detail = misconfigured(counters(bench.config(), "1", 4).check().await);
    assert!(detail.contains("PFADD of a known member"), "{detail}");
}

#[tokio::test]
async fn another_log_is_refused() {
    let bench = Bench::alone();
    let first = counters(bench.config(), "1", 4);
    assert_eq!(first.applied(0).await, Ok(None));
    assert_eq!(first.init(0, 5, 5).await, Ok(5));
    for (generation, partitions) in [("1", 8), ("2", 4)] {
        let other = counters(bench.config(), generation, partitions);
        for detail in [misconfigured(other.check().await), misconfigured(other.applied(0).await)] {
            assert!(
                detail.contains("1 4") && detail.contains(&format!("{generation} {partitions}")),
                "{detail}"
            );
        }
        misconfigured(other.init(0, 0, 0).await);
        assert_eq!(dedup(bench.config(), generation, partitions).applied(0).await.is_ok(), partitions == 8);
    }
    misconfigured(first.applied(4).await);
    // Two that start at once on an empty server agree.
    bench.flush();
    let stores = [(); 20].map(|()| counters(bench.config(), "1", 4));
    let outcomes = futures::future::join_all(stores.iter().map(|store| store.applied(0))).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Ok(None)), "{outcomes:?}");
}

/// Two systems whose people gave their logs the same name, or one whose topic was made anew.
#[tokio::test]
async fn another_topic_of_the_same_name_is_refused() {
    let bench = Bench::alone();
    let first = (counters(bench.config(), "1", 4), dedup(bench.config(), "1", 4));
    // Who cannot ask for the topic yet is let in, and notes nothing.
    assert_eq!((first.0.init(0, 5, 5).await, first.1.applied(0).await), (Ok(5), Ok(None)));
    first.0.belongs_to("one").unwrap();
    first.1.belongs_to("one").unwrap();
    assert_eq!((first.0.applied(0).await, first.1.applied(0).await), (Ok(Some(5)), Ok(None)));
    let other = (counters(bench.config(), "1", 4), dedup(bench.config(), "1", 4));
    other.0.belongs_to("two").unwrap();
    other.1.belongs_to("two").unwrap();
    for detail in [
        misconfigured(other.0.check().await),
        misconfigured(other.0.check_again().await),
        misconfigured(other.0.applied(0).await),
        misconfigured(other.0.init(0, 0, 0).await),
        misconfigured(other.1.check().await),
        misconfigured(other.1.applied(0).await),
    ] {
        assert!(detail.contains("topic one") && detail.contains("topic two"), "{detail}");
    }
    assert!(misconfigured(first.0.belongs_to("three")).contains("made anew"));
    // What was lost is taken by whoever comes first.
    bench.flush();
    assert_eq!((other.0.applied(0).await, other.1.applied(0).await), (Ok(None), Ok(None)));
    misconfigured(first.0.applied(0).await);
    misconfigured(first.1.applied(0).await);
}

#[tokio::test]
async fn namespaces_do_not_meet() {
    let bench = Bench::alone();
    let with = |prefix: &str| RedisConfig { prefix: prefix.to_owned(), ..bench.config().clone() };
    let (live, shadow) = (counters(&with(""), "1", 4), counters(&with("shadow:"), "1", 6));
    fill_counts(&live).await;
    assert_eq!(shadow.applied(0).await, Ok(None));
    assert_eq!(shadow.init(0, 7, 7).await, Ok(7));
    let reader = |prefix: &str| RedisReader::new(Client::new(Role::Counters, &with(prefix)).unwrap());
    assert_eq!(reader("").partitions().await, Ok(Some(4)));
    assert_eq!(reader("shadow:").partitions().await, Ok(Some(6)));
    assert_eq!(reader("other:").partitions().await, Ok(None));
    let asked = [(0, key("item"))];
    assert!(reader("").read(&asked, false).await.unwrap()[0].sketch.is_some());
    assert!(reader("shadow:").read(&asked, false).await.unwrap()[0].sketch.is_none());
    assert!(reader("other:").read(&asked, false).await.unwrap()[0].sketch.is_none());
}

/// Some of everything that counter and flusher write.
async fn fill_counts(store: &RedisCounters) {
    assert_eq!(store.init(0, 0, 0).await, Ok(0));
    let items = ["item", "clean", "dirty"].map(key);
    let add = |key: &onlooker_event::CountKey| SketchAdd {
        key: key.clone(),
        members: [member(1)].into(),
        base: Some(Base::default()),
    };
    let number = Number { n: 1, u: 1, changed_s: 1 };
    let batch = Apply {
        from: 0,
        to: 1,
        as_of_ms: 1,
        numbers: items.iter().map(|key| (key.clone(), number)).collect(),
        sketches: items.iter().map(add).collect(),
    };
    assert_eq!(store.apply(0, &batch).await, Ok(ApplyOutcome::Done));
    assert_eq!(store.settle_sketches(0, &[(items[1].clone(), 1)], LONG).await, Ok(1));
    assert_eq!(store.settle_numbers(0, &[(items[1].clone(), number)]).await, Ok(1));
    store.mark_absent(0, &[key("nothing")], LONG).await.unwrap();
    assert_eq!(store.claim_round(0, LONG).await, Ok(true));
}

#[tokio::test]
async fn the_rights_in_the_catalogue_suffice() {
    let bench = Bench::alone();
    let programs = "+@read +@write +@scripting +multi +exec +info";
    let readers = "+get +hmget +exists +pfcount +evalsha +script|load +scard +sadd +pexpire";
    let config = |name: &str, rights: &str| {
        assert!(CATALOGUE.contains(&format!("`{rights}`")), "{rights}");
        let mut command = vec!["ACL", "SETUSER", name, "on", ">pw", "~*"];
        command.extend(rights.split(' '));
        bench.node().cli(&command).unwrap();
        let (username, password) = (Some(name.to_owned()), Some(Secret::new("pw")));
        RedisConfig { username, password, ..bench.config().clone() }
    };
    let store = counters(&config("program", programs), "1", 4);
    store.check().await.unwrap();
    fill_counts(&store).await;
    let memory = dedup(&config("program", programs), "1", 4);
    memory.check().await.unwrap();
    memory.install(0, 1, 5, "begin", 0).await.unwrap();
    memory
        .claim(0, 1, 2, 6, &[Claim { key: digest(1), values: [1].into_iter().collect() }], 0..5)
        .await
        .unwrap();

    assert_eq!(store.hold(0, "me", LONG).await, Ok(Hold::Ours { at: 1 }));
    let put = Put { key: key("item"), sketch: Sketch::new().to_redis().into(), n: 1, changed_s: 1 };
    assert_eq!(store.put_and_release(0, "me", 1, &[put]).await, Ok(true));

    let reader = RedisReader::new(Client::new(Role::Counters, &config("reader", readers)).unwrap());
    let asked = [(0, key("item")), (0, key("nothing"))];
    for bytes in [true, false] {
        let read = reader.read(&asked, bytes).await.unwrap();
        assert!(read[0].sketch.is_some() && read[1].known_absent, "{read:?}");
    }
    assert!(reader.states(&[0]).await.unwrap()[0].is_some());
    reader.want(&[(0, key("wish"))]).await.unwrap();
    assert_eq!(store.take_wanted(0, 5).await, Ok(vec![key("wish")]));
}

/// The rows of the catalogue's tables: the key's pattern and its "time to live" column.
fn catalogue() -> Vec<(String, String)> {
    let rows = CATALOGUE.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let pattern = cells.first()?.strip_prefix('`')?.strip_suffix('`')?;
        Some((pattern.to_owned(), (*cells.get(4)?).to_owned()))
    });
    rows.collect()
}

/// The name of a key's row: the tag's text, and what follows, are placeholders there.
fn pattern(name: &str) -> String {
    let (kind, rest) = name.split_once(":{").map_or((name, ""), |(kind, rest)| (kind, rest));
    let rest = rest.split_once('}').map_or("", |(_, rest)| rest);
    match (kind, rest) {
        (_, "") if name.contains('{') => format!("{kind}:{{tag}}"),
        (_, "") => kind.to_owned(),
        ("seen", _) => "seen:{tag}:SLICE".to_owned(),
        ("staged", rest) if rest.ends_with(":n") => "staged:{tag}:NAME:n".to_owned(),
        ("staged", _) => "staged:{tag}:NAME:SLICE".to_owned(),
        (_, _) => format!("{kind}:{{tag}}:COUNTKEY"),
    }
}

#[tokio::test]
async fn every_key_stands_in_the_catalogue_and_lives_as_long_as_it_says() {
    let bench = Bench::of(RedisServer::start().unwrap());
    let store = counters(bench.config(), "1", 4);
    let memory = dedup(bench.config(), "1", 4);
    store.belongs_to("its topic").unwrap();
    memory.belongs_to("its topic").unwrap();
    store.check().await.unwrap();
    memory.check().await.unwrap();
    fill_counts(&store).await;
    let reader = RedisReader::new(Client::new(Role::Counters, bench.config()).unwrap());
    reader.want(&[(0, key("wish"))]).await.unwrap();
    let claims = [Claim { key: digest(1), values: [1].into_iter().collect() }];
    assert_eq!(memory.stage(0, "rebuild", 0, 5, &claims).await, Ok(true));
    memory.install(0, 1, 5, "rebuild", 1).await.unwrap();
    memory.claim(0, 1, 2, 6, &claims, 0..5).await.unwrap();
    assert_eq!(memory.stage(1, "rebuild", 0, 5, &claims).await, Ok(true));
    assert_eq!(store.hold(0, "its holder", LONG).await, Ok(Hold::Ours { at: 1 }));

    let catalogue = catalogue();
    let (mut met, mut mortal) = (BTreeSet::new(), BTreeSet::new());
    bench.for_keys(b"", |connection, name| {
        let name = String::from_utf8(name.to_vec()).unwrap();
        let ttl: i64 = redis::cmd("PTTL").arg(&name).query(connection).unwrap();
        let pattern = pattern(&name);
        let row = catalogue.iter().find(|(row, _)| *row == pattern);
        let (_, lifetime) = row.unwrap_or_else(|| panic!("{name} is not in the catalogue"));
        assert!(ttl < 0 || !lifetime.starts_with("never"), "{name} has a time to live");
        assert!(ttl >= 0 || lifetime.starts_with("never") || lifetime.contains("clean"), "{name} has none");
        if ttl >= 0 {
            mortal.insert(pattern.clone());
        }
        met.insert(pattern);
    });
    let listed: BTreeSet<String> = catalogue.iter().map(|(row, _)| row.clone()).collect();
    let transient = "selftest:{tag}:COUNTKEY".to_owned();
    assert_eq!(
        met,
        listed.iter().filter(|row| **row != transient && !row.starts_with("selftest")).cloned().collect()
    );
    assert!(mortal.contains("sketch:{tag}:COUNTKEY"), "the clean one may be evicted");
}
