//! The command line.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Counts who is looking: how many different people saw an item, and how many views exactly.
#[derive(Debug, Parser)]
#[command(name = "onlooker", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Import(crate::import::ImportArgs),
    Get(crate::get::GetArgs),
}

/// Parses the arguments and runs the command. Exit codes: 0 done, 1 failed, 2 wrong usage.
pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    let env: Vec<(String, String)> = std::env::vars().collect();
    let result = async_main(|| async {
        match cli.command {
            Command::Import(args) => crate::import::run(args, &env).await,
            Command::Get(args) => crate::get::run(args).await,
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("onlooker: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn async_main<F: Future<Output = anyhow::Result<()>>>(run: impl FnOnce() -> F) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run())
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
