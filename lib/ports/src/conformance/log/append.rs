//! Appending.

use super::{LogUnderTest, append, batch, sole_room};
use crate::{LogWriter, OutgoingBatch, Topic};
use onlooker_event::partition_of;
use std::collections::BTreeMap;
use std::time::Duration;

/// Four partitions. What was acknowledged is there, once, in the order of each key.
pub async fn acknowledged_records_are_read_in_order<L: LogUnderTest>(log: &L) {
    let writer = log.writer().await;
    writer.append(OutgoingBatch::default()).await.expect("nothing is appended at once");
    let keys: Vec<String> = (0..20).map(|n| format!("key-{n}")).collect();
    for round in 0..10i64 {
        for key in &keys {
            append(&writer, Topic::Views, key, round * 10..round * 10 + 10).await;
        }
    }
    writer.flush(Duration::from_secs(5)).await.expect("all is acknowledged");
    assert!(writer.is_reachable());
    let mut room = sole_room(log, Topic::Views, "order", 4).await;
    room.until("all records", |room| room.count() >= 2_000).await;
    room.until_quiet().await;
    let mut by_key: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (_, seen) in room.all() {
        by_key.entry(&seen.key).or_default().push(&seen.value);
    }
    assert_eq!(by_key.len(), keys.len());
    let expected: Vec<String> = (0..100).map(|n| format!("value-{n}")).collect();
    for (key, values) in by_key {
        assert_eq!(values, expected, "of {key}");
    }
    for seen in room.records.values() {
        assert!(
            seen.iter().all(|record| record.append_ms > 1_577_836_800_000),
            "append times are the log's clock"
        );
        assert!(seen.is_sorted_by_key(|record| record.append_ms), "append times rise");
    }
}

/// Five partitions. A key goes where Kafka's own clients would send it; no key goes anywhere.
pub async fn keys_decide_the_partition<L: LogUnderTest>(log: &L) {
    let writer = log.writer().await;
    let keys: Vec<String> = (0..200).map(|n| format!("{n}-{}", "x".repeat(n % 7))).collect();
    let records = keys.iter().map(|key| (key.clone(), "v".to_owned()));
    writer.append(batch(Topic::Views, records)).await.expect("the log is up");
    let keyless = (0..50).map(|n| (String::new(), format!("keyless-{n}")));
    writer.append(batch(Topic::Views, keyless)).await.expect("the log is up");
    let mut room = sole_room(log, Topic::Views, "keys", 5).await;
    room.until("all records", |room| room.count() >= 250).await;
    for (partition, seen) in room.all().filter(|(_, seen)| !seen.key.is_empty()) {
        assert_eq!(partition, partition_of(seen.key.as_bytes(), 5), "of {}", seen.key);
    }
    assert_eq!(room.all().filter(|(_, seen)| seen.value.starts_with("keyless")).count(), 50);
}

/// One partition. Empty values and large ones.
pub async fn records_of_any_size_come_back<L: LogUnderTest>(log: &L) {
    let writer = log.writer().await;
    let sizes = [0, 1, 150, 4_096, 100_000, 0, 700_000];
    let records = sizes.map(|size| ("k".to_owned(), "v".repeat(size)));
    writer.append(batch(Topic::Views, records)).await.expect("the log is up");
    let mut room = sole_room(log, Topic::Views, "sizes", 1).await;
    room.until("all records", |room| room.count() == sizes.len()).await;
    assert_eq!(room.all().map(|(_, seen)| seen.value.len()).collect::<Vec<_>>(), sizes);
}

/// Two partitions. The records of one batch go each to its topic.
pub async fn one_batch_reaches_several_topics<L: LogUnderTest>(log: &L) {
    let writer = log.writer().await;
    let topics = [Topic::Views, Topic::Counted, Topic::Ignored, Topic::Dead];
    let mut mixed = OutgoingBatch::default();
    for n in 0..40 {
        let topic = topics[n % 4];
        mixed.push(topic, format!("k{n}").as_bytes(), format!("{topic:?}").as_bytes());
    }
    writer.append(mixed).await.expect("the log is up");
    for topic in topics {
        let mut room = sole_room(log, topic, "mixed", 2).await;
        room.until("its records", |room| room.count() == 10).await;
        assert!(room.all().all(|(_, seen)| seen.value == format!("{topic:?}")));
    }
}
