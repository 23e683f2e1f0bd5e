//! Looking back.

use super::{LogUnderTest, batch, sole_room, up};
use crate::{Batch, PortError, Topic, Transactor, VerdictHistory};
use std::collections::BTreeMap;
use tokio::sync::mpsc;

/// What a read of the history gave, by partition: append time and value.
async fn read<H: VerdictHistory>(
    history: &H,
    from_ms: i64,
    ends: &[(i32, i64)],
) -> Result<BTreeMap<i32, Vec<(i64, String)>>, PortError> {
    let (sink, mut batches) = mpsc::channel::<Batch>(1);
    let mut seen: BTreeMap<i32, Vec<(i64, String)>> = BTreeMap::new();
    let collect = async {
        while let Some(batch) = batches.recv().await {
            let of_partition = seen.entry(batch.partition).or_default();
            of_partition.extend(batch.iter().map(|r| (r.append_ms, super::text(r.payload))));
        }
    };
    let (outcome, ()) = tokio::join!(history.read(from_ms, ends, sink), collect);
    outcome.map(|()| seen)
}

/// Three partitions. All that was counted since a time, up to the ends, and nothing twice.
pub async fn history_is_read_from_a_time_to_the_ends<L: LogUnderTest>(log: &L) {
    let source = sole_room(log, Topic::Views, "past", 3).await;
    let mut transactor = log.transactor(Topic::Views).await;
    let history = log.history().await;
    let mut sent = Vec::new();
    for round in 0..6 {
        let values: Vec<String> = (0..500).map(|n| format!("{round}-{n:03}")).collect();
        let outputs = batch(Topic::Counted, values.iter().map(|value| (value.clone(), value.clone())));
        transactor.commit(&outputs, &[], &source.membership()).await.expect("it commits");
        sent.extend(values);
    }
    let ends = up(history.ends().await);
    assert_eq!(ends.iter().map(|(partition, _)| *partition).collect::<Vec<_>>(), [0, 1, 2]);
    let all = up(read(&history, 0, &ends).await);
    let mut values: Vec<&str> = all.values().flatten().map(|(_, value)| value.as_str()).collect();
    values.sort_unstable();
    assert_eq!(values, sent);
    // From the middle: exactly those at or after it, in the same order.
    let mut times: Vec<i64> = all.values().flatten().map(|(time, _)| *time).collect();
    times.sort_unstable();
    let middle = times[times.len() / 2];
    let late = up(read(&history, middle, &ends).await);
    for (partition, seen) in &all {
        let expected: Vec<_> = seen.iter().filter(|(time, _)| *time >= middle).cloned().collect();
        let found: Vec<_> =
            late.get(partition).into_iter().flatten().filter(|(t, _)| *t >= middle).cloned().collect();
        assert_eq!(found, expected, "partition {partition}");
    }
    // What came after the ends were taken may be left out, and does not hold the read up.
    transactor
        .commit(&batch(Topic::Counted, [("k".into(), "later".into())]), &[], &source.membership())
        .await
        .expect("it commits");
    let again = up(read(&history, 0, &ends).await);
    assert_eq!(again.values().flatten().filter(|(_, value)| value != "later").count(), sent.len());
}

/// Two partitions. Empty logs, ends of nothing, and times in the future.
pub async fn history_of_nothing_is_nothing<L: LogUnderTest>(log: &L) {
    let history = log.history().await;
    assert_eq!(history.ends().await, Ok(vec![(0, 0), (1, 0)]));
    assert_eq!(read(&history, 0, &[(0, 0), (1, 0)]).await, Ok(BTreeMap::new()));
    let source = sole_room(log, Topic::Views, "nothing", 2).await;
    let mut transactor = log.transactor(Topic::Views).await;
    let outputs = batch(Topic::Counted, (0..10).map(|n| (format!("{n}"), format!("{n}"))));
    transactor.commit(&outputs, &[], &source.membership()).await.expect("it commits");
    let ends = up(history.ends().await);
    let day = 86_400_000;
    let newest = up(read(&history, 0, &ends).await).values().flatten().map(|(time, _)| *time).max();
    let future = newest.expect("ten were counted") + day;
    assert_eq!(read(&history, future, &ends).await, Ok(BTreeMap::new()));
    assert_eq!(read(&history, -day, &[]).await, Ok(BTreeMap::new()));
}
