//! What the heart asks for, and what it reports.

use super::rebuild::Job;
use onlooker_event::{DeadReason, Digest128, Reason, Verdict};
use onlooker_ports::{Claim, OutgoingBatch, Position};
use std::ops::Range;
use std::sync::Arc;

/// Names one synchronisation of one partition. What an earlier attempt asked for is void.
pub(crate) type Attempt = u64;

/// Something to be done outside. An answer goes back with the partition and the attempt it was asked under.
#[derive(Debug)]
pub enum Command {
    /// Whatever is under way for the partition may be given up, and no record of it is wanted.
    Forget {
        /// The partition.
        partition: i32,
    },
    /// Ask the dedup store where it stands.
    AskMemory {
        /// The partition.
        partition: i32,
        /// The attempt.
        attempt: Attempt,
    },
    /// Ask for the group's committed offset (stable), and then for the log's bounds.
    AskGroup {
        /// The partition.
        partition: i32,
        /// The attempt.
        attempt: Attempt,
    },
    /// Deliver nothing of the partition for now: it has to wait, and others shall not wait with it.
    Stop {
        /// The partition.
        partition: i32,
    },
    /// Read from this offset on, and say so when it is done: records that come before are of an earlier reading.
    Start {
        /// The partition.
        partition: i32,
        /// Names this reading.
        start: u64,
        /// The first offset that is wanted.
        offset: i64,
    },
    /// Put a state into the dedup store that is made from the verdicts.
    Rebuild(Job),
    /// Look keys up, if the store stands within bounds.
    Lookup {
        /// The partition.
        partition: i32,
        /// The attempt.
        attempt: Attempt,
        /// The lowest offset at which the store may stand.
        at_least: i64,
        /// The highest.
        at_most: i64,
        /// The current slice.
        slice: i64,
        /// What to look up.
        keys: Arc<Vec<Digest128>>,
    },
    /// Write claims, if the store stands at `from`.
    Claim {
        /// The partition.
        partition: i32,
        /// The attempt.
        attempt: Attempt,
        /// Where the store must stand.
        from: i64,
        /// Where it stands afterwards.
        to: i64,
        /// The slice that the claims belong to.
        slice: i64,
        /// The claims.
        claims: Arc<Vec<Claim>>,
        /// Slices that are forgotten.
        drop: Range<i64>,
    },
    /// Write these outputs and positions in one transaction, with the membership of the last assignment.
    Commit {
        /// What to append.
        outputs: OutgoingBatch,
        /// What was consumed.
        positions: Vec<Position>,
    },
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitEnd {
    /// It is committed.
    Done,
    /// Nothing of it ever becomes visible.
    Aborted,
    /// Nobody knows, and its producer is gone.
    Unknown,
}

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a partition synchronises.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Cause { $($(#[$doc])* $name,)* }

        impl Cause {
            /// Every value, for the metrics.
            pub const ALL: &'static [Cause] = &[$(Cause::$name,)*];

            /// The name in metrics and logs.
            pub fn as_str(self) -> &'static str {
                match self { $(Cause::$name => $text,)* }
            }
        }
    };
}

causes! {
    /// The group assigned partitions.
    Assigned = "assigned",
    /// The dedup store does not stand where it should.
    Gap = "gap",
    /// A transaction was aborted.
    Aborted = "aborted",
    /// A transaction's result is unknown.
    Unknown = "unknown",
    /// The log does not have the offset.
    OutOfRange = "out_of_range",
    /// A state could not be rebuilt.
    Rebuild = "rebuild",
    /// It was refused, and is tried again.
    Refused = "refused",
}

/// Why a partition stands still until a person has looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Starting from 0 or from the end would count views twice or never.
    #[error(
        "the group has no committed offset: `onlooker topics apply --start-groups` finds out where views were judged \
         up to, and commits it"
    )]
    NoCommittedOffset,
    /// The group's offset was moved back.
    #[error(
        "the dedup store stands at {memory}, beyond the committed offset {committed}: the group's offset was moved \
         back, and judging again would count views twice; delete the group's offsets, and `onlooker topics apply \
         --start-groups` finds out where views were judged up to"
    )]
    MemoryAhead {
        /// Where the store stands.
        memory: i64,
        /// The committed offset.
        committed: i64,
    },
    /// The group's offset was moved forward.
    #[error(
        "the committed offset {committed} was not committed by a filter, and the dedup store stands at {memory}: views \
         between the two might never be judged; delete the group's offsets, and `onlooker topics apply --start-groups` \
         finds out where views were judged up to"
    )]
    MovedForward {
        /// Where the store stands.
        memory: i64,
        /// The committed offset.
        committed: i64,
    },
    /// The topic was recreated, or lost records.
    #[error(
        "the committed offset {committed} lies beyond the log's end {end}: the topic was recreated or lost records; \
         a new topic needs a new group and an empty dedup store"
    )]
    BeyondEnd {
        /// The committed offset.
        committed: i64,
        /// The log's end.
        end: i64,
    },
    /// Slices are counted in another unit than before.
    #[error(
        "slice_s is {configured} and was {noted}: set it back; or, to change it for good, stop all filters, flush the \
         dedup store and start them again: it is then rebuilt with the new length"
    )]
    SliceLength {
        /// What was committed.
        noted: u32,
        /// What is configured.
        configured: u32,
    },
    /// A state cannot be rebuilt for an offset that says nothing about time.
    #[error(
        "the dedup store is empty, and the committed offset {committed} carries no slice: it was not committed by a \
         filter"
    )]
    NoSlice {
        /// The committed offset.
        committed: i64,
    },
    /// Most likely a newer collector, or a site that is missing here.
    #[error(
        "more than {percent} % of the latest records cannot be read: an older filter, or a site that is missing from \
         the configuration? dead_limit_percent = 100 lets them through to the dead topic"
    )]
    TooManyDead {
        /// The limit.
        percent: u8,
    },
}

/// What happened, for logs, metrics and readiness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A partition synchronises.
    Sync {
        /// The partition.
        partition: i32,
        /// Why.
        cause: Cause,
    },
    /// A partition runs: it reads from `from`, and writes verdicts from `emit_from` on.
    Running {
        /// The partition.
        partition: i32,
        /// Where it reads from.
        from: i64,
        /// The committed offset.
        emit_from: i64,
    },
    /// The dedup store lost its state, or has one that the log cannot continue.
    Rebuilding {
        /// The partition.
        partition: i32,
        /// The offset at which it will stand.
        offset: i64,
    },
    /// A partition stands still.
    Refused {
        /// The partition.
        partition: i32,
        /// Why.
        why: Refusal,
    },
    /// Retention removed records before they were judged. They are lost.
    Lost {
        /// The partition.
        partition: i32,
        /// The first lost offset.
        from: i64,
        /// The first offset that is left.
        to: i64,
    },
    /// A transaction is committed.
    Committed {
        /// The partition.
        partition: i32,
        /// Whether it still is ours.
        ours: bool,
        /// The committed offset.
        offset: i64,
        /// What was written for it.
        tally: Tally,
    },
    /// A partition is not ours any more.
    Revoked {
        /// The partition.
        partition: i32,
    },
}

/// Verdicts by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Counted views.
    pub counted: u64,
    /// Ignored views, by place in `Reason::ALL`.
    pub ignored: [u64; Reason::ALL.len()],
    /// Dead records, by place in `DeadReason::ALL`.
    pub dead: [u64; DeadReason::ALL.len()],
    /// Counted views whose client id was counted on another item.
    pub reused_ids: u64,
    /// Append time of the last of them, in milliseconds since 1970.
    pub last_append_ms: i64,
}

impl Tally {
    pub(super) fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Counted => self.counted += 1,
            // The variants are numbered in the order of ALL; a test holds that.
            Verdict::Ignored(reason) => self.ignored[reason as usize] += 1,
            Verdict::Dead(reason) => self.dead[reason as usize] += 1,
        }
    }

    /// All records.
    pub fn records(&self) -> u64 {
        self.counted + self.ignored.iter().sum::<u64>() + self.dead.iter().sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_tells_the_reasons_apart() {
        let mut tally = Tally::default();
        for (at, reason) in Reason::ALL.iter().enumerate() {
            tally.add(Verdict::Ignored(*reason));
            assert_eq!(tally.ignored[at], 1, "{reason:?}");
        }
        for (at, reason) in DeadReason::ALL.iter().enumerate() {
            tally.add(Verdict::Dead(*reason));
            assert_eq!(tally.dead[at], 1, "{reason:?}");
        }
        tally.add(Verdict::Counted);
        assert_eq!(tally.records(), 10);
    }
}
