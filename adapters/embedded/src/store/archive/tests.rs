//! The archive on a real file, and on a disk that breaks.

use super::SimulatedDisk as Disk;
use super::*;
use onlooker_event::{ItemId, ItemKey, Scope, SiteId};
use onlooker_ports::conformance::archive;
use std::collections::BTreeMap;
use tempfile::tempdir;

const CACHE: usize = 1 << 20;

fn key(n: u64) -> CountKey {
    let item = ItemKey::new(&SiteId::new("s").unwrap(), &ItemId::new(&format!("item-{n}")).unwrap());
    CountKey::new(Scope::All, item.as_bytes())
}

/// What the sketch of a key is at an offset: short ones and long ones.
fn content(n: u64, t: i64) -> Bytes {
    let len = if n.is_multiple_of(5) { 12_304 } else { 20 + usize::try_from(n % 60).unwrap() };
    let mut bytes = vec![u8::try_from(t % 251).unwrap(); len];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    bytes[8..16].copy_from_slice(&t.to_le_bytes());
    bytes.into()
}

fn cells(keys: impl Iterator<Item = u64>, t: i64) -> Vec<ArchiveCell> {
    keys.flat_map(|n| {
        let number = ArchiveCell::Number { key: key(n), n: t.cast_unsigned() * 3, u: t };
        [ArchiveCell::Sketch { key: key(n), bytes: content(n, t), t }, number]
    })
    .collect()
}

fn on(disk: &Disk) -> Result<RedbArchive, PortError> {
    RedbArchive::open_on(disk, "1", CACHE)
}

/// What was acknowledged, by key and by partition.
#[derive(Default)]
struct Promised {
    cells: BTreeMap<u64, i64>,
    durable: BTreeMap<i32, i64>,
}

impl Promised {
    async fn check(&self, archive: &RedbArchive, when: &str) {
        let keys: Vec<_> = self.cells.keys().map(|n| key(*n)).collect();
        let found = archive.read(&keys).await.unwrap();
        for ((n, t), found) in self.cells.iter().zip(found) {
            let (bytes, at) = found.sketch.unwrap_or_else(|| panic!("{when}: sketch {n} is lost"));
            assert!(at >= *t, "{when}: sketch {n} is of {at}, not {t}");
            assert_eq!(bytes, content(*n, at), "{when}: sketch {n}");
            let (views, u) = found.number.unwrap_or_else(|| panic!("{when}: number {n} is lost"));
            assert!(u >= *t && views == u.cast_unsigned() * 3, "{when}: number {n} is {views} of {u}");
        }
        for (partition, offset) in &self.durable {
            let found = archive.durable(*partition).await.unwrap();
            assert!(found >= Some(*offset), "{when}: {found:?} of partition {partition}, not {offset}");
        }
    }
}

#[tokio::test]
async fn it_keeps_the_promises_of_an_archive() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("archive.redb");
    let archive = RedbArchive::open(&path, "1", CACHE).unwrap();
    archive::all(&archive, "run", 0).await;
    drop(archive);
    // Nothing of it rests on memory.
    let archive = RedbArchive::open(&path, "1", CACHE).unwrap();
    assert_eq!(archive.durable(1).await, Ok(Some(9)));
    // Another log's offsets mean something else.
    drop(archive);
    let other = RedbArchive::open(&path, "2", CACHE).unwrap();
    assert_eq!(other.durable(1).await, Ok(None));
    archive::all(&other, "run", 0).await;
}

#[tokio::test]
async fn rows_are_scanned_in_the_order_of_their_keys() {
    let folder = tempdir().unwrap();
    let archive = RedbArchive::open(&folder.path().join("archive.redb"), "1", CACHE).unwrap();
    assert_eq!(archive.scan(None, 10).await, Ok(vec![]));
    let mut all = cells(0..500, 7);
    // Some have one cell alone.
    all.retain(|cell| !matches!(cell, ArchiveCell::Sketch { key: k, .. } if *k == key(3)));
    all.retain(|cell| !matches!(cell, ArchiveCell::Number { key: k, .. } if *k == key(4)));
    for result in archive.write(&all).await {
        result.unwrap();
    }
    let mut expected: Vec<_> = (0..500).map(key).collect();
    expected.sort();
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let rows = archive.scan(after.as_ref(), 33).await.unwrap();
        let Some((last, _)) = rows.last() else { break };
        after = Some(last.clone());
        found.extend(rows);
    }
    assert_eq!(found.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), expected);
    for (k, row) in &found {
        assert_eq!((row.sketch.is_none(), row.number.is_none()), (*k == key(3), *k == key(4)));
        assert_eq!(archive.read(std::slice::from_ref(k)).await.unwrap(), std::slice::from_ref(row));
    }
    assert_eq!(archive.set_durable(4, 9).await, Ok(()));
    assert_eq!(archive.all_durable().await, Ok(vec![(4, 9)]));
}

#[tokio::test]
async fn a_file_of_another_kind_is_refused_and_left_alone() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("archive.redb");
    std::fs::write(&path, "a diary".repeat(1_000)).unwrap();
    let error = RedbArchive::open(&path, "1", CACHE).unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a diary".repeat(1_000));
}

#[tokio::test]
async fn rows_of_a_newer_version_are_refused() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("archive.redb");
    let database = redb::Database::create(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    let meta = redb::TableDefinition::<&str, u64>::new("meta");
    transaction.open_table(meta).unwrap().insert("rows", 8).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = RedbArchive::open(&path, "1", CACHE).unwrap_err();
    assert!(error.to_string().contains("version 8, and this program knows version 1"), "{error}");
}

/// 200 times the power fails in the middle of something.
#[tokio::test]
async fn what_was_acknowledged_survives_a_power_loss() {
    let disk = Disk::new(1);
    drop(on(&disk).unwrap());
    let (mut promised, mut t) = (Promised::default(), 1);
    for round in 0..200 {
        let archive = on(&disk).unwrap();
        promised.check(&archive, &format!("round {round}")).await;
        disk.fail_after(disk.below(250));
        loop {
            t += 1;
            let (first, step) = (disk.below(40), disk.below(9) + 1);
            let keys = || (first..first + 60).step_by(usize::try_from(step).unwrap());
            if archive.write(&cells(keys(), t)).await.iter().any(Result::is_err) {
                break;
            }
            promised.cells.extend(keys().map(|n| (n, t)));
            let partition = i32::try_from(t % 3).unwrap();
            if archive.set_durable(partition, t).await.is_err() {
                break;
            }
            promised.durable.insert(partition, t);
        }
        drop(archive);
        disk.power_cycle();
    }
    assert!(promised.cells.len() > 90 && promised.durable.len() == 3);
    promised.check(&on(&disk).unwrap(), "in the end").await;
}

/// While the power stays on, a failed write is repeated by the caller, and that is all.
#[tokio::test]
async fn after_a_failed_write_it_goes_on() {
    let disk = Disk::new(2);
    let archive = on(&disk).unwrap();
    let mut promised = Promised::default();
    let mut failures = 0;
    for t in 1..60i64 {
        disk.fault_after(disk.below(30));
        let keys = || (0..30u64).filter(|n| (n + t.cast_unsigned()).is_multiple_of(3));
        while let Some(Err(error)) = archive.write(&cells(keys(), t)).await.first() {
            assert!(error.is_transient(), "{error}");
            failures += 1;
            promised.check(&archive, &format!("offset {t}")).await;
        }
        promised.cells.extend(keys().map(|n| (n, t)));
    }
    assert!(failures > 10, "{failures} failures");
    promised.check(&archive, "in the end").await;
}

#[tokio::test]
async fn a_full_disk_is_said_and_survived() {
    let disk = Disk::new(3);
    let archive = on(&disk).unwrap();
    let mut promised = Promised::default();
    disk.set_size(Some(disk.length() + (4 << 20)));
    let mut first = 0;
    let error = loop {
        let keys = first..first + 20;
        if let Some(Err(error)) = archive.write(&cells(keys.clone(), 1)).await.pop() {
            break error;
        }
        promised.cells.extend(keys.map(|n| (n, 1)));
        first += 20;
    };
    assert!(matches!(error, PortError::Full { server: "archive", .. }), "{error}");
    assert!(promised.cells.len() > 100);
    for _ in 0..3 {
        promised.check(&archive, "full").await;
        let again = archive.write(&cells(first..first + 600, 2)).await.pop().unwrap();
        assert!(again.is_err_and(|error| error.is_transient()), "a full disk is waited for");
    }
    let half: Vec<_> = (first..first + 600).map(key).collect();
    let found = archive.read(&half).await.unwrap();
    assert!(found.iter().all(|row| *row == Archived::default()), "nothing of a refused call is there");
    disk.set_size(None);
    for result in archive.write(&cells(first..first + 600, 2)).await {
        result.unwrap();
    }
    promised.cells.extend((first..first + 600).map(|n| (n, 2)));
    promised.check(&archive, "with room").await;
}
