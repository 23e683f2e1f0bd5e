//! A system under test: servers, configuration, processes, and eyes that look at the servers.

mod archive;
#[path = "../../embedded/support/books.rs"]
#[allow(dead_code, reason = "shared with the tests of one machine")]
mod books;
mod http;
mod ledger;
mod log;
mod process;
mod redis;
mod truth;

pub(crate) use archive::ArchiveEyes;
pub(crate) use books::Books;
pub(crate) use http::{Http, view};
#[allow(unused_imports, reason = "wanted where faults are injected")]
pub(crate) use ledger::{Ledger, rebuild};
pub(crate) use log::{LogEyes, Read};
pub(crate) use process::Role;
pub(crate) use redis::RedisEyes;
pub(crate) use truth::{Truth, log_file};

use onlooker_testkit::cassandra::{CassandraBuilder, CassandraServer};
use onlooker_testkit::kafka::{KafkaBuilder, KafkaServer};
use onlooker_testkit::redis::{RedisBuilder, RedisServer};
use onlooker_testkit::{ports, shared};
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long anything may take on a busy machine before a test gives up.
pub(crate) const LONG: Duration = Duration::from_secs(90);

pub(crate) const TOKEN: &str = "server-token-for-tests";
const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// A server of the test's own, or one that the tests share.
pub(crate) enum Held<T: 'static> {
    Own(T),
    Shared(&'static T),
}

impl<T> Deref for Held<T> {
    type Target = T;
    fn deref(&self) -> &T {
        match self {
            Held::Own(server) => server,
            Held::Shared(server) => server,
        }
    }
}

/// Which servers a test wants for itself.
pub(crate) struct Wishes {
    pub(crate) own_kafka: bool,
    pub(crate) own_cassandra: bool,
    /// What the servers of one's own are.
    pub(crate) kafka: KafkaBuilder,
    pub(crate) brokers: usize,
    pub(crate) cassandra: CassandraBuilder,
    pub(crate) dedup: RedisBuilder,
    pub(crate) counters: RedisBuilder,
    pub(crate) partitions: u32,
    /// Lines of the configuration file besides the servers' addresses.
    pub(crate) config: String,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            own_kafka: false,
            own_cassandra: false,
            kafka: KafkaServer::builder(),
            brokers: 1,
            cassandra: CassandraServer::builder(),
            dedup: RedisServer::builder().policy("noeviction"),
            counters: RedisServer::builder().policy("volatile-lru").maxmemory("256mb"),
            partitions: 4,
            config: String::new(),
        }
    }
}

/// Servers, topics, tables and a configuration file of one test.
pub(crate) struct System {
    pub(crate) kafka: Held<KafkaServer>,
    /// Those of three brokers that are not `kafka`.
    pub(crate) other_brokers: Vec<KafkaServer>,
    pub(crate) cassandra: Held<CassandraServer>,
    pub(crate) dedup: RedisServer,
    pub(crate) counters: RedisServer,
    pub(crate) partitions: u32,
    pub(crate) name: String,
    pub(crate) folder: tempfile::TempDir,
    collector_port: u16,
    counts_port: u16,
}

/// Servers start one after the other: two cores bring them up no faster side by side.
fn shared_kafka() -> &'static KafkaServer {
    shared::kafka()
}

impl System {
    /// Starts the servers and sets topics and tables up.
    pub(crate) fn start(wishes: Wishes) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("t{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut other_brokers = Vec::new();
        let kafka = if wishes.own_kafka && wishes.brokers == 3 {
            other_brokers = wishes.kafka.start_three().unwrap().into_nodes();
            Held::Own(other_brokers.remove(0))
        } else if wishes.own_kafka {
            Held::Own(wishes.kafka.start().unwrap())
        } else {
            Held::Shared(shared_kafka())
        };
        let cassandra = if wishes.own_cassandra {
            Held::Own(wishes.cassandra.start().unwrap())
        } else {
            Held::Shared(shared::cassandra())
        };
        let system = Self {
            kafka,
            other_brokers,
            cassandra,
            dedup: wishes.dedup.start().unwrap(),
            counters: wishes.counters.start().unwrap(),
            partitions: wishes.partitions,
            name,
            folder: tempfile::tempdir().unwrap(),
            collector_port: ports::free_port().unwrap(),
            counts_port: ports::free_port().unwrap(),
        };
        std::fs::write(system.config_path(), system.config(&wishes.config)).unwrap();
        for command in [["topics", "apply"], ["schema", "apply"]] {
            let output = system.onlooker(&command);
            assert!(output.status.success(), "{command:?}: {}", text(&output));
        }
        system
    }

    fn config(&self, more: &str) -> String {
        let Self { name, .. } = self;
        format!(
            r#"
[logging]
format = "json"
level = "info"
[layout]
generation = "{name}"
partitions = {}
[topics]
replication = {}
[log]
brokers = ["{}"]
session_timeout_ms = 6000
[log.topics]
views = "{name}.views"
counted = "{name}.views.counted"
ignored = "{name}.views.ignored"
dead = "{name}.views.dead"
[log.groups]
filter = "{name}.filter"
counter = "{name}.counter"
[dedup]
nodes = ["127.0.0.1:{}"]
[counters]
nodes = ["127.0.0.1:{}"]
[archive]
nodes = ["{}"]
keyspace = "{name}"
replication = {{ datacenter1 = 1 }}
[identity]
version = 1
secret = "{SECRET}"
[collector]
listen = "127.0.0.1:{}"
[counts_api]
listen = "127.0.0.1:{}"
[sites.blog]
token = "{TOKEN}"
{more}
"#,
            self.partitions,
            1 + self.other_brokers.len(),
            self.kafka.bootstrap(),
            self.dedup.port(),
            self.counters.port(),
            self.cassandra.address(),
            self.collector_port,
            self.counts_port,
        )
    }

    pub(crate) fn config_path(&self) -> PathBuf {
        self.folder.path().join("onlooker.toml")
    }

    /// Runs a command of the executable to its end.
    pub(crate) fn onlooker(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_onlooker"))
            .args(args)
            .env("ONLOOKER_CONFIG", self.config_path())
            .env("ONLOOKER_TOKEN", TOKEN)
            .env("XDG_STATE_HOME", self.folder.path())
            .output()
            .unwrap()
    }

    /// Starts a role and waits until it is ready.
    pub(crate) fn role(&self, role: &str) -> Role {
        let process = Role::launch(self, role, &[]);
        process.wait_ready();
        process
    }

    /// Starts all five roles and waits until they are ready.
    pub(crate) fn all_roles(&self) -> Vec<Role> {
        let roles: Vec<_> = ["collector", "filter", "counter", "flusher", "counts-api"]
            .map(|role| Role::launch(self, role, &[]))
            .into();
        roles.iter().for_each(Role::wait_ready);
        roles
    }

    pub(crate) fn collector_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.collector_port)
    }

    pub(crate) fn counts_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.counts_port)
    }

    pub(crate) fn http(&self) -> Http {
        Http::new(self.collector_url(), self.counts_url())
    }

    pub(crate) fn log(&self) -> LogEyes {
        LogEyes::new(&self.kafka.bootstrap(), &self.name)
    }

    pub(crate) fn counters_eyes(&self) -> RedisEyes {
        RedisEyes::new(&self.counters.url())
    }

    pub(crate) fn dedup_eyes(&self) -> RedisEyes {
        RedisEyes::new(&self.dedup.url())
    }

    pub(crate) async fn archive(&self) -> ArchiveEyes {
        ArchiveEyes::new(&self.cassandra.address(), &self.name).await
    }
}

/// What a command printed.
pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
