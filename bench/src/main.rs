#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod benchmarks;
mod cli;
mod driver;
mod http;
mod latency;
mod log;
mod machine;
mod meter;
mod model;
mod peers;
mod prober;
mod resp;
mod roles;
mod servers;
mod stats;
mod table;
mod workload;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
