//! The servers that Onlooker runs on: one list, from which the daemons on this machine and the Compose file are made.

pub(crate) mod compose;
pub(crate) mod daemon;
mod pid;

use onlooker_testkit::{cassandra, kafka};

/// Kafka and Cassandra are the versions of testkit's poms; Redis is Debian 12's.
const REDIS_VERSION: &str = "7.0.15";

/// One server: what it is for, where it listens on this machine, and what it is told.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    pub(crate) purpose: &'static str,
    /// The default port on 127.0.0.1, for daemons as for containers.
    pub(crate) port: u16,
    /// The image with its exact version.
    pub(crate) image: String,
    pub(crate) kind: Kind,
}

/// What a server is told.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// Lines of `server.properties`.
    Kafka {
        properties: Vec<(&'static str, String)>,
        heap_mb: u32,
    },
    Cassandra {
        cluster_name: &'static str,
        heap_mb: u32,
    },
    /// Directives, without their leading dashes.
    Redis {
        directives: Vec<(&'static str, &'static str)>,
    },
}

/// All services, in the order in which they are shown.
pub(crate) fn list() -> Vec<Service> {
    vec![
        Service {
            name: "kafka",
            purpose: "the log",
            port: 29092,
            image: format!("apache/kafka:{}", kafka::VERSION),
            kind: Kind::Kafka { properties: kafka::broker_settings(1), heap_mb: 512 },
        },
        Service {
            name: "cassandra",
            purpose: "the archive",
            port: 29042,
            image: format!("cassandra:{}", cassandra::VERSION),
            kind: Kind::Cassandra { cluster_name: cassandra::CLUSTER_NAME, heap_mb: 1024 },
        },
        redis("redis-dedup", "the filter's claims", 26379, "noeviction"),
        // Only sketches that the archive holds have a TTL, so only those can be evicted.
        redis("redis-counters", "sketches and numbers", 26380, "volatile-lru"),
    ]
}

/// Persistence is off for both: what they hold is read again from the log and the archive.
fn redis(name: &'static str, purpose: &'static str, port: u16, policy: &'static str) -> Service {
    let directives =
        vec![("save", ""), ("appendonly", "no"), ("maxmemory", "512mb"), ("maxmemory-policy", policy)];
    Service { name, purpose, port, image: format!("redis:{REDIS_VERSION}"), kind: Kind::Redis { directives } }
}
