#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod archive;
mod counts;
mod fate;
mod log;
mod port;
pub mod simulation;

pub use archive::{Archive, Timestamp};
pub use counts::{Counts, Rule, Stored, UNCHANGED};
pub use fate::{Fate, Journal};
pub use log::{Assignment, Log, LogReader};
pub use port::{ArchivePort, CountsPort};
