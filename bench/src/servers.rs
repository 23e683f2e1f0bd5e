//! The servers of a benchmark: real ones, on loopback, for this run alone.

use crate::meter::Watched;
use crate::resp::Resp;
use anyhow::Result;
use onlooker_testkit::cassandra::CassandraServer;
use onlooker_testkit::java::Jvm;
use onlooker_testkit::kafka::KafkaServer;
use onlooker_testkit::redis::RedisServer;

/// What tables call the servers.
pub(crate) const KAFKA: &str = "Kafka";
/// The Redis of the filter's memory.
pub(crate) const DEDUP: &str = "Redis (dedup)";
/// The Redis of the counters.
pub(crate) const COUNTERS: &str = "Redis (counters)";
/// The archive.
pub(crate) const CASSANDRA: &str = "Cassandra";

/// Kafka's own defaults, in place of the short time-outs that tests want: a broker that asks itself five times a second
/// whether it lives takes a fifth of a core with it.
const KAFKA_DEFAULTS: [(&str, &str); 5] = [
    ("broker.session.timeout.ms", "9000"),
    ("broker.heartbeat.interval.ms", "2000"),
    ("controller.quorum.election.timeout.ms", "1000"),
    ("controller.quorum.fetch.timeout.ms", "2000"),
    ("log.index.size.max.bytes", "10485760"),
];

/// Kafka, two Redis and, where it is needed, Cassandra. All of them end with this value.
#[derive(Debug)]
pub(crate) struct Servers {
    /// One broker, optimised as one that stays up.
    pub(crate) kafka: KafkaServer,
    /// `noeviction`.
    pub(crate) dedup: RedisServer,
    /// `volatile-lru` with a limit that is not reached.
    pub(crate) counters: RedisServer,
    cassandra: CassandraServer,
}

impl Servers {
    /// Starts all and waits until they are ready.
    pub(crate) fn start() -> Result<Self> {
        eprintln!("starting Kafka, two Redis and Cassandra");
        let cassandra = CassandraServer::builder().jvm(Jvm::lasting(512)).start()?;
        let mut kafka = KafkaServer::builder().jvm(Jvm::lasting(512));
        for (name, value) in KAFKA_DEFAULTS {
            kafka = kafka.property(name, value);
        }
        let kafka = kafka.start()?;
        let dedup = RedisServer::builder().policy("noeviction").maxmemory("2gb").start()?;
        let counters = RedisServer::builder().policy("volatile-lru").maxmemory("2gb").start()?;
        Ok(Self { kafka, dedup, counters, cassandra })
    }

    /// Where Cassandra takes queries.
    pub(crate) fn archive(&self) -> String {
        self.cassandra.address()
    }

    /// All of them, for a meter.
    pub(crate) fn watched(&self) -> Result<[Watched; 4]> {
        let watched = |name, pid: Result<u32>| Ok::<_, anyhow::Error>(Watched { name, pid: pid? });
        Ok([
            watched(KAFKA, self.kafka.pid())?,
            watched(DEDUP, self.dedup.pid())?,
            watched(COUNTERS, self.counters.pid())?,
            watched(CASSANDRA, self.cassandra.pid())?,
        ])
    }

    /// Empties both Redis.
    pub(crate) fn flush(&self) -> Result<()> {
        for redis in [&self.dedup, &self.counters] {
            Resp::connect(redis.port())?.call(&[b"FLUSHALL", b"SYNC"])?;
        }
        Ok(())
    }
}
