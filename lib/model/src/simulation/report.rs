//! What many histories came to.

use super::Record;
use std::fmt;
use std::time::Duration;

/// Histories that were lived through.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The protocol.
    pub name: &'static str,
    /// How many.
    pub histories: u64,
    /// Their steps, those that come to rest not included.
    pub steps: u64,
    /// Kinds of faults.
    pub kinds: &'static [&'static str],
    /// How many of each.
    pub faults: Vec<u64>,
    /// Histories that went wrong.
    pub violations: u64,
    /// The first of them.
    pub first: Option<Violation>,
    /// Processor time that it took.
    pub spent: Duration,
}

/// A history that went wrong.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Its seed.
    pub seed: u64,
    /// What went wrong.
    pub why: String,
    /// How many steps it took.
    pub steps_before: u32,
    /// The steps that it takes.
    pub steps: Vec<u32>,
    /// What goes wrong with these alone.
    pub shortest: String,
    /// What happens then.
    pub timeline: Vec<String>,
}

/// What became of a condition that was left out.
#[derive(Debug, Clone, Default)]
pub struct Caught {
    /// Its name.
    pub name: &'static str,
    /// The condition.
    pub removed: &'static str,
    /// What the protocol says happens then.
    pub then: &'static str,
    /// Histories until one went wrong, or all.
    pub histories: u64,
    /// The seed of that history, and what went wrong. None: nobody noticed.
    pub by: Option<(u64, String)>,
    /// Processor time that it took.
    pub spent: Duration,
}

impl Report {
    pub(super) fn add(&mut self, record: &Record) {
        self.histories += 1;
        self.steps += record.steps;
        self.faults.iter_mut().zip(&record.faults).for_each(|(all, more)| *all += more);
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.why)?;
        writeln!(
            f,
            "of {} steps these {} are enough: {}",
            self.steps_before,
            self.steps.len(),
            self.shortest
        )?;
        self.timeline.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
