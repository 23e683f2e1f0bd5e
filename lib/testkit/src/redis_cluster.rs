//! A Redis Cluster of one's own.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::redis::{RedisBuilder, RedisServer};
use crate::wait::wait_until;

const MASTERS: usize = 3;

/// Settings of a [`RedisCluster`].
#[derive(Debug, Clone, Default)]
pub struct RedisClusterBuilder {
    node: RedisBuilder,
    replicas: usize,
}

impl RedisClusterBuilder {
    /// Settings of every node; its port is ignored.
    pub fn node(mut self, node: RedisBuilder) -> Self {
        self.node = node;
        self
    }

    /// Replicas of each of the three masters; none by default.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Starts the nodes, joins them and waits until each says that the cluster is whole.
    ///
    /// # Errors
    /// A node does not come up, or they do not agree within 30 s.
    pub fn start(self) -> Result<RedisCluster> {
        let node = self.node.port(0).arg("--cluster-enabled", "yes").arg("--cluster-node-timeout", "1000");
        // 0: a replica takes over however long it has not heard of its master.
        let node = node.arg("--cluster-replica-validity-factor", "0");
        let count = MASTERS * (1 + self.replicas);
        let nodes = (0..count).map(|_| node.clone().start()).collect::<Result<Vec<_>>>()?;
        let mut create = nodes[0].settings().cli();
        create.args(["--cluster", "create"]);
        create.args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())));
        create.args(["--cluster-replicas", &self.replicas.to_string(), "--cluster-yes"]);
        let output = create.output().context("cannot run redis-cli")?;
        if !output.status.success() {
            bail!("cannot create the cluster: {}", String::from_utf8_lossy(&output.stdout));
        }
        let cluster = RedisCluster { nodes };
        cluster.wait_whole(Duration::from_secs(30))?;
        Ok(cluster)
    }
}

/// Three masters, each with the replicas that were asked for; all killed when the value is dropped.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Settings to change before [`RedisClusterBuilder::start`].
    pub fn builder() -> RedisClusterBuilder {
        RedisClusterBuilder::default()
    }

    /// Three masters without replicas.
    ///
    /// # Errors
    /// As for [`RedisClusterBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// The nodes: the three first masters first, then their replicas. Kill and restart them one by one;
    /// a node keeps its place in the cluster over a restart.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Each node's [`RedisServer::url`].
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// Waits until every node that answers says `cluster_state:ok` and knows all nodes, and at least one answers.
    ///
    /// # Errors
    /// `timeout` has passed.
    pub fn wait_whole(&self, timeout: Duration) -> Result<()> {
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        wait_until("the Redis Cluster to be whole", timeout, || {
            let answers: Vec<String> =
                self.nodes.iter().filter_map(|node| node.cli(&["CLUSTER", "INFO"]).ok()).collect();
            !answers.is_empty()
                && answers.iter().all(|info| info.contains("cluster_state:ok") && info.contains(&known))
        })
    }
}
