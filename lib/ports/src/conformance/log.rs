//! What every log keeps: `LogWriter`, `GroupReader`, `Transactor`, `VerdictHistory` and `LogObserver` of one implementation together.
//!
//! The functions panic where a promise is broken. Each takes a log of its own, empty, whose topics have as many
//! partitions as its documentation says.

mod append;
mod group;
mod history;
mod observe;
mod traces;
mod transact;

pub use append::{
    acknowledged_records_are_read_in_order, keys_decide_the_partition, one_batch_reaches_several_topics,
    records_of_any_size_come_back,
};
pub use group::{
    a_lost_offset_is_told, a_second_member_takes_its_share, nothing_comes_before_start,
    positions_are_kept_with_notes, starts_and_stops_leave_nothing_stale, the_end_is_told,
};
pub use history::{history_is_read_from_a_time_to_the_ends, history_of_nothing_is_nothing};
pub use observe::{any_range_of_any_topic_is_read, groups_are_seen_from_outside};
pub use traces::traces_come_back;
pub use transact::{
    a_former_owner_cannot_commit, outputs_and_positions_are_one, the_end_lies_behind_markers,
    transactions_follow_each_other,
};

use crate::{
    GroupEvent, GroupReader, LogObserver, LogWriter, OutgoingBatch, PortError, Topic, Transactor,
    VerdictHistory,
};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::{Duration, Instant};

/// How long anything that must come may take; elections and rebalances included.
const SOON: Duration = Duration::from_secs(120);
/// How long to look for what must not come.
const QUIET: Duration = Duration::from_millis(500);

/// One empty log with its topics, and ways to make the clients.
pub trait LogUnderTest: Sync {
    /// Appends to it.
    type Writer: LogWriter;
    /// A group's generation.
    type Membership: Clone + Send + Sync + 'static;
    /// Reads it.
    type Reader: GroupReader<Membership = Self::Membership>;
    /// Appends and commits in one step.
    type Transactor: Transactor<Membership = Self::Membership>;
    /// Looks back.
    type History: VerdictHistory;
    /// Looks from outside.
    type Observer: LogObserver;

    /// A new writer.
    fn writer(&self) -> impl Future<Output = Self::Writer> + Send;
    /// A new member of a group.
    fn reader(&self, topic: Topic, group: &str) -> impl Future<Output = Self::Reader> + Send;
    /// A new transactor, for positions of this topic.
    fn transactor(&self, inputs: Topic) -> impl Future<Output = Self::Transactor> + Send;
    /// A new look from outside; `filter` is the group that works on `views`.
    fn observer(&self) -> impl Future<Output = Self::Observer> + Send;
    /// A new look back.
    fn history(&self) -> impl Future<Output = Self::History> + Send;
    /// Lets retention remove all records below the offset.
    fn delete_before(&self, topic: Topic, partition: i32, offset: i64) -> impl Future<Output = ()> + Send;
}

/// All of the suite; `fresh` makes an empty log whose topics have so many partitions. Four at a time: most of the time
/// is spent waiting.
pub async fn all<L: LogUnderTest>(fresh: impl AsyncFn(u32) -> L) {
    macro_rules! at_once {
        ($($case:ident on $partitions:literal),*) => {
            tokio::join!($(async { $case(&fresh($partitions).await).await }),*)
        };
    }
    at_once!(
        acknowledged_records_are_read_in_order on 4,
        keys_decide_the_partition on 5,
        records_of_any_size_come_back on 1,
        one_batch_reaches_several_topics on 2
    );
    at_once!(
        nothing_comes_before_start on 2,
        starts_and_stops_leave_nothing_stale on 2,
        the_end_is_told on 1,
        positions_are_kept_with_notes on 2
    );
    at_once!(
        a_second_member_takes_its_share on 4,
        a_lost_offset_is_told on 1,
        outputs_and_positions_are_one on 2,
        the_end_lies_behind_markers on 1
    );
    at_once!(
        transactions_follow_each_other on 3,
        a_former_owner_cannot_commit on 2,
        history_is_read_from_a_time_to_the_ends on 3,
        history_of_nothing_is_nothing on 2
    );
    at_once!(any_range_of_any_topic_is_read on 3, groups_are_seen_from_outside on 2, traces_come_back on 2);
}

/// A record as text: offset, append time, key, value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    offset: i64,
    append_ms: i64,
    key: String,
    value: String,
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

fn batch(topic: Topic, records: impl IntoIterator<Item = (String, String)>) -> OutgoingBatch {
    let mut batch = OutgoingBatch::default();
    for (key, value) in records {
        batch.push(topic, key.as_bytes(), value.as_bytes());
    }
    batch
}

/// Appends `count` records `value-N` to `key`.
async fn append<W: LogWriter>(writer: &W, topic: Topic, key: &str, values: std::ops::Range<i64>) {
    let records = values.map(|n| (key.to_owned(), format!("value-{n}")));
    writer.append(batch(topic, records)).await.expect("the log is up");
}

/// A reader with what it has told so far.
struct Room<R: GroupReader> {
    reader: R,
    membership: Option<R::Membership>,
    assigned: BTreeSet<i32>,
    /// By partition, since its last start.
    records: BTreeMap<i32, Vec<Seen>>,
    ends: BTreeMap<i32, i64>,
    lost: Vec<(i32, i64, i64, i64)>,
}

impl<R: GroupReader> Room<R> {
    fn new(reader: R) -> Self {
        Self {
            reader,
            membership: None,
            assigned: BTreeSet::new(),
            records: BTreeMap::new(),
            ends: BTreeMap::new(),
            lost: Vec::new(),
        }
    }

    /// Takes one event in. False if none came.
    async fn step(&mut self, wait: Duration) -> bool {
        let event = match self.reader.next(wait).await {
            Ok(Some(event)) => event,
            Ok(None) => return false,
            // The log may be out of reach for a moment, by a test's will.
            Err(error) if error.is_transient() => return false,
            Err(error) => panic!("{error}"),
        };
        match event {
            GroupEvent::Assigned { partitions, membership } => {
                self.assigned.extend(partitions);
                self.membership = Some(membership);
            }
            GroupEvent::Revoked { partitions } => {
                for partition in partitions {
                    assert!(self.assigned.remove(&partition), "partition {partition} was not ours");
                    self.forget(partition);
                }
            }
            GroupEvent::Records(batch) => {
                assert!(!batch.is_empty(), "an empty batch");
                assert!(self.assigned.contains(&batch.partition), "records of a partition that is not ours");
                let seen = self.records.entry(batch.partition).or_default();
                for record in batch.iter() {
                    let (offset, append_ms) = (record.offset, record.append_ms);
                    assert!(seen.last().is_none_or(|last| last.offset < offset), "offsets rise");
                    seen.push(Seen { offset, append_ms, key: text(record.key), value: text(record.payload) });
                }
            }
            GroupEvent::CaughtUp { partition, next_offset } => {
                let last = self.records.get(&partition).and_then(|seen| seen.last());
                assert!(last.is_none_or(|last| last.offset < next_offset), "the end lies behind the records");
                self.ends.insert(partition, next_offset);
            }
            GroupEvent::OutOfRange { partition, wanted, earliest, end } => {
                self.lost.push((partition, wanted, earliest, end));
            }
        }
        true
    }

    /// Takes events in until `done`.
    async fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            self.step(QUIET).await;
            assert!(begun.elapsed() < SOON, "waited in vain for {what}");
        }
    }

    /// Takes events in until none comes for a while.
    async fn until_quiet(&mut self) {
        while self.step(QUIET).await {}
    }

    async fn until_assigned(&mut self, partitions: usize) {
        self.until("the assignment", |room| room.assigned.len() == partitions).await;
    }

    async fn start(&mut self, partition: i32, offset: i64) {
        self.reader.start(partition, offset).await.expect("the log is up");
        self.forget(partition);
    }

    /// Starts all assigned partitions at their first offset.
    async fn start_all(&mut self) {
        for partition in self.assigned.clone() {
            self.start(partition, 0).await;
        }
    }

    fn forget(&mut self, partition: i32) {
        self.records.remove(&partition);
        self.ends.remove(&partition);
    }

    fn count(&self) -> usize {
        self.records.values().map(Vec::len).sum()
    }

    /// All records, partition by partition.
    fn all(&self) -> impl Iterator<Item = (i32, &Seen)> {
        self.records.iter().flat_map(|(partition, seen)| seen.iter().map(|seen| (*partition, seen)))
    }

    fn values(&self) -> Vec<&str> {
        let mut values: Vec<_> = self.all().map(|(_, seen)| seen.value.as_str()).collect();
        values.sort_unstable();
        values
    }

    fn membership(&self) -> R::Membership {
        self.membership.clone().expect("it was assigned partitions")
    }
}

/// A sole member of `group` that has all partitions, started at their first offset.
async fn sole_room<L: LogUnderTest>(
    log: &L,
    topic: Topic,
    group: &str,
    partitions: usize,
) -> Room<L::Reader> {
    let mut room = Room::new(log.reader(topic, group).await);
    room.until_assigned(partitions).await;
    room.start_all().await;
    room
}

/// What comes to be there within some time.
async fn soon<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < SOON, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn up<T>(outcome: Result<T, PortError>) -> T {
    outcome.expect("the log is up")
}
