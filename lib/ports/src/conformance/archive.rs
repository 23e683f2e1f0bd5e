//! What every `Archive` keeps.
//!
//! The functions panic where a promise is broken. `run` goes into every item's name, so that several runs may share
//! tables; partitions are used from `first_partition` on.

use crate::{Archive, ArchiveCell, Archived};
use bytes::Bytes;
use onlooker_event::{CountKey, DayNumber, ItemId, ItemKey, Scope, SiteId};

/// All of the suite.
pub async fn all<A: Archive>(archive: &A, run: &str, first_partition: i32) {
    what_was_never_written_is_absent(archive, run, first_partition).await;
    the_higher_timestamp_wins_in_any_order(archive, run).await;
    concurrent_writers_leave_the_most_complete(archive, run).await;
    history_stands_at_offset_0(archive, run).await;
    cells_are_independent(archive, run).await;
    bytes_come_back_as_they_were(archive, run).await;
    names_of_any_kind_stay_apart(archive, run).await;
    reads_keep_order_and_repetitions(archive, run).await;
    many_keys_at_once(archive, run).await;
    durable_never_goes_back(archive, first_partition + 1).await;
}

/// The key of an item of this run; no day: all time.
pub fn key(run: &str, item: &str, day: Option<i32>) -> CountKey {
    let site = SiteId::new("conformance").expect("a plain name");
    let item = ItemId::new(&format!("{run}/{item}")).expect("an item id");
    let scope = day.map_or(Scope::All, |d| Scope::Day(DayNumber(d)));
    CountKey::new(scope, ItemKey::new(&site, &item).as_bytes())
}

fn sketch(key: &CountKey, bytes: impl Into<Bytes>, t: i64) -> ArchiveCell {
    ArchiveCell::Sketch { key: key.clone(), bytes: bytes.into(), t }
}

fn number(key: &CountKey, n: u64, u: i64) -> ArchiveCell {
    ArchiveCell::Number { key: key.clone(), n, u }
}

async fn write<A: Archive>(archive: &A, cells: &[ArchiveCell]) {
    let results = archive.write(cells).await;
    assert_eq!(results.len(), cells.len(), "one result a cell");
    for result in results {
        result.expect("the archive is up");
    }
}

async fn read<A: Archive>(archive: &A, keys: &[CountKey]) -> Vec<Archived> {
    let found = archive.read(keys).await.expect("the archive is up");
    assert_eq!(found.len(), keys.len(), "one answer a key");
    found
}

async fn read_one<A: Archive>(archive: &A, key: &CountKey) -> Archived {
    read(archive, std::slice::from_ref(key)).await.swap_remove(0)
}

/// A repeatable order of things, another one for each seed (xorshift and Fisher-Yates).
pub fn shuffle<T>(things: &mut [T], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for i in (1..things.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let j = usize::try_from(state % (i as u64 + 1)).unwrap_or(0);
        things.swap(i, j);
    }
}

/// Nothing is none, and not an empty sketch or a zero.
pub async fn what_was_never_written_is_absent<A: Archive>(archive: &A, run: &str, partition: i32) {
    assert_eq!(read_one(archive, &key(run, "never", None)).await, Archived::default());
    assert_eq!(read(archive, &[]).await, []);
    assert_eq!(archive.write(&[]).await, []);
    assert_eq!(archive.durable(partition).await, Ok(None));
}

/// Of all writes of a cell the one with the highest timestamp stands, whichever comes last; equal writes are one.
pub async fn the_higher_timestamp_wins_in_any_order<A: Archive>(archive: &A, run: &str) {
    for seed in 0..12 {
        let key = key(run, &format!("order-{seed}"), None);
        let mut cells: Vec<_> = (1..=6)
            .flat_map(|t| [sketch(&key, format!("below {t}"), t), number(&key, t.cast_unsigned() * 10, t)])
            .collect();
        cells.extend(cells.clone());
        shuffle(&mut cells, seed);
        for cell in &cells {
            write(archive, std::slice::from_ref(cell)).await;
        }
        let expected = Archived { sketch: Some(("below 6".into(), 6)), number: Some((60, 6)) };
        assert_eq!(read_one(archive, &key).await, expected, "order {seed}");
    }
}

/// What was carried over from another log holds none of this log's records: it stands at offset 0, is no absence, may be
/// written twice, and gives way to every record of the log.
pub async fn history_stands_at_offset_0<A: Archive>(archive: &A, run: &str) {
    let (old, empty) = (key(run, "history", None), key(run, "history", Some(3)));
    let history = [sketch(&old, "before", 0), number(&old, 7, 0), number(&empty, 0, 0)];
    for _ in 0..2 {
        write(archive, &history).await;
        let both = Archived { sketch: Some(("before".into(), 0)), number: Some((7, 0)) };
        let zero = Archived { sketch: None, number: Some((0, 0)) };
        assert_eq!(read(archive, &[old.clone(), empty.clone()]).await, [both, zero]);
    }
    write(archive, &[number(&old, 8, 1)]).await;
    write(archive, &history).await;
    let counted = Archived { sketch: Some(("before".into(), 0)), number: Some((8, 1)) };
    assert_eq!(read_one(archive, &old).await, counted);
    write(archive, &[sketch(&old, "and after", 1)]).await;
    write(archive, &history).await;
    let counted = Archived { sketch: Some(("and after".into(), 1)), number: Some((8, 1)) };
    assert_eq!(read_one(archive, &old).await, counted);
}

/// The same within one call, where cells of an item travel together, and with two writers at once.
pub async fn concurrent_writers_leave_the_most_complete<A: Archive>(archive: &A, run: &str) {
    let keys: Vec<_> = (0..20).map(|i| key(run, &format!("race-{i}"), (i % 2 == 0).then_some(9))).collect();
    let mut cells: Vec<_> = (1..=8)
        .flat_map(|t| keys.iter().map(move |key| (key, t)))
        .flat_map(|(key, t)| [sketch(key, format!("below {t}"), t), number(key, t.cast_unsigned(), t + 1)])
        .collect();
    shuffle(&mut cells, 1);
    let mut again = cells.clone();
    shuffle(&mut again, 2);
    tokio::join!(write(archive, &cells), write(archive, &again));
    for (key, found) in keys.iter().zip(read(archive, &keys).await) {
        let expected = Archived { sketch: Some(("below 8".into(), 8)), number: Some((8, 9)) };
        assert_eq!(found, expected, "{key:?}");
    }
}

/// Sketch and number of a key, and the scopes of an item, are written and read apart, each with its own timestamp.
pub async fn cells_are_independent<A: Archive>(archive: &A, run: &str) {
    let (all, day, next) = (key(run, "cells", None), key(run, "cells", Some(1)), key(run, "cells", Some(2)));
    write(archive, &[number(&all, 7, 100)]).await;
    assert_eq!(read_one(archive, &all).await, Archived { sketch: None, number: Some((7, 100)) });
    // A lower timestamp, in the other cell.
    write(archive, &[sketch(&all, "s", 50), sketch(&day, "d", 3)]).await;
    let both = Archived { sketch: Some(("s".into(), 50)), number: Some((7, 100)) };
    let day_only = Archived { sketch: Some(("d".into(), 3)), number: None };
    assert_eq!(read(archive, &[all, day, next]).await, [both, day_only, Archived::default()]);
}

/// No byte is changed on the way, whatever it is.
pub async fn bytes_come_back_as_they_were<A: Archive>(archive: &A, run: &str) {
    let mut dense = b"HYLL\0\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
    dense.resize(16 + 12_288, 0);
    let mut full = dense.clone();
    full[16..].fill(0xFF);
    let sparse = b"HYLL\x01\0\0\0\x03\0\0\0\0\0\0\0\x7f\xff\x80\x41\x00".to_vec();
    let mut every = sparse.clone();
    every.extend(0..=255u8);
    let blobs = [dense, full, sparse, every, vec![0xFF; 3], vec![0]];
    let keys: Vec<_> = (0..blobs.len()).map(|i| key(run, &format!("bytes-{i}"), None)).collect();
    let cells: Vec<_> = keys.iter().zip(&blobs).map(|(key, blob)| sketch(key, blob.clone(), 1)).collect();
    write(archive, &cells).await;
    for (blob, found) in blobs.iter().zip(read(archive, &keys).await) {
        assert_eq!(found.sketch.map(|(bytes, _)| bytes.to_vec()).as_ref(), Some(blob));
    }
    let widest = key(run, "widest", None);
    let far = i64::MAX / 2;
    write(archive, &[number(&widest, u64::MAX >> 1, far)]).await;
    assert_eq!(read_one(archive, &widest).await.number, Some((u64::MAX >> 1, far)));
}

/// Names that look alike, and names of any script and length, are different items.
pub async fn names_of_any_kind_stay_apart<A: Archive>(archive: &A, run: &str) {
    let longest = "\u{1F600}".repeat(240);
    let names =
        ["a", "a:", "*:a", "{a}", "'a'", "a b", "A", "\u{e4}", "a\u{308}", "%C3%A4", "0", "00", &longest];
    let keys: Vec<_> = names.iter().map(|name| key(run, name, None)).collect();
    let cells: Vec<_> = keys.iter().enumerate().map(|(i, key)| number(key, i as u64, 1)).collect();
    write(archive, &cells).await;
    let found: Vec<_> = read(archive, &keys).await.iter().map(|a| a.number.map(|(n, _)| n)).collect();
    assert_eq!(found, (0..names.len() as u64).map(Some).collect::<Vec<_>>());
}

/// Answers stand in the order of the keys; a key may be asked for twice; what is absent takes a place.
pub async fn reads_keep_order_and_repetitions<A: Archive>(archive: &A, run: &str) {
    let at = |i: usize| key(run, &format!("row-{}", i / 3), [None, Some(5), Some(6)][i % 3]);
    let cells: Vec<_> = (0..30).filter(|i| i % 4 != 0).map(|i| number(&at(i), i as u64, 1)).collect();
    write(archive, &cells).await;
    let mut order: Vec<usize> = (0..30).chain(0..10).collect();
    shuffle(&mut order, 3);
    let keys: Vec<_> = order.iter().map(|i| at(*i)).collect();
    for (i, found) in order.iter().zip(read(archive, &keys).await) {
        assert_eq!(found.number.map(|(n, _)| n), (i % 4 != 0).then_some(*i as u64), "row {i}");
    }
}

/// A start on an empty store asks for thousands of keys in one call.
pub async fn many_keys_at_once<A: Archive>(archive: &A, run: &str) {
    let keys: Vec<_> =
        (0..3_000).map(|i| key(run, &format!("many-{}", i / 2), (i % 2 == 1).then_some(7))).collect();
    let cells: Vec<_> = keys
        .iter()
        .zip(1..)
        .flat_map(|(key, i)| [number(key, i, 5), sketch(key, i.to_be_bytes().to_vec(), 4)])
        .collect();
    write(archive, &cells).await;
    for (found, i) in read(archive, &keys).await.into_iter().zip(1u64..) {
        let bytes = Bytes::copy_from_slice(&i.to_be_bytes());
        assert_eq!(found, Archived { sketch: Some((bytes, 4)), number: Some((i, 5)) });
    }
}

/// The durable offset of a partition only rises, and partitions are apart.
pub async fn durable_never_goes_back<A: Archive>(archive: &A, partition: i32) {
    let next = partition + 1;
    assert_eq!(archive.set_durable(partition, 0).await, Ok(()));
    assert_eq!(archive.durable(partition).await, Ok(Some(0)));
    for offset in [5, 3, 9, 9, 4, 0] {
        assert_eq!(archive.set_durable(partition, offset).await, Ok(()));
    }
    assert_eq!(archive.durable(partition).await, Ok(Some(9)));
    assert_eq!(archive.durable(next).await, Ok(None));
    assert_eq!(archive.set_durable(next, 2).await, Ok(()));
    assert_eq!(archive.durable(partition).await, Ok(Some(9)));
    assert_eq!(archive.durable(next).await, Ok(Some(2)));
}
