//! Looking on.

use super::{LogUnderTest, batch, sole_room, up};
use crate::{Batch, GroupState, LogObserver, LogWriter, PortError, Position, Topic, Transactor};
use std::collections::BTreeMap;
use std::ops::Range;
use tokio::sync::mpsc;

type Seen = BTreeMap<i32, Vec<(i64, i64, String)>>;

/// Offset, append time and value of what a read gave, by partition.
async fn read<O: LogObserver>(
    observer: &O,
    topic: Topic,
    ranges: &[(i32, Range<i64>)],
) -> Result<Seen, PortError> {
    let (sink, mut batches) = mpsc::channel::<Batch>(1);
    let mut seen = Seen::new();
    let collect = async {
        while let Some(batch) = batches.recv().await {
            let of_partition = seen.entry(batch.partition).or_default();
            of_partition.extend(batch.iter().map(|r| (r.offset, r.append_ms, super::text(r.payload))));
        }
    };
    let (outcome, ()) = tokio::join!(observer.read(topic, ranges, sink), collect);
    outcome.map(|()| seen)
}

/// Three partitions. Any range of any topic is read, in order, without what retention removed.
pub async fn any_range_of_any_topic_is_read<L: LogUnderTest>(log: &L) {
    let (writer, observer) = (log.writer().await, log.observer().await);
    for round in 0..3 {
        let values = (0..200).map(|n| (format!("{round}-{n:03}"), format!("{round}-{n:03}")));
        up(writer.append(batch(Topic::Views, values)).await);
    }
    let bounds = up(observer.bounds(Topic::Views).await);
    assert_eq!(bounds.len(), 3);
    assert!(bounds.iter().all(|bounds| bounds.stable == bounds.end && bounds.earliest == 0), "{bounds:?}");
    assert_eq!(bounds.iter().map(|bounds| bounds.end).sum::<i64>(), 600);
    let whole: Vec<_> = (0..).zip(&bounds).map(|(p, bounds)| (p, 0..bounds.end)).collect();
    let all = up(read(&observer, Topic::Views, &whole).await);
    for (partition, range) in &whole {
        let offsets: Vec<i64> = all[partition].iter().map(|(offset, _, _)| *offset).collect();
        assert_eq!(offsets, range.clone().collect::<Vec<_>>(), "partition {partition}");
    }
    // A part of one of them, and an empty range.
    let (from, to) = (bounds[1].end / 3, bounds[1].end / 3 + 7);
    let part = up(read(&observer, Topic::Views, &[(1, from..to), (2, 5..5)]).await);
    assert_eq!(part.keys().collect::<Vec<_>>(), [&1]);
    let expected: Vec<_> = all[&1].iter().filter(|(o, _, _)| (from..to).contains(o)).cloned().collect();
    assert_eq!(part[&1], expected);
    // By time: the first record of that time or a later one; the end where there is none.
    let times: Vec<i64> = all.values().flatten().map(|(_, time, _)| *time).collect();
    let newest = times.iter().max().copied().expect("there are records");
    for ms in [0, times[times.len() / 2], newest] {
        let found = up(observer.offsets_at(Topic::Views, ms).await);
        for (partition, offset) in (0..).zip(found) {
            let first = all[&partition].iter().find(|(_, time, _)| *time >= ms);
            let expected = first.map_or(bounds[partition as usize].end, |(offset, _, _)| *offset);
            assert_eq!(offset, expected, "partition {partition} at {ms}");
        }
    }
    let after = up(observer.offsets_at(Topic::Views, newest + 3_600_000).await);
    assert_eq!(after, bounds.iter().map(|bounds| bounds.end).collect::<Vec<_>>());
    // Whoever has seen enough may go.
    let (sink, batches) = mpsc::channel::<Batch>(1);
    drop(batches);
    assert_eq!(observer.read(Topic::Views, &whole, sink).await, Ok(()));
}

/// Two partitions. What a group has committed, who is in it, and what of a transaction is seen.
pub async fn groups_are_seen_from_outside<L: LogUnderTest>(log: &L) {
    let observer = log.observer().await;
    let nobody = up(observer.group(Topic::Views).await).expect("views have a group");
    assert_eq!((nobody.members, nobody.partitions.len()), (0, 2));
    assert_eq!(nobody.state, GroupState::Unknown);
    assert_eq!(observer.group(Topic::Ignored).await, Ok(None));
    let source = sole_room(log, Topic::Views, "filter", 2).await;
    let mut transactor = log.transactor(Topic::Views).await;
    let outputs = batch(Topic::Counted, (0..50).map(|n| (n.to_string(), n.to_string())));
    let position = Position { partition: 1, offset: 7, note: "slice 3".into() };
    transactor.commit(&outputs, &[position], &source.membership()).await.expect("it commits");
    let group = super::soon("the group to be stable", async || {
        let group = up(observer.group(Topic::Views).await).expect("views have a group");
        (group.state == GroupState::Stable).then_some(group)
    })
    .await;
    assert_eq!(group.members, 1);
    let (committed, owner) = &group.partitions[1];
    let committed = committed.as_ref().expect("it was committed");
    assert_eq!((committed.offset, committed.note.as_str()), (7, "slice 3"));
    assert_eq!(group.partitions[0].0, None);
    assert!(owner.is_some() && *owner == group.partitions[0].1, "{group:?}");
    // The end lies behind markers where there are such; all records below it are seen.
    let bounds = up(observer.bounds(Topic::Counted).await);
    let whole: Vec<_> = (0..).zip(&bounds).map(|(p, bounds)| (p, 0..bounds.stable)).collect();
    let seen = up(read(&observer, Topic::Counted, &whole).await);
    assert_eq!(seen.values().map(Vec::len).sum::<usize>(), 50);
    assert_eq!(up(read(&observer, Topic::Ignored, &[(0, 0..0)]).await), Seen::new());
}
