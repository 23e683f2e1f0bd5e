//! The command line.

use crate::benchmarks::{self, Options};
use crate::peers::Peer;
use crate::{machine, roles};
use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Measures ours against a ceiling or a peer, in one run, by CPU time and rate.
#[derive(Debug, Parser)]
#[command(name = "cargo x bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Rounds; ours and the others take turns within each
    #[arg(long, global = true, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Small counts and one round: whether the benchmark itself works. The figures mean nothing
    #[arg(long, global = true)]
    quick: bool,
    /// The executable to measure; by default the one beside this program
    #[arg(long, global = true)]
    onlooker: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Collector against a bare axum 202
    Collector,
    /// Dedup Redis under the filter against SET NX EX in pipelines of 100
    FilterRedis,
    /// Counters Redis under the counter against PFADD in pipelines of 100, and what its readers feel
    CounterRedis,
    /// The whole chain, filter to sketch, against consumers that write to Redis directly
    Chain(benchmarks::chain::Args),
    /// Views and reads at once, by a timetable, with all servers on this machine
    Load(benchmarks::load::Args),
    /// One process with one folder: views from the log to sketches, and from requests to the disk; restart; memory
    Embedded(benchmarks::embedded::Args),
    /// All of the above
    All,
    /// Runs as one of the peers
    #[command(hide = true)]
    Peer {
        #[command(subcommand)]
        peer: Peer,
    },
}

pub(crate) fn run() -> Result<()> {
    let cli = Cli::parse();
    if let Command::Peer { peer } = &cli.command {
        return peer.run();
    }
    let options = Options {
        quick: cli.quick,
        rounds: cli.rounds.map(usize::from),
        executable: roles::executable(cli.onlooker.as_deref())?,
    };
    machine::describe();
    machine::print_yardstick("before the run")?;
    measure(&cli.command, &options)?;
    machine::print_yardstick("after the run")
}

fn measure(command: &Command, options: &Options) -> Result<()> {
    match command {
        Command::Collector => benchmarks::collector::run(options),
        Command::FilterRedis => benchmarks::filter_redis::run(options),
        Command::CounterRedis => benchmarks::counter_redis::run(options),
        Command::Chain(args) => benchmarks::chain::run(options, args),
        Command::Load(args) => benchmarks::load::run(options, args),
        Command::Embedded(args) => benchmarks::embedded::run(options, args),
        Command::All => benchmarks::all(options),
        Command::Peer { peer } => peer.run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
