//! Outputs and positions in one step.

use super::{LogUnderTest, Room, append, batch, sole_room, up};
use crate::{CommitError, Committed, GroupReader, OutgoingBatch, Position, Topic, Transactor};
use std::time::Duration;

fn position(partition: i32, offset: i64, note: &str) -> Position {
    Position { partition, offset, note: note.to_owned() }
}

fn verdicts(range: std::ops::Range<i64>) -> OutgoingBatch {
    batch(Topic::Counted, range.map(|n| (format!("item-{n}"), format!("verdict-{n:05}"))))
}

/// Two partitions. After `Ok` both outputs and positions are there.
pub async fn outputs_and_positions_are_one<L: LogUnderTest>(log: &L) {
    append(&log.writer().await, Topic::Views, "k", 0..10).await;
    let mut room = sole_room(log, Topic::Views, "one", 2).await;
    let mut transactor = log.transactor(Topic::Views).await;
    let mut outputs = verdicts(0..100);
    outputs.push(Topic::Ignored, b"k", b"ignored");
    outputs.push(Topic::Dead, b"", b"dead");
    let positions = [position(0, 4, "A=7"), position(1, 6, "")];
    transactor.commit(&outputs, &positions, &room.membership()).await.expect("it commits");
    assert_eq!(room.reader.committed(0).await, Ok(Some(Committed { offset: 4, note: "A=7".into() })));
    assert_eq!(room.reader.committed(1).await, Ok(Some(Committed { offset: 6, note: String::new() })));
    for (topic, count) in [(Topic::Counted, 100), (Topic::Ignored, 1), (Topic::Dead, 1)] {
        let mut outlet = sole_room(log, topic, "outlet", 2).await;
        outlet.until("the outputs", |room| room.count() == count).await;
        outlet.until_quiet().await;
        assert_eq!(outlet.count(), count);
    }
    // Positions alone, and outputs alone.
    let moved = [position(0, 5, "A=8")];
    transactor.commit(&OutgoingBatch::default(), &moved, &room.membership()).await.expect("it commits");
    assert_eq!(room.reader.committed(0).await, Ok(Some(Committed { offset: 5, note: "A=8".into() })));
    transactor.commit(&verdicts(100..101), &[], &room.membership()).await.expect("it commits");
    transactor.commit(&OutgoingBatch::default(), &[], &room.membership()).await.expect("nothing commits");
}

/// One partition. The end that is told is the log's, although the last offsets are no records.
pub async fn the_end_lies_behind_markers<L: LogUnderTest>(log: &L) {
    let source = sole_room(log, Topic::Views, "markers", 1).await;
    let mut transactor = log.transactor(Topic::Views).await;
    for round in 0..3 {
        let outputs = verdicts(round * 5..round * 5 + 5);
        transactor.commit(&outputs, &[], &source.membership()).await.expect("it commits");
    }
    let mut room = sole_room(log, Topic::Counted, "markers", 1).await;
    room.until("all records", |room| room.count() == 15).await;
    let (earliest, end) = up(room.reader.bounds(0).await);
    assert!(earliest == 0 && end >= 15, "{earliest} {end}");
    room.until("the end", |room| room.ends.get(&0) == Some(&end)).await;
    // Started at an offset that is a marker, or behind the last record, it is at the end at once.
    room.start(0, end).await;
    room.until("the end", |room| room.ends.get(&0) == Some(&end)).await;
    assert_eq!(room.count(), 0);
}

/// Three partitions. Many transactions in a row: each record once, in the order of its key.
pub async fn transactions_follow_each_other<L: LogUnderTest>(log: &L) {
    let source = sole_room(log, Topic::Views, "row", 3).await;
    let mut transactor = log.transactor(Topic::Views).await;
    let mut sent = 0i64;
    for round in 0..20i64 {
        let size = (round * 37) % 211;
        let records = (sent..sent + size).map(|n| (format!("item-{}", n % 13), format!("{n:06}")));
        let outputs = batch(Topic::Counted, records);
        let note = format!("A={round}");
        transactor
            .commit(&outputs, &[position(2, sent, &note)], &source.membership())
            .await
            .expect("it commits");
        sent += size;
    }
    let mut room = sole_room(log, Topic::Counted, "row", 3).await;
    room.until("all records", |room| i64::try_from(room.count()).is_ok_and(|count| count >= sent)).await;
    room.until_quiet().await;
    let expected: Vec<String> = (0..sent).map(|n| format!("{n:06}")).collect();
    assert_eq!(room.values(), expected);
    for seen in room.records.values() {
        for key in 0..13 {
            let key = format!("item-{key}");
            assert!(seen.iter().filter(|s| s.key == key).map(|s| &s.value).is_sorted(), "the order of {key}");
        }
    }
}

/// Two partitions. A member that the group has moved on from cannot commit; nothing of its transaction shows.
pub async fn a_former_owner_cannot_commit<L: LogUnderTest>(log: &L) {
    append(&log.writer().await, Topic::Views, "k", 0..10).await;
    let mut former = sole_room(log, Topic::Views, "fence", 2).await;
    let stale = former.membership();
    let mut its_transactor = log.transactor(Topic::Views).await;
    its_transactor.commit(&verdicts(0..10), &[position(0, 1, "")], &stale).await.expect("it commits");
    // A second member joins: the generation moves on, whatever the first still believes.
    let mut owner = Room::new(log.reader(Topic::Views, "fence").await);
    let begun = std::time::Instant::now();
    while owner.assigned.is_empty() || former.assigned.len() == 2 {
        former.step(Duration::from_millis(50)).await;
        owner.step(Duration::from_millis(50)).await;
        assert!(begun.elapsed() < super::SOON, "waited in vain for the hand-over");
    }
    let refused = its_transactor.commit(&verdicts(10..20), &[position(0, 2, "")], &stale).await;
    assert!(matches!(&refused, Err(CommitError::Aborted(_))), "{refused:?}");
    let mut transactor = log.transactor(Topic::Views).await;
    transactor
        .commit(&verdicts(20..30), &[position(0, 3, "")], &owner.membership())
        .await
        .expect("it commits");
    // With the membership of now the first one can commit again.
    let renewed = former.membership();
    its_transactor.commit(&verdicts(30..40), &[], &renewed).await.expect("it commits");
    assert_eq!(owner.reader.committed(0).await.map(|c| c.map(|c| c.offset)), Ok(Some(3)));
    let mut outlet = sole_room(log, Topic::Counted, "outlet", 2).await;
    outlet.until("the outputs", |room| room.count() >= 30).await;
    outlet.until_quiet().await;
    let numbers = (0..10).chain(20..40).map(|n| format!("verdict-{n:05}"));
    assert_eq!(outlet.values(), numbers.collect::<Vec<_>>());
}
