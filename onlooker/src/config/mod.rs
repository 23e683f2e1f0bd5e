//! Strict, layered configuration: defaults, one TOML file, the environment, flags. Later wins.
//!
//! An unknown key is an error, and all faults are reported at once. The environment is an argument, so that tests and
//! `config print` see exactly what a process would.

#[cfg(feature = "cluster")]
mod cluster;
mod layers;
mod model;
mod read;
#[cfg(all(test, feature = "cluster"))]
mod reference;

pub(crate) use layers::{Layers, masked};
pub(crate) use model::{Config, SiteSettings};
