//! The benchmarks, a file each.

pub(crate) mod chain;
pub(crate) mod collector;
pub(crate) mod counter_redis;
pub(crate) mod drain;
pub(crate) mod embedded;
pub(crate) mod filter_redis;
pub(crate) mod load;

use crate::stats::number;
use anyhow::Result;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What all benchmarks are told.
#[derive(Debug)]
pub(crate) struct Options {
    /// Whether the benchmark itself is tested, and not what it measures.
    pub(crate) quick: bool,
    /// How often everything is measured, where the caller says it.
    pub(crate) rounds: Option<usize>,
    /// Our executable.
    pub(crate) executable: PathBuf,
}

impl Options {
    /// As many rounds as were asked for; else one that is quick, or as many as the benchmark's time allows.
    pub(crate) fn rounds(&self, usual: usize) -> usize {
        self.rounds.unwrap_or(if self.quick { 1 } else { usual })
    }

    /// The full count, or a small one.
    pub(crate) fn count(&self, full: u64, quick: u64) -> u64 {
        if self.quick { quick } else { full }
    }
}

/// One after the other.
pub(crate) fn all(options: &Options) -> Result<()> {
    embedded::run(options, &embedded::Args::default())?;
    collector::run(options)?;
    filter_redis::run(options)?;
    counter_redis::run(options)?;
    chain::run(options, &chain::Args::default())?;
    load::run(options, &load::Args::default())
}

/// CPU time in microseconds for each of `count`.
pub(crate) fn us_each(cpu: Duration, count: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / count as f64
}

/// Bytes as MiB.
pub(crate) fn mib(bytes: f64) -> String {
    number(bytes / f64::from(1 << 20))
}

/// The present, in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
