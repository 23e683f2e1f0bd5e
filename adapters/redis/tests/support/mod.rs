//! Servers for the tests, and looks at them that share no code with the crate.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test file uses a part")]

use onlooker_ports::Secret;
use onlooker_redis::{RedisConfig, TlsConfig};
use onlooker_testkit::certificates::Certificates;
use onlooker_testkit::ports::free_port;
use onlooker_testkit::redis::{RedisCluster, RedisServer};

/// Far beyond what anything takes, on a machine that does other things too.
const PATIENT_MS: u64 = 30_000;

pub(crate) const PASSWORD: &str = "correct horse";

enum Servers {
    One(Box<RedisServer>),
    Cluster(RedisCluster),
}

/// A server or a cluster, and how to reach it.
pub(crate) struct Bench {
    servers: Servers,
    config: RedisConfig,
}

impl Bench {
    pub(crate) fn of(server: RedisServer) -> Self {
        let config = RedisConfig {
            response_timeout_ms: PATIENT_MS,
            ..RedisConfig::single("127.0.0.1", server.port())
        };
        Self { servers: Servers::One(Box::new(server)), config }
    }

    pub(crate) fn alone() -> Self {
        Self::of(RedisServer::start().unwrap())
    }

    pub(crate) fn cluster() -> Self {
        Self::of_cluster(RedisCluster::start().unwrap())
    }

    pub(crate) fn of_cluster(cluster: RedisCluster) -> Self {
        let nodes = cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let config =
            RedisConfig { nodes, cluster: true, response_timeout_ms: PATIENT_MS, ..RedisConfig::default() };
        Self { servers: Servers::Cluster(cluster), config }
    }

    /// Asks for a password.
    pub(crate) fn with_password() -> Self {
        let mut bench = Self::of(RedisServer::builder().password(PASSWORD).start().unwrap());
        bench.config.password = Some(Secret::new(PASSWORD));
        bench
    }

    /// Speaks TLS on a port of its own, and asks clients for a certificate.
    pub(crate) fn with_tls() -> (Self, Certificates) {
        let certificates = Certificates::make().unwrap();
        let port = free_port().unwrap();
        let file = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
        let server = RedisServer::builder()
            .arg("--tls-port", &port.to_string())
            .arg("--tls-cert-file", &file(certificates.certificate()))
            .arg("--tls-key-file", &file(certificates.key()))
            .arg("--tls-ca-cert-file", &file(certificates.authority()));
        let mut bench = Self::of(server.start().unwrap());
        bench.config.nodes = vec![format!("localhost:{port}")];
        bench.config.tls = Some(TlsConfig {
            ca_file: Some(certificates.authority()),
            cert_file: Some(certificates.certificate()),
            key_file: Some(certificates.key()),
        });
        (bench, certificates)
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

    /// The only node, or the first one.
    pub(crate) fn node(&self) -> &RedisServer {
        &self.nodes()[0]
    }

    /// A connection to each node, by a plain client.
    fn by_hand(&self) -> impl Iterator<Item = redis::Connection> {
        self.nodes().iter().map(|node| redis::Client::open(node.url()).unwrap().get_connection().unwrap())
    }

    /// Does something with every key whose name holds this text, on the node that has it.
    pub(crate) fn for_keys(&self, part: &[u8], mut act: impl FnMut(&mut redis::Connection, &[u8])) {
        for mut connection in self.by_hand() {
            let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
            let holds = |key: &[u8]| part.is_empty() || key.windows(part.len()).any(|window| window == part);
            for key in keys.iter().filter(|key| holds(key)) {
                act(&mut connection, key);
            }
        }
    }

    /// What Redis does under pressure, at once: whatever has a time to live goes.
    pub(crate) fn evict(&self) {
        let script = "for _, key in ipairs(redis.call('KEYS', '*')) do
                          if redis.call('PTTL', key) >= 0 then redis.call('DEL', key) end
                      end";
        for mut connection in self.by_hand() {
            redis::cmd("EVAL").arg(script).arg(0).exec(&mut connection).unwrap();
        }
    }

    /// Everything is lost.
    pub(crate) fn flush(&self) {
        for node in self.nodes() {
            node.cli(&["FLUSHALL"]).unwrap();
        }
    }
}
