//! Cassandra of one's own: one node, or three of which one may be lost.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use tempfile::TempDir;

use crate::cassandra_config::{self, Node};
use crate::folder::server_folder;
use crate::java::Jvm;
use crate::managed::Managed;
use crate::ports::{free_port, is_open_at};
use crate::process::Program;

pub use crate::cassandra_config::{CLUSTER_NAME, DATA_CENTRE, VERSION};

const READY: Duration = Duration::from_secs(180);

/// Settings of a [`CassandraServer`] or [`CassandraCluster`].
#[derive(Debug, Clone)]
pub struct CassandraBuilder {
    port: u16,
    storage_port: u16,
    jvm: Jvm,
    settings: Vec<String>,
    authenticated: bool,
}

impl CassandraBuilder {
    /// The port of the CQL protocol, the same for all nodes; 0, the default, picks a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The port on which nodes speak to each other; 0, the default, picks a free one.
    pub fn storage_port(mut self, port: u16) -> Self {
        self.storage_port = port;
        self
    }

    /// Heap and compiler; by default 256 MiB and set up for a short life.
    pub fn jvm(mut self, jvm: Jvm) -> Self {
        self.jvm = jvm;
        self
    }

    /// One more line of `cassandra.yaml`; the name must not stand there by default.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push(format!("{name}: {value}"));
        self
    }

    /// Asks for a user and a password: `cassandra` and `cassandra`, until a test makes others.
    pub fn authenticated(mut self) -> Self {
        self.authenticated = true;
        self
    }

    /// Starts one node and waits until it takes queries.
    ///
    /// # Errors
    /// Cassandra or Java cannot be installed, or the node does not come up; the message has the end of its log.
    pub fn start(self) -> Result<CassandraServer> {
        let mut nodes = self.launch(1)?;
        let Some(node) = nodes.pop() else { bail!("no node was started") };
        node.wait_ready()?;
        Ok(node)
    }

    /// Starts three nodes at 127.0.0.1, 127.0.0.2 and 127.0.0.3 and waits until all take queries.
    ///
    /// # Errors
    /// As for [`CassandraBuilder::start`].
    pub fn start_three(self) -> Result<CassandraCluster> {
        let nodes = self.launch(3)?;
        for node in &nodes {
            node.wait_ready()?;
        }
        Ok(CassandraCluster { nodes })
    }

    /// Prepares `folder` for a single node, keeping the data of an earlier start there, and says what to run:
    /// for a caller that looks after the process itself. Both ports have to be set.
    ///
    /// # Errors
    /// Cassandra or Java cannot be installed, or the folder cannot be written.
    pub fn prepare(&self, folder: &Path) -> Result<Program> {
        let node = Node { number: 0, of: 1, port: self.port, storage_port: self.storage_port };
        cassandra_config::program(&node, self.jvm, &self.lines(), folder)
    }

    fn launch(&self, of: u8) -> Result<Vec<CassandraServer>> {
        // A driver that learns of a node by another's word has its address and takes the port to be the same.
        let or_free = |port| if port == 0 { port_at_all(of) } else { Ok(port) };
        let (port, storage_port) = (or_free(self.port)?, or_free(self.storage_port)?);
        let mut nodes = Vec::new();
        for number in 0..of {
            let folder = server_folder("cassandra")?;
            let node = Node { number, of, port, storage_port };
            let program = cassandra_config::program(&node, self.jvm, &self.lines(), folder.path())?;
            let address = node.address();
            let process = Managed::new(program, READY, move || is_open_at(address));
            // All at once: each waits for the others.
            process.launch()?;
            nodes.push(CassandraServer { address, process, _folder: folder });
        }
        Ok(nodes)
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = self.settings.clone();
        if self.authenticated {
            lines.extend(cassandra_config::authentication());
        }
        lines
    }
}

/// A node. It keeps its data over kills and restarts; killed, and the data removed, when the value is dropped.
#[derive(Debug)]
pub struct CassandraServer {
    address: SocketAddr,
    process: Managed,
    _folder: TempDir,
}

impl CassandraServer {
    /// Settings to change before [`CassandraBuilder::start`].
    pub fn builder() -> CassandraBuilder {
        let jvm = Jvm::for_test(256);
        CassandraBuilder { port: 0, storage_port: 0, jvm, settings: Vec::new(), authenticated: false }
    }

    /// A node with the defaults.
    ///
    /// # Errors
    /// As for [`CassandraBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// Where it takes queries, as `127.0.0.N:PORT`. Its data centre is [`DATA_CENTRE`].
    pub fn address(&self) -> String {
        self.address.to_string()
    }
}

impl Deref for CassandraServer {
    type Target = Managed;

    fn deref(&self) -> &Managed {
        &self.process
    }
}

/// Three nodes in one data centre, each with a third of the ring.
#[derive(Debug)]
pub struct CassandraCluster {
    nodes: Vec<CassandraServer>,
}

impl CassandraCluster {
    /// Three nodes with the defaults; for others see [`CassandraBuilder::start_three`].
    ///
    /// # Errors
    /// As for [`CassandraBuilder::start`].
    pub fn start() -> Result<Self> {
        CassandraServer::builder().start_three()
    }

    /// The nodes, to be killed, paused and restarted one by one.
    pub fn nodes(&self) -> &[CassandraServer] {
        &self.nodes
    }

    /// Each node's [`CassandraServer::address`].
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(CassandraServer::address).collect()
    }
}

/// A port that is free on the first `count` addresses of the loopback network.
fn port_at_all(count: u8) -> Result<u16> {
    for _ in 0..100 {
        let port = free_port()?;
        if (1..=count).all(|last| TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), port)).is_ok()) {
            return Ok(port);
        }
    }
    bail!("no port is free on 127.0.0.1 to 127.0.0.{count}")
}
