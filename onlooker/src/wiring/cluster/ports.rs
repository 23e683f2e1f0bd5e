//! Opens each room's ports, and asks every server once whether it lets us in and is what the protocols rest on.
//!
//! A wrong password, certificate or setting ends the process at once, by name. A server that is away does not: the room
//! starts, says so on its readiness, and goes on by itself when the server is back.

use crate::config::Config;
use anyhow::Result;
use onlooker_counter::CounterPorts;
use onlooker_filter::FilterPorts;
use onlooker_flusher::FlusherPorts;
use onlooker_kafka::{KafkaHistory, KafkaReader, KafkaTransactor, KafkaWriter, admin, check_login};
use onlooker_ports::{PortError, Topic};
use onlooker_redis::{Client, Layout, RedisCounters, RedisDedup, RedisReader, Role};
use onlooker_scylla::ScyllaArchive;
use onlooker_stage::Backoff;
use std::sync::OnceLock;
use std::time::Duration;

/// Passes what waiting can put right, with a warning.
fn settled<T>(result: Result<T, PortError>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_transient() => {
            tracing::warn!(%error, "a server is away at the start");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn warn_all(warnings: Option<Vec<String>>) {
    for warning in warnings.unwrap_or_default() {
        tracing::warn!(warning, "a setting is not what it should be");
    }
}

pub(super) fn layout(config: &Config) -> Result<Layout> {
    Ok(Layout::new(&config.layout.generation, config.layout.partitions)?)
}

/// The collector's log.
pub(crate) async fn collector_log(config: &Config) -> Result<KafkaWriter> {
    settled(check_login(&config.cluster.kafka).await)?;
    Ok(KafkaWriter::open(&config.cluster.kafka)?)
}

/// The filter's ports, and what returns once its memory may no longer be relied on.
pub(crate) async fn filter_ports(
    config: &Config,
) -> Result<(
    FilterPorts<KafkaReader, KafkaTransactor, KafkaHistory, RedisDedup>,
    impl Future<Output = anyhow::Error> + Send + use<>,
)> {
    let answers = settled(check_login(&config.cluster.kafka).await)?.is_some();
    let dedup = open_dedup(config)?;
    if answers {
        // Before anything is done with it: two systems that share it by mistake make holes in each other's memory.
        settled(say_topic_of_views(config, &dedup).await)?;
    }
    warn_all(settled(dedup.check().await)?);
    let watched = (config.clone(), dedup.clone(), OnceLock::new());
    let watch = watch_store(watched, async |(config, dedup, counted)| {
        say_topic_of_views(config, dedup).await?;
        still_the_topic_of_counted(config, counted).await?;
        dedup.check().await.map(drop)
    });
    let ports = FilterPorts {
        reader: KafkaReader::open(&config.cluster.kafka, Topic::Views, &config.cluster.kafka.groups.filter)?,
        transactor: KafkaTransactor::open(&config.cluster.kafka, Topic::Views)?,
        history: KafkaHistory::new(&config.cluster.kafka),
        dedup,
    };
    Ok((ports, watch))
}

async fn say_topic_of_views(config: &Config, dedup: &RedisDedup) -> Result<(), PortError> {
    dedup.belongs_to(&admin::topic_id(&config.cluster.kafka, Topic::Views).await?)
}

/// No store of a filter knows which topic its verdicts go to. So it is the one that was there when it was first asked for.
async fn still_the_topic_of_counted(config: &Config, first: &OnceLock<String>) -> Result<(), PortError> {
    let kafka = &config.cluster.kafka;
    let id = admin::topic_id(kafka, Topic::Counted).await?;
    let first = first.get_or_init(|| id.clone());
    if *first == id {
        return Ok(());
    }
    let name = kafka.topics.get(Topic::Counted);
    Err(PortError::Misconfigured {
        server: "kafka",
        detail: format!(
            "topic {name} was made anew: it is {id}, and was {first}; what was counted from the former one is another log's, \
             so it needs a layout.generation of its own"
        ),
    })
}

fn open_dedup(config: &Config) -> Result<RedisDedup> {
    Ok(RedisDedup::new(Client::new(Role::Dedup, &config.cluster.dedup)?, layout(config)?))
}

pub(super) async fn dedup(config: &Config) -> Result<RedisDedup> {
    let dedup = open_dedup(config)?;
    warn_all(settled(dedup.check().await)?);
    Ok(dedup)
}

pub(super) async fn counters(config: &Config) -> Result<RedisCounters> {
    let counts = open_counters(config)?;
    warn_all(settled(counts.check().await)?);
    Ok(counts)
}

fn open_counters(config: &Config) -> Result<RedisCounters> {
    Ok(RedisCounters::new(Client::new(Role::Counters, &config.cluster.counters)?, layout(config)?))
}

pub(super) async fn archive(config: &Config) -> Result<ScyllaArchive> {
    let archive = ScyllaArchive::new(&config.cluster.archive, &config.layout.generation)?;
    settled(archive.connect().await)?;
    Ok(archive)
}

/// The counter's ports, and what returns once its store may no longer be relied on.
pub(crate) async fn counter_ports(
    config: &Config,
) -> Result<(
    CounterPorts<KafkaReader, RedisCounters, ScyllaArchive, KafkaWriter>,
    impl Future<Output = anyhow::Error> + Send + use<>,
)> {
    let answers = settled(check_login(&config.cluster.kafka).await)?.is_some();
    let counts = open_counters(config)?;
    if answers {
        settled(say_topic_of_counted(config, &counts).await)?;
    }
    warn_all(settled(counts.check().await)?);
    let watched = (config.clone(), counts.clone());
    let watch = watch_store(watched, async |(config, counts)| {
        say_topic_of_counted(config, counts).await?;
        counts.check_again().await.map(drop)
    });
    let ports = CounterPorts {
        counts,
        archive: archive(config).await?,
        reader: KafkaReader::open(
            &config.cluster.kafka,
            Topic::Counted,
            &config.cluster.kafka.groups.counter,
        )?,
        dead: KafkaWriter::open(&config.cluster.kafka)?,
    };
    Ok((ports, watch))
}

async fn say_topic_of_counted(config: &Config, counts: &RedisCounters) -> Result<(), PortError> {
    counts.belongs_to(&admin::topic_id(&config.cluster.kafka, Topic::Counted).await?)
}

/// How often a store is asked whether it still is what it has to be.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// Asks a store from time to time what was asked at the start. Somebody may set another policy meanwhile, or start the
/// server with other settings; it may have been away at the start; and the topic may be made anew. Returns only what
/// waiting does not put right.
async fn watch_store<S>(store: S, ask: impl AsyncFn(&S) -> Result<(), PortError>) -> anyhow::Error {
    let mut told = None;
    loop {
        match ask(&store).await {
            Err(error) if !error.is_transient() => return error.into(),
            // Once for every trouble. A topic that nobody has created yet is told by nobody else: a reader without
            // partitions only waits.
            Err(error) if told.as_ref() != Some(&error) => {
                tracing::warn!(%error, "it cannot be asked whether log and store belong together");
                told = Some(error);
            }
            Err(_) => {}
            Ok(()) => told = None,
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Asks until both servers answer whether the topic still is the log that the archive knows. Returns only if it is not:
/// offsets of a topic that was deleted and made again mean other records.
pub(crate) async fn watch_log(config: Config) -> anyhow::Error {
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
    loop {
        match check_log(&config).await {
            Ok(()) => return std::future::pending().await,
            Err(error) if error.is_transient() => tokio::time::sleep(backoff.next_delay()).await,
            Err(error) => return error.into(),
        }
    }
}

async fn check_log(config: &Config) -> Result<(), PortError> {
    let misconfigured = |detail: String| PortError::Misconfigured { server: "archive", detail };
    let archive = ScyllaArchive::new(&config.cluster.archive, &config.layout.generation)
        .map_err(|error| misconfigured(error.to_string()))?;
    let id = admin::topic_id(&config.cluster.kafka, Topic::Counted).await?;
    archive.claim_log(&id, config.layout.partitions).await
}

/// How often the topics' partitions are counted.
const COUNT_AGAIN: Duration = Duration::from_secs(30);

/// Counts the topics' partitions from time to time. Returns only if there are not as many as keys were spread over: with
/// more of them a key would have two places, and its views would be judged and counted apart.
pub(crate) async fn watch_partitions(config: Config) -> anyhow::Error {
    let wanted = config.layout.partitions;
    let groups = [
        (Topic::Views, &config.cluster.kafka.groups.filter),
        (Topic::Counted, &config.cluster.kafka.groups.counter),
    ];
    loop {
        for (topic, group) in groups {
            let name = config.cluster.kafka.topics.get(topic);
            match admin::group_positions(&config.cluster.kafka, topic, group).await {
                Ok(found) if found.len() != wanted as usize => {
                    return anyhow::anyhow!(
                        "topic {name} has {} partitions and layout.partitions is {wanted}: a topic that got more is \
                         another log generation",
                        found.len()
                    );
                }
                Ok(_) => {}
                // Whoever works with the topic says what is wrong with it; asking once more costs nothing.
                Err(error) => tracing::debug!(%error, topic = name, "partitions were not counted"),
            }
        }
        tokio::time::sleep(COUNT_AGAIN).await;
    }
}

/// The flusher's ports, and what returns once it may no longer copy from the one to the other.
pub(crate) async fn flusher_ports(
    config: &Config,
) -> Result<(FlusherPorts<RedisCounters, ScyllaArchive>, impl Future<Output = anyhow::Error> + Send + use<>)>
{
    let archive = archive(config).await?;
    let counts = open_counters(config)?;
    // Another system's counters would be marked as archived, and are not where that one looks for them.
    if archive.is_connected() {
        settled(say_topic_of_archive(&archive, &counts).await)?;
    }
    warn_all(settled(counts.check().await)?);
    let watched = (archive.clone(), counts.clone());
    let watch = watch_store(watched, async |(archive, counts)| {
        say_topic_of_archive(archive, counts).await?;
        counts.check_again().await.map(drop)
    });
    let partitions = config.layout.partitions;
    Ok((FlusherPorts { counts, archive, partitions, hurry: None }, watch))
}

/// A flusher does not ask Kafka: the archive knows which topic the log is.
async fn say_topic_of_archive(archive: &ScyllaArchive, counts: &RedisCounters) -> Result<(), PortError> {
    match archive.topic_id().await? {
        Some(id) => counts.belongs_to(&id),
        None => Ok(()),
    }
}

/// The counts API's port.
pub(crate) async fn counts_reader(config: &Config) -> Result<RedisReader> {
    let client = Client::new(Role::Counters, &config.cluster.counters)?;
    let reader = RedisReader::new(client);
    settled(onlooker_ports::CountReader::partitions(&reader).await)?;
    Ok(reader)
}
