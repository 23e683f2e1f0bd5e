//! How long answers took, in microseconds.

use anyhow::Result;
use hdrhistogram::Histogram;
use std::time::Duration;

/// Longer is recorded as this long: by then the system under test has long failed.
const LONGEST_US: u64 = 300_000_000;

/// A distribution of durations.
#[derive(Debug, Clone)]
pub(crate) struct Latency(Histogram<u64>);

impl Latency {
    /// Empty; right to three significant digits.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Histogram::new_with_bounds(1, LONGEST_US, 3)?))
    }

    /// Adds one answer.
    pub(crate) fn record(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(us.max(1));
    }

    /// Adds another distribution.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<()> {
        Ok(self.0.add(&other.0)?)
    }

    /// How many answers there were.
    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    /// The duration that this share (0 to 1) of the answers did not exceed, in milliseconds.
    pub(crate) fn quantile_ms(&self, share: f64) -> f64 {
        // Microseconds up to 300 s are exact in a double.
        self.0.value_at_quantile(share) as f64 / 1000.0
    }

    /// The longest, in milliseconds.
    pub(crate) fn max_ms(&self) -> f64 {
        self.0.max() as f64 / 1000.0
    }
}
