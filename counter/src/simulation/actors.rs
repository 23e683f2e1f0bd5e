//! Counters and flushers: a heart, and what it waits for.

use crate::heart::{Heart, Limits};
use crate::known::Bounds;
use crate::words::Fault;
use onlooker_event::CountKey;
use onlooker_flusher::round::Round;
use onlooker_model::Archive;
use onlooker_ports::{Apply, ArchiveCell, Archived, Dirty, Number, NumberRead};
use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;

/// Who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Actor {
    Counter(usize),
    Flusher(usize),
}

/// A request on its way.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Applied,
    Init { durable: i64, whole_at: i64 },
    Lookup { from: i64, keys: Vec<CountKey> },
    Apply(Apply),
    Durable,
    Read(Vec<CountKey>),
    Begin,
    BeginAgain(Dirty),
    ReadNumbers { applied: i64, keys: Vec<CountKey> },
    ReadNumbersAgain { applied: i64, keys: Vec<CountKey>, first: Vec<NumberRead> },
    ReadSketches { applied: i64, keys: Vec<CountKey> },
    Write(ArchiveCell),
    SettleNumbers(Vec<(CountKey, Number)>),
    SettleSketches(Vec<(CountKey, i64)>),
    SetDurable(i64),
}

impl Op {
    /// True if the store or the archive may be another one afterwards.
    pub(super) fn changes(&self) -> bool {
        match self {
            Self::Init { .. } | Self::Apply(_) | Self::Write(_) | Self::SetDurable(_) => true,
            Self::SettleNumbers(_) | Self::SettleSketches(_) => true,
            Self::Applied | Self::Lookup { .. } | Self::Durable | Self::Read(_) | Self::Begin => false,
            Self::BeginAgain(_) | Self::ReadNumbers { .. } | Self::ReadNumbersAgain { .. } => false,
            Self::ReadSketches { .. } => false,
        }
    }

    /// True if the archive is asked, and not the store.
    pub(super) fn to_archive(&self) -> bool {
        matches!(self, Op::Durable | Op::Read(_) | Op::Write(_) | Op::SetDurable(_))
    }
}

/// What an actor waits for.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The requests, and for writes whether they were acknowledged.
    pub(super) flights: Vec<(u64, Option<bool>)>,
    /// Talks to a store that has been replaced and does not know it.
    pub(super) on_old_store: bool,
}

#[derive(Debug)]
pub(super) struct Counter {
    pub(super) heart: Heart,
    pub(super) waiting: Waiting,
    /// For conditions that are left out: the archive as it was before the look-up; what was read once.
    pub(super) earlier: Archive,
    pub(super) kept: BTreeMap<CountKey, Archived>,
}

impl Counter {
    pub(super) fn new(rng: &mut SmallRng, fault: Fault) -> Self {
        // Few registers and few keys: forgetting is as ordinary as remembering.
        let registers = if rng.random_bool(0.8) { 100 } else { 0 };
        let keys = if rng.random_bool(0.7) { 100 } else { 2 };
        let base_bytes = if rng.random_bool(0.5) { 1 << 20 } else { 1 };
        let limits = Limits { base_bytes, hot_from: 1 };
        Self {
            heart: Heart::new(limits, Bounds::new(keys, registers)).with_fault(fault),
            waiting: Waiting::default(),
            earlier: Archive::default(),
            kept: BTreeMap::new(),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Flusher {
    /// The round under way.
    pub(super) round: Option<Round>,
    pub(super) waiting: Waiting,
}
