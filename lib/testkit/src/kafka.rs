//! Kafka of one's own: a single broker, or three of which one may be lost.

use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::folder::server_folder;
use crate::java::Jvm;
use crate::kafka_config::{self, Door, Login, Node};
use crate::managed::Managed;
use crate::ports::{free_port, is_open};
use crate::process::Program;

pub use crate::kafka_config::{VERSION, broker_settings};

const READY: Duration = Duration::from_secs(90);

/// Settings of a [`KafkaServer`] or [`KafkaCluster`].
#[derive(Debug, Clone)]
pub struct KafkaBuilder {
    port: u16,
    controller_port: u16,
    jvm: Jvm,
    properties: Vec<(String, String)>,
    login: Option<Login>,
    by_way_of: Vec<u16>,
}

impl KafkaBuilder {
    /// The port of a single broker's plain listener; 0, the default, picks a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The port of a single broker's controller listener; 0, the default, picks a free one.
    pub fn controller_port(mut self, port: u16) -> Self {
        self.controller_port = port;
        self
    }

    /// Heap and compiler; by default 128 MiB and set up for a short life.
    pub fn jvm(mut self, jvm: Jvm) -> Self {
        self.jvm = jvm;
        self
    }

    /// One more line of `server.properties`; it wins over what stands there by default.
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a TLS listener that asks for this user and password, by PLAIN or SCRAM-SHA-256
    /// ([`KafkaServer::secure_bootstrap`]). The plain listener stays.
    pub fn login(mut self, user: &str, password: &str, certificates: &Certificates) -> Self {
        self.login = Some(Login::new(user, password, certificates));
        self
    }

    /// A listener whose clients are sent to these ports of 127.0.0.1, one for each broker, where something passes them on
    /// to [`KafkaServer::door`]. With a [`KafkaBuilder::login`] it is the secure listener, else one more plain one.
    pub fn by_way_of(mut self, ports: &[u16]) -> Self {
        self.by_way_of = ports.to_vec();
        self
    }

    /// Starts a single broker and waits until it is ready.
    ///
    /// # Errors
    /// Kafka or Java cannot be installed, or the broker does not come up; the message has the end of its log.
    pub fn start(self) -> Result<KafkaServer> {
        let folder = server_folder("kafka")?;
        let node = self.node(1)?;
        let program = self.program(&node, std::slice::from_ref(&node), folder.path())?;
        let server = KafkaServer::new(node, program, folder);
        server.restart()?;
        Ok(server)
    }

    /// Starts three brokers (replication 3, `min.insync.replicas` 2) and waits until all are ready.
    ///
    /// # Errors
    /// As for [`KafkaBuilder::start`].
    pub fn start_three(mut self) -> Result<KafkaCluster> {
        (self.port, self.controller_port) = (0, 0);
        let nodes = (1..=3).map(|id| self.node(id)).collect::<Result<Vec<_>>>()?;
        let mut brokers = Vec::new();
        for node in &nodes {
            let folder = server_folder("kafka")?;
            let program = self.program(node, &nodes, folder.path())?;
            brokers.push(KafkaServer::new(*node, program, folder));
        }
        // None is ready before a majority runs.
        for broker in &brokers {
            broker.launch()?;
        }
        for broker in &brokers {
            broker.wait_ready()?;
        }
        Ok(KafkaCluster { brokers })
    }

    /// Prepares `folder` for a single broker, keeping the data of an earlier start there, and says what to
    /// run: for a caller that looks after the process itself. Both ports have to be set.
    ///
    /// # Errors
    /// Kafka or Java cannot be installed, or the folder cannot be written.
    pub fn prepare(&self, folder: &Path) -> Result<Program> {
        let node = self.node(1)?;
        self.program(&node, std::slice::from_ref(&node), folder)
    }

    fn node(&self, id: usize) -> Result<Node> {
        let or_free = |port| if port == 0 { free_port() } else { Ok(port) };
        let secure_port = self.login.as_ref().map(|_| free_port()).transpose()?;
        let door = |told: &u16| {
            Ok::<_, anyhow::Error>(Door { port: or_free(secure_port.unwrap_or(0))?, told: *told })
        };
        Ok(Node {
            id,
            port: or_free(self.port)?,
            controller_port: or_free(self.controller_port)?,
            secure_port,
            door: self.by_way_of.get(id - 1).map(door).transpose()?,
        })
    }

    fn program(&self, node: &Node, all: &[Node], folder: &Path) -> Result<Program> {
        kafka_config::program(node, all, self.jvm, &self.properties, self.login.as_ref(), folder)
    }
}

/// A broker on 127.0.0.1, in KRaft's combined mode. It keeps its data over kills and restarts;
/// killed, and the data removed, when the value is dropped.
#[derive(Debug)]
pub struct KafkaServer {
    node: Node,
    process: Managed,
    _folder: TempDir,
}

impl KafkaServer {
    /// Settings to change before [`KafkaBuilder::start`].
    pub fn builder() -> KafkaBuilder {
        let jvm = Jvm::for_test(128);
        KafkaBuilder {
            port: 0,
            controller_port: 0,
            jvm,
            properties: Vec::new(),
            login: None,
            by_way_of: Vec::new(),
        }
    }

    /// A broker with the defaults.
    ///
    /// # Errors
    /// As for [`KafkaBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// `127.0.0.1:PORT` of the plain listener.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.node.port)
    }

    /// `127.0.0.1:PORT` of the listener with TLS and SASL.
    ///
    /// # Errors
    /// [`KafkaBuilder::login`] was not asked for.
    pub fn secure_bootstrap(&self) -> Result<String> {
        self.node
            .secure_port
            .map(|port| format!("127.0.0.1:{port}"))
            .context("this broker has no secure listener")
    }

    /// The port behind what [`KafkaBuilder::by_way_of`] named.
    ///
    /// # Errors
    /// It was not asked for.
    pub fn door(&self) -> Result<u16> {
        Ok(self.node.door.context("clients come to this broker straight")?.port)
    }

    fn new(node: Node, program: Program, folder: TempDir) -> Self {
        // An open port is enough: a broker opens it when it has joined, and answers then.
        let process = Managed::new(program, READY, move || is_open(node.port));
        Self { node, process, _folder: folder }
    }
}

impl Deref for KafkaServer {
    type Target = Managed;

    fn deref(&self) -> &Managed {
        &self.process
    }
}

/// Three brokers; topics are kept on all, and written as long as two live.
#[derive(Debug)]
pub struct KafkaCluster {
    brokers: Vec<KafkaServer>,
}

impl KafkaCluster {
    /// Three brokers with the defaults; for others see [`KafkaBuilder::start_three`].
    ///
    /// # Errors
    /// As for [`KafkaBuilder::start`].
    pub fn start() -> Result<Self> {
        KafkaServer::builder().start_three()
    }

    /// The brokers, to be killed, paused and restarted one by one. Their ids are 1, 2 and 3.
    pub fn nodes(&self) -> &[KafkaServer] {
        &self.brokers
    }

    /// Each by itself, in the order of their ids.
    pub fn into_nodes(self) -> Vec<KafkaServer> {
        self.brokers
    }

    /// The addresses of all plain listeners, separated by commas.
    pub fn bootstrap(&self) -> String {
        self.brokers.iter().map(KafkaServer::bootstrap).collect::<Vec<_>>().join(",")
    }
}
