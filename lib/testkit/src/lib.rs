#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod certificates;
mod folder;
pub mod install;
pub mod java;
pub mod kafka;
mod kafka_config;
mod managed;
pub mod ports;
pub mod process;
pub mod redis;
mod redis_cluster;
mod wait;

pub use managed::Managed;
pub use wait::{wait_for, wait_until, wait_until_async};
