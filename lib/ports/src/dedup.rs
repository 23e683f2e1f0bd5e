//! The filter's memory: which views of the last two slices were counted, at which times.

use crate::PortError;
use onlooker_event::Digest128;
use smallvec::SmallVec;
use std::future::Future;
use std::ops::Range;

/// The memory's state: it holds the claims of every record below `offset`; `slice` is the newest append-time slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// The next offset of `views`.
    pub offset: i64,
    /// The running maximum of the append-time slice.
    pub slice: i64,
}

/// The values remembered for one key: event times in whole seconds since 1970 (clamped to `u32`), or for a client's id
/// the fingerprints of its items.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Remembered {
    /// Counted in the slice before.
    pub older: Vec<u32>,
    /// Counted in the current slice.
    pub newer: Vec<u32>,
}

/// Answer to a look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// In the order of the keys.
    Found(Vec<Remembered>),
    /// The memory does not stand within the asked bounds (or is gone): synchronise.
    Gap(Option<Applied>),
}

/// Values of a key in a claim; one of them, which is what nearly all keys have, stands inline.
pub type Values = SmallVec<[u32; 2]>;

/// One key's complete list of values in the current slice: what was there plus what is new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The key.
    pub key: Digest128,
    /// All its values in the slice.
    pub values: Values,
}

/// Answer to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// Written; the memory stands at `to`.
    Done,
    /// The memory did not stand at `from`; nothing was changed.
    Gap(Option<Applied>),
}

/// Answer to an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallOutcome {
    /// The staged slices are in place.
    Done,
    /// The memory already stands at or beyond the offset: the staged state was thrown away.
    Discarded,
    /// The number of staged parts is not the expected one; nothing was changed.
    Gap,
}

/// The memory, per partition of `views`. Nothing in it expires by a clock: the log's own time drops slices.
///
/// Not durable: whatever is lost is rebuilt from the log. Every step is atomic and may be repeated.
pub trait DedupStore: Send + Sync + 'static {
    /// Where the memory stands; none if it is gone.
    fn applied(&self, partition: i32) -> impl Future<Output = Result<Option<Applied>, PortError>> + Send;

    /// What is remembered of `keys` in slices `slice - 1` and `slice`, if the memory stands at an offset in
    /// `at_least..=at_most`.
    fn lookup(
        &self,
        partition: i32,
        at_least: i64,
        at_most: i64,
        slice: i64,
        keys: &[Digest128],
    ) -> impl Future<Output = Result<Lookup, PortError>> + Send;

    /// If the memory stands at `from`: writes the claims into `slice`, moves it to (`to`, `slice`), drops the slices in
    /// `drop`. `PortError::Full` means that nothing was changed.
    fn claim(
        &self,
        partition: i32,
        from: i64,
        to: i64,
        slice: i64,
        claims: &[Claim],
        drop: Range<i64>,
    ) -> impl Future<Output = Result<ClaimOutcome, PortError>> + Send;

    /// Adds part number `part` (from 0, counted over all slices of a partition) of a state under construction called
    /// `name`, into the staged copy of `slice`. The values of a key are appended to those that earlier parts staged for
    /// it, in order (one key stands at most once in a part): so a caller of bounded memory can stage a whole slice.
    /// False: `part` is not the next one, and nothing was changed. Staged parts expire by themselves after some minutes
    /// without a new part.
    fn stage(
        &self,
        partition: i32,
        name: &str,
        part: u64,
        slice: i64,
        claims: &[Claim],
    ) -> impl Future<Output = Result<bool, PortError>> + Send;

    /// Puts the staged slices `slice - 1` and `slice` of `name`, which has `parts` parts, in place of all others and
    /// sets the memory to (`offset`, `slice`); unless it already stands at `offset` or beyond.
    fn install(
        &self,
        partition: i32,
        offset: i64,
        slice: i64,
        name: &str,
        parts: u64,
    ) -> impl Future<Output = Result<InstallOutcome, PortError>> + Send;
}
