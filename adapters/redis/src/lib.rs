#![doc = include_str!("../README.md")]

mod check;
mod client;
mod config;
mod counts;
mod dedup;
mod error;
mod facts;
mod keys;
mod layout;
mod metrics;
mod pack;
mod reader;
mod reply;
mod script;

pub use check::Warnings;
pub use client::{Client, Role};
pub use config::{ConfigError, RedisConfig, TlsConfig};
pub use counts::RedisCounters;
pub use dedup::RedisDedup;
pub use facts::{Facts, ServerFacts};
pub use keys::Layout;
pub use metrics::described_metrics;
pub use reader::RedisReader;
