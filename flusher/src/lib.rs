#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod config;
mod metrics;
mod room;
pub mod round;
mod turn;

pub use config::FlusherConfig;
pub use metrics::described_metrics;
pub use room::{FlusherError, FlusherPorts, run};
