//! The executable: chooses what to run.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod carry;
mod cli;
mod clock;
mod config;
mod get;
mod http;
mod import;
mod ops;
#[cfg(feature = "otel")]
mod otel;
mod process;
#[cfg(feature = "cluster")]
mod roles;
mod run;
mod size;
mod target;
mod wiring;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
