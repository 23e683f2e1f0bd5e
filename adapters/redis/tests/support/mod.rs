//! Servers for the tests, and looks at them that share no code with the crate.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test file uses a part")]

use onlooker_redis::RedisConfig;
use onlooker_testkit::redis::{RedisCluster, RedisServer};

enum Servers {
    One(RedisServer),
    Cluster(RedisCluster),
}

/// A server or a cluster, and how to reach it.
pub(crate) struct Bench {
    servers: Servers,
    config: RedisConfig,
}

impl Bench {
    pub(crate) fn of(server: RedisServer) -> Self {
        let config = RedisConfig::single("127.0.0.1", server.port());
        Self { servers: Servers::One(server), config }
    }

    pub(crate) fn alone() -> Self {
        Self::of(RedisServer::start().unwrap())
    }

    pub(crate) fn cluster() -> Self {
        let cluster = RedisCluster::start().unwrap();
        let nodes = cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let config = RedisConfig { nodes, cluster: true, ..RedisConfig::default() };
        Self { servers: Servers::Cluster(cluster), config }
    }

    pub(crate) fn config(&self) -> &RedisConfig {
        &self.config
    }

    pub(crate) fn nodes(&self) -> &[RedisServer] {
        match &self.servers {
            Servers::One(server) => std::slice::from_ref(server),
            Servers::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// Everything is lost.
    pub(crate) fn flush(&self) {
        for node in self.nodes() {
            node.cli(&["FLUSHALL"]).unwrap();
        }
    }
}
