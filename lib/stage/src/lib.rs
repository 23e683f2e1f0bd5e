#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod admin;
pub mod health;
pub mod http;
pub mod problems;
pub mod retry;
pub mod shutdown;
pub mod spans;
mod supervisor;
pub mod telemetry;

pub use health::{Component, Health};
pub use problems::Problems;
pub use retry::{Backoff, retry_until_shutdown};
pub use shutdown::{Shutdown, ShutdownTrigger, signals};
pub use supervisor::{ExitCause, RoomExit, Supervisor};
