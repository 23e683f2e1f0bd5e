//! Looking at a system without taking part in it: what an operator's commands go by. Nothing here changes anything.

use crate::{Batch, Committed, Number, PortError, Topic};
use bytes::Bytes;
use onlooker_event::CountKey;
use std::future::Future;
use std::ops::Range;
use std::time::Duration;
use tokio::sync::mpsc;

/// What a partition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The first offset that retention has left.
    pub earliest: i64,
    /// The end for readers of committed records: no transaction that may still be aborted lies below it.
    pub stable: i64,
    /// The end, transactions under way included.
    pub end: i64,
}

/// What a consumer group is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupState {
    /// Its members have shared the partitions out.
    Stable,
    /// They are just doing that.
    Rebalancing,
    /// It has no member.
    Empty,
    /// Nobody has ever joined it, or it was forgotten.
    Unknown,
}

impl GroupState {
    /// As a word.
    pub fn as_str(self) -> &'static str {
        match self {
            GroupState::Stable => "stable",
            GroupState::Rebalancing => "rebalancing",
            GroupState::Empty => "empty",
            GroupState::Unknown => "unknown",
        }
    }
}

/// A consumer group as seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupView {
    /// Its name.
    pub name: String,
    /// What it is doing.
    pub state: GroupState,
    /// How many members it has.
    pub members: usize,
    /// Per partition, in order: what is committed, and which member owns it.
    pub partitions: Vec<(Option<Committed>, Option<String>)>,
}

/// The log, for looking at. Belongs to no group, commits nothing.
pub trait LogObserver: Send + Sync + 'static {
    /// Bounds of all partitions, in order.
    fn bounds(&self, topic: Topic) -> impl Future<Output = Result<Vec<Bounds>, PortError>> + Send;

    /// Per partition, in order: the first offset that was appended at `ms` (milliseconds since 1970) or later; the end
    /// where there is none.
    fn offsets_at(&self, topic: Topic, ms: i64) -> impl Future<Output = Result<Vec<i64>, PortError>> + Send;

    /// Sends all committed records of these ranges, each range in the order of its offsets. What retention has removed is
    /// left out. Ends when every range is through, or when nobody takes the records any more. A range whose end lies
    /// above the stable end is an error after the stall time-out.
    fn read(
        &self,
        topic: Topic,
        ranges: &[(i32, Range<i64>)],
        sink: mpsc::Sender<Batch>,
    ) -> impl Future<Output = Result<(), PortError>> + Send;

    /// The group that works on this topic: the filter's on `views`, the counter's on `views.counted`; none for others.
    fn group(&self, topic: Topic) -> impl Future<Output = Result<Option<GroupView>, PortError>> + Send;
}

/// Everything that the counters store has about one key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyView {
    /// The number of views.
    pub number: Option<Number>,
    /// It changed since it was archived.
    pub number_dirty: bool,
    /// The bytes at the sketch's place, whatever they are; none if there are none.
    pub sketch: Option<Bytes>,
    /// It changed since it was archived, and holds the records below this offset.
    pub sketch_dirty: Option<i64>,
    /// Until it expires; none if it does not.
    pub ttl: Option<Duration>,
}

/// The counters store, for looking at.
pub trait CountObserver: Send + Sync + 'static {
    /// Where the partition stands, and everything about these keys, in order, at one moment.
    fn observe(
        &self,
        partition: i32,
        keys: &[CountKey],
    ) -> impl Future<Output = Result<(Option<i64>, Vec<KeyView>), PortError>> + Send;
}
