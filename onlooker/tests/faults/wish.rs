//! What is asked for, by the environment: `cargo x faults` sets it.

use std::env;
use std::fmt::Debug;

/// Rounds of a run.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) seed: u64,
    pub(crate) first: u64,
    pub(crate) rounds: u64,
    /// Kinds whose names begin with one of these, separated by commas; empty: all.
    pub(crate) only: String,
}

impl Wish {
    /// That of the environment, or a short run with a fixed seed.
    pub(crate) fn or(seed: u64, rounds: u64) -> Self {
        let number = |name: &str, default| {
            env::var(name)
                .ok()
                .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
        };
        Self {
            seed: number("ONLOOKER_FAULTS_SEED", seed),
            first: number("ONLOOKER_FAULTS_FIRST", 0),
            rounds: number("ONLOOKER_FAULTS_ROUNDS", rounds),
            only: env::var("ONLOOKER_FAULTS_ONLY").unwrap_or_default(),
        }
    }

    pub(crate) fn wants(&self, kind: &impl Debug) -> bool {
        let name = format!("{kind:?}");
        self.only.split(',').any(|begin| name.starts_with(begin.trim()))
    }

    /// What runs a round again.
    pub(crate) fn again(&self, place: &str, round: u64) -> String {
        let only = if self.only.is_empty() { String::new() } else { format!(" --only {}", self.only) };
        format!("cargo x faults --{place} --seed {} --first {round} --rounds 1{only}", self.seed)
    }
}
