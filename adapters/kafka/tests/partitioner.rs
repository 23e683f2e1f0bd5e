//! A key goes where Kafka's own producer sends it: to the same partition whichever program writes it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use onlooker_event::partition_of;
use onlooker_kafka::KafkaConfig;
use onlooker_ports::conformance::log::LogUnderTest;
use onlooker_ports::{GroupEvent, GroupReader, LogWriter, OutgoingBatch, Topic, Transactor};
use onlooker_testkit::shared;
use std::collections::BTreeMap;
use std::time::Duration;
use support::{KafkaLog, config, next};

const SOON: Duration = Duration::from_secs(120);

/// What `java/Partitions.java` wrote: key, and its partition of 5, 8 and 96.
fn written_by_java() -> Vec<(Vec<u8>, [i32; 3])> {
    include_str!("data/java_partitions.csv")
        .lines()
        .skip(2)
        .map(|line| {
            let mut fields = line.split(',');
            let hex = fields.next().unwrap();
            let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
            let key = (0..hex.len()).step_by(2).map(byte).collect();
            let mut partition = || fields.next().unwrap().parse().unwrap();
            (key, [partition(), partition(), partition()])
        })
        .collect()
}

#[test]
fn our_arithmetic_is_javas() {
    let keys = written_by_java();
    assert_eq!(keys.len(), 600);
    for (key, partitions) in keys {
        assert_eq!([5, 8, 96].map(|count| partition_of(&key, count)), partitions, "of {key:02x?}");
    }
}

/// Where this log's topic has so many records, and which they are.
async fn found(log: &KafkaLog, topic: Topic, count: usize) -> BTreeMap<Vec<u8>, i32> {
    let mut reader = log.reader(topic, "java").await;
    let mut found = BTreeMap::new();
    while found.len() < count {
        match next(&mut reader, SOON).await.unwrap() {
            GroupEvent::Assigned { partitions, .. } => {
                for partition in partitions {
                    reader.start(partition, 0).await.unwrap();
                }
            }
            GroupEvent::Records(batch) => {
                found.extend(batch.iter().map(|record| (record.key.unwrap().to_vec(), batch.partition)));
            }
            _ => {}
        }
    }
    found
}

fn of_5() -> BTreeMap<Vec<u8>, i32> {
    written_by_java().into_iter().map(|(key, [of_5, ..])| (key, of_5)).collect()
}

fn batch(topic: Topic, expected: &BTreeMap<Vec<u8>, i32>) -> OutgoingBatch {
    let mut batch = OutgoingBatch::default();
    expected.keys().for_each(|key| batch.push(topic, key, b"v"));
    batch
}

#[tokio::test(flavor = "multi_thread")]
async fn our_producer_sends_where_java_sends() {
    let log = KafkaLog::create(config(&shared::kafka().bootstrap()), 5, 1).await;
    let expected = of_5();
    log.writer().await.append(batch(Topic::Views, &expected)).await.unwrap();
    assert_eq!(found(&log, Topic::Views, expected.len()).await, expected);
}

/// Somebody added partitions: whoever writes before it is noticed writes nothing into a wrong one.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_were_added_get_no_key() {
    let config = KafkaConfig { partitions: 5, ..config(&shared::kafka().bootstrap()) };
    let log = KafkaLog::create(config, 8, 1).await;
    let expected = of_5();
    log.writer().await.append(batch(Topic::Views, &expected)).await.unwrap();
    assert_eq!(found(&log, Topic::Views, expected.len()).await, expected);

    let mut other = log.reader(Topic::Views, "member").await;
    let membership = loop {
        if let Some(GroupEvent::Assigned { membership, .. }) = next(&mut other, SOON).await {
            break membership;
        }
    };
    let mut transactor = log.transactor(Topic::Views).await;
    transactor.commit(&batch(Topic::Counted, &expected), &[], &membership).await.unwrap();
    assert_eq!(found(&log, Topic::Counted, expected.len()).await, expected);
}
