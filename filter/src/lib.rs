#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod config;
pub mod heart;
mod metrics;
mod outside;
mod rebuild;
mod report;
mod room;
mod rules;
mod watch;

pub use config::{FilterConfig, SiteRules, Sites};
pub use room::{FilterError, FilterPorts, run};
pub use rules::RULE_SET_VERSION;
