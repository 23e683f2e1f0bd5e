//! Losing the power, or the process, again and again, in the middle of anything.

use super::{LEFT_OUT, SOON, append, crash, joined, open, read_all, read_with_gaps, small};
use crate::log::files::{Faults, Simulated};
use crate::log::{Durability, EmbeddedLog, LogConfig};
use onlooker_ports::{GroupEvent, GroupReader, LogWriter, OutgoingBatch, Position, Topic, Transactor};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const PARTITIONS: u32 = 3;
const WAIT: Duration = Duration::from_millis(20);

/// What has been promised.
#[derive(Default)]
struct Promised {
    appended: BTreeSet<String>,
    /// By partition: the position that a transaction committed, and how many outputs there were of it.
    committed: BTreeMap<i32, i64>,
    /// What a reader was given.
    shown: BTreeMap<(i32, i64), String>,
    numbers: u64,
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Appends until the disk dies; gives what was acknowledged.
async fn collect(
    log: &EmbeddedLog<Simulated>,
    disk: &Simulated,
    seed: u64,
    first: u64,
) -> (BTreeSet<String>, u64) {
    let mut random = Random(seed | 1);
    let mut acknowledged = BTreeSet::new();
    let mut number = first;
    let writer = log.writer();
    while !disk.is_dead() {
        let mut values = Vec::new();
        let mut batch = OutgoingBatch::default();
        for _ in 0..=random.below(6) {
            number += 1;
            let value = format!("{number:06}{}", "x".repeat(random.below(300) as usize));
            batch.push(Topic::Views, format!("k{}", random.below(10)).as_bytes(), value.as_bytes());
            values.push(value);
        }
        if writer.append(batch).await.is_ok() {
            acknowledged.extend(values);
        }
        disk.advance_ms(random.below(3) as i64);
    }
    (acknowledged, number)
}

/// Reads views, puts one verdict out for each, and commits; as a filter does, and in between as a counter does.
async fn filter(log: &EmbeddedLog<Simulated>, disk: &Simulated, promised: &mut Promised) {
    let mut reader = log.reader(Topic::Views, "filter");
    let mut counter = joined(log, Topic::Counted, "counter").await;
    let mut transactor = log.transactor(Topic::Views);
    let mut membership = None;
    while !disk.is_dead() {
        match reader.next(WAIT).await {
            Ok(Some(GroupEvent::Assigned { partitions, membership: ours })) => {
                membership = Some(ours);
                for partition in partitions {
                    let Ok(committed) = reader.committed(partition).await else { continue };
                    reader.start(partition, committed.map_or(0, |c| c.offset)).await.unwrap();
                }
            }
            Ok(Some(GroupEvent::Records(batch))) => {
                let mut outputs = OutgoingBatch::default();
                for record in batch.iter() {
                    let value = String::from_utf8(record.payload.unwrap().to_vec()).unwrap();
                    // The source's place, so that the verdicts can be compared with the views.
                    let verdict = format!("{}:{}:{value}", batch.partition, record.offset);
                    promised.shown.insert((batch.partition, record.offset), value);
                    outputs.push(Topic::Counted, record.key.unwrap_or_default(), verdict.as_bytes());
                }
                let offset = batch.next_offset().unwrap();
                let position = Position { partition: batch.partition, offset, note: format!("A={offset}") };
                let membership = membership.clone().unwrap();
                let outcome = transactor.commit(&outputs, &[position], &membership).await;
                match outcome {
                    Ok(()) => drop(promised.committed.insert(batch.partition, offset)),
                    // As the filter does: it looks how far it is, and goes on from there.
                    Err(_) => {
                        let Ok(committed) = reader.committed(batch.partition).await else { continue };
                        reader.start(batch.partition, committed.map_or(0, |c| c.offset)).await.unwrap();
                    }
                }
                let read = Position { partition: batch.partition, offset: 0, note: String::new() };
                let _late = counter.commit(&[read]).await;
            }
            _ => {}
        }
    }
}

/// What is in the log must be what was promised; `all`: nothing that was promised may be missing.
async fn verify(log: &EmbeddedLog<Simulated>, promised: &Promised, all: bool, what: &str) {
    let read = if all { read_all(log, Topic::Views).await } else { read_with_gaps(log, Topic::Views).await };
    let views = read.unwrap();
    let mut found = BTreeSet::new();
    for value in views.iter().flat_map(|(_, values)| values) {
        assert!(found.insert(value.clone()) || value == LEFT_OUT, "{what}: {value} is there twice");
    }
    if all {
        let missing: Vec<_> = promised.appended.difference(&found).collect();
        assert!(missing.is_empty(), "{what}: {missing:?} were acknowledged");
        for ((partition, offset), value) in &promised.shown {
            assert_eq!(
                &views[*partition as usize].1[*offset as usize], value,
                "{what}: at {partition} {offset}"
            );
        }
    }
    let verdicts = read_all(log, Topic::Counted).await.unwrap();
    let mut by_source: BTreeMap<i32, BTreeMap<i64, String>> = BTreeMap::new();
    for verdict in verdicts.iter().flat_map(|(_, values)| values) {
        let mut parts = verdict.splitn(3, ':');
        let partition: i32 = parts.next().unwrap().parse().unwrap();
        let offset: i64 = parts.next().unwrap().parse().unwrap();
        let old = by_source.entry(partition).or_default().insert(offset, parts.next().unwrap().to_owned());
        assert_eq!(old, None, "{what}: two verdicts of {partition} {offset}");
    }
    for (partition, committed) in log.committed("filter", Topic::Views).into_iter().enumerate() {
        let partition = partition as i32;
        let committed = committed.map_or(0, |committed| {
            assert_eq!(committed.note, format!("A={}", committed.offset), "{what}");
            committed.offset
        });
        if all {
            let promised = promised.committed.get(&partition).copied().unwrap_or(0);
            assert!(committed >= promised, "{what}: {partition} is at {committed}, was at {promised}");
        }
        // Outputs and positions are one: a verdict for each view below the position, and none above it.
        let offsets: Vec<i64> =
            by_source.get(&partition).into_iter().flat_map(BTreeMap::keys).copied().collect();
        assert_eq!(offsets, (0..committed).collect::<Vec<_>>(), "{what}: verdicts of {partition}");
        // The journals are two: after a loss of power in `process` the views may end before the verdicts.
        if all {
            for (offset, value) in by_source.get(&partition).into_iter().flatten() {
                assert_eq!(&views[partition as usize].1[*offset as usize], value, "{what}");
            }
        }
    }
}

/// One folder through several lives, each ending in the middle of something.
async fn lives(seed: u64, config: &LogConfig, end: fn(&Simulated), keeps_all: bool) -> Seen {
    let mut seen = Seen::default();
    let disk = Simulated::new(seed);
    let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
    let mut promised = Promised::default();
    for life in 0..3 {
        let what = format!("seed {seed}, life {life}");
        let faults = Faults { operations_left: Some(random.below(120)), ..Faults::default() };
        disk.set_faults(faults);
        if let Ok((log, _)) = open(&disk, PARTITIONS, config) {
            let work = async {
                let collecting = collect(&log, &disk, seed + life, promised.numbers);
                let mut filtered = Promised::default();
                let ((acknowledged, number), ()) =
                    tokio::join!(collecting, filter(&log, &disk, &mut filtered));
                promised.appended.extend(acknowledged);
                promised.numbers = number;
                promised.committed.extend(filtered.committed);
                promised.shown.extend(filtered.shown);
            };
            tokio::time::timeout(SOON, work).await.expect("the disk dies");
            log.close().await;
        }
        end(&disk);
        let (log, report) = open(&disk, PARTITIONS, config).unwrap_or_else(|error| panic!("{what}: {error}"));
        seen.torn += report.torn.len();
        seen.segments += super::segments(&disk, &super::dir().join("views")).len();
        verify(&log, &promised, keeps_all, &what).await;
        if !keeps_all {
            return seen;
        }
    }
    seen.appended = promised.appended.len();
    seen.committed = promised.committed.values().sum();
    seen
}

/// What happened, lest nothing did.
#[derive(Debug, Default)]
struct Seen {
    appended: usize,
    committed: i64,
    torn: usize,
    segments: usize,
}

async fn rounds(config: &LogConfig, end: fn(&Simulated), keeps_all: bool) -> Seen {
    let mut all = Seen::default();
    for seed in 0..220 {
        let seen = lives(seed, config, end, keeps_all).await;
        all.appended += seen.appended;
        all.committed += seen.committed;
        all.torn += seen.torn;
        all.segments += seen.segments;
    }
    all
}

#[tokio::test]
async fn a_loss_of_power_loses_nothing_that_was_acknowledged() {
    let seen = rounds(&small(), Simulated::power_loss, true).await;
    assert!(
        seen.appended > 5_000 && seen.committed > 3_000 && seen.torn > 50 && seen.segments > 900,
        "{seen:?}"
    );
}

#[tokio::test]
async fn a_killed_process_loses_nothing_that_was_written() {
    let config = LogConfig { durability: Durability::Process, ..small() };
    let seen = rounds(&config, Simulated::kill, true).await;
    assert!(
        seen.appended > 5_000 && seen.committed > 3_000 && seen.torn > 50 && seen.segments > 900,
        "{seen:?}"
    );
}

/// `process` promises little here: the log opens, and what is there is whole.
#[tokio::test]
async fn a_loss_of_power_without_syncs_leaves_a_log_that_opens() {
    let config = LogConfig { durability: Durability::Process, segment_bytes: 1 << 20, ..small() };
    let seen = rounds(&config, Simulated::power_loss, false).await;
    assert!(seen.torn > 50, "{seen:?}");
}

/// The views ended before what the filter had read of them: new views must not stand where it would not look.
#[tokio::test]
async fn offsets_that_were_read_and_lost_are_left_out() {
    let config = LogConfig { durability: Durability::Process, ..small() };
    let disk = Simulated::new(31);
    let (log, _) = open(&disk, 1, &config).unwrap();
    for n in 0..20 {
        super::append(&log, &format!("{n}")).await.unwrap();
    }
    let mut reader = joined(&log, Topic::Views, "filter").await;
    reader.commit(&[Position { partition: 0, offset: 20, note: String::new() }]).await.unwrap();
    log.close().await;
    let segment = super::views_segment(0);
    let content = disk.read(&segment).unwrap();
    let tenth = content.windows(4).enumerate().filter(|(_, window)| window == b"ONLE").nth(10).unwrap().0;
    for again in [false, true] {
        if !again {
            disk.replace(&segment, content[..tenth].to_vec());
        }
        let (log, report) = open(&disk, 1, &config).unwrap();
        assert_eq!(report.left_out, !again);
        if !again {
            assert_eq!(log.bounds(Topic::Views), [(0, 20)]);
            super::append(&log, "new").await.unwrap();
            log.raise_ends(Topic::Views, &[(0, 7), (9, 9)]).await.unwrap();
            assert_eq!(log.ends(Topic::Views), [21]);
            log.raise_ends(Topic::Views, &[(0, 30)]).await.unwrap();
            super::append(&log, "newest").await.unwrap();
        }
        let mut reader = joined(&log, Topic::Views, "else").await;
        let mut told = Vec::new();
        reader.start(0, 0).await.unwrap();
        loop {
            match reader.next(SOON).await.unwrap().unwrap() {
                GroupEvent::Records(batch) => told.extend(batch.iter().map(|record| record.offset)),
                GroupEvent::OutOfRange { wanted, earliest, end, .. } => {
                    told.extend([-wanted, -end]);
                    reader.start(0, earliest).await.unwrap();
                }
                GroupEvent::CaughtUp { next_offset, .. } => {
                    assert_eq!(next_offset, 31);
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        let expected: Vec<i64> = (0..10).chain([-10, -31, 20, -21, -31, 30]).collect();
        assert_eq!(told, expected);
        log.close().await;
    }
}

/// Also those that no buffer of the recovery holds at once.
#[tokio::test]
async fn large_entries_are_no_torn_tails() {
    let disk = Simulated::new(9);
    let config = LogConfig { durability: Durability::Power, ..LogConfig::default() };
    let (log, _) = open(&disk, 1, &config).unwrap();
    let values = [3 << 20, 10, 600 << 10, 1 << 20, 4 << 20].map(|bytes| "x".repeat(bytes));
    for value in &values {
        append(&log, value).await.unwrap();
    }
    crash(&disk, log, Simulated::power_loss);
    let (log, report) = open(&disk, 1, &config).unwrap();
    // The last word of a log that is closed may be torn, and is no record.
    assert!(report.torn.iter().all(|torn| torn.bytes <= 64), "{:?}", report.torn);
    let (_, read) = read_all(&log, Topic::Views).await.unwrap().remove(0);
    assert_eq!(read.iter().map(String::len).collect::<Vec<_>>(), values.map(|value| value.len()));
}
