//! A cluster with its processes, and proxies on all wires between them and the servers.

use super::kinds::Kind::{self, *};
use super::kinds::Shape;
use crate::proxy::Proxy;
use crate::schedule::{Planned, Timeline};
use crate::support::{LONG, Ledger, Role, System, Wishes};
use onlooker_testkit::cassandra::CassandraServer;
use onlooker_testkit::certificates::Certificates;
use onlooker_testkit::kafka::KafkaServer;
use onlooker_testkit::redis::RedisBuilder;
use onlooker_testkit::{Managed, WallClock, ports, wait_until_async};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

pub(super) const ITEMS: usize = 250;

const USER: (&str, &str) = ("onlooker", "password-of-a-test");

pub(super) struct Field {
    // Before the folder with their logs goes.
    pub(super) roles: Arc<Vec<Role>>,
    /// What stands before each server, by the server's name.
    pub(super) wires: Vec<(String, Proxy)>,
    pub(super) clocks: Mutex<BTreeMap<String, WallClock>>,
    pub(super) acknowledged: HashSet<String>,
    pub(super) system: System,
    sets: Vec<String>,
    with_clocks: bool,
    certificates: Option<Certificates>,
}

impl Field {
    pub(super) async fn new(shape: Shape, kinds: &[Kind]) -> Self {
        let brokers = if shape == Shape::Brokers { 3 } else { 1 };
        let own = (shape == Shape::Encrypted).then(|| Certificates::make().unwrap());
        let certificates = own.as_ref();
        let mut kafka_wires = Vec::new();
        for id in 1..=brokers {
            kafka_wires.push((format!("kafka {id}"), Proxy::start().await));
        }
        let told: Vec<u16> = kafka_wires.iter().map(|(_, proxy)| proxy.port).collect();
        let mut wishes = Wishes {
            own_kafka: true,
            own_cassandra: true,
            kafka: KafkaServer::builder().by_way_of(&told),
            brokers,
            config: "[flusher]\ninterval_ms = 500\n".to_owned(),
            ..Wishes::default()
        };
        // Redis and Cassandra take both, so that eyes look in plain text.
        let tls_ports = [ports::free_port().unwrap(), ports::free_port().unwrap()];
        if let Some(certificates) = certificates {
            wishes.kafka = wishes.kafka.login(USER.0, USER.1, certificates);
            wishes.dedup = with_tls(wishes.dedup, tls_ports[0], certificates);
            wishes.counters = with_tls(wishes.counters, tls_ports[1], certificates);
            let options = node_with_tls(certificates);
            wishes.cassandra = CassandraServer::builder().setting("client_encryption_options", &options);
        }
        let system = tokio::task::block_in_place(|| System::start(wishes));
        let mut wires = kafka_wires;
        for (broker, (_, proxy)) in std::iter::once(&*system.kafka).chain(&system.other_brokers).zip(&wires) {
            proxy.lead_to(broker.door().unwrap());
        }
        let redis = |plain: u16, tls: u16| if certificates.is_some() { tls } else { plain };
        let cassandra = system.cassandra.address().parse::<std::net::SocketAddr>().unwrap().port();
        for (name, port) in [
            ("cassandra", cassandra),
            ("dedup", redis(system.dedup.port(), tls_ports[0])),
            ("counters", redis(system.counters.port(), tls_ports[1])),
        ] {
            let proxy = Proxy::start().await;
            proxy.lead_to(port);
            wires.push((name.to_owned(), proxy));
        }
        let sets = sets(&wires, certificates);
        let mut field = Self {
            roles: Arc::default(),
            wires,
            clocks: Mutex::default(),
            acknowledged: HashSet::new(),
            system,
            sets,
            with_clocks: kinds.contains(&ClockStep),
            certificates: own,
        };
        let mut roles = Vec::new();
        for (role, count) in
            [("collector", 1), ("filter", 2), ("counter", 2), ("flusher", 2), ("counts-api", 1)]
        {
            for _ in 0..count {
                roles.push(field.launch(role));
            }
        }
        field.roles = Arc::new(roles);
        tokio::task::block_in_place(|| field.roles.iter().for_each(Role::wait_ready));
        field
    }

    pub(super) fn launch(&self, role: &str) -> Role {
        let sets: Vec<&str> = self.sets.iter().flat_map(|set| ["--set", set]).collect();
        Role::launch_under(&self.system, role, &sets, |name| {
            if !self.with_clocks {
                return Vec::new();
            }
            let clock = WallClock::new(&self.system.folder.path().join(format!("{name}.clock"))).unwrap();
            let environment = clock.environment();
            self.clocks.lock().unwrap().insert(name.to_owned(), clock);
            environment
        })
    }

    /// Where handshakes are disturbed, a process may take that for a wrong certificate, say so and end, as it does when it
    /// is misconfigured. Whatever runs it starts it again. How often that happened, until the value is dropped.
    pub(super) fn supervise(&self) -> Supervisor {
        let again = Arc::<AtomicU64>::default();
        let (roles, count, needed) =
            (Arc::clone(&self.roles), Arc::clone(&again), self.certificates.is_some());
        let task = tokio::spawn(async move {
            if !needed {
                return;
            }
            loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                for role in roles.iter().filter(|role| !role.is_alive() && was_refused(role)) {
                    count.fetch_add(1, Ordering::Relaxed);
                    role.restart();
                }
            }
        });
        Supervisor { task, again }
    }

    pub(super) fn server(&self, pick: usize) -> (&'static str, &Managed) {
        let servers: [(&str, &Managed); 4] = [
            ("kafka", &self.system.kafka),
            ("cassandra", &self.system.cassandra),
            ("dedup", &self.system.dedup),
            ("counters", &self.system.counters),
        ];
        servers[pick % servers.len()]
    }

    pub(super) fn broker(&self, pick: usize) -> (usize, &Managed) {
        let all: Vec<&KafkaServer> =
            std::iter::once(&*self.system.kafka).chain(&self.system.other_brokers).collect();
        let at = pick % all.len();
        (at + 1, all[at])
    }

    /// What a fault is done to, so that no two are done to one thing at once. None: to nothing of its own.
    pub(super) fn target(&self, fault: &Planned<Kind>) -> Option<String> {
        let redis = |dedup: bool| Some(if dedup { "dedup" } else { "counters" }.to_owned());
        match fault.kind {
            Kill | Stop => Some(self.role(fault.pick).name().to_owned()),
            Zombie => Some(self.owner(fault.pick).name().to_owned()),
            ServerKill | ServerPause => Some(self.server(fault.pick).0.to_owned()),
            DedupFlush | DedupFailover => redis(true),
            CountersFlush | CountersFailover | Eviction | Corruption => redis(false),
            // The wire, and not the server behind it.
            Cut | Slow | Flip => Some(format!("wire {}", self.wire(fault.pick).0)),
            ClockStep => Some("clocks".to_owned()),
            // What writes needs the log. Of three brokers one is away at once.
            Poison | BrokerKill | BrokerPause => Some("kafka".to_owned()),
            Guest | Repeats | ArchiveDamage | TopicAnew | MorePartitions => None,
        }
    }

    pub(super) fn wire(&self, pick: usize) -> &(String, Proxy) {
        &self.wires[pick % self.wires.len()]
    }

    pub(super) fn role(&self, pick: usize) -> &Role {
        &self.roles[pick % self.roles.len()]
    }

    /// Those of some rooms.
    pub(super) fn of(&self, rooms: &[&str]) -> Vec<&Role> {
        let is_of = |role: &&Role| rooms.iter().any(|room| role.name().starts_with(&format!("{room}-")));
        self.roles.iter().filter(is_of).collect()
    }

    /// A process that owns partitions.
    pub(super) fn owner(&self, pick: usize) -> &Role {
        let owners = self.of(&["filter", "counter"]);
        owners[pick % owners.len()]
    }

    /// Everything has come to rest and is exact.
    pub(super) async fn check(&self, timeline: &Timeline) {
        for role in self.roles.iter() {
            let fine = role.is_alive() || (self.certificates.is_some() && was_refused(role));
            assert!(fine, "{} has ended by itself:\n{}", role.name(), tail(&role.log()));
        }
        timeline.note("the load has ended, all is looked at");
        let views = tokio::task::block_in_place(|| Ledger::check(&self.system, &self.acknowledged));
        assert!(views >= self.acknowledged.len());
        Ledger::check_counts(&self.system).await;
        timeline.note("counts are exact");
        // No key outlives what it is for: archived sketches may be evicted, and nothing is staged for ever.
        let keys_are_bounded = || async {
            let (counters, dedup) = (self.system.counters_eyes(), self.system.dedup_eyes());
            tokio::task::block_in_place(|| {
                let lasting = |key: &&String| counters.ttl(key) == -1 && key.starts_with("sketch:");
                let staged = |key: &&String| dedup.ttl(key) == -1 && key.starts_with("staged:");
                counters.keys().iter().filter(lasting).count() == 0
                    && dedup.keys().iter().filter(staged).count() == 0
            })
        };
        wait_until_async("keys to be bounded", LONG, keys_are_bounded).await.unwrap();
    }
}

/// Starts processes again for as long as it lives.
pub(super) struct Supervisor {
    task: JoinHandle<()>,
    pub(super) again: Arc<AtomicU64>,
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Whether that is the last thing that a process said.
fn was_refused(role: &Role) -> bool {
    role.log().lines().last().is_some_and(|line| line.contains("refused the login"))
}

/// How our processes find the servers: by way of the proxies.
fn sets(wires: &[(String, Proxy)], certificates: Option<&Certificates>) -> Vec<String> {
    let nodes = |name: &str| -> Vec<String> {
        let ports = wires.iter().filter(|(wire, _)| wire.starts_with(name)).map(|(_, proxy)| proxy.port);
        ports.map(|port| format!("\"127.0.0.1:{port}\"")).collect()
    };
    let mut sets = vec![format!("log.brokers=[{}]", nodes("kafka").join(","))];
    for (section, wire) in [("archive", "cassandra"), ("dedup", "dedup"), ("counters", "counters")] {
        sets.push(format!("{section}.nodes=[{}]", nodes(wire).join(",")));
    }
    if let Some(certificates) = certificates {
        let authority = certificates.authority().display().to_string();
        for section in ["log", "archive", "dedup", "counters"] {
            sets.push(format!("{section}.tls.ca_file=\"{authority}\""));
        }
        sets.push("log.sasl.mechanism=\"SCRAM-SHA-256\"".to_owned());
        sets.push(format!("log.sasl.username=\"{}\"", USER.0));
        sets.push(format!("log.sasl.password=\"{}\"", USER.1));
    }
    sets
}

/// One more port, that is encrypted.
fn with_tls(redis: RedisBuilder, port: u16, certificates: &Certificates) -> RedisBuilder {
    let path = |path: std::path::PathBuf| path.display().to_string();
    redis
        .arg("--tls-port", &port.to_string())
        .arg("--tls-ca-cert-file", &path(certificates.authority()))
        .arg("--tls-cert-file", &path(certificates.certificate()))
        .arg("--tls-key-file", &path(certificates.key()))
        .arg("--tls-auth-clients", "no")
}

fn node_with_tls(certificates: &Certificates) -> String {
    let stores = certificates.keystore().display().to_string();
    format!(
        "{{enabled: true, optional: true, keystore: {stores}, truststore: {stores}, \
         ssl_context_factory: {{class_name: org.apache.cassandra.security.PEMBasedSslContextFactory}}}}"
    )
}

pub(super) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
