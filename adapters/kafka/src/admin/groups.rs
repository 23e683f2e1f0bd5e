//! Positions of consumer groups, for operators.

use super::{ASK_AGAIN, blocking};
use crate::config::KafkaConfig;
use crate::error::from_kafka;
use crate::health::{Health, Watched};
use crate::login;
use crate::native::{self, group::Described};
use crate::reader::{list_of, partition_count};
use crate::settings;
use onlooker_ports::{Committed, PortError, Position, Topic};
use rdkafka::admin::AdminClient;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{Offset, TopicPartitionList};
use std::time::{Duration, Instant};

/// Commits an offset for each partition of the topic that the group has no commit for, so that the group can start:
/// readers treat a missing commit as an error, since an expired group would otherwise count everything again. `from` says
/// which; 0 for partitions that it does not name. Call it when the topic was just created, or because an operator says
/// so. Returns what was committed, by partition.
///
/// # Errors
/// Kafka cannot be reached or refuses us, or the group has members.
pub async fn commit_start(
    config: &KafkaConfig,
    topic: Topic,
    group: &str,
    from: &[Position],
) -> Result<Vec<Position>, PortError> {
    let name = config.topics.get(topic).to_owned();
    let from = from.to_vec();
    let (config, group) = (config.clone(), group.to_owned());
    blocking(move || {
        let member = Observer::new(&config, &group)?;
        let start = |partition| {
            let named = from.iter().find(|position| position.partition == partition).cloned();
            named.unwrap_or_else(|| Position { partition, offset: 0, note: String::new() })
        };
        let missing: Vec<Position> = patiently(member.wait, || member.committed(&name))?
            .into_iter()
            .filter(|(_, offset)| offset.is_none())
            .map(|(partition, _)| start(partition))
            .collect();
        if missing.is_empty() {
            return Ok(missing);
        }
        let list = list_of(&name, &missing)?;
        patiently(member.wait, || {
            let done = member.consumer.commit(&list, CommitMode::Sync);
            done.map_err(|error| from_kafka(&error, "committing where the group begins"))
        })?;
        Ok(missing)
    })
    .await
}

/// How far a group is, per partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupPosition {
    /// The partition.
    pub partition: i32,
    /// The group's committed next offset.
    pub committed: Option<i64>,
    /// The first offset that the log still has.
    pub earliest: i64,
    /// The log's end, for readers of committed records.
    pub end: i64,
}

impl GroupPosition {
    /// Offsets between the commit and the end: at most so many records, since markers take offsets too.
    pub fn lag(&self) -> i64 {
        (self.end - self.committed.unwrap_or(self.earliest)).max(0)
    }
}

/// Positions of a group in a topic, in order of partitions.
///
/// # Errors
/// Kafka cannot be reached or refuses us, or the topic does not exist.
pub async fn group_positions(
    config: &KafkaConfig,
    topic: Topic,
    group: &str,
) -> Result<Vec<GroupPosition>, PortError> {
    let name = config.topics.get(topic).to_owned();
    let (config, group) = (config.clone(), group.to_owned());
    blocking(move || {
        let member = Observer::new(&config, &group)?;
        let committed = patiently(member.wait, || member.committed(&name))?;
        let position = |(partition, committed)| {
            let bounds = member.consumer.fetch_watermarks(&name, partition, member.wait);
            let (earliest, end) =
                bounds.map_err(|error| from_kafka(&error, format_args!("bounds of {name} [{partition}]")))?;
            Ok(GroupPosition { partition, committed, earliest, end })
        };
        committed.into_iter().map(position).collect()
    })
    .await
}

/// What a group has committed, with its notes, by partition.
pub(crate) async fn group_notes(
    config: &KafkaConfig,
    topic: Topic,
    group: &str,
) -> Result<Vec<(i32, Option<Committed>)>, PortError> {
    let name = config.topics.get(topic).to_owned();
    let (config, group) = (config.clone(), group.to_owned());
    blocking(move || {
        let member = Observer::new(&config, &group)?;
        patiently(member.wait, || member.notes(&name))
    })
    .await
}

/// Who is in a group, and who has which partition of the topic. Blocks.
pub(crate) fn describe(config: &KafkaConfig, group: &str, topic: &str) -> Result<Described, PortError> {
    let watched = Watched::new(config, &Health::new("admin"));
    let client: AdminClient<Watched> =
        AdminClient::from_config_and_context(&settings::admin(config), watched)
            .map_err(|error| from_kafka(&error, "making an admin client"))?;
    let wait = config.request_timeout();
    patiently(wait, || native::group::describe(client.inner(), group, topic, wait))
}

/// A client with a group's name that never joins it.
struct Observer {
    consumer: BaseConsumer<Watched>,
    wait: Duration,
}

impl Observer {
    fn new(config: &KafkaConfig, group: &str) -> Result<Self, PortError> {
        login::check(config)?;
        let watched = Watched::new(config, &Health::new("admin"));
        let consumer = BaseConsumer::from_config_and_context(&settings::member(config, group), watched)
            .map_err(|error| from_kafka(&error, "making a client"))?;
        Ok(Self { consumer, wait: config.request_timeout() })
    }

    fn committed(&self, topic: &str) -> Result<Vec<(i32, Option<i64>)>, PortError> {
        let offset = |(partition, held): (i32, Option<Committed>)| (partition, held.map(|held| held.offset));
        Ok(self.notes(topic)?.into_iter().map(offset).collect())
    }

    fn notes(&self, topic: &str) -> Result<Vec<(i32, Option<Committed>)>, PortError> {
        let what = |error| from_kafka(&error, format_args!("committed offsets of {topic}"));
        let metadata = self.consumer.fetch_metadata(Some(topic), self.wait).map_err(what)?;
        let partitions = i32::try_from(partition_count(&metadata, topic)?).unwrap_or(i32::MAX);
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition(topic, partition);
        }
        let list = self.consumer.committed_offsets(list, self.wait).map_err(what)?;
        let mut committed = Vec::new();
        for element in list.elements() {
            element.error().map_err(what)?;
            let offset = match element.offset() {
                Offset::Offset(offset) => Some(Committed { offset, note: element.metadata().to_owned() }),
                _ => None,
            };
            committed.push((element.partition(), offset));
        }
        Ok(committed)
    }
}

/// Asks again while the answer is one that passes, such as a group's coordinator that is just moving.
fn patiently<T>(wait: Duration, mut ask: impl FnMut() -> Result<T, PortError>) -> Result<T, PortError> {
    let deadline = Instant::now() + wait;
    loop {
        match ask() {
            Err(error) if error.is_transient() && Instant::now() < deadline => std::thread::sleep(ASK_AGAIN),
            outcome => return outcome,
        }
    }
}
