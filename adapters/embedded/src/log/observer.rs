//! Looking at the log from outside.

use super::files::FileLayer;
use super::history::{blocking, read};
use super::reader::port_error;
use super::shared::Shared;
use onlooker_ports::{Batch, Bounds, GroupView, LogObserver, PortError, Topic};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Looks at all topics of the log. Belongs to no group. Nothing that it shows can be taken back by an abort: entries are
/// shown whole, once they are as durable as configured.
#[derive(Debug)]
pub struct EmbeddedObserver<F: FileLayer> {
    log: Arc<Shared<F>>,
    filter: String,
    counter: String,
}

impl<F: FileLayer> EmbeddedObserver<F> {
    pub(crate) fn new(log: Arc<Shared<F>>, filter: &str, counter: &str) -> Self {
        Self { log, filter: filter.to_owned(), counter: counter.to_owned() }
    }
}

impl<F: FileLayer> LogObserver for EmbeddedObserver<F> {
    async fn bounds(&self, topic: Topic) -> Result<Vec<Bounds>, PortError> {
        // What was handed over by now is in it.
        self.log.journal(topic).barrier().await.map_err(port_error)?;
        let bounds = (0..self.log.partitions).map(|partition| {
            let (earliest, end) = self.log.bounds(topic, partition);
            Bounds { earliest, stable: end, end }
        });
        Ok(bounds.collect())
    }

    async fn offsets_at(&self, topic: Topic, ms: i64) -> Result<Vec<i64>, PortError> {
        let journal = Arc::clone(self.log.journal(topic));
        let ends: Vec<i64> = self.bounds(topic).await?.into_iter().map(|bounds| bounds.end).collect();
        blocking(move || {
            let mut first: BTreeMap<i32, i64> = BTreeMap::new();
            let mut missing: Vec<(i32, Range<i64>)> = (0..).zip(&ends).map(|(p, end)| (p, 0..*end)).collect();
            missing.retain(|(_, range)| !range.is_empty());
            let wanted = missing.len();
            let looked = read(&journal, topic, ms, &missing, &mut |batch| {
                if let Some(record) = batch.get(0) {
                    first.entry(batch.partition).or_insert(record.offset);
                }
                first.len() < wanted
            });
            // It ends early once every partition has shown its first record.
            if first.len() < wanted {
                looked?;
            }
            Ok((0..)
                .zip(ends)
                .map(|(partition, end)| first.get(&partition).copied().unwrap_or(end))
                .collect())
        })
        .await
    }

    async fn read(
        &self,
        topic: Topic,
        ranges: &[(i32, Range<i64>)],
        sink: mpsc::Sender<Batch>,
    ) -> Result<(), PortError> {
        let (journal, ranges) = (Arc::clone(self.log.journal(topic)), ranges.to_vec());
        blocking(move || {
            let send = &mut |batch| sink.blocking_send(batch).is_ok();
            match read(&journal, topic, i64::MIN, &ranges, send) {
                // Whoever asked has seen enough.
                Err(_) if sink.is_closed() => Ok(()),
                outcome => outcome,
            }
        })
        .await
    }

    async fn group(&self, topic: Topic) -> Result<Option<GroupView>, PortError> {
        let name = match topic {
            Topic::Views => &self.filter,
            Topic::Counted => &self.counter,
            Topic::Ignored | Topic::Dead => return Ok(None),
        };
        Ok(Some(self.log.groups.view(topic, name)))
    }
}
