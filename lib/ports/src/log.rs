//! The partitioned log: appending, reading as a member of a group, transactions, history.

use crate::PortError;
use crate::traces::Traces;
use bytes::Bytes;
use onlooker_event::TraceParent;
use std::future::Future;
use std::ops::Range;
use std::time::Duration;
use tokio::sync::mpsc;

/// The topics by role. Their names are configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Every accepted view, keyed by viewer.
    Views,
    /// Every counted view, keyed by `site:item`.
    Counted,
    /// Every ignored view with its reason.
    Ignored,
    /// Every record that could not be judged.
    Dead,
}

/// One record of a batch, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// The record's own offset.
    pub offset: i64,
    /// When the log took it, by the log's clock. Milliseconds since 1970 (UTC).
    pub append_ms: i64,
    /// The key, if there is one.
    pub key: Option<&'a [u8]>,
    /// The value, if there is one.
    pub payload: Option<&'a [u8]>,
    /// The trace that its view belongs to, if its record says so (the header `traceparent`).
    pub trace: Option<&'a TraceParent>,
}

/// Where a record stands in the arena: the value follows the key.
#[derive(Debug, Clone, Copy)]
struct Entry {
    offset: i64,
    append_ms: i64,
    start: usize,
    key_len: u32,
    payload_len: u32,
}

/// The length of what is not there.
const ABSENT: u32 = u32::MAX;

/// Consecutive records of one partition, in one allocation.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The partition that all records stand in.
    pub partition: i32,
    arena: Bytes,
    bytes: usize,
    entries: Vec<Entry>,
    traces: Traces,
}

/// Fills a `Batch` by copying.
#[derive(Debug)]
pub struct BatchBuilder {
    partition: i32,
    arena: Vec<u8>,
    entries: Vec<Entry>,
    traces: Traces,
}

impl BatchBuilder {
    /// An empty batch of this partition.
    pub fn new(partition: i32) -> Self {
        Self { partition, arena: Vec::new(), entries: Vec::new(), traces: Traces::default() }
    }

    /// An empty batch with room for so many records, and for so many bytes of their keys and values.
    pub fn with_capacity(partition: i32, records: usize, bytes: usize) -> Self {
        let (arena, entries) = (Vec::with_capacity(bytes), Vec::with_capacity(records));
        Self { partition, arena, entries, traces: Traces::default() }
    }

    /// Says which trace the record belongs to that was appended last.
    pub fn trace_last(&mut self, trace: Option<&TraceParent>) {
        self.traces.set_last(self.entries.len(), trace);
    }

    /// Appends a record; offsets must rise.
    pub fn push(&mut self, offset: i64, append_ms: i64, key: Option<&[u8]>, payload: Option<&[u8]>) {
        let start = self.arena.len();
        let mut put = |part: Option<&[u8]>| {
            let Some(bytes) = part else { return ABSENT };
            self.arena.extend_from_slice(bytes);
            length(bytes)
        };
        let (key_len, payload_len) = (put(key), put(payload));
        self.entries.push(Entry { offset, append_ms, start, key_len, payload_len });
    }

    /// The partition.
    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// Records so far.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without records.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of keys and values so far.
    pub fn bytes(&self) -> usize {
        self.arena.len()
    }

    /// The batch.
    pub fn build(self) -> Batch {
        let bytes = self.arena.len();
        let (arena, entries, traces) = (self.arena.into(), self.entries, self.traces);
        Batch { partition: self.partition, arena, bytes, entries, traces }
    }
}

/// Fills a `Batch` with records that lie in a shared buffer already, each value right behind its key. Copies nothing;
/// the batch keeps the whole buffer alive.
#[derive(Debug)]
pub struct SharedBatchBuilder(Batch);

impl SharedBatchBuilder {
    /// An empty batch over `arena`, with room for so many records.
    pub fn new(partition: i32, arena: Bytes, records: usize) -> Self {
        let (entries, traces) = (Vec::with_capacity(records), Traces::default());
        Self(Batch { partition, arena, bytes: 0, entries, traces })
    }

    /// Says which trace the record belongs to that was appended last.
    pub fn trace_last(&mut self, trace: Option<&TraceParent>) {
        self.0.traces.set_last(self.0.entries.len(), trace);
    }

    /// Appends the record whose key begins at `start`; offsets must rise. False, and nothing is appended, if it does
    /// not lie within the buffer.
    pub fn push(
        &mut self,
        offset: i64,
        append_ms: i64,
        start: usize,
        key_len: Option<u32>,
        payload_len: Option<u32>,
    ) -> bool {
        let bytes = key_len.unwrap_or(0) as usize + payload_len.unwrap_or(0) as usize;
        let within = start.checked_add(bytes).is_some_and(|end| end <= self.0.arena.len());
        if within {
            self.0.bytes += bytes;
            let (key_len, payload_len) = (key_len.unwrap_or(ABSENT), payload_len.unwrap_or(ABSENT));
            self.0.entries.push(Entry { offset, append_ms, start, key_len, payload_len });
        }
        within
    }

    /// Records so far.
    pub fn len(&self) -> usize {
        self.0.entries.len()
    }

    /// True without records.
    pub fn is_empty(&self) -> bool {
        self.0.entries.is_empty()
    }

    /// The batch.
    pub fn build(self) -> Batch {
        self.0
    }
}

/// A record is bounded by what one message of a log may hold, far below 4 GiB.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).ok().filter(|length| *length != ABSENT).expect("a record has less than 4 GiB")
}

impl Batch {
    /// Number of records.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without records.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The position after this batch: one more than the last record's offset. None for an empty batch.
    pub fn next_offset(&self) -> Option<i64> {
        self.entries.last().map(|e| e.offset + 1)
    }

    /// The records in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RecordRef<'_>> + Clone {
        self.entries.iter().enumerate().map(|(index, entry)| self.record(index, entry))
    }

    /// The record at this place in the batch, from 0.
    pub fn get(&self, index: usize) -> Option<RecordRef<'_>> {
        self.entries.get(index).map(|entry| self.record(index, entry))
    }

    fn record(&self, index: usize, entry: &Entry) -> RecordRef<'_> {
        let middle = entry.start + if entry.key_len == ABSENT { 0 } else { entry.key_len as usize };
        RecordRef {
            offset: entry.offset,
            append_ms: entry.append_ms,
            key: (entry.key_len != ABSENT).then(|| &self.arena[entry.start..middle]),
            payload: (entry.payload_len != ABSENT)
                .then(|| &self.arena[middle..middle + entry.payload_len as usize]),
            trace: self.traces.get(index),
        }
    }
}

/// Records to be appended, in one allocation. The order of records of one topic and key is kept.
#[derive(Debug, Clone, Default)]
pub struct OutgoingBatch {
    arena: Vec<u8>,
    entries: Vec<(Topic, Range<usize>, Range<usize>)>,
    traces: Traces,
}

/// One record to be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutgoingRef<'a> {
    /// Where to.
    pub topic: Topic,
    /// Decides the partition (murmur2). Empty: any partition.
    pub key: &'a [u8],
    /// The value.
    pub payload: &'a [u8],
    /// The trace that the view belongs to: the record's header `traceparent`.
    pub trace: Option<&'a TraceParent>,
}

impl OutgoingBatch {
    /// An empty batch with room for so many records, and for so many bytes of their keys and values.
    pub fn with_capacity(records: usize, bytes: usize) -> Self {
        let (arena, entries) = (Vec::with_capacity(bytes), Vec::with_capacity(records));
        Self { arena, entries, traces: Traces::default() }
    }

    /// Makes room for so many more records with so many bytes of keys and values.
    pub fn reserve(&mut self, records: usize, bytes: usize) {
        self.entries.reserve(records);
        self.arena.reserve(bytes);
    }

    /// Appends a record; `payload` writes the value at the end of the buffer that it is given.
    pub fn push_with(&mut self, topic: Topic, key: &[u8], payload: impl FnOnce(&mut Vec<u8>)) {
        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        let middle = self.arena.len();
        payload(&mut self.arena);
        self.entries.push((topic, start..middle, middle..self.arena.len()));
    }

    /// Appends a record.
    pub fn push(&mut self, topic: Topic, key: &[u8], payload: &[u8]) {
        self.push_with(topic, key, |out| out.extend_from_slice(payload));
    }

    /// Says which trace the record belongs to that was appended last.
    pub fn trace_last(&mut self, trace: Option<&TraceParent>) {
        self.traces.set_last(self.entries.len(), trace);
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without records.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> usize {
        self.arena.len()
    }

    /// Drops all records and keeps the memory.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.entries.clear();
        self.traces.clear();
    }

    /// Appends all records of `other`.
    pub fn extend_from(&mut self, other: &OutgoingBatch) {
        let base = self.arena.len();
        self.traces.extend_from(self.entries.len(), &other.traces);
        let moved = |range: &Range<usize>| range.start + base..range.end + base;
        self.arena.extend_from_slice(&other.arena);
        let entries = other.entries.iter().map(|(topic, key, payload)| (*topic, moved(key), moved(payload)));
        self.entries.extend(entries);
    }

    /// The records in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = OutgoingRef<'_>> + Clone {
        self.entries.iter().enumerate().map(|(index, (topic, key, payload))| OutgoingRef {
            topic: *topic,
            key: &self.arena[key.clone()],
            payload: &self.arena[payload.clone()],
            trace: self.traces.get(index),
        })
    }
}

/// Appends with an acknowledgement.
pub trait LogWriter: Send + Sync + 'static {
    /// Appends all records and waits until each is durable (`acks=all`: on every in-sync replica).
    ///
    /// `Ok`: all are durable. Error: some may be in the log nevertheless, now or a little later; a caller that repeats
    /// the request must make the repetition recognisable (the client's id). Bounded in time (the configured delivery
    /// time-out) and in memory: a full queue is `PortError::Full` at once.
    fn append(&self, batch: OutgoingBatch) -> impl Future<Output = Result<(), PortError>> + Send;

    /// True while the log can be reached, as far as the client knows without a round trip.
    fn is_reachable(&self) -> bool;

    /// Waits until nothing is under way, at most this long. For a graceful stop.
    fn flush(&self, wait: Duration) -> impl Future<Output = Result<(), PortError>> + Send;
}

/// A consumed position and the note that was committed with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The partition.
    pub partition: i32,
    /// The next offset.
    pub offset: i64,
    /// A short text kept with the offset (the filter keeps its slice here).
    pub note: String,
}

/// What the group has committed for a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The next offset.
    pub offset: i64,
    /// The text that was committed with it, or empty.
    pub note: String,
}

/// What a group reader tells. Each is delivered in order; what a partition's state was before an `Assigned` or a
/// `Revoked` is void after it.
#[derive(Debug)]
pub enum GroupEvent<M> {
    /// These partitions are now ours, under this membership. Nothing is delivered from them before `start`.
    Assigned {
        /// All newly assigned partitions.
        partitions: Vec<i32>,
        /// The group's generation at this assignment: what a transaction must carry.
        membership: M,
    },
    /// These partitions are no longer ours (revoked or lost).
    Revoked {
        /// The partitions.
        partitions: Vec<i32>,
    },
    /// Consecutive records, from the position that `start` or the previous batch ended at.
    Records(Batch),
    /// The reader stands at the end: no record (that it may see) below this offset is left to deliver.
    CaughtUp {
        /// The partition.
        partition: i32,
        /// The end; it may lie behind transaction markers that are no records.
        next_offset: i64,
    },
    /// The started offset is not in the log (retention passed it, or the topic was recreated). The partition stands
    /// still until the next `start`. Nothing was skipped.
    OutOfRange {
        /// The partition.
        partition: i32,
        /// The offset that was asked for.
        wanted: i64,
        /// The first offset that the log still has.
        earliest: i64,
        /// The log's end.
        end: i64,
    },
}

/// Reads one topic as a member of a group that shares its partitions. Delivers committed records only.
///
/// Membership is kept alive whether or not `next` is called (a slow store never costs the membership), and at most a
/// bounded amount of records is buffered.
pub trait GroupReader: Send + 'static {
    /// Names the group's generation; a transaction carries it so that a former owner cannot commit.
    type Membership: Clone + Send + Sync + 'static;

    /// The next event, or none after `wait`. A transient error instead of none: the log is out of reach; the reader
    /// looks for it by itself, and is simply called again.
    fn next(
        &mut self,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<GroupEvent<Self::Membership>>, PortError>> + Send;

    /// Delivers from this offset on; batches from before this call are not delivered any more.
    fn start(&mut self, partition: i32, offset: i64) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Stops delivery from a partition until the next `start`; what was buffered is dropped.
    fn stop(&mut self, partition: i32) -> impl Future<Output = Result<(), PortError>> + Send;

    /// What the group has committed; none if nothing. Waits for transactions under way (`require_stable`), so that the
    /// answer cannot be overtaken by a commit that was sent earlier.
    fn committed(
        &mut self,
        partition: i32,
    ) -> impl Future<Output = Result<Option<Committed>, PortError>> + Send;

    /// The first offset that the log still has, and its end. Who does not want to wait may drop the future.
    fn bounds(&mut self, partition: i32) -> impl Future<Output = Result<(i64, i64), PortError>> + Send;

    /// Commits positions outside any transaction. A lower or late commit does no harm to any of our protocols, so who
    /// does not want to wait may drop the future.
    fn commit(&mut self, positions: &[Position]) -> impl Future<Output = Result<(), PortError>> + Send;

    /// How many partitions the topic has.
    fn partitions(&mut self) -> impl Future<Output = Result<u32, PortError>> + Send;

    /// Leaves the group, so that others take over at once. At most this long.
    fn close(&mut self, wait: Duration) -> impl Future<Output = ()> + Send;
}

/// What became of a transaction that did not commit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// It was aborted: nothing of it is or ever becomes visible.
    #[error("transaction aborted: {0}")]
    Aborted(String),
    /// It may or may not have been committed; the producer was destroyed. Only reading the committed offset (stable)
    /// tells.
    #[error("transaction's result is unknown: {0}")]
    Unknown(String),
    /// Nothing of it was sent. Whether trying again can help is the error's own business.
    #[error(transparent)]
    Port(#[from] PortError),
}

/// Appends records and commits consumed positions in one atomic step.
pub trait Transactor: Send + 'static {
    /// The reader's membership type.
    type Membership: Clone + Send + Sync + 'static;

    /// All outputs and all positions, or nothing. `Ok` only on known success. After an error the next call starts
    /// afresh (the implementation renews its producer). A former owner's membership is refused (`Aborted`).
    fn commit(
        &mut self,
        outputs: &OutgoingBatch,
        inputs: &[Position],
        membership: &Self::Membership,
    ) -> impl Future<Output = Result<(), CommitError>> + Send;
}

/// Reads what was counted before, to rebuild the filter's memory.
pub trait VerdictHistory: Send + Sync + 'static {
    /// The end of every partition of `views.counted`, transactions under way included (read uncommitted).
    fn ends(&self) -> impl Future<Output = Result<Vec<(i32, i64)>, PortError>> + Send;

    /// Reads all committed records that were appended at `from_ms` or later, of all partitions, until every position
    /// has passed `ends`. Each record goes to `sink` once, in order within a partition. The channel is bounded: the
    /// reader waits for its receiver, and stops when there is none any more.
    fn read(
        &self,
        from_ms: i64,
        ends: &[(i32, i64)],
        sink: mpsc::Sender<Batch>,
    ) -> impl Future<Output = Result<(), PortError>> + Send;
}

/// A payload that outlives its batch.
impl RecordRef<'_> {
    /// Key and value, copied; none becomes empty.
    pub fn to_owned_parts(&self) -> (Bytes, Bytes) {
        let copy = |b: Option<&[u8]>| Bytes::copy_from_slice(b.unwrap_or_default());
        (copy(self.key), copy(self.payload))
    }
}
