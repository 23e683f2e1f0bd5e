//! The hearts of counter and flusher on a world that does everything that the protocol allows for: requests that land
//! late or never, zombies, crashes between any two steps, evictions, a store that loses everything or fails over to an
//! earlier state, reads that see a write which later vanishes.
//!
//! Every third log begins with history: cells at offset 0, which hold what was counted before it.
//!
//! Each run is a function of its seed. What is checked all the time: what is archived with timestamp T is exactly the
//! log below T; durable is never too high; the store holds the log below its offset, or the archive does. At rest:
//! every number is exact and every sketch is the log's, register for register.

mod actors;
mod checks;
mod landing;
mod trouble;
mod truth;
mod world;

use crate::words::{Fault, Told};
use onlooker_model::Rule;
use world::World;

/// A condition of the protocol that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Break {
    /// None.
    Nothing,
    /// One of the counter's own.
    Heart(Fault),
    /// One of the store's.
    Store(Rule),
    /// Cells carry no timestamps.
    Timestamps,
    /// The archive is read before the look-up, not after its answer.
    ReadBeforeLookup,
    /// A number that the store does not hold is taken for 0.
    NilIsZero,
    /// Sketches that were read from the archive are kept for later batches.
    BasesKept,
    /// Nothing is applied while there are no records.
    NoIdleApply,
    /// What is dirty is read first, where the store stands later.
    BeginInTwoSteps,
    /// A number's n and u are read one after the other.
    NumberInTwoSteps,
    /// The flusher does not wait for acknowledgements.
    NoAcknowledgement,
    /// The janitor looks first and removes later.
    SweepInTwoSteps,
}

/// What happened in a run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Seen {
    gaps: u64,
    restored: u64,
    created: u64,
    spared: u64,
    absent: u64,
    batches: u64,
    durable: u64,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.gaps += other.gaps;
        self.restored += other.restored;
        self.created += other.created;
        self.spared += other.spared;
        self.absent += other.absent;
        self.batches += other.batches;
        self.durable += other.durable;
    }

    fn hear(&mut self, told: &Told) {
        self.gaps += told.gaps;
        self.restored += told.restored;
        self.created += told.created;
        self.spared += told.spared;
        self.absent += told.absent.len() as u64;
        self.batches += u64::from(told.applied.is_some());
    }
}

/// Runs seeds until one finds a violation; none found: none.
fn first_violation(broken: Break, seeds: std::ops::Range<u64>) -> Option<(u64, String)> {
    seeds
        .into_iter()
        .find_map(|seed| World::new(seed, broken).run_and_tell().err().map(|violation| (seed, violation)))
}

/// How many seeds: `SIMULATION_SEEDS`, or enough for a minute's patience.
fn seeds() -> u64 {
    std::env::var("SIMULATION_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(500)
}

#[test]
fn the_protocol_holds() {
    assert_eq!(first_violation(Break::Nothing, 0..seeds()), None);
}

/// Else it would hold for want of trouble.
#[test]
fn the_world_leaves_nothing_out() {
    let mut seen = Seen::default();
    for seed in 0..100 {
        seen.add(World::new(seed, Break::Nothing).run_and_tell().unwrap());
    }
    let Seen { gaps, restored, created, spared, absent, batches, durable } = seen;
    let all = [gaps, restored, created, spared, absent, batches, durable];
    assert!(all.iter().all(|n| *n > 50), "{seen:?}");
}

/// Every line of the protocol's table that can be told here: without the condition, a run goes wrong.
#[test]
fn each_condition_is_needed() {
    use Break::*;
    let all = [
        Heart(Fault::KeepNumbersAtGap),
        Heart(Fault::KeepRegistersAtGap),
        Heart(Fault::CountAll),
        Heart(Fault::UIsTo),
        Heart(Fault::SyncToDurable),
        Store(Rule::ApplyExact),
        Store(Rule::ApplyNotFurther),
        Store(Rule::LookupExact),
        Store(Rule::Missing),
        Store(Rule::BaseTimestamp),
        Store(Rule::CreatedIsDirty),
        Store(Rule::UnchangedIsDirty),
        Store(Rule::Persist),
        Store(Rule::PresentIgnoresBase),
        Store(Rule::InitOnce),
        Store(Rule::ReadNotBelow),
        Store(Rule::SettleSketchCompares),
        Store(Rule::SettleNumberCompares),
        Timestamps,
        ReadBeforeLookup,
        NilIsZero,
        BasesKept,
        NoIdleApply,
        BeginInTwoSteps,
        NumberInTwoSteps,
        NoAcknowledgement,
        SweepInTwoSteps,
    ];
    let unnoticed: Vec<_> =
        all.into_iter().filter(|broken| first_violation(*broken, 0..4000).is_none()).collect();
    assert!(unnoticed.is_empty(), "nobody noticed: {unnoticed:?}");
}
