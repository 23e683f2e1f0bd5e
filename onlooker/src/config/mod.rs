//! Strict, layered configuration: defaults, one TOML file, the environment, flags. Later wins.
//!
//! An unknown key is an error, and all faults are reported at once. The environment is an argument, so that tests and
//! `config print` see exactly what a process would.

mod layers;
mod read;

pub(crate) use layers::{Layers, MASK, masked};
pub(crate) use read::{Fault, Faults};
