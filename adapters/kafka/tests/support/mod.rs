//! Topics of one's own on a broker that is there.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use onlooker_kafka::admin::{WantedTopic, apply_topics};
use onlooker_kafka::{
    KafkaConfig, KafkaHistory, KafkaMembership, KafkaObserver, KafkaReader, KafkaTransactor, KafkaWriter,
    TopicNames,
};
use onlooker_ports::conformance::log::LogUnderTest;
use onlooker_ports::{GroupEvent, GroupReader, Topic};
use onlooker_schemas::topics::TopicSpec;
use rdkafka::admin::AdminClient;
use rdkafka::client::DefaultClientContext;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub const TOPICS: [Topic; 4] = [Topic::Views, Topic::Counted, Topic::Ignored, Topic::Dead];

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A configuration for these brokers, with names that no other test has.
pub fn config(brokers: &str) -> KafkaConfig {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = |role: &str| format!("t{number}.{role}");
    KafkaConfig {
        brokers: brokers.split(',').map(str::to_owned).collect(),
        topics: TopicNames {
            views: name("views"),
            counted: name("counted"),
            ignored: name("ignored"),
            dead: name("dead"),
        },
        // A test machine that is busy with other tests is slower than any broker should be.
        delivery_timeout_ms: 30_000,
        request_timeout_ms: 20_000,
        ..KafkaConfig::default()
    }
}

pub fn spec(partitions: u32, replication: u16) -> TopicSpec {
    TopicSpec { partitions, replication, ..onlooker_schemas::topics::topics().unwrap().views }
}

pub async fn create(config: &KafkaConfig, partitions: u32, replication: u16) {
    let wanted = TOPICS.map(|topic| WantedTopic { topic, spec: spec(partitions, replication) });
    let reports = apply_topics(config, &wanted, false).await.unwrap();
    assert!(reports.iter().all(|report| report.created), "{reports:?}");
}

/// Topics that only one test uses.
pub struct KafkaLog {
    pub config: KafkaConfig,
}

impl KafkaLog {
    pub async fn create(config: KafkaConfig, partitions: u32, replication: u16) -> Self {
        create(&config, partitions, replication).await;
        Self { config }
    }

    fn group(&self, group: &str) -> String {
        format!("{}-{group}", self.config.topics.views)
    }
}

impl LogUnderTest for KafkaLog {
    type Writer = KafkaWriter;
    type Membership = KafkaMembership;
    type Reader = KafkaReader;
    type Transactor = KafkaTransactor;
    type History = KafkaHistory;
    type Observer = KafkaObserver;

    async fn writer(&self) -> KafkaWriter {
        KafkaWriter::open(&self.config).unwrap()
    }

    async fn reader(&self, topic: Topic, group: &str) -> KafkaReader {
        KafkaReader::open(&self.config, topic, &self.group(group)).unwrap()
    }

    async fn transactor(&self, inputs: Topic) -> KafkaTransactor {
        KafkaTransactor::open(&self.config, inputs).unwrap()
    }

    async fn history(&self) -> KafkaHistory {
        KafkaHistory::new(&self.config)
    }

    async fn observer(&self) -> KafkaObserver {
        let mut config = self.config.clone();
        config.groups.filter = self.group("filter");
        KafkaObserver::new(&config)
    }

    async fn delete_before(&self, topic: Topic, partition: i32, offset: i64) {
        let admin: AdminClient<DefaultClientContext> = raw(&self.config).create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(self.config.topics.get(topic), partition, Offset::Offset(offset)).unwrap();
        let deleted = admin.delete_records(&list, &Default::default()).await.unwrap();
        assert_eq!(deleted.count(), 1);
    }
}

/// The next event; a broker that is busy, or does not know a new topic yet, is waited for as a room does.
pub async fn next(reader: &mut KafkaReader, wait: Duration) -> Option<GroupEvent<KafkaMembership>> {
    let begun = Instant::now();
    loop {
        match reader.next(wait.saturating_sub(begun.elapsed())).await {
            Ok(event) => return event,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        if begun.elapsed() >= wait {
            return None;
        }
    }
}

/// A client beside our own code, on the plain listener.
pub fn raw(config: &KafkaConfig) -> ClientConfig {
    let mut raw = ClientConfig::new();
    raw.set("bootstrap.servers", config.brokers.join(","));
    raw
}
