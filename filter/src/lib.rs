#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod config;
#[cfg(test)]
mod fake;
pub mod heart;
mod metrics;
mod outside;
mod reading;
mod rebuild;
mod report;
mod room;
#[cfg(test)]
mod room_tests;
mod rules;
mod watch;

pub use config::{FilterConfig, SiteRules, Sites};
pub use metrics::described_metrics;
pub use room::{FilterError, FilterPorts, run};
pub use rules::RULE_SET_VERSION;
