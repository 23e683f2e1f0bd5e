//! Reading what was counted before.

use crate::config::KafkaConfig;
use crate::error::{failed, from_code, from_kafka, unavailable};
use crate::fetcher::{Fetched, Fetcher};
use crate::health::{Health, Watched};
use crate::login;
use crate::reader::partition_count;
use crate::settings;
use onlooker_ports::{Batch, BatchBuilder, PortError, Topic, VerdictHistory};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const WAIT: Duration = Duration::from_millis(100);
const BATCH_RECORDS: usize = 5_000;

/// Reads a topic from a time on, of all partitions, without belonging to a group.
///
/// Makes its clients when it is asked and drops them afterwards: it is needed only after Redis lost its data.
pub struct KafkaHistory {
    config: KafkaConfig,
    topic: String,
}

impl KafkaHistory {
    /// Of `views.counted`. Takes note of the configuration; connects nowhere yet.
    pub fn new(config: &KafkaConfig) -> Self {
        Self::of(config, Topic::Counted)
    }

    /// Likewise, of another topic.
    pub fn of(config: &KafkaConfig, topic: Topic) -> Self {
        Self { config: config.clone(), topic: config.topics.get(topic).to_owned() }
    }

    /// The committed records at these places (partition, offset); none for a place without one. Each has to lie within
    /// what the log has.
    ///
    /// # Errors
    /// As for reading.
    pub async fn read_at(&self, places: &[(i32, i64)]) -> Result<Vec<Batch>, PortError> {
        let (config, topic) = (self.config.clone(), self.topic.clone());
        let ranges: Vec<_> = places.iter().map(|(partition, at)| (*partition, *at..*at + 1)).collect();
        // Room for all of them, and for the empty batches that end partitions.
        let (sink, mut batches) = mpsc::channel(2 * ranges.len().max(1));
        Self::blocking(move || read_ranges(&config, &topic, &ranges, &sink)).await?;
        let mut found = Vec::new();
        while let Some(batch) = batches.recv().await {
            found.push(batch);
        }
        Ok(found)
    }

    async fn blocking<T: Send + 'static>(
        work: impl FnOnce() -> Result<T, PortError> + Send + 'static,
    ) -> Result<T, PortError> {
        let outcome = tokio::task::spawn_blocking(work).await;
        outcome.map_err(|error| failed(format_args!("reading ended early: {error}")))?
    }
}

impl VerdictHistory for KafkaHistory {
    async fn ends(&self) -> Result<Vec<(i32, i64)>, PortError> {
        let (config, topic) = (self.config.clone(), self.topic.clone());
        Self::blocking(move || {
            let scout = Scout::new(&config, &topic)?;
            let partitions = scout.partitions()?;
            partitions.map(|partition| Ok((partition, scout.end(partition)?))).collect()
        })
        .await
    }

    async fn read(
        &self,
        from_ms: i64,
        ends: &[(i32, i64)],
        sink: mpsc::Sender<Batch>,
    ) -> Result<(), PortError> {
        let (config, topic, ends) = (self.config.clone(), self.topic.clone(), ends.to_vec());
        Self::blocking(move || read(&config, &topic, from_ms, &ends, &sink)).await
    }
}

/// Asks for offsets, transactions under way included.
pub(crate) struct Scout {
    consumer: BaseConsumer<Watched>,
    topic: String,
    wait: Duration,
}

impl Scout {
    pub(crate) fn new(config: &KafkaConfig, topic: &str) -> Result<Self, PortError> {
        login::check(config)?;
        let watched = Watched::new(config, &Health::new("history"));
        let consumer = BaseConsumer::from_config_and_context(&settings::fetcher(config, false), watched)
            .map_err(|error| from_kafka(&error, "making a consumer"))?;
        Ok(Self { consumer, topic: topic.to_owned(), wait: config.request_timeout() })
    }

    pub(crate) fn partitions(&self) -> Result<Range<i32>, PortError> {
        let metadata = self.consumer.fetch_metadata(Some(&self.topic), self.wait);
        let metadata = metadata.map_err(|e| from_kafka(&e, format_args!("metadata of {}", self.topic)))?;
        let count = partition_count(&metadata, &self.topic)?;
        Ok(0..i32::try_from(count).unwrap_or(i32::MAX))
    }

    fn end(&self, partition: i32) -> Result<i64, PortError> {
        self.bounds(partition).map(|(_, end)| end)
    }

    /// First offset and end, transactions under way included.
    pub(crate) fn bounds(&self, partition: i32) -> Result<(i64, i64), PortError> {
        let bounds = self.consumer.fetch_watermarks(&self.topic, partition, self.wait);
        bounds.map_err(|e| from_kafka(&e, format_args!("bounds of {} [{partition}]", self.topic)))
    }

    /// The first offset at `ms` or later, for each partition that has one.
    ///
    /// Asked of everything that was appended: a reader of committed records alone is told "none" where the only ones
    /// are in a transaction that is about to commit.
    pub(crate) fn first_at(&self, partitions: &[i32], ms: i64) -> Result<BTreeMap<i32, i64>, PortError> {
        let what = |e| from_kafka(&e, format_args!("offsets of {} at a time", self.topic));
        let mut times = TopicPartitionList::new();
        for partition in partitions {
            times.add_partition_offset(&self.topic, *partition, Offset::Offset(ms)).map_err(what)?;
        }
        let found = self.consumer.offsets_for_times(times, self.wait).map_err(what)?;
        let mut first = BTreeMap::new();
        for element in found.elements() {
            element.error().map_err(what)?;
            if let Offset::Offset(offset) = element.offset() {
                first.insert(element.partition(), offset);
            }
        }
        Ok(first)
    }
}

fn read(
    config: &KafkaConfig,
    topic: &str,
    from_ms: i64,
    ends: &[(i32, i64)],
    batches: &mpsc::Sender<Batch>,
) -> Result<(), PortError> {
    if ends.is_empty() {
        return Ok(());
    }
    let partitions: Vec<i32> = ends.iter().map(|(partition, _)| *partition).collect();
    let scout = Scout::new(config, topic)?;
    // Time before 1970 is asked for when a slice begins there, which the broker would take for a special request.
    let first = scout.first_at(&partitions, from_ms.max(0))?;
    if from_ms > 0 {
        tell_of_gaps(&scout, topic, &first)?;
    }
    drop(scout);
    // Nothing so young stood below the end where there is no start.
    let range = |(partition, end): &(i32, i64)| Some((*partition, *first.get(partition)?..*end));
    let ranges: Vec<(i32, Range<i64>)> = ends.iter().filter_map(range).collect();
    read_ranges(config, topic, &ranges, batches)
}

/// A log that lost records, and whose first one left is young enough to be asked for, may have lost some that were, too.
/// What is read is then too little, and nobody else would notice.
fn tell_of_gaps(scout: &Scout, topic: &str, first: &BTreeMap<i32, i64>) -> Result<(), PortError> {
    for (partition, first) in first {
        let (earliest, _) = scout.bounds(*partition)?;
        if earliest > 0 && *first == earliest {
            tracing::warn!(
                topic,
                partition,
                earliest,
                "retention may have removed records that are needed: what they say counts as never said"
            );
        }
    }
    Ok(())
}

/// Reads committed records of these ranges, until every position has passed its range's end. Blocks.
pub(crate) fn read_ranges(
    config: &KafkaConfig,
    topic: &str,
    ranges: &[(i32, Range<i64>)],
    batches: &mpsc::Sender<Batch>,
) -> Result<(), PortError> {
    let health = Health::new("history");
    let mut fetcher = Fetcher::open(config, topic, true, Arc::clone(&health))?;
    let mut open: BTreeMap<i32, (i64, BatchBuilder)> = BTreeMap::new();
    for (partition, Range { start, end }) in ranges {
        if start < end {
            fetcher.start(*partition, *start)?;
            open.insert(*partition, (*end, BatchBuilder::new(*partition)));
        }
    }
    let mut progress = Instant::now();
    while !open.is_empty() {
        if fetcher.fetch(WAIT) {
            if take(&mut fetcher, &mut open, batches)? {
                progress = Instant::now();
            }
        } else if let Some(error) = health.permanent() {
            return Err(error);
        } else if progress.elapsed() > config.stall_timeout() {
            // Most likely a transaction that its dead owner left open: the broker aborts it after its time-out.
            return Err(health.problem().unwrap_or_else(|| {
                unavailable(format_args!("{} partitions do not reach their ends", open.len()))
            }));
        }
    }
    Ok(())
}

/// Sorts what was fetched into batches and sends those of partitions that are through. False if nothing was of use.
fn take(
    fetcher: &mut Fetcher,
    open: &mut BTreeMap<i32, (i64, BatchBuilder)>,
    batches: &mpsc::Sender<Batch>,
) -> Result<bool, PortError> {
    let mut useful = false;
    let mut through = Vec::new();
    for (partition, fetched) in fetcher.fetched() {
        let Some((end, batch)) = open.get_mut(&partition) else { continue };
        let position = match fetched {
            Fetched::Record(message) => {
                useful = true;
                if message.offset() < *end {
                    batch.push(message.offset(), message.timestamp_ms(), message.key(), message.payload());
                    batch.trace_last(message.trace().as_ref());
                }
                if batch.len() >= BATCH_RECORDS {
                    send(batches, std::mem::replace(batch, BatchBuilder::new(partition)))?;
                }
                message.offset() + 1
            }
            // Behind the last record there may be transaction markers, which only this passes.
            Fetched::End { offset } => offset,
            Fetched::OutOfRange => {
                return Err(unavailable(format_args!(
                    "partition {partition} lost records while it was read"
                )));
            }
            Fetched::Error { code, text } => {
                let error = from_code(code, format_args!("reading partition {partition}: {text}"));
                if !error.is_transient() {
                    return Err(error);
                }
                continue;
            }
        };
        if position >= *end {
            through.push(partition);
        }
    }
    for partition in through {
        if let Some((_, batch)) = open.remove(&partition) {
            send(batches, batch)?;
            fetcher.stop(partition)?;
            useful = true;
        }
    }
    Ok(useful)
}

fn send(batches: &mpsc::Sender<Batch>, batch: BatchBuilder) -> Result<(), PortError> {
    if batch.is_empty() {
        return Ok(());
    }
    batches.blocking_send(batch.build()).map_err(|_| failed("nobody takes the records any more"))
}
