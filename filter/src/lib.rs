#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod config;
pub mod heart;
mod rules;

pub use rules::RULE_SET_VERSION;
