//! Which trace a record belongs to.

use super::{LogUnderTest, SOON, sole_room, up};
use crate::{Batch, GroupEvent, GroupReader, LogObserver, LogWriter, OutgoingBatch, Topic, Transactor};
use crate::{PortError, VerdictHistory};
use onlooker_event::TraceParent;
use std::collections::BTreeMap;
use tokio::sync::mpsc;

/// More than any implementation hands out at once without a copy.
const MANY: u32 = 700;

fn trace(n: u32) -> TraceParent {
    let text = format!("00-{:032x}-{:016x}-{:02x}", u128::from(n) + 1, u64::from(n) + 1, n % 4);
    TraceParent::parse(text.as_bytes()).expect("it is well formed")
}

/// Every third record has a trace, some of one key follow each other, and some batches have none.
fn expected() -> BTreeMap<String, Option<TraceParent>> {
    (0..MANY).map(|n| (format!("{n:05}"), (n % 3 == 0 && n % 100 < 60).then(|| trace(n)))).collect()
}

fn outgoing(topic: Topic, records: &[(&String, &Option<TraceParent>)]) -> OutgoingBatch {
    let mut batch = OutgoingBatch::default();
    for (n, (value, trace)) in records.iter().enumerate() {
        let key = if n % 10 == 0 { String::new() } else { format!("k{}", n % 4) };
        batch.push(topic, key.as_bytes(), value.as_bytes());
        batch.trace_last(trace.as_ref());
    }
    batch
}

type Seen = BTreeMap<String, Option<TraceParent>>;

fn see(batch: &Batch, seen: &mut Seen) {
    for record in batch.iter() {
        let before = seen.insert(super::text(record.payload), record.trace.copied());
        assert_eq!(before, None, "it came twice");
    }
}

async fn all_of(read: impl AsyncFnOnce(mpsc::Sender<Batch>) -> Result<(), PortError>) -> Seen {
    let (sink, mut batches) = mpsc::channel(1);
    let mut seen = Seen::new();
    let collect = async {
        while let Some(batch) = batches.recv().await {
            see(&batch, &mut seen);
        }
    };
    let (outcome, ()) = tokio::join!(read(sink), collect);
    up(outcome);
    seen
}

/// Two partitions. A record comes back with the trace that it was sent with, or with none, whoever reads it; and the order
/// of a key does not depend on it.
pub async fn traces_come_back<L: LogUnderTest>(log: &L) {
    let expected = expected();
    let records: Vec<_> = expected.iter().collect();
    let writer = log.writer().await;
    for some in records.chunks(50).take(7) {
        up(writer.append(outgoing(Topic::Views, some)).await);
    }
    up(writer.append(outgoing(Topic::Views, &records[350..])).await);
    let mut room = sole_room(log, Topic::Views, "traces", 2).await;
    let mut seen = Seen::new();
    let begun = std::time::Instant::now();
    while seen.len() < expected.len() {
        assert!(begun.elapsed() < SOON, "waited in vain for the records, there are {}", seen.len());
        if let Some(GroupEvent::Records(batch)) = up(room.reader.next(super::QUIET).await) {
            let keyed = batch.iter().filter(|record| record.key.is_some());
            let mut last: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
            for record in keyed {
                let (key, value) = (record.key.unwrap_or_default(), record.payload.unwrap_or_default());
                assert!(last.insert(key, value).is_none_or(|before| before < value), "the order of a key");
            }
            see(&batch, &mut seen);
        }
    }
    assert_eq!(seen, expected);

    let mut transactor = log.transactor(Topic::Views).await;
    let outputs = outgoing(Topic::Counted, &records);
    transactor.commit(&outputs, &[], &room.membership()).await.expect("it commits");
    let history = log.history().await;
    let ends = up(history.ends().await);
    assert_eq!(all_of(async |sink| history.read(0, &ends, sink).await).await, expected);
    let observer = log.observer().await;
    let bounds = up(observer.bounds(Topic::Counted).await);
    let ranges: Vec<_> = (0..).zip(&bounds).map(|(p, bounds)| (p, bounds.earliest..bounds.stable)).collect();
    assert_eq!(all_of(async |sink| observer.read(Topic::Counted, &ranges, sink).await).await, expected);
}
