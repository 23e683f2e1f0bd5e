#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod archive;
mod config;
mod error;
mod rows;
mod schema;
mod session;
mod statements;
mod tls;

pub use archive::{ScanPage, ScyllaArchive};
pub use config::{ConfigError, ScyllaConfig, TlsConfig};
pub use schema::{Drift, SchemaReport, apply, check};
