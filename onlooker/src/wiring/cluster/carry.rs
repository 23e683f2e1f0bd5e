//! A cluster, as counts are carried from it and into it.

use super::ports::{archive, counters, dedup};
use super::setup::start_group;
use super::sight::scan;
use crate::carry::{Place, Rows};
use crate::config::Config;
use anyhow::{Context, Result, bail};
use onlooker_kafka::admin::{forget_group, group_positions, topic_id};
use onlooker_kafka::{KafkaHistory, KafkaWriter, check_login};
use onlooker_ports::{CountStore, DedupStore, Position, Topic};
use onlooker_redis::{RedisCounters, RedisDedup};
use onlooker_scylla::ScyllaArchive;
use tokio::sync::mpsc;

/// All of a cluster's servers.
pub(crate) struct ClusterPlace {
    config: Config,
    history: KafkaHistory,
    writer: KafkaWriter,
    archive: ScyllaArchive,
    counters: RedisCounters,
    dedup: RedisDedup,
}

impl ClusterPlace {
    /// Asks every server whether it lets us in and is what the configuration says. Creates nothing.
    pub(crate) async fn open(config: &Config) -> Result<Self> {
        let kafka = &config.cluster.kafka;
        check_login(kafka).await?;
        let place = Self {
            history: KafkaHistory::new(kafka),
            writer: KafkaWriter::open(kafka)?,
            archive: archive(config).await?,
            counters: counters(config).await?,
            dedup: dedup(config).await?,
            config: config.clone(),
        };
        place.archive.connect().await.context("the archive: is `onlooker schema apply` still to be run?")?;
        let id =
            topic_id(kafka, Topic::Counted).await.context("is `onlooker topics apply` still to be run?")?;
        place.archive.check_log(&id, config.layout.partitions).await?;
        for (topic, group) in [(Topic::Views, &kafka.groups.filter), (Topic::Counted, &kafka.groups.counter)]
        {
            let found = group_positions(kafka, topic, group).await?.len();
            if found != config.layout.partitions as usize {
                let name = kafka.topics.get(topic);
                bail!(
                    "topic {name} has {found} partitions and layout.partitions is {}",
                    config.layout.partitions
                );
            }
        }
        Ok(place)
    }

    /// How a person knows it.
    pub(crate) fn name(&self) -> String {
        format!("the cluster at {}, log {}", self.config.cluster.kafka.brokers.join(","), self.generation())
    }
}

impl Place for ClusterPlace {
    type Archive = ScyllaArchive;
    type History = KafkaHistory;
    type Writer = KafkaWriter;

    fn kind(&self) -> &'static str {
        "cluster"
    }

    fn generation(&self) -> &str {
        &self.config.layout.generation
    }

    fn partitions(&self) -> u32 {
        self.config.layout.partitions
    }

    fn archive(&self) -> &ScyllaArchive {
        &self.archive
    }

    fn history(&self) -> &KafkaHistory {
        &self.history
    }

    fn writer(&self) -> &KafkaWriter {
        &self.writer
    }

    async fn earliest(&self) -> Result<Vec<i64>> {
        let kafka = &self.config.cluster.kafka;
        let positions = group_positions(kafka, Topic::Counted, &kafka.groups.counter).await?;
        Ok(positions.into_iter().map(|position| position.earliest).collect())
    }

    async fn scan(&self, sink: mpsc::Sender<Rows>) -> Result<()> {
        scan(&self.archive, sink).await
    }

    async fn untouched(&self) -> Result<()> {
        for partition in (0..).take(self.partitions() as usize) {
            if self.counters.applied(partition).await?.is_some() {
                bail!(
                    "a counter has begun to work on log {}: restore before the rooms are started",
                    self.generation()
                );
            }
            if self.dedup.applied(partition).await?.is_some() {
                bail!(
                    "a filter has begun to work on log {}: restore before the rooms are started",
                    self.generation()
                );
            }
        }
        Ok(())
    }

    async fn hold(&self) -> Result<()> {
        let kafka = &self.config.cluster.kafka;
        Ok(forget_group(kafka, &kafka.groups.filter).await?)
    }

    async fn begin(&self, note: &str) -> Result<()> {
        let position = |partition| Position { partition, offset: 0, note: note.to_owned() };
        let positions: Vec<Position> = (0..).take(self.partitions() as usize).map(position).collect();
        let group = &self.config.cluster.kafka.groups.filter;
        let begun = start_group(&self.config, group, &positions).await;
        begun.with_context(|| {
            format!("group {group} could not be started; stop its members, and run this again")
        })?;
        Ok(())
    }
}
