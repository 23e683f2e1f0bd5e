//! The command line.

use crate::config::{Config, Layers, masked};
#[cfg(feature = "cluster")]
use crate::roles::{self, Role};
#[cfg(feature = "cluster")]
use crate::wiring::cluster;
use crate::{carry, get, import, ops, run, size};
use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Counts who is looking: how many different people saw an item, and how many views exactly.
#[derive(Debug, Parser)]
#[command(name = "onlooker", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    configuration: Configuration,
    #[command(subcommand)]
    command: Command,
}

/// Where the configuration comes from: defaults, then the file, then the environment
/// (ONLOOKER_SECTION__KEY=value), then --set.
#[derive(Debug, Args)]
struct Configuration {
    /// The configuration file (TOML)
    #[arg(long, short, global = true, env = "ONLOOKER_CONFIG")]
    config: Option<PathBuf>,
    /// Sets one key, e.g. --set collector.listen=0.0.0.0:8080; may be repeated
    #[arg(long = "set", global = true, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    #[cfg(feature = "cluster")]
    /// Takes views in over HTTP and appends them to the log
    Collector,
    #[cfg(feature = "cluster")]
    /// Judges every view once
    Filter,
    #[cfg(feature = "cluster")]
    /// Adds counted views to sketches and numbers
    Counter,
    #[cfg(feature = "cluster")]
    /// Copies what changed into the archive
    Flusher,
    #[cfg(feature = "cluster")]
    /// Serves counts over HTTP
    CountsApi,
    #[command(args_conflicts_with_subcommands = true)]
    Topics {
        #[command(flatten)]
        view: ops::TopicsViewArgs,
        #[cfg(feature = "cluster")]
        #[command(subcommand)]
        command: Option<cluster::TopicsCommand>,
    },
    Status(ops::StatusArgs),
    Check(ops::CheckArgs),
    Lag(ops::LagArgs),
    Tail(ops::TailArgs),
    Inspect(ops::InspectArgs),
    Explain(ops::ExplainArgs),
    Dead(ops::DeadArgs),
    Ledger(ops::LedgerArgs),
    Verify(ops::VerifyArgs),
    Replay(ops::ReplayArgs),
    Rebuild(ops::RebuildArgs),
    Recount(ops::RecountArgs),
    Diff(ops::DiffArgs),
    #[cfg(feature = "cluster")]
    Schema(cluster::SchemaArgs),
    /// Shows or checks the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    Import(import::ImportArgs),
    Get(get::GetArgs),
    Size(size::SizeArgs),
    Export(carry::ExportArgs),
    Restore(carry::RestoreArgs),
    #[cfg(feature = "cluster")]
    Promote(carry::PromoteArgs),
    #[cfg(not(feature = "cluster"))]
    /// Moves a single machine to a cluster (this program was built without `--features cluster`)
    Promote {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        _args: Vec<String>,
    },
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum ConfigCommand {
    /// Prints what differs from the defaults, after all layers; secrets are masked
    Print,
    /// Reports every fault at once; contacts no server
    Check,
    /// Prints every key that has a default, with its default
    Defaults,
}

/// Parses the arguments and runs the command. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done and something wants
/// attention.
pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    let env: Vec<(String, String)> = std::env::vars().collect();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    let result = runtime.block_on(dispatch(cli, &env));
    // A client that still waits for a server must not hold the end up.
    runtime.shutdown_background();
    match result {
        Ok(code) => code,
        // As a program ends that a signal tells of it: whoever read has seen enough (`| head`).
        Err(error) if is_reader_gone(&error) => ExitCode::from(128 + 13),
        Err(error) => fail(&error),
    }
}

/// True if nobody reads standard output any more.
fn is_reader_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<ReaderGone>().is_some()
}

/// Nobody reads standard output any more.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads standard output any more")]
struct ReaderGone;

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("onlooker: {error:#}");
    ExitCode::FAILURE
}

async fn dispatch(cli: Cli, env: &[(String, String)]) -> Result<ExitCode> {
    let from = &cli.configuration;
    let done = |()| ExitCode::SUCCESS;
    match cli.command {
        Command::Run(args) => run::run(args, load_alone(from, env)?).await.map(done),
        Command::Import(args) => import::run(args, load_alone(from, env)?, env).await.map(done),
        Command::Size(args) => size::run(&args).map(done),
        Command::Get(args) => get::run(args, load_alone(from, env)?).await.map(done),
        Command::Lag(args) => ops::lag(args, || told(from, env)).await,
        Command::Tail(args) => ops::tail(args, told(from, env)?).await,
        Command::Inspect(args) => ops::inspect(args, told(from, env)?).await,
        Command::Explain(args) => ops::explain(args, told(from, env)?).await,
        Command::Dead(args) => ops::dead(args, told(from, env)?).await,
        Command::Ledger(args) => ops::ledger(args, told(from, env)?).await,
        Command::Status(args) => ops::status(args, told(from, env)?).await,
        Command::Check(args) => ops::check(args, told(from, env)?).await,
        Command::Verify(args) => ops::verify(args, told(from, env)?).await,
        Command::Replay(args) => ops::replay(args, told(from, env)?).await,
        Command::Rebuild(args) => ops::rebuild(args, told(from, env)?).await,
        Command::Recount(args) => ops::recount(args, told(from, env)?).await,
        Command::Diff(args) => ops::diff(args, told(from, env)?).await,
        #[cfg(feature = "cluster")]
        Command::Topics { command: Some(command), .. } => {
            cluster::topics(command, &load(from, env)?).await.map(done)
        }
        Command::Topics { view, .. } => ops::topics(view, told(from, env)?).await,
        Command::Export(args) => carry::export(args, load_alone(from, env)?).await.map(done),
        Command::Restore(args) => carry::restore(args, load_alone(from, env)?).await.map(done),
        #[cfg(feature = "cluster")]
        Command::Promote(args) => carry::promote(args, load_alone(from, env)?, env).await.map(done),
        #[cfg(not(feature = "cluster"))]
        Command::Promote { .. } => anyhow::bail!(
            "this program was built without `--features cluster`; promote with one that was, over the same folder"
        ),
        Command::Config { command } => show(command, from, env).map(done),
        #[cfg(feature = "cluster")]
        Command::Schema(args) => cluster::schema(args, &load(from, env)?).await.map(done),
        #[cfg(feature = "cluster")]
        Command::Collector => roles::run(Role::Collector, load(from, env)?).await.map(done),
        #[cfg(feature = "cluster")]
        Command::Filter => roles::run(Role::Filter, load(from, env)?).await.map(done),
        #[cfg(feature = "cluster")]
        Command::Counter => roles::run(Role::Counter, load(from, env)?).await.map(done),
        #[cfg(feature = "cluster")]
        Command::Flusher => roles::run(Role::Flusher, load(from, env)?).await.map(done),
        #[cfg(feature = "cluster")]
        Command::CountsApi => roles::run(Role::CountsApi, load(from, env)?).await.map(done),
    }
}

fn layers(from: &Configuration, env: &[(String, String)]) -> Result<Layers> {
    Ok(Layers::load(from.config.as_deref(), env, &from.set)?)
}

#[cfg(feature = "cluster")]
fn load(from: &Configuration, env: &[(String, String)]) -> Result<Config> {
    Ok(Config::read(&layers(from, env)?)?)
}

/// For a process that is everything at once.
fn load_alone(from: &Configuration, env: &[(String, String)]) -> Result<Config> {
    let below = run::DEFAULTS.parse::<toml::Table>()?;
    Ok(Config::read(&layers(from, env)?.over(&below))?)
}

/// For who looks at a system of either kind.
fn told(from: &Configuration, env: &[(String, String)]) -> Result<ops::Told> {
    let layers = layers(from, env)?;
    #[cfg(feature = "cluster")]
    let names_cluster = layers.tree.contains_key("log");
    let below = run::DEFAULTS.parse::<toml::Table>()?;
    Ok(ops::Told {
        config: Config::read(&layers.over(&below))?,
        #[cfg(feature = "cluster")]
        names_cluster,
    })
}

fn show(command: ConfigCommand, from: &Configuration, env: &[(String, String)]) -> Result<()> {
    if matches!(command, ConfigCommand::Defaults) {
        return say(&toml::to_string_pretty(&Config::read(&Layers::default())?)?);
    }
    let layers = layers(from, env)?;
    match command {
        ConfigCommand::Print => say(&toml::to_string_pretty(&masked(&layers.tree))?)?,
        ConfigCommand::Check | ConfigCommand::Defaults => {}
    }
    Config::read(&layers)?;
    if matches!(command, ConfigCommand::Check) {
        say("the configuration is well formed\n")?;
    }
    Ok(())
}

/// Writes to standard output. Whoever reads there may have gone (`| head`) or have a full disk: an error, and no panic.
pub(crate) fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        written => written.context("writing to standard output"),
    }
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
