//! Many at once on the real disk: writers, readers that lag behind, retention, and readers that are interrupted.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use onlooker_embedded::log::{Durability, EmbeddedLog, LogConfig};
use onlooker_ports::{GroupEvent, GroupReader, LogWriter, OutgoingBatch, Position, Topic};
use std::collections::BTreeMap;
use std::time::Duration;

const PARTITIONS: u32 = 3;
const WRITERS: u64 = 4;
const EACH: u64 = 600;

/// Appends, numbering what it appends, in batches of 1 to 7.
async fn write(log: &EmbeddedLog, writer: u64) {
    let handle = log.writer();
    let mut number = 0;
    while number < EACH {
        let mut batch = OutgoingBatch::default();
        for _ in 0..=(number % 7).min(EACH - number - 1) {
            let value = format!("{number:05}{}", "x".repeat((number % 200) as usize));
            batch.push(Topic::Views, format!("writer-{writer}").as_bytes(), value.as_bytes());
            number += 1;
        }
        handle.append(batch).await.unwrap();
    }
}

/// What a group has seen: by key, the numbers in order; and how many offsets it was told are gone.
#[derive(Default)]
struct Seen {
    by_key: BTreeMap<String, Vec<u64>>,
    next: BTreeMap<i32, i64>,
    lost: i64,
}

/// Reads until all partitions' ends add up to what was written. `interrupted`: calls of `next` are dropped as soon as
/// they wait, as a room's `select` does.
async fn read(log: &EmbeddedLog, group: &str, interrupted: bool, committing: bool) -> Seen {
    let mut reader = log.reader(Topic::Views, group);
    let mut seen = Seen::default();
    while seen.next.values().sum::<i64>() < (WRITERS * EACH).cast_signed() {
        let event = if interrupted {
            tokio::select! {
                biased;
                event = reader.next(Duration::from_secs(1)) => event.unwrap(),
                () = tokio::task::yield_now() => continue,
            }
        } else {
            reader.next(Duration::from_millis(20)).await.unwrap()
        };
        match event {
            Some(GroupEvent::Assigned { partitions, .. }) => {
                for partition in partitions {
                    reader.start(partition, 0).await.unwrap();
                }
            }
            Some(GroupEvent::Records(batch)) => {
                let next = seen.next.entry(batch.partition).or_default();
                for record in batch.iter() {
                    assert_eq!(record.offset, *next);
                    *next += 1;
                    let key = String::from_utf8(record.key.unwrap().to_vec()).unwrap();
                    let value = std::str::from_utf8(record.payload.unwrap()).unwrap();
                    seen.by_key.entry(key).or_default().push(value[..5].parse().unwrap());
                }
                if committing {
                    let position =
                        Position { partition: batch.partition, offset: *next, note: String::new() };
                    reader.commit(&[position]).await.unwrap();
                }
            }
            Some(GroupEvent::OutOfRange { partition, wanted, earliest, .. }) => {
                seen.lost += earliest - wanted;
                seen.next.insert(partition, earliest);
                reader.start(partition, earliest).await.unwrap();
            }
            Some(GroupEvent::CaughtUp { .. }) | None => {}
            other => panic!("{other:?}"),
        }
    }
    seen
}

async fn crowd(config: LogConfig, pinned: bool) {
    let dir = tempfile::TempDir::new().unwrap();
    let (log, _) = EmbeddedLog::open(dir.path(), PARTITIONS, config).unwrap();
    let writers = async {
        tokio::join!(write(&log, 0), write(&log, 1), write(&log, 2), write(&log, 3));
    };
    let (steady, hasty, ()) =
        tokio::join!(read(&log, "steady", false, pinned), read(&log, "hasty", true, pinned), writers);
    for seen in [steady, hasty] {
        let ends: i64 = log.ends(Topic::Views).into_iter().sum();
        let count: usize = seen.by_key.values().map(Vec::len).sum();
        assert_eq!(count as i64 + seen.lost, ends);
        assert!(seen.by_key.values().all(|numbers| numbers.is_sorted()));
        if pinned {
            assert_eq!(seen.lost, 0);
            assert!(seen.by_key.values().all(|numbers| numbers.iter().copied().eq(0..numbers.len() as u64)));
        }
    }
    log.close().await;
}

/// Nothing is in memory, and retention removes what both groups have read while they read.
#[tokio::test(flavor = "multi_thread")]
async fn readers_of_files_lose_nothing_to_retention() {
    let config = LogConfig {
        durability: Durability::Process,
        segment_bytes: 8_192,
        tail_bytes: 0,
        views_retention_bytes: 1,
        batch_records: 11,
        ..LogConfig::default()
    };
    crowd(config, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_memory_keep_up() {
    let config = LogConfig { tail_bytes: 20_000, segment_bytes: 65_536, ..LogConfig::default() };
    crowd(config, true).await;
}
