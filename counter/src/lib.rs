#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod config;
mod desk;
mod group;
mod heart;
#[cfg(test)]
mod heart_tests;
mod inbox;
mod index;
mod known;
mod metrics;
mod plan;
mod room;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod testing;
mod words;
mod worker;

pub use config::{CounterConfig, LostRecords};
pub use metrics::described_metrics;
pub use room::{CounterError, CounterPorts, run};
