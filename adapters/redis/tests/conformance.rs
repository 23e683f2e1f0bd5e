//! The promises of every port on a real Redis: alone, as a cluster, with a password, with TLS.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use onlooker_ports::conformance::dedup;
use onlooker_redis::{Client, Layout, RedisDedup, Role};
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

#[tokio::test]
async fn dedup_alone() {
    dedup::all(&Dedup::new(Bench::alone())).await;
}

#[tokio::test]
async fn dedup_in_a_cluster() {
    dedup::all(&Dedup::new(Bench::cluster())).await;
}
