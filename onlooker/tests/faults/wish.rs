//! What is asked for, by the environment: `cargo x faults` sets it.

use std::env;

/// Rounds of a run.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) seed: u64,
    pub(crate) first: u64,
    pub(crate) rounds: u64,
    /// Kinds whose names begin so; empty: all.
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
}
