//! The promises of every port on a real Redis: alone, as a cluster, with a password, with TLS.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use onlooker_event::CountKey;
use onlooker_ports::conformance::{counts, dedup};
use onlooker_redis::{Client, Layout, RedisCounters, RedisDedup, RedisReader, Role};
use support::Bench;

struct Dedup {
    bench: Bench,
    store: RedisDedup,
}

impl Dedup {
    fn new(bench: Bench) -> Self {
        let client = Client::new(Role::Dedup, bench.config()).unwrap();
        Self { store: RedisDedup::new(client, Layout::new("1", dedup::PARTITIONS).unwrap()), bench }
    }
}

impl dedup::DedupUnderTest for Dedup {
    type Store = RedisDedup;

    fn store(&self) -> &RedisDedup {
        &self.store
    }

    async fn lose(&self) {
        self.bench.flush();
    }
}

struct Counts {
    bench: Bench,
    store: RedisCounters,
    reader: RedisReader,
}

impl Counts {
    fn new(bench: Bench) -> Self {
        let client = Client::new(Role::Counters, bench.config()).unwrap();
        let store = RedisCounters::new(client.clone(), Layout::new("1", counts::PARTITIONS).unwrap());
        Self { store, reader: RedisReader::new(client), bench }
    }

    /// Does something with a sketch, whose key's name is taken from the server.
    fn with_sketch(
        &self,
        partition: i32,
        key: &CountKey,
        mut act: impl FnMut(&mut redis::Connection, &[u8]),
    ) {
        let stem = format!("sketch:{{1.{partition}.");
        let mut met = 0;
        self.bench.for_keys(stem.as_bytes(), |connection, name| {
            if name.ends_with(&[b":", key.as_bytes()].concat()) {
                act(connection, name);
                met += 1;
            }
        });
        assert_eq!(met, 1, "one key is the sketch of {key:?}");
    }
}

impl counts::CountsUnderTest for Counts {
    type Store = RedisCounters;
    type Reader = RedisReader;

    fn store(&self) -> &RedisCounters {
        &self.store
    }

    fn reader(&self) -> &RedisReader {
        &self.reader
    }

    async fn lose(&self) {
        self.bench.flush();
    }

    async fn evict(&self) {
        self.bench.evict();
    }

    async fn remove(&self, partition: i32, key: &CountKey) {
        self.with_sketch(partition, key, |connection, name| {
            redis::cmd("DEL").arg(name).exec(connection).unwrap();
        });
    }

    async fn spoil(&self, partition: i32, key: &CountKey, with: Option<&[u8]>) {
        self.with_sketch(partition, key, |connection, name| {
            redis::cmd("DEL").arg(name).exec(connection).unwrap();
            match with {
                Some(bytes) => redis::cmd("SET").arg(name).arg(bytes).exec(connection).unwrap(),
                None => redis::cmd("SADD").arg(name).arg("member").exec(connection).unwrap(),
            }
        });
    }
}

#[tokio::test]
async fn counts_alone() {
    counts::all(&Counts::new(Bench::alone())).await;
}

#[tokio::test]
async fn keys_are_seen_as_they_are() {
    for bench in [Bench::alone(), Bench::cluster()] {
        let test = Counts::new(bench);
        counts::keys_are_seen_as_they_are(&test, &test.store, 0).await;
    }
}

#[tokio::test]
async fn counts_are_put_right() {
    for bench in [Bench::alone(), Bench::cluster()] {
        let test = Counts::new(bench);
        counts::counts_are_put_right(&test, &test.store, 0).await;
    }
}

#[tokio::test]
async fn counts_in_a_cluster() {
    counts::all(&Counts::new(Bench::cluster())).await;
}

#[tokio::test]
async fn counts_with_a_password() {
    counts::all(&Counts::new(Bench::with_password())).await;
}

#[tokio::test]
async fn counts_over_tls() {
    let (bench, _certificates) = Bench::with_tls();
    counts::all(&Counts::new(bench)).await;
}

#[tokio::test]
async fn dedup_with_a_password() {
    dedup::all(&Dedup::new(Bench::with_password())).await;
}

#[tokio::test]
async fn dedup_over_tls() {
    let (bench, _certificates) = Bench::with_tls();
    dedup::all(&Dedup::new(bench)).await;
}

#[tokio::test]
async fn dedup_alone() {
    dedup::all(&Dedup::new(Bench::alone())).await;
}

#[tokio::test]
async fn dedup_in_a_cluster() {
    dedup::all(&Dedup::new(Bench::cluster())).await;
}
