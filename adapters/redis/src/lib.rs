#![doc = include_str!("../README.md")]

mod client;
mod config;
mod error;
mod keys;
mod script;

pub use client::{Client, Role};
pub use config::{ConfigError, RedisConfig, Secret, TlsConfig};
pub use keys::Layout;
