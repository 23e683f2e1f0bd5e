//! The sections that name a cluster's servers.

use super::read::{Fault, section};
use crate::wiring::sections::{KafkaConfig, RedisConfig, ScyllaConfig};
use serde::{Deserialize, Serialize};
use toml::Table;

/// Where everything is.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ClusterConfig {
    pub(crate) topics: TopicsConfig,
    #[serde(rename = "log")]
    pub(crate) kafka: KafkaConfig,
    pub(crate) dedup: RedisConfig,
    pub(crate) counters: RedisConfig,
    pub(crate) archive: ScyllaConfig,
}

/// `[topics]`: what `onlooker topics apply` creates, where it differs from `schemas/topics.toml`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TopicsConfig {
    /// Copies of each partition.
    pub(crate) replication: Option<u16>,
}

impl ClusterConfig {
    /// Reads the sections, each from what `table` has under its name.
    pub(super) fn read<'a>(table: impl Fn(&str) -> &'a Table, faults: &mut Vec<Fault>) -> Option<Self> {
        let topics = section("topics", table("topics"), faults);
        let kafka: Option<KafkaConfig> = section("log", table("log"), faults);
        let dedup: Option<RedisConfig> = section("dedup", table("dedup"), faults);
        let counters: Option<RedisConfig> = section("counters", table("counters"), faults);
        let archive: Option<ScyllaConfig> = section("archive", table("archive"), faults);
        check(faults, kafka.as_ref(), dedup.as_ref(), counters.as_ref(), archive.as_ref());
        Some(Self { topics: topics?, kafka: kafka?, dedup: dedup?, counters: counters?, archive: archive? })
    }
}

/// What the adapters themselves find wrong.
fn check(
    faults: &mut Vec<Fault>,
    kafka: Option<&KafkaConfig>,
    dedup: Option<&RedisConfig>,
    counters: Option<&RedisConfig>,
    archive: Option<&ScyllaConfig>,
) {
    let mut add = |section: &str, problem: String| match problem.split_once(": ") {
        Some((key, rest)) => faults.push(Fault::new(format!("{section}.{key}"), rest)),
        None => faults.push(Fault::new(section, problem)),
    };
    if let Some(kafka) = kafka {
        kafka.faults().into_iter().for_each(|f| add("log", f.to_string()));
    }
    for (name, redis) in [("dedup", dedup), ("counters", counters)] {
        if let Some(Err(error)) = redis.map(RedisConfig::validate) {
            error.0.into_iter().for_each(|f| add(name, f));
        }
    }
    if let Some(archive) = archive {
        archive.faults().into_iter().for_each(|f| add("archive", f.to_string()));
    }
}
