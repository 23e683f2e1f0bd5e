//! The topics seen from outside: filled before a run, and asked how far a run is.

use anyhow::{Context, Result, bail};
use onlooker_event::partition_of;
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::util::Timeout;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// One topic of a broker.
#[derive(Debug, Clone)]
pub(crate) struct TopicView {
    bootstrap: String,
    /// What it is called.
    pub(crate) name: String,
    /// How many partitions it has.
    pub(crate) partitions: u32,
}

impl TopicView {
    /// A topic that exists.
    pub(crate) fn new(bootstrap: &str, name: &str, partitions: u32) -> Self {
        Self { bootstrap: bootstrap.to_owned(), name: name.to_owned(), partitions }
    }

    fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &self.bootstrap);
        client
    }

    /// Appends records, each to the partition of its key, in order; waits until all are acknowledged.
    pub(crate) fn fill(&self, records: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<u64> {
        let mut client = self.client();
        client.set("acks", "all").set("enable.idempotence", "true").set("linger.ms", "20");
        client.set("queue.buffering.max.messages", "200000");
        // What a busy collector's producer sends at once, so that the batches in the log are like its own.
        client.set("batch.size", "65536");
        let producer: ThreadedProducer<DefaultProducerContext> = client.create()?;
        let mut sent = 0;
        for (key, value) in records {
            let partition = partition_of(&key, self.partitions);
            loop {
                let record = BaseRecord::to(&self.name).partition(partition).key(&key).payload(&value);
                match producer.send(record) {
                    Ok(()) => break,
                    Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                        producer.flush(Timeout::After(PATIENCE))?;
                    }
                    Err((error, _)) => return Err(error.into()),
                }
            }
            sent += 1;
        }
        producer.flush(Timeout::After(PATIENCE))?;
        Ok(sent)
    }

    /// A group's committed offset of each partition.
    pub(crate) fn committed(&self, group: &str) -> Result<Vec<Option<i64>>> {
        let consumer: BaseConsumer = self.client().set("group.id", group).create()?;
        let mut list = TopicPartitionList::new();
        (0..self.partitions.cast_signed()).for_each(|p| _ = list.add_partition(&self.name, p));
        let found = consumer.committed_offsets(list, Timeout::After(PATIENCE))?;
        Ok(found.elements().iter().map(|e| e.offset().to_raw().filter(|o| *o >= 0)).collect())
    }

    /// The next offset of each partition.
    pub(crate) fn ends(&self) -> Result<Vec<i64>> {
        let consumer: BaseConsumer = self.client().create()?;
        (0..self.partitions.cast_signed())
            .map(|p| Ok(consumer.fetch_watermarks(&self.name, p, Timeout::After(PATIENCE))?.1))
            .collect()
    }

    /// One more than the offset of each partition's last record. Transactions leave markers behind, so that the end of
    /// a partition may lie further on.
    pub(crate) fn ends_of_records(&self) -> Result<Vec<i64>> {
        // No transaction is larger than this.
        const TAIL: i64 = 50_000;
        let ends = self.ends()?;
        let mut client = self.client();
        client.set("group.id", "bench-tail").set("enable.auto.commit", "false");
        client.set("isolation.level", "read_committed").set("enable.partition.eof", "true");
        let consumer: BaseConsumer = client.create()?;
        let mut list = TopicPartitionList::new();
        for (p, end) in (0..).zip(&ends) {
            list.add_partition_offset(&self.name, p, Offset::Offset((end - TAIL).max(0)))?;
        }
        consumer.assign(&list)?;
        let mut last = vec![0; ends.len()];
        let mut open = ends.len();
        let start = Instant::now();
        while open > 0 {
            if start.elapsed() > PATIENCE {
                bail!("the end of {} does not come", self.name);
            }
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => {
                    let slot = usize::try_from(message.partition()).ok().and_then(|p| last.get_mut(p));
                    *slot.context("a partition more than there should be")? = message.offset() + 1;
                }
                Some(Err(KafkaError::PartitionEOF(_))) => open -= 1,
                Some(Err(error)) => return Err(error.into()),
                None => {}
            }
        }
        Ok(last)
    }

    /// Removes the topic, so that later rounds find the disk as empty as the first.
    pub(crate) fn delete(&self) -> Result<()> {
        let admin: rdkafka::admin::AdminClient<DefaultClientContext> = self.client().create()?;
        let options = rdkafka::admin::AdminOptions::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let results = runtime.block_on(admin.delete_topics(&[&self.name], &options))?;
        results.into_iter().try_for_each(|r| match r {
            Ok(_) => Ok(()),
            Err((name, code)) => bail!("cannot delete {name}: {code}"),
        })
    }
}
