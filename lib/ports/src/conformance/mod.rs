//! One suite per port, run on every implementation.

pub mod archive;
pub mod counts;
pub mod dedup;
pub mod log;
