//! Sketches and numbers of views: the counter's and flusher's side, and the reader's.

use crate::PortError;
use bytes::Bytes;
use onlooker_event::CountKey;
use smallvec::SmallVec;
use std::future::Future;
use std::time::Duration;

/// An exact number of views: `n` records of this log with an offset below `u`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Number {
    /// The views.
    pub n: u64,
    /// The offset below which they are counted.
    pub u: i64,
    /// Append time of the last record that changed it, in seconds since 1970: the janitor removes the oldest first.
    pub changed_s: u32,
}

/// What the store holds for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// The number; none if absent.
    pub number: Option<Number>,
    /// Whether the sketch is present.
    pub sketch: bool,
}

/// Answer to a look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CountLookup {
    /// In the order of the keys.
    Found(Vec<Held>),
    /// The store did not stand at `from`: where it stands, or none if it lost everything.
    Gap(Option<i64>),
}

/// An archived sketch on which a missing one is built.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Base {
    /// The sketch in Redis's format, validated by the caller; none if the archive has none.
    pub blob: Option<Bytes>,
    /// Its timestamp: it holds the records below this offset. 0 without one.
    pub ts: i64,
}

/// Members (viewer hashes); one of them, which is what most items have in a batch, stands inline.
pub type Members = SmallVec<[[u8; 16]; 1]>;

/// Members to be added to one sketch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SketchAdd {
    /// Which sketch.
    pub key: CountKey,
    /// Members, in any order; one may come again. May be empty, to restore a sketch for a reader.
    pub members: Members,
    /// What to build on if the sketch is absent; none: answer `Missing`.
    pub base: Option<Base>,
}

/// One batch of one partition, applied whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apply {
    /// Where the store must stand.
    pub from: i64,
    /// Where it stands afterwards.
    pub to: i64,
    /// Append time of the newest record that is in afterwards (milliseconds since 1970); what readers see as "as of".
    /// 0: not known, the store keeps what it has.
    pub as_of_ms: i64,
    /// Every item and scope with records in the batch, even where `n` did not change.
    pub numbers: Vec<(CountKey, Number)>,
    /// Sketches with members that may raise a register.
    pub sketches: Vec<SketchAdd>,
}

/// Answer to `apply`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// Applied; the store stands at `to`.
    Done,
    /// The store did not stand at `from` (where it stands, or none if it lost everything); nothing was changed.
    Gap(Option<i64>),
    /// These sketches (indices into `sketches`) are absent and no base was given; nothing was changed.
    Missing(Vec<usize>),
    /// These sketches are marked as changed and absent, or hold no sketch: a wrong eviction policy, or somebody's hand.
    /// Nothing was changed.
    Corrupt(Vec<usize>),
}

/// What changed since it was archived, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirty {
    /// Where the store stood.
    pub applied: i64,
    /// Keys of changed sketches.
    pub sketches: Vec<CountKey>,
    /// Keys of changed numbers.
    pub numbers: Vec<CountKey>,
}

/// Answer for one changed sketch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SketchRead {
    /// Archived meanwhile.
    Clean,
    /// Marked as changed, and absent: never write anything for it.
    Corrupt,
    /// The bytes, which hold exactly the records below `t`.
    Found {
        /// The offset to use as timestamp.
        t: i64,
        /// Redis's format, as read.
        bytes: Bytes,
    },
}

/// Answer for one changed number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberRead {
    /// Archived meanwhile.
    Clean,
    /// Marked as changed, and absent.
    Corrupt,
    /// The number.
    Found(Number),
}

/// The counters, per partition of `views.counted`. Not durable. Every step is atomic; a time-out is answered by looking
/// where the store stands and going on from there.
pub trait CountStore: Send + Sync + 'static {
    /// Where the store stands; none if it lost everything. Waits while somebody holds the partition
    /// ([`CountRepair`](crate::CountRepair)).
    fn applied(&self, partition: i32) -> impl Future<Output = Result<Option<i64>, PortError>> + Send;

    /// If the store stands nowhere: sets it to `durable` and notes that it is whole again from `whole_at` on (the end of
    /// the log at that moment; readers are told until then). Returns where it stands. Waits while somebody holds the
    /// partition.
    fn init(
        &self,
        partition: i32,
        durable: i64,
        whole_at: i64,
    ) -> impl Future<Output = Result<i64, PortError>> + Send;

    /// The numbers of `keys`, and which of these sketches are absent, if the store stands at `from`. One atomic step:
    /// what is read from the archive *after* this answer is a valid base at `from`.
    fn lookup(
        &self,
        partition: i32,
        from: i64,
        keys: &[CountKey],
    ) -> impl Future<Output = Result<CountLookup, PortError>> + Send;

    /// Applies a batch. `PortError::Full` means that nothing was changed.
    fn apply(
        &self,
        partition: i32,
        batch: &Apply,
    ) -> impl Future<Output = Result<ApplyOutcome, PortError>> + Send;

    /// What is dirty, in one step; none if the store lost everything.
    fn begin(&self, partition: i32) -> impl Future<Output = Result<Option<Dirty>, PortError>> + Send;

    /// Reads changed sketches; none if the store stands below `applied` (the round must be given up).
    fn read_sketches(
        &self,
        partition: i32,
        applied: i64,
        keys: &[CountKey],
    ) -> impl Future<Output = Result<Option<Vec<SketchRead>>, PortError>> + Send;

    /// Reads changed numbers; none if the store stands below `applied`.
    fn read_numbers(
        &self,
        partition: i32,
        applied: i64,
        keys: &[CountKey],
    ) -> impl Future<Output = Result<Option<Vec<NumberRead>>, PortError>> + Send;

    /// Marks sketches as archived up to their `t`, if they did not change since, and lets them expire after `ttl`
    /// (so that they may be evicted earlier). Returns how many were settled.
    fn settle_sketches(
        &self,
        partition: i32,
        archived: &[(CountKey, i64)],
        ttl: Duration,
    ) -> impl Future<Output = Result<usize, PortError>> + Send;

    /// Marks numbers as archived, if they are still the same. Returns how many were settled.
    fn settle_numbers(
        &self,
        partition: i32,
        archived: &[(CountKey, Number)],
    ) -> impl Future<Output = Result<usize, PortError>> + Send;

    /// Removes clean numbers that last changed before `changed_before_s` (seconds since 1970), a part of the store a
    /// call: pass the cursor that came back, 0 to begin; 0 comes back at the end. Returns (cursor, removed).
    fn sweep_numbers(
        &self,
        partition: i32,
        cursor: u64,
        changed_before_s: u32,
    ) -> impl Future<Output = Result<(u64, usize), PortError>> + Send;

    /// Takes some keys out of the wanted set: what readers asked for and did not find.
    fn take_wanted(
        &self,
        partition: i32,
        at_most: usize,
    ) -> impl Future<Output = Result<Vec<CountKey>, PortError>> + Send;

    /// Tells readers that the archive does not know these keys either, for `ttl`: they are 0.
    fn mark_absent(
        &self,
        partition: i32,
        keys: &[CountKey],
        ttl: Duration,
    ) -> impl Future<Output = Result<(), PortError>> + Send;

    /// A short claim on a flush round of the partition, so that several flushers do not do the same work. Correctness
    /// does not rest on it. True: ours.
    fn claim_round(
        &self,
        partition: i32,
        hold: Duration,
    ) -> impl Future<Output = Result<bool, PortError>> + Send;
}

/// Where a partition's counters stand, for readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionState {
    /// Every record below this offset is in.
    pub applied: i64,
    /// Append time of the newest record that is in. Milliseconds since 1970 (UTC); 0: none yet.
    pub as_of_ms: i64,
    /// After a loss, counts are whole again once `applied` reaches this.
    pub whole_at: i64,
}

impl PartitionState {
    /// What holds of something that was read between two looks at its partition: the lower offset and time, and a loss
    /// if either look saw one. None: everything was lost, before or meanwhile.
    pub fn weaker(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (one, other) = (one?, other?);
        Some(Self {
            applied: one.applied.min(other.applied),
            as_of_ms: one.as_of_ms.min(other.as_of_ms),
            whole_at: one.whole_at.max(other.whole_at),
        })
    }
}

/// What a reader finds for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadCount {
    /// The number of views; none if absent.
    pub views: Option<u64>,
    /// What was asked for of the sketch; none if absent.
    pub sketch: Option<SketchValue>,
    /// The archive does not know the key: what is absent is 0.
    pub known_absent: bool,
}

/// A sketch as a reader gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SketchValue {
    /// The estimate, made by the store.
    Estimate(u64),
    /// The bytes, in Redis's format.
    Bytes(Bytes),
    /// The key holds something that is no valid sketch.
    Corrupt,
}

/// The counters as the counts API sees them. Changes nothing but the wanted set.
pub trait CountReader: Send + Sync + 'static {
    /// How many partitions the counters are spread over; none before the first counter has run.
    fn partitions(&self) -> impl Future<Output = Result<Option<u32>, PortError>> + Send;

    /// Where the partitions stand, in order; none for one that lost everything or never began.
    fn states(
        &self,
        partitions: &[i32],
    ) -> impl Future<Output = Result<Vec<Option<PartitionState>>, PortError>> + Send;

    /// Reads keys, in order. `bytes`: sketches as bytes (to be merged), else as estimates.
    fn read(
        &self,
        keys: &[(i32, CountKey)],
        bytes: bool,
    ) -> impl Future<Output = Result<Vec<ReadCount>, PortError>> + Send;

    /// `read`, with how each key's partition stood around it: looked at before and after, so that a count which is lower
    /// after a loss is never taken for a whole one.
    fn read_with_states(
        &self,
        keys: &[(i32, CountKey)],
        bytes: bool,
    ) -> impl Future<Output = Result<Vec<(ReadCount, Option<PartitionState>)>, PortError>> + Send {
        async move {
            let mut partitions: Vec<i32> = keys.iter().map(|(partition, _)| *partition).collect();
            partitions.sort_unstable();
            partitions.dedup();
            let before = self.states(&partitions).await?;
            let counts = self.read(keys, bytes).await?;
            let after = self.states(&partitions).await?;
            let state = |partition: &i32| {
                let at = partitions.binary_search(partition).ok()?;
                PartitionState::weaker(*before.get(at)?, *after.get(at)?)
            };
            Ok(counts
                .into_iter()
                .zip(keys)
                .map(|(count, (partition, _))| (count, state(partition)))
                .collect())
        }
    }

    /// Asks for keys to be restored. The set is bounded (further wishes are dropped) and expires.
    fn want(&self, keys: &[(i32, CountKey)]) -> impl Future<Output = Result<(), PortError>> + Send;
}
