//! The topics' set-up: created and checked, never silently changed.

mod groups;

pub use groups::{GroupPosition, commit_start, group_positions};
pub(crate) use groups::{describe, group_notes};

use crate::config::KafkaConfig;
use crate::error::{failed, from_code, from_kafka, misconfigured};
use crate::health::{Health, Watched};
use crate::login::check_login;
use crate::native;
use crate::reader::partition_count;
use crate::settings;
use onlooker_ports::{PortError, Topic};
use onlooker_schemas::topics::TopicSpec;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::RDKafkaErrorCode;
use std::fmt;
use std::time::{Duration, Instant};

const ASK_AGAIN: Duration = Duration::from_millis(500);

/// A topic by role with what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedTopic {
    /// The role; the name is configuration.
    pub topic: Topic,
    /// Partitions, copies, retention.
    pub spec: TopicSpec,
}

/// A setting that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// Which setting, as Kafka calls it; `partitions` and `replication.factor` too.
    pub setting: String,
    /// What it should be.
    pub wanted: String,
    /// What it is.
    pub found: String,
    /// True if it was put right.
    pub fixed: bool,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, wanted, found, fixed } = self;
        let then = if *fixed { "; put right" } else { "" };
        write!(f, "{setting} is {found}, wanted {wanted}{then}")
    }
}

/// What was found or done for one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicReport {
    /// The topic's name.
    pub name: String,
    /// True if it did not exist.
    pub created: bool,
    /// Where it differs.
    pub drift: Vec<Drift>,
}

/// Creates the topics that are missing and compares the others. With `fix`, settings that can be changed without moving
/// data are put right; partitions and copies never are.
///
/// Idempotent; two that run at once do no harm.
///
/// # Errors
/// Kafka cannot be reached, refuses us, or has fewer brokers than a topic wants copies.
pub async fn apply_topics(
    config: &KafkaConfig,
    wanted: &[WantedTopic],
    fix: bool,
) -> Result<Vec<TopicReport>, PortError> {
    let admin = Admin::connect(config).await?;
    let mut reports = Vec::new();
    for WantedTopic { topic, spec } in wanted {
        let name = config.topics.get(*topic).to_owned();
        let created = admin.create_in_time(&name, spec).await?;
        let drift = if created { Vec::new() } else { admin.compare(&name, spec, fix).await? };
        reports.push(TopicReport { name, created, drift });
    }
    Ok(reports)
}

/// Compares topics with what they should be and changes nothing: by name, where each differs, or why that cannot be told,
/// which may be that there is no such topic.
///
/// # Errors
/// Kafka cannot be reached or refuses us.
pub async fn check_topics(
    config: &KafkaConfig,
    wanted: &[WantedTopic],
) -> Result<Vec<(String, Result<Vec<Drift>, PortError>)>, PortError> {
    let admin = Admin::connect(config).await?;
    let mut found = Vec::new();
    for WantedTopic { topic, spec } in wanted {
        let name = config.topics.get(*topic).to_owned();
        let drift = admin.compare(&name, spec, false).await;
        found.push((name, drift));
    }
    Ok(found)
}

/// The topic's id, which a topic that is deleted and created again does not share with the one before. Offsets mean
/// something only beside it.
///
/// # Errors
/// Kafka cannot be reached or refuses us, or the topic does not exist.
pub async fn topic_id(config: &KafkaConfig, topic: Topic) -> Result<String, PortError> {
    let name = config.topics.get(topic).to_owned();
    let admin = Admin::connect(config).await?;
    blocking(move || native::admin::topic_id(admin.client.inner(), &name, admin.wait)).await
}

/// Forgets what a group has committed, so that none of its members goes to work until somebody commits a start. Nothing to
/// do where there is no such group.
///
/// # Errors
/// `Misconfigured` if the group has members; else Kafka cannot be reached or refuses us.
pub async fn forget_group(config: &KafkaConfig, group: &str) -> Result<(), PortError> {
    let admin = Admin::connect(config).await?;
    let deadline = Instant::now() + admin.wait;
    loop {
        let answer = admin.client.delete_groups(&[group], &admin.options()).await;
        let outcome = match answer.map(|groups| groups.into_iter().next()) {
            Err(error) => Err(from_kafka(&error, format_args!("forgetting group {group}"))),
            Ok(Some(Ok(_)) | Some(Err((_, RDKafkaErrorCode::GroupIdNotFound)))) => Ok(()),
            Ok(Some(Err((_, RDKafkaErrorCode::NonEmptyGroup)))) => {
                return Err(misconfigured(format_args!("group {group} has members: stop them first")));
            }
            Ok(Some(Err((_, code)))) => Err(from_code(code, format_args!("forgetting group {group}"))),
            Ok(None) => Err(failed(format_args!("no answer about group {group}"))),
        };
        match outcome {
            // A coordinator that is just moving, or made by a new cluster.
            Err(error) if error.is_transient() && Instant::now() < deadline => {
                tokio::time::sleep(ASK_AGAIN).await;
            }
            outcome => return outcome,
        }
    }
}

struct Admin {
    client: AdminClient<Watched>,
    wait: Duration,
}

impl Admin {
    async fn connect(config: &KafkaConfig) -> Result<Self, PortError> {
        check_login(config).await?;
        let watched = Watched::new(config, &Health::new("admin"));
        let client = AdminClient::from_config_and_context(&settings::admin(config), watched)
            .map_err(|error| from_kafka(&error, "making an admin client"))?;
        Ok(Self { client, wait: config.request_timeout() })
    }

    fn options(&self) -> AdminOptions {
        // The broker waits until a new topic has leaders, so that it can be used at once.
        AdminOptions::new().request_timeout(Some(self.wait)).operation_timeout(Some(self.wait))
    }

    /// A broker that has just come up, or was frozen for a moment, counts as missing until it has announced itself.
    async fn create_in_time(&self, name: &str, spec: &TopicSpec) -> Result<bool, PortError> {
        let deadline = Instant::now() + self.wait;
        loop {
            match self.create(name, spec).await {
                Err(error) if may_pass(&error) && Instant::now() < deadline => {
                    tracing::debug!(%error, topic = name, "topic is asked for again");
                    tokio::time::sleep(ASK_AGAIN).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// True if the topic was created now.
    async fn create(&self, name: &str, spec: &TopicSpec) -> Result<bool, PortError> {
        let number = |value: u32, what| {
            i32::try_from(value).map_err(|_| misconfigured(format_args!("topic {name}: too many {what}")))
        };
        let partitions = number(spec.partitions, "partitions")?;
        let copies = number(spec.replication.into(), "copies")?;
        let settings = spec.settings();
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(copies));
        for (key, value) in &settings {
            topic = topic.set(key, value);
        }
        let options = self.options();
        let results = self.client.create_topics([&topic], &options).await;
        let results = results.map_err(|error| from_kafka(&error, format_args!("creating topic {name}")))?;
        match results.into_iter().next() {
            Some(Ok(_)) => Ok(true),
            Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(false),
            Some(Err((_, RDKafkaErrorCode::InvalidReplicationFactor))) => Err(misconfigured(format_args!(
                "topic {name} wants {copies} copies and there are fewer brokers; set its replication lower"
            ))),
            Some(Err((_, code))) => Err(from_code(code, format_args!("creating topic {name}"))),
            None => Err(failed(format_args!("no answer about topic {name}"))),
        }
    }

    async fn compare(&self, name: &str, spec: &TopicSpec, fix: bool) -> Result<Vec<Drift>, PortError> {
        let mut drift = self.compare_layout(name, spec)?;
        let described =
            self.client.describe_configs([&ResourceSpecifier::Topic(name)], &self.options()).await;
        let described =
            described.map_err(|error| from_kafka(&error, format_args!("settings of topic {name}")))?;
        let resource = match described.into_iter().next() {
            Some(Ok(resource)) => resource,
            Some(Err(code)) => return Err(from_code(code, format_args!("settings of topic {name}"))),
            None => return Err(failed(format_args!("no answer about topic {name}"))),
        };
        for (setting, wanted) in spec.settings() {
            let found = resource.get(setting).and_then(|entry| entry.value.clone()).unwrap_or_default();
            if found != wanted {
                drift.push(Drift { setting: setting.to_owned(), wanted, found, fixed: false });
            }
        }
        if fix {
            for found in drift.iter_mut().filter(|drift| is_setting(&drift.setting)) {
                native::admin::alter(self.client.inner(), name, &found.setting, &found.wanted, self.wait)?;
                found.fixed = true;
            }
        }
        Ok(drift)
    }

    fn compare_layout(&self, name: &str, spec: &TopicSpec) -> Result<Vec<Drift>, PortError> {
        let metadata = self.client.inner().fetch_metadata(Some(name), self.wait);
        let metadata = metadata.map_err(|error| from_kafka(&error, format_args!("metadata of {name}")))?;
        let partitions = partition_count(&metadata, name)?;
        let topic = metadata.topics().iter().find(|topic| topic.name() == name);
        let copies = topic
            .and_then(|topic| topic.partitions().iter().map(|partition| partition.replicas().len()).min())
            .unwrap_or_default();
        let layout = [
            ("partitions", spec.partitions.to_string(), partitions.to_string()),
            ("replication.factor", spec.replication.to_string(), copies.to_string()),
        ];
        Ok(layout
            .into_iter()
            .filter(|(_, wanted, found)| wanted != found)
            .map(|(setting, wanted, found)| Drift {
                setting: setting.to_owned(),
                wanted,
                found,
                fixed: false,
            })
            .collect())
    }
}

/// True if it is worth asking again.
fn may_pass(error: &PortError) -> bool {
    error.is_transient() || matches!(error, PortError::Misconfigured { .. })
}

/// Partitions and copies are no settings of a topic: changing them moves data, and moves keys.
fn is_setting(name: &str) -> bool {
    name != "partitions" && name != "replication.factor"
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PortError> + Send + 'static,
) -> Result<T, PortError> {
    let outcome = tokio::task::spawn_blocking(work).await;
    outcome.map_err(|error| failed(format_args!("administration ended early: {error}")))?
}
