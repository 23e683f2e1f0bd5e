#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod admin;
mod config;
mod error;
mod fetcher;
mod health;
mod history;
mod lifeline;
mod login;
mod metrics;
mod native;
mod observer;
mod reader;
mod settings;
mod transactor;
mod writer;

pub use config::{
    Compression, ConfigError, GroupNames, KafkaConfig, Mechanism, SaslConfig, TlsConfig, TopicNames,
};
pub use history::KafkaHistory;
pub use login::check_login;
pub use metrics::described_metrics;
pub use observer::KafkaObserver;
pub use reader::{KafkaMembership, KafkaReader};
pub use transactor::KafkaTransactor;
pub use writer::KafkaWriter;
