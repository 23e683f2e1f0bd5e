//! Servers that the tests of one binary share: started by the first that asks, gone with the process.
//!
//! A test that kills, pauses or empties a server takes one of its own instead. The functions panic when the
//! server does not come up, as a test would.

use std::sync::OnceLock;

use anyhow::Result;

use crate::cassandra::CassandraServer;
use crate::kafka::KafkaServer;
use crate::redis::{RedisCluster, RedisServer};

/// A [`RedisServer`] with the defaults.
pub fn redis() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    SERVER.get_or_init(|| started(RedisServer::start()))
}

/// A [`RedisCluster`] of three masters.
pub fn redis_cluster() -> &'static RedisCluster {
    static CLUSTER: OnceLock<RedisCluster> = OnceLock::new();
    CLUSTER.get_or_init(|| started(RedisCluster::start()))
}

/// A [`KafkaServer`] with the defaults.
pub fn kafka() -> &'static KafkaServer {
    static SERVER: OnceLock<KafkaServer> = OnceLock::new();
    SERVER.get_or_init(|| started(KafkaServer::start()))
}

/// A [`CassandraServer`] with the defaults.
pub fn cassandra() -> &'static CassandraServer {
    static SERVER: OnceLock<CassandraServer> = OnceLock::new();
    SERVER.get_or_init(|| started(CassandraServer::start()))
}

fn started<T>(outcome: Result<T>) -> T {
    outcome.unwrap_or_else(|error| panic!("{error:#}"))
}
