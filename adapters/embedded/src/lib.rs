//! The whole system's storage in one folder.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod log;
pub mod store;
