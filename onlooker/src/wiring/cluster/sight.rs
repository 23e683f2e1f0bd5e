//! A cluster, as an operator looks at it.

use super::ports::layout;
use crate::carry::Rows;
use crate::config::Config;
use crate::ops::{Finding, JudgedBy, Sight};
use anyhow::{Context, Result};
use onlooker_event::CountKey;
use onlooker_kafka::{KafkaObserver, KafkaWriter};
use onlooker_ports::Topic;
use onlooker_redis::{Client, RedisCounters, RedisDedup, Role};
use onlooker_scylla::ScyllaArchive;
use std::sync::OnceLock;
use tokio::sync::mpsc;

/// How long a server may take to answer a person: within 5 s they are told which one does not.
const PATIENCE_MS: u64 = 4_000;

/// All of a cluster's servers. Connects to each when it is first asked.
pub(crate) struct ClusterSight {
    pub(super) config: Config,
    log: KafkaObserver,
    /// Made when somebody wants to append.
    writer: OnceLock<KafkaWriter>,
    pub(super) archive: ScyllaArchive,
    pub(super) counters: RedisCounters,
    pub(super) dedup: RedisDedup,
}

impl ClusterSight {
    /// Contacts no server.
    pub(crate) fn new(config: &Config) -> Result<Self> {
        let mut config = config.clone();
        let cluster = &mut config.cluster;
        for timeout in [
            &mut cluster.kafka.request_timeout_ms,
            &mut cluster.kafka.delivery_timeout_ms,
            &mut cluster.archive.request_timeout_ms,
            &mut cluster.archive.connect_timeout_ms,
            &mut cluster.counters.response_timeout_ms,
            &mut cluster.counters.connect_timeout_ms,
            &mut cluster.dedup.response_timeout_ms,
            &mut cluster.dedup.connect_timeout_ms,
        ] {
            *timeout = (*timeout).min(PATIENCE_MS);
        }
        Ok(Self {
            log: KafkaObserver::new(&config.cluster.kafka),
            writer: OnceLock::new(),
            archive: ScyllaArchive::new(&config.cluster.archive, &config.layout.generation)?,
            dedup: RedisDedup::new(Client::new(Role::Dedup, &config.cluster.dedup)?, layout(&config)?),
            counters: RedisCounters::new(
                Client::new(Role::Counters, &config.cluster.counters)?,
                layout(&config)?,
            ),
            config,
        })
    }
}

impl Sight for ClusterSight {
    type Log = KafkaObserver;
    type Writer = KafkaWriter;
    type Counts = RedisCounters;
    type Archive = ScyllaArchive;

    fn generation(&self) -> &str {
        &self.config.layout.generation
    }

    fn partitions(&self) -> u32 {
        self.config.layout.partitions
    }

    fn log(&self) -> &KafkaObserver {
        &self.log
    }

    fn writer(&self) -> Result<&KafkaWriter> {
        if let Some(writer) = self.writer.get() {
            return Ok(writer);
        }
        let writer = KafkaWriter::open(&self.config.cluster.kafka)?;
        Ok(self.writer.get_or_init(|| writer))
    }

    fn counts(&self) -> &RedisCounters {
        &self.counters
    }

    fn archive(&self) -> &ScyllaArchive {
        &self.archive
    }

    fn topic(&self, topic: Topic) -> String {
        self.config.cluster.kafka.topics.get(topic).to_owned()
    }

    fn location(&self, partition: i32, key: &CountKey) -> Option<(u16, String)> {
        self.counters.location(partition, key)
    }

    fn judged_by(&self) -> Result<JudgedBy> {
        let version = self.config.identity.version;
        let windows = self.config.sites.iter().map(|(name, site)| (name.clone(), site.window_s));
        Ok(JudgedBy {
            slice_s: self.config.filter.slice_s,
            windows_s: windows.collect(),
            key_version: (version > 0).then_some(version),
        })
    }

    async fn servers(&self) -> Vec<Finding> {
        super::check::servers(self).await
    }

    async fn settings(&self) -> Vec<Finding> {
        super::check::settings(self).await
    }

    async fn scan(&self, sink: mpsc::Sender<Rows>) -> Result<()> {
        scan(&self.archive, sink).await
    }
}

/// All rows of the archive.
pub(super) async fn scan(archive: &ScyllaArchive, sink: mpsc::Sender<Rows>) -> Result<()> {
    let mut page = None;
    loop {
        let (rows, next) = archive.scan(page).await?;
        if !rows.is_empty() {
            sink.send(rows).await.context("nobody takes the rows any more")?;
        }
        if next.is_none() {
            return Ok(());
        }
        page = next;
    }
}
