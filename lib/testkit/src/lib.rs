#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cassandra;
mod cassandra_config;
pub mod certificates;
mod folder;
pub mod install;
pub mod java;
pub mod kafka;
mod kafka_config;
pub mod kafka_tools;
mod managed;
pub mod ports;
pub mod process;
pub mod prometheus;
pub mod redis;
mod redis_cluster;
pub mod shared;
mod tolerance;
mod wait;
mod wall_clock;

pub use managed::Managed;
pub use tolerance::sketch_tolerance;
pub use wait::{wait_for, wait_until, wait_until_async};
pub use wall_clock::WallClock;

/// Whether the slow suites were asked for too, by `ONLOOKER_FULL=1`; a slow test returns at once when not.
pub fn full() -> bool {
    std::env::var_os("ONLOOKER_FULL").is_some_and(|value| value == "1")
}
