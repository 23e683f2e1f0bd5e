#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod dense;
mod estimate;
mod format;
mod hash;
mod registers;
mod sketch;
mod sparse;

pub use estimate::{STANDARD_ERROR, bounds, estimate};
pub use format::{Encoding, SketchError, validate};
pub use hash::{hash, place};
pub use registers::Registers;
pub use sketch::Sketch;

/// Registers of a sketch. Redis knows no other number.
pub const REGISTERS: usize = 1 << 14;
