//! What Kafka holds, read by a client of the test's own.

use super::LONG;
use onlooker_event::View;
use onlooker_proto::{Counted, Dead, Ignored, decode_counted, decode_dead, decode_ignored, decode_view};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use std::time::{Duration, Instant};

pub(crate) struct LogEyes {
    bootstrap: String,
    name: String,
}

/// One committed record.
pub(crate) struct Read {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) key: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl LogEyes {
    pub(crate) fn new(bootstrap: &str, name: &str) -> Self {
        Self { bootstrap: bootstrap.into(), name: name.into() }
    }

    fn consumer(&self) -> BaseConsumer {
        ClientConfig::new()
            .set("bootstrap.servers", &self.bootstrap)
            .set("group.id", "eyes")
            .set("isolation.level", "read_committed")
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "error")
            .create()
            .unwrap()
    }

    /// The end of a partition, transaction markers included.
    pub(crate) fn end(&self, topic: &str, partition: i32) -> i64 {
        let topic = format!("{}.{topic}", self.name);
        let (_, end) = self.consumer().fetch_watermarks(&topic, partition, LONG).unwrap();
        end
    }

    /// All committed records of a topic, up to its end.
    pub(crate) fn records(&self, topic: &str) -> Vec<Read> {
        let topic = format!("{}.{topic}", self.name);
        let consumer = self.consumer();
        let metadata = consumer.fetch_metadata(Some(&topic), Duration::from_secs(20)).unwrap();
        let partitions = metadata.topics()[0].partitions().len();
        let mut list = TopicPartitionList::new();
        for p in 0..partitions {
            list.add_partition_offset(&topic, i32::try_from(p).unwrap(), Offset::Beginning).unwrap();
        }
        consumer.assign(&list).unwrap();
        let mut at_end = vec![false; partitions];
        let mut read = Vec::new();
        let begun = Instant::now();
        while at_end.iter().any(|e| !e) {
            assert!(begun.elapsed() < LONG, "topic {topic} could not be read to its end");
            match consumer.poll(Duration::from_millis(200)) {
                None => {}
                Some(Err(rdkafka::error::KafkaError::PartitionEOF(p))) => {
                    at_end[usize::try_from(p).unwrap()] = true
                }
                Some(Err(error)) => eprintln!("reading {topic}: {error}"),
                Some(Ok(message)) => read.push(Read {
                    partition: message.partition(),
                    offset: message.offset(),
                    key: message.key().unwrap_or_default().to_vec(),
                    payload: message.payload().unwrap_or_default().to_vec(),
                }),
            }
        }
        read.sort_by_key(|r| (r.partition, r.offset));
        read
    }

    pub(crate) fn views(&self) -> Vec<(Read, View)> {
        let read = self.records("views");
        read.into_iter().filter_map(|r| decode_view(Some(&r.payload)).ok().map(|v| (r, v))).collect()
    }

    pub(crate) fn counted(&self) -> Vec<(Read, Counted)> {
        // Others than our programs may have written there as well.
        let read = self.records("views.counted");
        read.into_iter().filter_map(|r| decode_counted(Some(&r.payload)).ok().map(|c| (r, c))).collect()
    }

    pub(crate) fn ignored(&self) -> Vec<Ignored> {
        self.records("views.ignored").iter().map(|r| decode_ignored(Some(&r.payload)).unwrap()).collect()
    }

    pub(crate) fn dead(&self) -> Vec<Dead> {
        self.records("views.dead").iter().map(|r| decode_dead(Some(&r.payload)).unwrap()).collect()
    }

    /// Appends bytes as they are, as some other program might.
    pub(crate) fn append_raw(&self, topic: &str, partition: i32, key: Option<&[u8]>, payload: Option<&[u8]>) {
        use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", &self.bootstrap)
            .set("acks", "all")
            .create()
            .unwrap();
        let topic = format!("{}.{topic}", self.name);
        let mut record = BaseRecord::to(&topic).partition(partition);
        if let Some(key) = key {
            record = record.key(key);
        }
        if let Some(payload) = payload {
            record = record.payload(payload);
        }
        producer.send(record).map_err(|(e, _)| e).unwrap();
        producer.flush(Duration::from_secs(20)).unwrap();
    }
}
