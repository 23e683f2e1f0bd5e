#![doc = include_str!("../README.md")]

mod archive;
mod counts;
mod fate;
mod log;
mod port;

pub use archive::Archive;
pub use counts::{Counts, Rule, Stored, UNCHANGED};
pub use fate::{Fate, Journal};
pub use log::{Assignment, Log, LogReader};
pub use port::{ArchivePort, CountsPort};
