//! The hearts of counter and flusher on a world that does everything that the protocol allows for: requests that land
//! late or never, zombies, crashes between any two steps, evictions, a store that loses everything or fails over to an
//! earlier state, reads that see a write which later vanishes.
//!
//! Every third log begins with history: cells at offset 0, which hold what was counted before it, and records that were
//! carried over from where that was.
//!
//! Each run is a function of its seed. What is checked all the time: what is archived with timestamp T is exactly the
//! log below T; what is durable or committed is never too high; the store holds the log below its offset, or the archive
//! does. At rest: every number is exact and every sketch is the log's, register for register.

mod actors;
mod broken;
mod checks;
mod landing;
mod tell;
mod trouble;
mod truth;
mod world;

use crate::words::Told;
use broken::Break;
use onlooker_model::simulation::{self, Asked, Mutation, Plan, Protocol, Record};
use world::World;

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

/// The protocol of counter and flusher.
struct Counter;

impl Protocol for Counter {
    type What = Break;
    const NAME: &'static str = "counter";
    const FAULTS: &'static [&'static str] = trouble::KINDS;
    const MUTATIONS: &'static [Mutation<Break>] = broken::MUTATIONS;

    fn live(plan: &Plan, without: Option<Break>, record: &mut Record) -> Result<(), String> {
        World::new(plan, without, record).live(plan).map(|_| ())
    }
}

#[test]
fn the_protocol_holds() {
    if simulation::asked::<Counter>() == Asked::Done {
        return;
    }
    let report = simulation::histories::<Counter>(0..1_000, None);
    if let Some(first) = report.first {
        panic!("{first}");
    }
}

/// Else it would hold for want of trouble.
#[test]
fn the_world_leaves_nothing_out() {
    let mut seen = Seen::default();
    for seed in 0..200 {
        let (plan, mut record) = (Plan::whole(seed), Record::default());
        seen.add(World::new(&plan, None, &mut record).live(&plan).unwrap());
    }
    let Seen { gaps, restored, created, spared, absent, batches, durable } = seen;
    let all = [gaps, restored, created, spared, absent, batches, durable];
    assert!(all.iter().all(|n| *n > 50), "{seen:?}");
}

#[test]
fn a_seed_names_a_history_for_ever() {
    for seed in 0..20 {
        let told = || simulation::told::<Counter>(seed, Some(Break::NilIsZero));
        assert_eq!(told(), told());
    }
}

/// Every line of the protocol's table that can be told here: without the condition, a run goes wrong.
#[test]
fn each_condition_is_needed() {
    assert_eq!(simulation::unnoticed::<Counter>(&(0..4_000)), [""; 0], "nobody noticed");
}
