//! Servers that die, stand still, lose connections or run out of memory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, Instant};

use onlooker_event::CountKey;
use onlooker_ports::conformance::counts::{key, member};
use onlooker_ports::conformance::dedup::digest;
use onlooker_ports::{
    Apply, ApplyOutcome, Base, Claim, ClaimOutcome, CountReader, CountStore, DedupStore, InstallOutcome,
    Lookup, Number, PortError, SketchAdd, SketchRead, SketchValue,
};
use onlooker_redis::{Client, Layout, RedisConfig, RedisCounters, RedisDedup, RedisReader, Role};
use onlooker_sketch::Sketch;
use onlooker_testkit::redis::{RedisCluster, RedisServer};
use onlooker_testkit::wait_until_async;
use support::Bench;

const SOON: Duration = Duration::from_secs(60);
const PARTITIONS: u32 = 6;

fn layout() -> Layout {
    Layout::new("1", PARTITIONS).unwrap()
}

/// Gives up on an answer after 400 ms.
fn hasty(bench: &Bench) -> RedisConfig {
    RedisConfig { response_timeout_ms: 400, connect_timeout_ms: 400, ..bench.config().clone() }
}

fn counters(config: &RedisConfig) -> RedisCounters {
    RedisCounters::new(Client::new(Role::Counters, config).unwrap(), layout())
}

fn dedup(config: &RedisConfig) -> RedisDedup {
    RedisDedup::new(Client::new(Role::Dedup, config).unwrap(), layout())
}

/// One view of one item by one viewer; the sketch is new or present.
fn view(from: i64, item: &CountKey, viewer: u32) -> Apply {
    let number = Number { n: u64::from(viewer) + 1, u: from + 1, changed_s: 0 };
    let sketch =
        SketchAdd { key: item.clone(), members: [member(viewer)].into(), base: Some(Base::default()) };
    Apply { from, to: from + 1, as_of_ms: 0, numbers: vec![(item.clone(), number)], sketches: vec![sketch] }
}

async fn assert_counts(reader: &RedisReader, partition: i32, item: &CountKey, viewers: u32) {
    let read = reader.read(&[(partition, item.clone())], true).await.unwrap().swap_remove(0);
    assert_eq!(read.views, Some(u64::from(viewers)));
    let Some(SketchValue::Bytes(bytes)) = read.sketch else { panic!("{:?}", read.sketch) };
    let mut expected = Sketch::new();
    (0..viewers).for_each(|n| {
        expected.add(&member(n));
    });
    assert!(Sketch::from_redis(&bytes).unwrap().register_eq(&expected));
}

/// The counter's way through any trouble: on a doubt it asks where the store stands, and goes on from there.
async fn count_all(store: &RedisCounters, partition: i32, item: &CountKey, viewers: u32) {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < SOON * 2, "it does not get on");
        let step = async {
            let at = match store.applied(partition).await? {
                Some(at) => at,
                None => store.init(partition, 0, 0).await?,
            };
            if at < i64::from(viewers) {
                store.apply(partition, &view(at, item, u32::try_from(at).unwrap())).await?;
            }
            Ok::<_, PortError>(at)
        };
        match step.await {
            Ok(at) if at >= i64::from(viewers) => return,
            Ok(_) => {}
            Err(error) => assert!(error.is_transient(), "{error:?}"),
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_yet() {
    let server = RedisServer::start().unwrap();
    server.kill().unwrap();
    let bench = Bench::of(server);
    let store = counters(bench.config());
    let begun = Instant::now();
    for _ in 0..20 {
        let error = store.applied(0).await.unwrap_err();
        assert!(matches!(error, PortError::Unavailable { server: "counters redis", .. }), "{error:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "it fails fast: {:?}", begun.elapsed());
    bench.node().restart().unwrap();
    wait_until_async("an answer", SOON, || async { store.applied(0).await == Ok(None) }).await.unwrap();
    bench.node().restart().unwrap();
    wait_until_async("an answer", SOON, || async { store.init(0, 3, 3).await == Ok(3) }).await.unwrap();
}

#[tokio::test]
async fn connections_that_are_cut_cost_nothing() {
    let bench = Bench::alone();
    let (store, memory) = (counters(bench.config()), dedup(bench.config()));
    let (item, killer) = (key("item"), bench.node());
    assert_eq!(store.init(0, 0, 0).await, Ok(0));
    assert_eq!(memory.install(0, 0, 1, "begin", 0).await, Ok(InstallOutcome::Done));
    for n in 0..100u32 {
        let at = i64::from(n);
        killer.cli(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
        assert_eq!(store.apply(0, &view(at, &item, n)).await, Ok(ApplyOutcome::Done), "view {n}");
        killer.cli(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
        let claims = [Claim { key: digest(n), values: [n].into_iter().collect() }];
        assert_eq!(memory.claim(0, at, at + 1, 1, &claims, 0..0).await, Ok(ClaimOutcome::Done), "claim {n}");
    }
    let reader = RedisReader::new(Client::new(Role::Counters, bench.config()).unwrap());
    assert_counts(&reader, 0, &item, 100).await;

    // A server that closes idle connections, and one that has forgotten every script.
    killer.cli(&["CONFIG", "SET", "timeout", "1"]).unwrap();
    let idle = || async {
        let list = killer.cli(&["CLIENT", "LIST", "TYPE", "normal"]).unwrap();
        list.lines().count() == 1
    };
    wait_until_async("idle connections to be closed", SOON, idle).await.unwrap();
    killer.cli(&["SCRIPT", "FLUSH"]).unwrap();
    assert_eq!(store.apply(0, &view(100, &item, 100)).await, Ok(ApplyOutcome::Done));
    assert_counts(&reader, 0, &item, 101).await;
}

#[tokio::test]
async fn what_timed_out_may_be_applied_afterwards() {
    let bench = Bench::alone();
    let store = counters(&hasty(&bench));
    let reader = RedisReader::new(Client::new(Role::Counters, bench.config()).unwrap());
    let item = key("item");
    assert_eq!(store.init(0, 0, 0).await, Ok(0));
    assert_eq!(store.apply(0, &view(0, &item, 0)).await, Ok(ApplyOutcome::Done));
    bench.node().pause().unwrap();
    let error = store.apply(0, &view(1, &item, 1)).await.unwrap_err();
    assert!(matches!(error, PortError::Unavailable { .. }), "{error:?}");
    // Long enough that the connection is given up, while the server still has the command in its buffer.
    for _ in 0..5 {
        store.applied(0).await.unwrap_err();
    }
    bench.node().resume().unwrap();
    let landed = || async { store.applied(0).await == Ok(Some(2)) };
    wait_until_async("the late batch", SOON, landed).await.unwrap();
    assert_eq!(
        store.apply(0, &view(1, &item, 1)).await,
        Ok(ApplyOutcome::Gap(Some(2))),
        "it is not applied twice"
    );
    count_all(&store, 0, &item, 10).await;
    assert_counts(&reader, 0, &item, 10).await;
}

#[tokio::test]
async fn restarts_and_pauses_lose_nothing_that_the_log_has() {
    let bench = Bench::alone();
    let store = counters(&hasty(&bench));
    let item = key("item");
    let counting = tokio::spawn({
        let (store, item) = (store.clone(), item.clone());
        async move { count_all(&store, 0, &item, 3_000).await }
    });
    for round in 0..6 {
        let begun = store.applied(0).await.ok().flatten().unwrap_or(0);
        let further = || async {
            counting.is_finished() || store.applied(0).await.is_ok_and(|at| at.is_some_and(|at| at != begun))
        };
        wait_until_async("some progress", SOON, further).await.unwrap();
        match round % 3 {
            0 => bench.node().restart().unwrap(),
            1 => bench.flush(),
            _ => {
                bench.node().pause().unwrap();
                store.applied(0).await.unwrap_err();
                bench.node().resume().unwrap();
            }
        }
    }
    counting.await.unwrap();
    let reader = RedisReader::new(Client::new(Role::Counters, bench.config()).unwrap());
    assert_counts(&reader, 0, &item, 3_000).await;
}

#[tokio::test]
async fn a_full_server_refuses_whole_batches() {
    let bench = Bench::of(RedisServer::builder().policy("volatile-lru").start().unwrap());
    let (store, item) = (counters(bench.config()), key("item"));
    let reader = RedisReader::new(Client::new(Role::Counters, bench.config()).unwrap());
    assert_eq!(store.init(0, 0, 0).await, Ok(0));
    count_all(&store, 0, &item, 5).await;
    let full = |outcome: Result<ApplyOutcome, PortError>| {
        let error = outcome.unwrap_err();
        assert!(matches!(error, PortError::Full { .. }), "{error:?}");
    };
    let before = (store.begin(0).await, keys_and_contents(&bench));
    bench.node().cli(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    // Whatever a batch writes first: members, a base, a number, or nothing but the offset.
    let many = Apply {
        sketches: (0..50).map(|n| view(5, &key(&format!("{n}")), 1).sketches.swap_remove(0)).collect(),
        ..view(5, &item, 5)
    };
    full(store.apply(0, &many).await);
    full(store.apply(0, &view(5, &item, 5)).await);
    let base = Base { blob: Some(Sketch::new().to_redis().into()), ts: 1 };
    let wish = SketchAdd { key: key("wish"), members: [].into_iter().collect(), base: Some(base) };
    full(store.apply(0, &Apply { to: 5, numbers: vec![], sketches: vec![wish], ..view(5, &item, 5) }).await);
    full(store.apply(0, &Apply { sketches: vec![], ..view(5, &item, 5) }).await);
    full(store.apply(0, &Apply { sketches: vec![], numbers: vec![], ..view(5, &item, 5) }).await);
    let error = store.init(1, 0, 0).await.unwrap_err();
    assert!(matches!(error, PortError::Full { .. }), "{error:?}");
    assert_eq!((store.begin(0).await, keys_and_contents(&bench)), before, "nothing has changed");
    // An idle batch still finds out where the store stands, and archiving goes on: it is what makes room.
    let [sketches, numbers] = [
        store.read_sketches(0, 5, std::slice::from_ref(&item)).await.is_ok(),
        store.read_numbers(0, 5, std::slice::from_ref(&item)).await.is_ok(),
    ];
    assert!(sketches && numbers);
    let idle = Apply { to: 5, numbers: vec![], sketches: vec![], ..view(5, &item, 5) };
    assert_eq!(store.apply(0, &idle).await, Ok(ApplyOutcome::Done));
    let number = Number { n: 5, u: 5, changed_s: 0 };
    assert_eq!(store.settle_numbers(0, &[(item.clone(), number)]).await, Ok(1));
    assert_eq!(store.settle_sketches(0, &[(item.clone(), 5)], SOON).await, Ok(1));
    let dirty = store.begin(0).await.unwrap().unwrap();
    assert!(dirty.sketches.is_empty() && dirty.numbers.is_empty());

    bench.node().cli(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    let held = match store.lookup(0, 5, std::slice::from_ref(&item)).await.unwrap() {
        onlooker_ports::CountLookup::Found(held) => held[0],
        gap => panic!("{gap:?}"),
    };
    assert!(held.number.is_none(), "the archive alone keeps it now");
    let mut next = view(5, &item, 5);
    let mut archived = Sketch::new();
    (0..5).for_each(|n| {
        archived.add(&member(n));
    });
    next.sketches[0].base = Some(Base { blob: Some(archived.to_redis().into()), ts: 5 });
    assert_eq!(store.apply(0, &next).await, Ok(ApplyOutcome::Done));
    assert_counts(&reader, 0, &item, 6).await;
}

#[tokio::test]
async fn a_full_memory_refuses_whole_claims() {
    let bench = Bench::of(RedisServer::builder().policy("noeviction").start().unwrap());
    let store = dedup(bench.config());
    let claims = |n: u32| [Claim { key: digest(n), values: [n].into_iter().collect() }];
    assert_eq!(store.install(0, 0, 7, "begin", 0).await, Ok(InstallOutcome::Done));
    assert_eq!(store.claim(0, 0, 1, 7, &claims(0), 0..0).await, Ok(ClaimOutcome::Done));
    assert_eq!(store.stage(0, "new", 0, 8, &claims(1)).await, Ok(true));
    let before = keys_and_contents(&bench);
    bench.node().cli(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let error = store.claim(0, 1, 2, 8, &claims(1), 0..7).await.unwrap_err();
    assert!(matches!(error, PortError::Full { server: "dedup redis", .. }), "{error:?}");
    let error = store.claim(0, 1, 2, 9, &[], 0..8).await.unwrap_err();
    assert!(matches!(error, PortError::Full { .. }), "{error:?}");
    let error = store.stage(0, "new", 1, 8, &claims(1)).await.unwrap_err();
    assert!(matches!(error, PortError::Full { .. }), "{error:?}");
    assert_eq!(keys_and_contents(&bench), before, "nothing has changed");
    bench.node().cli(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    assert_eq!(store.claim(0, 1, 2, 8, &claims(1), 0..7).await, Ok(ClaimOutcome::Done));
}

/// A flusher read a sketch while it was good, and settles it after somebody put something else there, or nothing. What the
/// counter left out meanwhile must not be taken for archived.
#[tokio::test]
async fn a_sketch_that_was_spoilt_under_a_flusher_stays_dirty() {
    for command in ["SET", "DEL"] {
        let bench = Bench::of(RedisServer::builder().policy("volatile-lru").start().unwrap());
        let (store, item) = (counters(bench.config()), key("spoilt"));
        store.init(0, 0, 0).await.unwrap();
        assert_eq!(store.apply(0, &view(0, &item, 0)).await, Ok(ApplyOutcome::Done));
        let read = store.read_sketches(0, 1, std::slice::from_ref(&item)).await.unwrap().unwrap();
        let SketchRead::Found { t: 1, .. } = read[0] else { panic!("{read:?}") };
        bench.for_keys(b"sketch:", |connection, name| {
            let mut spoil = redis::cmd(command);
            spoil.arg(name);
            if command == "SET" {
                spoil.arg("no sketch");
            }
            spoil.exec(connection).unwrap();
        });
        // The counter goes on without it.
        assert_eq!(store.apply(0, &view(1, &item, 1)).await, Ok(ApplyOutcome::Corrupt(vec![0])), "{command}");
        let mut without = view(1, &item, 1);
        without.sketches.clear();
        assert_eq!(store.apply(0, &without).await, Ok(ApplyOutcome::Done));
        let settled = store.settle_sketches(0, &[(item.clone(), 1)], SOON).await;
        assert_eq!(settled, Ok(0), "{command}");
        let dirty = store.begin(0).await.unwrap().unwrap();
        assert_eq!((dirty.applied, dirty.sketches.as_slice()), (2, std::slice::from_ref(&item)));
        let read = store.read_sketches(0, 2, &dirty.sketches).await.unwrap().unwrap();
        match &read[0] {
            SketchRead::Corrupt => assert_eq!(command, "DEL"),
            SketchRead::Found { bytes, .. } => assert!(Sketch::from_redis(bytes).is_err(), "{command}"),
            SketchRead::Clean => panic!("{command}: it is taken for archived"),
        }
    }
}

/// A slice without some of its claims would let views count twice: all of that memory counts as gone.
#[tokio::test]
async fn a_memory_with_a_hole_is_no_memory() {
    let claims = |n: u32| [Claim { key: digest(n), values: [n].into_iter().collect() }];
    let keys = [digest(1), digest(2)];
    for (partition, lost) in (0..).zip([b"seen:" as &[u8], b":7", b":8"]) {
        let bench = Bench::of(RedisServer::builder().policy("noeviction").start().unwrap());
        let store = dedup(bench.config());
        // As it is after a rebuild, a claim in the same slice, and one in the next.
        assert_eq!(store.stage(partition, "new", 0, 7, &claims(1)).await, Ok(true));
        assert_eq!(store.install(partition, 10, 7, "new", 1).await, Ok(InstallOutcome::Done));
        assert_eq!(store.claim(partition, 10, 11, 7, &claims(2), 0..6).await, Ok(ClaimOutcome::Done));
        assert_eq!(store.claim(partition, 11, 12, 8, &claims(3), 0..7).await, Ok(ClaimOutcome::Done));
        for slice in [8, 9, 10] {
            let whole = store.lookup(partition, 12, 12, slice, &keys).await.unwrap();
            assert!(matches!(whole, Lookup::Found(_)), "{slice}: {whole:?}");
        }
        assert_eq!(store.applied(partition).await.unwrap().unwrap().offset, 12);
        bench.for_keys(b"seen:", |connection, name| {
            if name.starts_with(lost) || name.ends_with(lost) {
                redis::cmd("DEL").arg(name).exec(connection).unwrap();
            }
        });
        let outcome = match partition {
            0 => store.lookup(partition, 12, 12, 8, &keys).await.map(|found| found == Lookup::Gap(None)),
            1 => store
                .claim(partition, 12, 13, 8, &claims(4), 0..7)
                .await
                .map(|o| o == ClaimOutcome::Gap(None)),
            _ => store.applied(partition).await.map(|at| at.is_none()),
        };
        assert_eq!(outcome, Ok(true), "partition {partition}");
        assert_eq!(
            store.applied(partition).await,
            Ok(None),
            "it is forgotten, so that a rebuild can take its place"
        );
        assert_eq!(store.stage(partition, "again", 0, 8, &claims(3)).await, Ok(true));
        assert_eq!(store.install(partition, 12, 8, "again", 1).await, Ok(InstallOutcome::Done));
        let whole = store.lookup(partition, 12, 12, 8, &keys).await.unwrap();
        assert!(matches!(whole, Lookup::Found(_)), "{whole:?}");
    }
}

/// A part that is staged late keeps the earlier ones of the other slice: the number of parts would outlive them.
#[tokio::test]
async fn what_is_staged_expires_together() {
    let bench = Bench::of(RedisServer::builder().policy("noeviction").start().unwrap());
    let store = dedup(bench.config());
    let claims = |n: u32| [Claim { key: digest(n), values: [n].into_iter().collect() }];
    for (part, slice) in [(0, 7), (1, 8), (2, 7)] {
        assert_eq!(store.stage(0, "new", part, slice, &claims(1)).await, Ok(true));
        let mut left = Vec::new();
        bench.for_keys(b"staged:", |connection, name| {
            left.push(redis::cmd("PTTL").arg(name).query::<i64>(connection).unwrap());
            redis::cmd("PEXPIRE").arg(name).arg(100_000).exec(connection).unwrap();
        });
        assert_eq!(left.len(), if part == 0 { 2 } else { 3 }, "the number of parts, and slices");
        assert!(left.iter().all(|ms| *ms > 300_000), "part {part}: {left:?}");
    }
}

/// The memory forgets by the log's time alone; what was staged had a clock's.
#[tokio::test]
async fn what_is_installed_does_not_expire() {
    let bench = Bench::of(RedisServer::builder().policy("noeviction").start().unwrap());
    let store = dedup(bench.config());
    let claims = [Claim { key: digest(1), values: [1].into_iter().collect() }];
    for (part, slice) in [(0, 7), (1, 8)] {
        assert_eq!(store.stage(0, "new", part, slice, &claims).await, Ok(true));
    }
    assert_eq!(store.install(0, 5, 8, "new", 2).await, Ok(InstallOutcome::Done));
    let mut left = Vec::new();
    bench.for_keys(b"{", |connection, name| {
        left.push(redis::cmd("PTTL").arg(name).query::<i64>(connection).unwrap());
    });
    assert_eq!(left, [-1; 3], "two slices and the offset");
}

/// Every key of the server with its serialised value.
fn keys_and_contents(bench: &Bench) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    bench.for_keys(b"{", |connection, key| {
        all.push((key.to_vec(), redis::cmd("DUMP").arg(key).query(connection).unwrap()));
    });
    all.sort();
    all
}

#[tokio::test]
async fn pressure_evicts_what_is_archived_and_nothing_else() {
    let server = RedisServer::builder().maxmemory("6mb").policy("volatile-lru").start().unwrap();
    let bench = Bench::of(server);
    let store = counters(bench.config());
    let reader = RedisReader::new(Client::new(Role::Counters, bench.config()).unwrap());
    assert_eq!(store.init(0, 0, 0).await, Ok(0));
    // Of each item so many viewers that its sketch is dense: 12 KB, so that 400 do not fit.
    let dense: Vec<[u8; 16]> = (0..4_000).map(member).collect();
    let mut sketch = Sketch::new();
    dense.iter().for_each(|m| {
        sketch.add(m);
    });
    let items: Vec<CountKey> = (0..400).map(|n| key(&format!("item-{n}"))).collect();
    for (n, item) in (0i64..).zip(&items) {
        let mut batch = view(n, item, 0);
        batch.sketches[0].members = dense.clone().into();
        assert_eq!(store.apply(0, &batch).await, Ok(ApplyOutcome::Done), "item {n}");
        // Every tenth one stays unarchived.
        if n % 10 != 0 {
            assert_eq!(store.settle_sketches(0, &[(item.clone(), n + 1)], SOON * 60).await, Ok(1));
        }
    }
    let evicted = bench.node().cli(&["INFO", "stats"]).unwrap();
    let evicted = evicted.lines().find_map(|line| line.trim().strip_prefix("evicted_keys:")).unwrap();
    assert!(evicted.parse::<u32>().unwrap() > 30, "{evicted} evicted");
    let asked: Vec<_> = items.iter().map(|item| (0, item.clone())).collect();
    let mut gone = 0;
    for (n, read) in reader.read(&asked, true).await.unwrap().into_iter().enumerate() {
        assert_eq!(read.views, Some(1), "numbers are never evicted");
        match read.sketch {
            None => {
                assert!(n % 10 != 0, "item {n} was not archived");
                gone += 1;
            }
            Some(SketchValue::Bytes(bytes)) => {
                assert!(Sketch::from_redis(&bytes).unwrap().register_eq(&sketch), "item {n} is whole");
            }
            other => panic!("item {n} is {other:?}"),
        }
    }
    assert!(gone > 30, "{gone} gone");
}

#[tokio::test]
async fn a_cluster_without_one_master_comes_back() {
    let bench = Bench::cluster();
    let store = counters(&hasty(&bench));
    let item = key("item");
    for partition in 0..6 {
        count_all(&store, partition, &item, 5).await;
    }
    bench.nodes()[1].kill().unwrap();
    let lost = || async {
        futures::future::join_all((0..6).map(|p| store.applied(p))).await.iter().any(Result::is_err)
    };
    wait_until_async("the loss to show", SOON, lost).await.unwrap();
    bench.nodes()[1].restart().unwrap();
    for partition in 0..6 {
        count_all(&store, partition, &item, 10).await;
    }
    let reader = RedisReader::new(Client::new(Role::Counters, bench.config()).unwrap());
    for partition in 0..6 {
        assert_counts(&reader, partition, &item, 10).await;
    }
}

#[tokio::test]
async fn a_stopped_master_is_left_for_its_replica() {
    let bench = Bench::of_cluster(RedisCluster::builder().replicas(1).start().unwrap());
    let (store, memory) = (counters(&hasty(&bench)), dedup(&hasty(&bench)));
    let item = key("item");
    for partition in 0..6 {
        count_all(&store, partition, &item, 5).await;
        assert_eq!(memory.install(partition, 0, 1, "begin", 0).await, Ok(InstallOutcome::Done));
    }
    // Its connections stay open and answer nothing; it never continues.
    bench.nodes()[0].pause().unwrap();
    for partition in 0..6 {
        count_all(&store, partition, &item, 10).await;
        // What the replica did not have yet is a loss like any other.
        let claimed = || async {
            match memory.applied(partition).await {
                Ok(None) => drop(memory.install(partition, 0, 1, "again", 0).await),
                Ok(Some(at)) if at.offset == 0 => drop(memory.claim(partition, 0, 1, 1, &[], 0..0).await),
                Ok(Some(_)) => return true,
                Err(error) => assert!(error.is_transient(), "{error:?}"),
            }
            false
        };
        wait_until_async("a claim", SOON, claimed).await.unwrap();
    }
    let reader = RedisReader::new(Client::new(Role::Counters, bench.config()).unwrap());
    for partition in 0..6 {
        assert_counts(&reader, partition, &item, 10).await;
    }
}

#[tokio::test]
async fn slots_that_move_are_followed() {
    let bench = Bench::cluster();
    let store = counters(bench.config());
    let item = key("item");
    for partition in 0..6 {
        count_all(&store, partition, &item, 5).await;
    }
    // All slots of the first master go to the second one, behind the client's back.
    let id = |node: &RedisServer| node.cli(&["CLUSTER", "MYID"]).unwrap();
    let [from, to] = [id(&bench.nodes()[0]), id(&bench.nodes()[1])];
    let address = format!("127.0.0.1:{}", bench.nodes()[0].port());
    let mut reshard = std::process::Command::new("redis-cli");
    reshard.args(["--cluster", "reshard", &address, "--cluster-from", &from, "--cluster-to", &to]);
    reshard.args(["--cluster-slots", "5461", "--cluster-yes", "--cluster-pipeline", "100"]);
    let output = reshard.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    // A transaction comes first: the client library itself follows single commands only.
    for partition in 0..6 {
        let at = || async {
            store.begin(partition).await.is_ok_and(|dirty| dirty.is_some_and(|d| d.applied == 5))
        };
        wait_until_async("the new owner", SOON, at).await.unwrap();
        count_all(&store, partition, &item, 10).await;
    }
}
