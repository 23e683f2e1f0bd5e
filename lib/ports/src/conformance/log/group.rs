//! Reading as a member of a group.

use super::{LogUnderTest, Room, append, sole_room, up};
use crate::{Committed, GroupReader, Position, Topic};
use std::time::Duration;

fn position(partition: i32, offset: i64, note: &str) -> Position {
    Position { partition, offset, note: note.to_owned() }
}

/// Two partitions. An assigned partition stands still until it is started, and a stopped one too.
pub async fn nothing_comes_before_start<L: LogUnderTest>(log: &L) {
    let writer = log.writer().await;
    for n in 0..20 {
        append(&writer, Topic::Views, &format!("k{n}"), 0..10).await;
    }
    let mut room = Room::new(log.reader(Topic::Views, "still").await);
    room.until_assigned(2).await;
    room.until_quiet().await;
    assert_eq!((room.count(), room.ends.len()), (0, 0));
    room.start(1, 0).await;
    room.until("the end of one", |room| room.ends.contains_key(&1)).await;
    assert!(room.records.keys().all(|partition| *partition == 1));
    up(room.reader.stop(1).await);
    let before = room.count();
    append(&writer, Topic::Views, "k0", 10..20).await;
    append(&writer, Topic::Views, "k1", 10..20).await;
    room.until_quiet().await;
    assert_eq!(room.count(), before);
    assert_eq!(room.reader.partitions().await, Ok(2));
}

/// Two partitions. After a start the first record is the one that was asked for, whatever was on its way.
pub async fn starts_and_stops_leave_nothing_stale<L: LogUnderTest>(log: &L) {
    let writer = log.writer().await;
    for n in 0..40 {
        append(&writer, Topic::Views, &format!("k{n}"), 0..50).await;
    }
    let mut room = sole_room(log, Topic::Views, "stale", 2).await;
    room.until("all records", |room| room.count() == 2_000).await;
    let lengths: Vec<usize> = [0, 1].map(|p| room.records.get(&p).map_or(0, Vec::len)).to_vec();
    for round in 0..30usize {
        let partition = i32::try_from(round % 2).unwrap_or(0);
        let length = lengths[round % 2];
        let offset = (round * 97) % length;
        room.start(partition, i64::try_from(offset).unwrap_or(0)).await;
        // Sometimes a little is taken first, sometimes the next start comes while all is under way.
        if round % 3 == 0 {
            room.step(Duration::from_millis(50)).await;
        }
        if round % 5 == 0 {
            up(room.reader.stop(partition).await);
            room.forget(partition);
            room.start(partition, i64::try_from(offset).unwrap_or(0)).await;
        }
        if round % 3 != 1 {
            let all =
                |room: &Room<L::Reader>| room.records.get(&partition).map_or(0, Vec::len) >= length - offset;
            room.until("the rest", all).await;
            let seen = &room.records[&partition];
            let offsets: Vec<i64> = seen.iter().map(|record| record.offset).collect();
            let expected: Vec<i64> = (offset..length).map(|o| i64::try_from(o).unwrap_or(0)).collect();
            assert_eq!(offsets, expected);
        }
    }
}

/// One partition. The end is told when it is reached, and again when there was more.
pub async fn the_end_is_told<L: LogUnderTest>(log: &L) {
    let writer = log.writer().await;
    let mut room = sole_room(log, Topic::Views, "end", 1).await;
    room.until("the empty log's end", |room| room.ends.get(&0) == Some(&0)).await;
    for round in 1..4 {
        append(&writer, Topic::Views, "k", (round - 1) * 10..round * 10).await;
        room.until("the new end", |room| room.ends.get(&0) == Some(&(round * 10))).await;
        assert_eq!(i64::try_from(room.count()), Ok(round * 10));
        assert_eq!(room.reader.bounds(0).await, Ok((0, round * 10)));
    }
    room.start(0, 30).await;
    room.until("the same end", |room| room.ends.get(&0) == Some(&30)).await;
    assert_eq!(room.count(), 0);
}

/// Two partitions. A committed position comes back with its note, to the next owner too.
pub async fn positions_are_kept_with_notes<L: LogUnderTest>(log: &L) {
    let writer = log.writer().await;
    append(&writer, Topic::Views, "k", 0..10).await;
    let mut room = sole_room(log, Topic::Views, "notes", 2).await;
    assert_eq!(room.reader.committed(0).await, Ok(None));
    up(room.reader.commit(&[position(0, 3, "A=17"), position(1, 0, "")]).await);
    up(room.reader.commit(&[]).await);
    up(room.reader.commit(&[position(0, 5, "A=18")]).await);
    let expected = Committed { offset: 5, note: "A=18".into() };
    assert_eq!(room.reader.committed(0).await, Ok(Some(expected.clone())));
    room.reader.close(Duration::from_secs(10)).await;
    let mut next = sole_room(log, Topic::Views, "notes", 2).await;
    assert_eq!(next.reader.committed(0).await, Ok(Some(expected)));
    assert_eq!(next.reader.committed(1).await, Ok(Some(Committed { offset: 0, note: String::new() })));
    let mut stranger = sole_room(log, Topic::Views, "others", 2).await;
    assert_eq!(stranger.reader.committed(0).await, Ok(None));
}

/// Four partitions. Two members share them, each partition with exactly one; when one leaves, the other has all.
pub async fn a_second_member_takes_its_share<L: LogUnderTest>(log: &L) {
    let writer = log.writer().await;
    for n in 0..40 {
        append(&writer, Topic::Views, &format!("k{n}"), 0..10).await;
    }
    let mut first = sole_room(log, Topic::Views, "share", 4).await;
    first.until("all records", |room| room.count() == 400).await;
    let mut second = Room::new(log.reader(Topic::Views, "share").await);
    let begun = std::time::Instant::now();
    while first.assigned.len() != 2 || second.assigned.len() != 2 {
        first.step(Duration::from_millis(50)).await;
        second.step(Duration::from_millis(50)).await;
        assert!(begun.elapsed() < super::SOON, "waited in vain for the hand-over");
    }
    assert!(first.assigned.is_disjoint(&second.assigned));
    // Handed over, and so forgotten: each starts again what it has now.
    first.start_all().await;
    second.start_all().await;
    let ended = |room: &Room<L::Reader>| room.ends.len() == 2;
    first.until("its share", ended).await;
    second.until("its share", ended).await;
    assert_eq!(first.count() + second.count(), 400);
    // What is not ours is started without effect.
    let foreign = *second.assigned.first().expect("it has two");
    up(first.reader.start(foreign, 0).await);
    first.until_quiet().await;
    assert_eq!(first.count() + second.count(), 400);
    first.reader.close(Duration::from_secs(10)).await;
    second.until_assigned(4).await;
    second.start_all().await;
    second.until("all records", |room| room.count() == 400).await;
}

/// One partition. An offset that retention removed is told with what is there instead; nothing is skipped by itself.
pub async fn a_lost_offset_is_told<L: LogUnderTest>(log: &L) {
    let writer = log.writer().await;
    append(&writer, Topic::Views, "k", 0..100).await;
    log.delete_before(Topic::Views, 0, 50).await;
    let mut room = Room::new(log.reader(Topic::Views, "lost").await);
    room.until_assigned(1).await;
    room.start(0, 10).await;
    room.until("the bad news", |room| !room.lost.is_empty()).await;
    assert_eq!(room.lost, [(0, 10, 50, 100)]);
    room.until_quiet().await;
    assert_eq!((room.count(), room.lost.len()), (0, 1));
    room.start(0, 50).await;
    room.until("the rest", |room| room.count() == 50).await;
    assert_eq!(room.records[&0].first().map(|record| record.offset), Some(50));
    // A log that was made anew ends below the offset.
    room.start(0, 1_000).await;
    room.until("the bad news", |room| room.lost.len() == 2).await;
    assert_eq!(room.lost.last(), Some(&(0, 1_000, 50, 100)));
    room.start(0, 99).await;
    room.until("the last record", |room| room.count() == 1).await;
}
