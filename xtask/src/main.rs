#![doc = include_str!("../README.md")]

mod beacon;
mod commands;
mod demo;
mod faults;
mod floorplan;
mod mutations;
mod services;
mod simulate;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::services::compose::Compose;
use crate::services::daemon::Services;

/// The one door for developers; CI walks through it too.
#[derive(Debug, Parser)]
#[command(name = "cargo x", bin_name = "cargo x")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything but the tests: lint, floorplan, and whether compose/ and docs/metrics.md are up to date
    Check,
    /// Formatting and clippy, warnings denied
    Lint,
    /// Installs what the tests need and runs them
    Test(commands::Test),
    /// Real servers on loopback: Kafka, Cassandra and two Redis
    #[command(subcommand)]
    Services(Services),
    /// The same servers as a Compose file
    Compose(Compose),
    /// Writes docs/metrics.md from the program's own help texts
    Metrics(Metrics),
    /// Which crate may import which
    Floorplan,
    /// The whole system on this machine with a real access log in it: servers, rooms, counts
    Demo(demo::Demo),
    /// Many short histories of the protocols' own state machines, with everything going wrong
    Simulate(simulate::Simulate),
    /// Leaves out the protocols' conditions one by one, and expects that something notices
    Mutations(mutations::Mutations),
    /// Rounds of injected faults, on real servers and on one machine
    Faults(faults::Faults),
    /// The pages' script, tried in a browser against the program
    Beacon(beacon::Beacon),
    /// Runs a benchmark by its name
    Bench(commands::Bench),
}

#[derive(Debug, Args)]
struct Metrics {
    /// Fails when docs/metrics.md is not what would be written
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Check => commands::check(),
        Command::Lint => commands::lint(),
        Command::Test(test) => commands::test(&test),
        Command::Services(services) => services::daemon::run(&services),
        Command::Compose(compose) => services::compose::run(&compose),
        Command::Metrics(metrics) => commands::metrics(!metrics.check),
        Command::Floorplan => floorplan::check(),
        Command::Demo(demo) => demo::run(&demo),
        Command::Simulate(simulate) => simulate::run(&simulate),
        Command::Mutations(mutations) => mutations::run(&mutations),
        Command::Faults(faults) => faults::run(&faults),
        Command::Beacon(beacon) => beacon::run(&beacon),
        Command::Bench(bench) => commands::bench(&bench),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
