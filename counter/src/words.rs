//! What a heart and the world say to each other.

use crate::group::Grouped;
use onlooker_event::CountKey;
use onlooker_ports::{Apply, ApplyOutcome, Archived, CountLookup};

/// What has to be asked, in this order and nothing else meanwhile.
#[derive(Debug, PartialEq)]
pub(crate) enum Ask<'a> {
    /// The store: where does it stand?
    Applied,
    /// The archive: from where on is it incomplete?
    Durable,
    /// The log: where does it end?
    End,
    /// The store: stand at `durable`, if you stand nowhere.
    Init { durable: i64, whole_at: i64 },
    /// The log: deliver from here on.
    Start { offset: i64 },
    /// Whoever has some: work on top of `from`.
    Work { from: i64 },
    /// The store: what do you hold of these, if you stand at `from`?
    Lookup { from: i64, keys: &'a [CountKey] },
    /// The archive: what do you hold of these? For readers: may be given up.
    Read { keys: &'a [CountKey], for_readers: bool },
    /// The store: this step.
    Apply(&'a Apply),
}

/// Work for a heart that asks for it.
#[derive(Debug)]
pub(crate) enum Work {
    /// Records; `to` may lie behind transaction markers that follow them.
    Records { grouped: Box<Grouped>, to: i64 },
    /// No records up to `to`, where the log ended at `as_of_ms`; or nothing at all (`to` = 0, `as_of_ms` = 0). Asked
    /// for even so: on a quiet partition it is what notices that the store lost its data.
    Nothing { to: i64, as_of_ms: i64 },
    /// What readers did not find.
    Wishes { keys: Vec<CountKey>, now_s: u32 },
    /// The log has lost its records below `to`, and somebody decided to go on without them.
    Skip { to: i64 },
}

/// An answer.
#[derive(Debug)]
pub(crate) enum Answer {
    Applied(Option<i64>),
    Durable(Option<i64>),
    End(i64),
    Initialised(i64),
    Started,
    Work(Work),
    Found(CountLookup),
    Archived(Vec<Archived>),
    Outcome(ApplyOutcome),
    /// The store was full and changed nothing.
    Refused,
    /// No answer, or one that says nothing. Whether a step was applied only the store can tell.
    Doubt,
}

/// What the heart wants the world to know: for metrics, logs and readers.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Told {
    /// The store did not stand where it was left.
    pub(crate) gaps: u64,
    /// A batch was applied: records, and the append time of its oldest one.
    pub(crate) applied: Option<(usize, i64)>,
    /// Sketches that were absent, and those of them that the archive knew.
    pub(crate) created: u64,
    pub(crate) restored: u64,
    /// Members sent, and members left out.
    pub(crate) sent: u64,
    pub(crate) spared: u64,
    /// Neither the store nor the archive knows these, and a reader asked.
    pub(crate) absent: Vec<CountKey>,
    /// The archive holds no valid sketch under these.
    pub(crate) damaged_archived: Vec<CountKey>,
    /// The store holds no valid sketch under these, or lost a changed one.
    pub(crate) corrupt_stored: Vec<CountKey>,
}

/// A condition of the protocol that the simulation leaves out, to see that it would be noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fault {
    #[default]
    None,
    KeepNumbersAtGap,
    KeepRegistersAtGap,
    CountAll,
    UIsTo,
    SyncToDurable,
    /// Says of numbers that did not change that they did not, for a store that would leave them unmarked.
    TellUnchanged,
    /// Remembers members as sent before it is known, and builds a step anew after `Missing`.
    RaiseWhenSending,
    /// Takes the registers of a base for the store's.
    SeedFromBase,
}
