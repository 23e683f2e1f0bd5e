//! The whole system's storage in one folder.

pub mod log;
pub mod store;
