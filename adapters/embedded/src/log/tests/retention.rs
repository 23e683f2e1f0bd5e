//! What is removed, and what is kept.

use super::{append, crash, dir, joined, open, read_all, segments, small};
use crate::log::files::Simulated;
use crate::log::{EmbeddedLog, LogConfig};
use onlooker_ports::{GroupEvent, GroupReader, PortError, Position, Topic};

const HOUR: i64 = 3_600_000;

fn value(n: i64) -> String {
    format!("{n:03}{}", "x".repeat(500))
}

async fn append_all(log: &EmbeddedLog<Simulated>, range: std::ops::Range<i64>) {
    for n in range {
        append(log, &value(n)).await.unwrap();
    }
}

async fn commit(reader: &mut impl GroupReader, offset: i64) {
    reader.commit(&[Position { partition: 0, offset, note: String::new() }]).await.unwrap();
}

fn first(log: &EmbeddedLog<Simulated>) -> i64 {
    log.bounds(Topic::Views)[0].0
}

#[tokio::test]
async fn age_removes_what_every_group_has_read() {
    let disk = Simulated::new(21);
    let config = LogConfig { views_retention_hours: 10, ..small() };
    let (log, _) = open(&disk, 1, &config).unwrap();
    let mut reader = joined(&log, Topic::Views, "filter").await;
    append_all(&log, 0..30).await;
    disk.advance_ms(11 * HOUR);
    append_all(&log, 30..40).await;
    assert_eq!(first(&log), 0, "the group has read nothing");
    commit(&mut reader, 20).await;
    // The position is not durable by itself, and counts only once it is.
    append_all(&log, 40..50).await;
    assert_eq!(first(&log), 0);
    log.delete_before(Topic::Counted, 0, 0).await.unwrap();
    append_all(&log, 50..60).await;
    let start = first(&log);
    assert!((1..=20).contains(&start), "{start}");
    let everything = read_all(&log, Topic::Views).await.unwrap();
    assert_eq!(everything, [(start, (start..60).map(value).collect())]);
    // What is young stays, read or not.
    commit(&mut reader, 60).await;
    log.delete_before(Topic::Counted, 0, 0).await.unwrap();
    append_all(&log, 60..80).await;
    assert!((25..=30).contains(&first(&log)), "{}", first(&log));
    reader.start(0, 3).await.unwrap();
    let event = reader.next(super::SOON).await.unwrap();
    let earliest = first(&log);
    match event {
        Some(GroupEvent::OutOfRange { partition: 0, wanted: 3, earliest: told, end: 80 }) => {
            assert_eq!(told, earliest);
        }
        other => panic!("{other:?}"),
    }
    drop(reader);
    log.close().await;
    let (log, _) = open(&disk, 1, &config).unwrap();
    assert_eq!((first(&log), log.ends(Topic::Views)), (earliest, vec![80]));
    assert_eq!(log.committed("filter", Topic::Views)[0].as_ref().unwrap().offset, 60);
}

#[tokio::test]
async fn size_removes_the_oldest() {
    let disk = Simulated::new(23);
    let config = LogConfig { views_retention_bytes: 20_000, ..small() };
    let (log, _) = open(&disk, 1, &config).unwrap();
    append_all(&log, 0..200).await;
    let start = first(&log);
    assert!((150..190).contains(&start), "{start}");
    assert!(segments(&disk, &dir().join("views")).len() < 8);
    assert_eq!(read_all(&log, Topic::Views).await.unwrap(), [(start, (start..200).map(value).collect())]);
}

#[tokio::test]
async fn a_hard_limit_refuses_rather_than_drop_what_was_not_read() {
    let disk = Simulated::new(25);
    let config = LogConfig { limit_bytes: 30_000, ..small() };
    let (log, _) = open(&disk, 1, &config).unwrap();
    let mut reader = joined(&log, Topic::Views, "filter").await;
    let mut count = 0;
    let error = loop {
        match append(&log, &value(count)).await {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    let full = PortError::Full { server: "embedded log", detail: String::new() };
    assert_eq!(std::mem::discriminant(&error), std::mem::discriminant(&full), "{error}");
    assert!((20..40).contains(&count), "{count}");
    assert_eq!(read_all(&log, Topic::Views).await.unwrap(), [(0, (0..count).map(value).collect())]);
    commit(&mut reader, 15).await;
    log.delete_before(Topic::Counted, 0, 0).await.unwrap();
    append(&log, &value(count)).await.unwrap();
    assert!(first(&log) > 0);
    // A group that will not come back holds nothing back once it is forgotten.
    drop(reader);
    assert_eq!(log.groups(), [(Topic::Views, "filter".to_owned())]);
    log.forget_group("filter", Topic::Views).await.unwrap();
    assert_eq!((log.groups(), log.committed("filter", Topic::Views)), (vec![], vec![None]));
    append_all(&log, count + 1..count + 100).await;
    assert!(first(&log) > count, "{}", first(&log));
}

#[tokio::test]
async fn a_raised_start_is_kept() {
    let disk = Simulated::new(27);
    let (log, _) = open(&disk, 1, &small()).unwrap();
    append_all(&log, 0..10).await;
    log.delete_before(Topic::Views, 0, 4).await.unwrap();
    log.delete_before(Topic::Views, 0, 2).await.unwrap();
    assert_eq!(log.bounds(Topic::Views), [(4, 10)]);
    crash(&disk, log, Simulated::power_loss);
    let (log, _) = open(&disk, 1, &small()).unwrap();
    assert_eq!(read_all(&log, Topic::Views).await.unwrap(), [(4, (4..10).map(value).collect())]);
}

/// Append times never fall, whatever the clock does: history is sought by them.
#[tokio::test]
async fn a_clock_that_is_put_back_stops_the_logs_time() {
    let disk = Simulated::new(29);
    let (log, _) = open(&disk, 1, &small()).unwrap();
    let mut reader = joined(&log, Topic::Views, "g").await;
    reader.start(0, 0).await.unwrap();
    let mut times = Vec::new();
    for step in [0, 5, -HOUR, 10, HOUR, 7] {
        disk.advance_ms(step);
        append(&log, "v").await.unwrap();
    }
    while times.len() < 6 {
        if let Some(GroupEvent::Records(batch)) = reader.next(super::SOON).await.unwrap() {
            times.extend(batch.iter().map(|record| record.append_ms));
        }
    }
    let steps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(steps, [5, 0, 0, 10, 7]);
    log.close().await;
    disk.advance_ms(-HOUR);
    let (log, _) = open(&disk, 1, &small()).unwrap();
    append(&log, "v").await.unwrap();
    let mut reader = joined(&log, Topic::Views, "g").await;
    reader.start(0, 6).await.unwrap();
    let Some(GroupEvent::Records(batch)) = reader.next(super::SOON).await.unwrap() else { panic!() };
    assert_eq!(batch.get(0).unwrap().append_ms, times[5]);
}
