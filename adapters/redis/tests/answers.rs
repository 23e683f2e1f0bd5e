//! An answer reaches the one who asked, whatever went wrong for others on the same connection.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use onlooker_event::CountKey;
use onlooker_ports::conformance::counts::{key, member};
use onlooker_ports::{
    Apply, ApplyOutcome, Base, CountLookup, CountReader, CountStore, Number, SketchAdd, SketchRead,
    SketchValue,
};
use onlooker_redis::{Client, Layout, RedisCounters, RedisReader, Role};
use onlooker_sketch::Sketch;
use support::Bench;

const ITEMS: u32 = 100;

struct Shop {
    bench: Bench,
    store: RedisCounters,
    reader: RedisReader,
    items: Vec<CountKey>,
    at: i64,
}

/// Item n has n + 1 viewers and as many views.
async fn shop(bench: Bench) -> Shop {
    let client = Client::new(Role::Counters, bench.config()).unwrap();
    let store = RedisCounters::new(client.clone(), Layout::new("1", 1).unwrap());
    let items: Vec<CountKey> = (0..ITEMS).map(|n| key(&format!("item-{n}"))).collect();
    store.init(0, 0, 0).await.unwrap();
    let numbers = (0..ITEMS).zip(&items);
    let numbers = numbers.map(|(n, key)| (key.clone(), Number { n: u64::from(n) + 1, u: 10, changed_s: 0 }));
    let sketches = (0..ITEMS).zip(&items).map(|(n, key)| SketchAdd {
        key: key.clone(),
        members: (0..=n).map(member).collect(),
        base: Some(Base::default()),
    });
    let batch =
        Apply { from: 0, to: 10, as_of_ms: 1, numbers: numbers.collect(), sketches: sketches.collect() };
    assert_eq!(store.apply(0, &batch).await, Ok(ApplyOutcome::Done));
    Shop { reader: RedisReader::new(client), bench, store, items, at: 10 }
}

impl Shop {
    fn name(&self, n: usize) -> Vec<u8> {
        let mut found = None;
        self.bench.for_keys(b"sketch:{", |_, name| {
            if name.ends_with(&[b":", self.items[n].as_bytes()].concat()) {
                found = Some(name.to_vec());
            }
        });
        found.unwrap()
    }

    /// A command by hand on a sketch.
    fn by_hand(&self, command: &str, n: usize, arguments: &[&[u8]]) {
        let name = self.name(n);
        self.bench.for_keys(&name, |connection, name| {
            redis::cmd(command).arg(name).arg(arguments).exec(connection).unwrap();
        });
    }

    /// A batch that meets the spoilt key in its middle.
    fn batch_over(&self, spoilt: usize) -> Apply {
        let sketches = [spoilt - 1, spoilt, spoilt + 1].map(|n| SketchAdd {
            key: self.items[n].clone(),
            members: [member(5_000)].into(),
            base: None,
        });
        Apply { from: self.at, to: self.at + 1, as_of_ms: 1, numbers: vec![], sketches: sketches.into() }
    }
}

async fn errors_stay_where_they_belong(bench: Bench) {
    let shop = shop(bench).await;
    shop.by_hand("DEL", 50, &[]);
    // What stands there now is no string.
    let stem = shop.name(49);
    let wrong = [&stem[..stem.len() - 2], b"50"].concat();
    shop.bench.for_keys(&stem, |connection, _| {
        redis::cmd("SADD").arg(&wrong[..]).arg("member").exec(connection).unwrap();
    });

    // Failing batches and a hundred readers on one connection, all at once.
    let failing = async {
        for _ in 0..20 {
            let outcome = shop.store.apply(0, &shop.batch_over(50)).await.unwrap();
            assert_eq!(outcome, ApplyOutcome::Corrupt(vec![1]));
        }
    };
    let reading = futures::future::join_all((0..ITEMS).map(|n| {
        let shop = &shop;
        async move {
            for round in 0..10 {
                let asked = [(0, shop.items[n as usize].clone())];
                let read = shop.reader.read(&asked, round % 2 == 0).await.unwrap().swap_remove(0);
                assert_eq!(read.views, Some(u64::from(n) + 1), "item {n}");
                match read.sketch.unwrap() {
                    SketchValue::Corrupt => assert_eq!(n, 50),
                    SketchValue::Estimate(count) => {
                        assert!(count.abs_diff(u64::from(n) + 1) <= 2, "item {n}: {count}")
                    }
                    SketchValue::Bytes(bytes) => {
                        let count = Sketch::from_redis(&bytes).unwrap().count();
                        assert!(count.abs_diff(u64::from(n) + 1) <= 2, "item {n}: {count}");
                    }
                }
            }
        }
    }));
    let looking = async {
        for _ in 0..20 {
            let CountLookup::Found(held) = shop.store.lookup(0, 10, &shop.items).await.unwrap() else {
                panic!("a gap")
            };
            assert!(held.iter().enumerate().all(|(n, held)| held.number.unwrap().n == n as u64 + 1));
        }
    };
    tokio::join!(failing, reading, looking);
    assert_eq!(shop.store.applied(0).await, Ok(Some(10)));
}

#[tokio::test]
async fn errors_stay_where_they_belong_alone() {
    errors_stay_where_they_belong(Bench::alone()).await;
}

#[tokio::test]
async fn errors_stay_where_they_belong_in_a_cluster() {
    errors_stay_where_they_belong(Bench::cluster()).await;
}

#[tokio::test]
async fn a_transaction_that_fails_leaves_the_connection_good() {
    let mut shop = shop(Bench::alone()).await;
    // A transaction of several commands, of which one meets a key of the wrong type.
    let mut totals = Vec::new();
    shop.bench.for_keys(b"dirtyN:{", |_, name| totals = name.to_vec());
    shop.bench.for_keys(b"dirtyN:{", |connection, name| {
        redis::cmd("RENAME").arg(name).arg("aside").exec(connection).unwrap();
        redis::cmd("SET").arg(name).arg("text").exec(connection).unwrap();
    });
    let error = shop.store.lookup(0, 10, &shop.items).await.unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    shop.bench.for_keys(b"aside", |connection, name| {
        redis::cmd("RENAME").arg(name).arg(&totals[..]).exec(connection).unwrap();
    });
    for _ in 0..10 {
        let found = shop.store.lookup(0, 10, &shop.items).await.unwrap();
        assert!(matches!(&found, CountLookup::Found(held) if held.len() == 100), "{found:?}");
    }
    shop.at = 10;
    let next = Apply { sketches: vec![], ..shop.batch_over(50) };
    assert_eq!(shop.store.apply(0, &next).await, Ok(ApplyOutcome::Done));
}

#[tokio::test]
async fn a_sketch_with_junk_behind_it_is_seen_by_every_reader() {
    let shop = shop(Bench::alone()).await;
    // PFADD still says that all is well, PFCOUNT does not.
    shop.by_hand("APPEND", 30, &[b"junk"]);
    assert_eq!(shop.store.apply(0, &shop.batch_over(30)).await, Ok(ApplyOutcome::Done));
    let asked = [29, 30, 31].map(|n| (0, shop.items[n].clone()));
    for bytes in [true, false] {
        let read = shop.reader.read(&asked, bytes).await.unwrap();
        let corrupt: Vec<bool> = read.iter().map(|r| r.sketch == Some(SketchValue::Corrupt)).collect();
        assert_eq!(corrupt, [false, true, false], "bytes: {bytes}");
    }
    // The flusher gets the bytes as they are, and they do not pass for a sketch.
    let read = shop.store.read_sketches(0, 11, &shop.items[30..31]).await.unwrap().unwrap();
    let [SketchRead::Found { bytes, .. }] = &read[..] else { panic!("{read:?}") };
    assert!(onlooker_sketch::validate(bytes).is_err());
}

#[tokio::test]
async fn bytes_of_any_value_come_back() {
    let mut shop = shop(Bench::alone()).await;
    // A dense sketch with every byte value in it, a sparse one, and an empty one: through no text on any path.
    let mut dense = Sketch::new_dense();
    (0..60_000).for_each(|n| {
        dense.add(&member(n));
    });
    let mut sparse = Sketch::new();
    sparse.add(b"one");
    for (n, sketch) in [dense, sparse, Sketch::new()].iter().enumerate() {
        let item = key(&format!("bytes-{n}"));
        let base = Base { blob: Some(sketch.to_redis().into()), ts: 0 };
        let add =
            SketchAdd { key: item.clone(), members: [].into_iter().collect(), base: Some(base.clone()) };
        let batch =
            Apply { from: shop.at, to: shop.at + 1, as_of_ms: 1, numbers: vec![], sketches: vec![add] };
        assert_eq!(shop.store.apply(0, &batch).await, Ok(ApplyOutcome::Done));
        shop.at += 1;
        let read = shop.store.read_sketches(0, 0, std::slice::from_ref(&item)).await.unwrap().unwrap();
        assert_eq!(read, [SketchRead::Found { t: shop.at, bytes: base.blob.unwrap() }]);
        let read = shop.reader.read(&[(0, item)], false).await.unwrap().swap_remove(0);
        assert_eq!(read.sketch, Some(SketchValue::Estimate(sketch.count())));
    }
}

/// A replica that takes over lacks the last writes, and nothing in it says so.
#[tokio::test]
async fn who_has_seen_a_partition_further_knows_that_it_went_back() {
    let shop = shop(Bench::alone()).await;
    let asked = [(0, shop.items[3].clone())];
    let state = async || {
        let (_, state) = shop.reader.read_with_states(&asked, false).await.unwrap().swap_remove(0);
        let alone = shop.reader.states(&[0]).await.unwrap()[0].unwrap();
        let state = state.unwrap();
        assert_eq!(state.applied >= state.whole_at, alone.applied >= alone.whole_at);
        state
    };
    let stands = |offset: &str| {
        shop.bench.for_keys(b"applied:{", |connection, name| {
            redis::cmd("HSET").arg(name).arg("offset").arg(offset).exec(connection).unwrap();
        });
    };
    let whole = state().await;
    assert!(whole.applied == 10 && whole.applied >= whole.whole_at, "{whole:?}");
    for offset in ["4", "9"] {
        stands(offset);
        let behind = state().await;
        assert_eq!((behind.applied.to_string().as_str(), behind.whole_at), (offset, 10));
    }
    for offset in ["10", "12"] {
        stands(offset);
        let again = state().await;
        assert!(again.applied >= again.whole_at, "{again:?}");
    }
}
