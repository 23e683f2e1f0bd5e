//! Which faults a round has and when: a function of the seed and the round alone.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A fault of a round.
#[derive(Debug, Clone)]
pub(crate) struct Planned<K> {
    pub(crate) kind: K,
    /// Since the round's load began.
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    /// Chooses among what the kind can be done to.
    pub(crate) pick: usize,
}

/// The faults of a round, in the order of their times: one to five.
pub(crate) fn plan<K: Copy>(kinds: &[K], seed: u64, round: u64, span: Duration) -> Vec<Planned<K>> {
    let mut random = StdRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round);
    let span = u64::try_from(span.as_millis()).unwrap();
    let mut faults: Vec<_> = (0..random.random_range(1..=5))
        .map(|_| Planned {
            kind: kinds[random.random_range(0..kinds.len())],
            at: Duration::from_millis(random.random_range(0..span)),
            lasts: Duration::from_millis(random.random_range(50..1_500)),
            pick: random.random_range(0..1_000),
        })
        .collect();
    faults.sort_by_key(|fault| fault.at);
    faults
}

const HOUR: i64 = 3_600;

/// Steps of a wall clock, in seconds: into another slice of the filter's memory, another day, and a little.
pub(crate) const STEPS_S: [i64; 8] = [-72 * HOUR, -2 * HOUR, -90, -2, 2, 90, 2 * HOUR, 72 * HOUR];

/// What happened when; printed if the round fails.
pub(crate) struct Timeline {
    round: u64,
    replay: String,
    begun: Instant,
    lines: Mutex<Vec<String>>,
}

impl Timeline {
    pub(crate) fn new(round: u64, replay: String) -> Self {
        Self { round, replay, begun: Instant::now(), lines: Mutex::default() }
    }

    pub(crate) fn note(&self, what: impl Into<String>) {
        let line = format!("{:>6} ms  {}", self.begun.elapsed().as_millis(), what.into());
        self.lines.lock().unwrap().push(line);
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n");
            eprintln!("== round {} failed:\n{lines}\nagain: {}", self.round, self.replay);
        }
    }
}

/// Faults done, by kind.
#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<String, u64>);

impl Tally {
    pub(crate) fn add(&mut self, kind: &impl Debug) {
        *self.0.entry(format!("{kind:?}")).or_default() += 1;
    }

    /// One line for `cargo x faults`, which makes its table of it.
    pub(crate) fn tell(&self, place: &str, rounds: u64, views: usize) {
        let kinds: Vec<String> = self.0.iter().map(|(kind, n)| format!("{kind}={n}")).collect();
        let faults: u64 = self.0.values().sum();
        println!("faults: place={place} rounds={rounds} faults={faults} views={views} {}", kinds.join(" "));
    }
}
