#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod config;
mod error;
mod health;
mod metrics;
mod native;
mod settings;
mod writer;

pub use config::{
    Compression, ConfigError, GroupNames, KafkaConfig, Mechanism, SaslConfig, TlsConfig, TopicNames,
};
pub use writer::KafkaWriter;
