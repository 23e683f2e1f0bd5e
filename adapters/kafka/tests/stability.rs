//! Groups and transactions of others, on one shared broker.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use onlooker_kafka::{KafkaConfig, KafkaReader};
use onlooker_ports::conformance::log::LogUnderTest;
use onlooker_ports::{
    Committed, GroupEvent, GroupReader, LogWriter, OutgoingBatch, Position, Topic, VerdictHistory,
};
use onlooker_testkit::shared;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use support::{KafkaLog, config, next, raw};
use tokio::sync::mpsc;

const SOON: Duration = Duration::from_secs(120);
const TICK: Duration = Duration::from_millis(100);

async fn log(partitions: u32) -> KafkaLog {
    KafkaLog::create(config(&shared::kafka().bootstrap()), partitions, 1).await
}

async fn assigned(reader: &mut KafkaReader) -> Vec<i32> {
    let begun = Instant::now();
    while begun.elapsed() < SOON {
        if let Some(GroupEvent::Assigned { partitions, .. }) = next(reader, TICK).await {
            return partitions;
        }
    }
    panic!("waited in vain for an assignment");
}

/// A transaction of somebody else: begun, with an output and a position, and left open.
struct Open {
    producer: ThreadedProducer<rdkafka::producer::DefaultProducerContext>,
}

impl Open {
    async fn begin(config: &KafkaConfig, id: &str, group: &str, offset: i64) -> Self {
        let (config, id, group) = (config.clone(), id.to_owned(), group.to_owned());
        let begin = move || {
            let mut settings = raw(&config);
            settings.set("transactional.id", &id);
            let producer: ThreadedProducer<_> = settings.create().unwrap();
            producer.init_transactions(SOON).unwrap();
            producer.begin_transaction().unwrap();
            producer.send(BaseRecord::to(&config.topics.counted).key("k").payload("open")).unwrap();
            let mut positions = TopicPartitionList::new();
            positions.add_partition_offset(&config.topics.views, 0, Offset::Offset(offset)).unwrap();
            // A client of the group without generation may commit while the group is empty.
            let consumer: BaseConsumer = raw(&config).set("group.id", &group).create().unwrap();
            let metadata = consumer.group_metadata().unwrap();
            producer.send_offsets_to_transaction(&positions, &metadata, SOON).unwrap();
            producer.flush(SOON).unwrap();
            Self { producer }
        };
        tokio::task::spawn_blocking(begin).await.unwrap()
    }

    async fn end(self, commit: bool) {
        let end = move || match commit {
            true => self.producer.commit_transaction(SOON).unwrap(),
            false => self.producer.abort_transaction(SOON).unwrap(),
        };
        tokio::task::spawn_blocking(end).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_offset_waits_for_transactions_under_way() {
    for commit in [true, false] {
        let log = log(1).await;
        let group = format!("{}-stable", log.config.topics.views);
        let mut reader = log.reader(Topic::Views, "stable").await;
        assigned(&mut reader).await;
        let before = Position { partition: 0, offset: 3, note: "A=1".into() };
        reader.commit(&[before]).await.unwrap();
        reader.close(Duration::from_secs(10)).await;
        let open = Open::begin(&log.config, &group, &group, 7).await;
        let mut reader = log.reader(Topic::Views, "stable").await;
        assigned(&mut reader).await;
        let mut question = std::pin::pin!(reader.committed(0));
        let early = tokio::time::timeout(Duration::from_secs(2), &mut question).await;
        assert!(early.is_err(), "answered {early:?} although a transaction was open");
        open.end(commit).await;
        let answer = tokio::time::timeout(SOON, question).await.unwrap().unwrap();
        let expected = match commit {
            true => Committed { offset: 7, note: String::new() },
            false => Committed { offset: 3, note: "A=1".into() },
        };
        assert_eq!(answer, Some(expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_an_open_transaction_is_read_and_history_waits_for_it() {
    for commit in [true, false] {
        let log = log(1).await;
        let group = format!("{}-open", log.config.topics.views);
        let open = Open::begin(&log.config, &group, &group, 1).await;
        let mut reader = log.reader(Topic::Counted, "reader").await;
        assigned(&mut reader).await;
        reader.start(0, 0).await.unwrap();
        let history = log.history().await;
        // The end lies behind the open record, and a time before it is found, or it would be missed when it commits.
        assert_eq!(history.ends().await.unwrap(), [(0, 1)]);
        let (sink, mut batches) = mpsc::channel(10);
        let reading = tokio::spawn(async move { history.read(0, &[(0, 1)], sink).await });
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(1) {
            let event = next(&mut reader, TICK).await;
            assert!(!matches!(event, Some(GroupEvent::Records(_))), "{event:?}");
            if let Some(GroupEvent::CaughtUp { next_offset, .. }) = event {
                assert_eq!(next_offset, 0, "the end is what is decided");
            }
        }
        assert!(!reading.is_finished());
        open.end(commit).await;
        tokio::time::timeout(SOON, reading).await.unwrap().unwrap().unwrap();
        let seen = batches.recv().await.map_or(0, |batch| batch.len());
        assert_eq!(seen, usize::from(commit));
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < SOON, "the end comes");
            match next(&mut reader, TICK).await {
                Some(GroupEvent::Records(batch)) => assert!(commit && batch.len() == 1),
                // The record and its marker.
                Some(GroupEvent::CaughtUp { next_offset: 2, .. }) => break,
                _ => {}
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_room_keeps_its_membership_and_bounded_memory() {
    let mut log = log(1).await;
    log.config.buffer_bytes = 1 << 20;
    log.config.batch_records = 100;
    log.config.session_timeout_ms = 6_000;
    let writer = log.writer().await;
    let mut reader = log.reader(Topic::Views, "slow").await;
    assigned(&mut reader).await;
    reader.start(0, 0).await.unwrap();
    for n in 0..40 {
        let mut batch = OutgoingBatch::default();
        (0..500).for_each(|_| batch.push(Topic::Views, b"k", &[n; 1_000]));
        writer.append(batch).await.unwrap();
    }
    // Longer than the group waits for a silent member.
    let silence = Duration::from_millis(log.config.session_timeout_ms + 2_000);
    let begun = Instant::now();
    onlooker_testkit::wait_until_async("time", SOON, || async { begun.elapsed() > silence }).await.unwrap();
    let mut seen = 0;
    let mut largest = 0;
    while seen < 20_000 {
        match next(&mut reader, SOON).await.unwrap() {
            GroupEvent::Records(batch) => {
                seen += batch.len();
                largest = largest.max(batch.len());
            }
            GroupEvent::Revoked { .. } => panic!("the membership was lost"),
            _ => {}
        }
    }
    assert_eq!(largest, 100);
}

/// Members come and go while others read and commit: every partition goes on, no record is missed.
#[tokio::test(flavor = "multi_thread")]
async fn rebalances_under_load_stop_nobody() {
    let rounds = if onlooker_testkit::full() { 50 } else { 5 };
    let log = log(4).await;
    let writer = log.writer().await;
    let mut stable = log.reader(Topic::Views, "storm").await;
    let mut owned: BTreeMap<i32, i64> = BTreeMap::new();
    let mut appended = 0;
    for round in 0..rounds {
        let mut guest = log.reader(Topic::Views, "storm").await;
        let begun = Instant::now();
        let mut guest_has = 0;
        while guest_has == 0 || owned.is_empty() {
            assert!(begun.elapsed() < SOON, "round {round}: both get partitions");
            let mut batch = OutgoingBatch::default();
            (0..40).for_each(|n| batch.push(Topic::Views, format!("k{n}").as_bytes(), b"v"));
            writer.append(batch).await.unwrap();
            appended += 40;
            if let Some(GroupEvent::Assigned { partitions, .. }) = next(&mut guest, TICK).await {
                guest_has = partitions.len();
            }
            serve(&mut stable, &mut owned).await;
        }
        guest.close(Duration::from_secs(10)).await;
    }
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < SOON, "every partition is read to its end");
        serve(&mut stable, &mut owned).await;
        if owned.len() == 4 && owned.values().sum::<i64>() == appended {
            break;
        }
    }
}

/// Takes events in, reads from where the group is, and commits after each batch.
async fn serve(reader: &mut KafkaReader, owned: &mut BTreeMap<i32, i64>) {
    while let Some(event) = next(reader, TICK).await {
        match event {
            GroupEvent::Assigned { partitions, .. } => {
                for partition in partitions {
                    // A commit of ours that came too late for its generation is no harm: records come again.
                    let committed = reader.committed(partition).await.unwrap();
                    let offset = committed.map_or(0, |committed| committed.offset);
                    reader.start(partition, offset).await.unwrap();
                    owned.insert(partition, offset);
                }
            }
            GroupEvent::Revoked { partitions } => {
                partitions.iter().for_each(|partition| _ = owned.remove(partition));
            }
            GroupEvent::Records(batch) => {
                let next = owned.get_mut(&batch.partition).unwrap();
                for record in batch.iter() {
                    assert_eq!(record.offset, *next, "no record is skipped");
                    *next += 1;
                }
                let position = Position { partition: batch.partition, offset: *next, note: String::new() };
                // Refused while the group is between two generations.
                let _late = reader.commit(&[position]).await;
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_without_key_or_value_come_as_they_are() {
    let log = log(1).await;
    let producer: ThreadedProducer<_> = raw(&log.config).create().unwrap();
    let views = log.config.topics.views.clone();
    producer.send(BaseRecord::<str, str>::to(&views)).unwrap();
    producer.send(BaseRecord::<str, str>::to(&views).key("").payload("")).unwrap();
    producer.send(BaseRecord::<str, [u8]>::to(&views).key("k").payload(&[0xff, 0, 1])).unwrap();
    producer.flush(SOON).unwrap();
    let mut reader = log.reader(Topic::Views, "poison").await;
    assigned(&mut reader).await;
    reader.start(0, 0).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        if let Some(GroupEvent::Records(batch)) = next(&mut reader, SOON).await {
            seen.extend(batch.iter().map(|r| (r.key.map(<[u8]>::to_vec), r.payload.map(<[u8]>::to_vec))));
        }
    }
    let some = |bytes: &[u8]| Some(bytes.to_vec());
    assert_eq!(seen[0], (None, None));
    // An empty value and none are two things to Kafka, and one to its client library.
    assert_eq!(seen[1].0.clone().unwrap_or_default(), b"");
    assert_eq!(seen[2], (some(b"k"), some(&[0xff, 0, 1])));
}
