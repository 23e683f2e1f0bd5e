//! Looking at topics and groups from outside.

use crate::admin::blocking;
use crate::config::KafkaConfig;
use crate::fetcher::Fetcher;
use crate::health::Health;
use crate::history::{Scout, read_ranges};
use onlooker_ports::{Batch, Bounds, GroupView, LogObserver, PortError, Topic};
use std::ops::Range;
use tokio::sync::mpsc;

/// Looks at a cluster's topics. Makes its clients when it is asked and drops them afterwards.
#[derive(Debug, Clone)]
pub struct KafkaObserver {
    config: KafkaConfig,
}

impl KafkaObserver {
    /// Connects nowhere yet.
    pub fn new(config: &KafkaConfig) -> Self {
        Self { config: config.clone() }
    }
}

impl LogObserver for KafkaObserver {
    async fn bounds(&self, topic: Topic) -> Result<Vec<Bounds>, PortError> {
        let config = self.config.clone();
        blocking(move || bounds(&config, config.topics.get(topic))).await
    }

    async fn offsets_at(&self, topic: Topic, ms: i64) -> Result<Vec<i64>, PortError> {
        let config = self.config.clone();
        blocking(move || {
            let scout = Scout::new(&config, config.topics.get(topic))?;
            let partitions: Vec<i32> = scout.partitions()?.collect();
            // Asked before the times: what is appended meanwhile is younger.
            let ends = partitions.iter().map(|partition| Ok(scout.bounds(*partition)?.1));
            let ends = ends.collect::<Result<Vec<i64>, PortError>>()?;
            let first = scout.first_at(&partitions, ms.max(0))?;
            let at = |(partition, end): (&i32, i64)| first.get(partition).copied().unwrap_or(end);
            Ok(partitions.iter().zip(ends).map(at).collect())
        })
        .await
    }

    async fn read(
        &self,
        topic: Topic,
        ranges: &[(i32, Range<i64>)],
        sink: mpsc::Sender<Batch>,
    ) -> Result<(), PortError> {
        let (config, ranges) = (self.config.clone(), ranges.to_vec());
        blocking(move || {
            let name = config.topics.get(topic);
            let scout = Scout::new(&config, name)?;
            let mut left = Vec::new();
            for (partition, range) in ranges {
                let start = range.start.max(scout.bounds(partition)?.0);
                left.push((partition, start..range.end));
            }
            drop(scout);
            match read_ranges(&config, name, &left, &sink) {
                // Whoever asked has seen enough.
                Err(_) if sink.is_closed() => Ok(()),
                outcome => outcome,
            }
        })
        .await
    }

    async fn group(&self, topic: Topic) -> Result<Option<GroupView>, PortError> {
        let group = match topic {
            Topic::Views => self.config.groups.filter.clone(),
            Topic::Counted => self.config.groups.counter.clone(),
            Topic::Ignored | Topic::Dead => return Ok(None),
        };
        let positions = crate::admin::group_notes(&self.config, topic, &group).await?;
        let config = self.config.clone();
        blocking(move || {
            let name = config.topics.get(topic);
            let described = crate::admin::describe(&config, &group, name)?;
            let view = |(partition, committed)| (committed, described.owners.get(&partition).cloned());
            let partitions = positions.into_iter().map(view).collect();
            let (state, members) = (described.state, described.members);
            Ok(Some(GroupView { name: group, state, members, partitions }))
        })
        .await
    }
}

fn bounds(config: &KafkaConfig, topic: &str) -> Result<Vec<Bounds>, PortError> {
    let scout = Scout::new(config, topic)?;
    // A reader of committed records is told where the first open transaction begins.
    let committed = Fetcher::open(config, topic, true, Health::new("observer"))?;
    let bounds = scout.partitions()?.map(|partition| {
        // In this order, so that the stable end is not the higher one.
        let (_, stable) = committed.shared().bounds(partition, config.request_timeout())?;
        let (earliest, end) = scout.bounds(partition)?;
        Ok(Bounds { earliest, stable, end })
    });
    bounds.collect()
}
