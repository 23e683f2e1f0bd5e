//! What is a call of cargo with the right arguments.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail};
use clap::Args;
use onlooker_testkit::install;
use onlooker_testkit::java::workspace;

use crate::{beacon, floorplan, services};

/// What the workspace is checked and tested with: the same for all, so that librdkafka is built once.
pub(crate) const FEATURES: &str = "onlooker/kafka-tls";

/// A machine with many cores would otherwise start as many Cassandras at once.
const MAX_TEST_THREADS: usize = 4;

#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Runs the slow suites too: three Cassandra nodes, many rounds of faults
    #[arg(long)]
    full: bool,
    /// Tests one crate only
    #[arg(short, long)]
    package: Option<String>,
    /// Handed to cargo test, for example a test's name, or `--` and its own flags
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Name of the benchmark, and what it takes
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn check() -> Result<()> {
    lint()?;
    floorplan::check()?;
    services::compose::check()?;
    metrics(false)
}

/// The table of all metrics, which a test of the program compares, and writes when told to.
pub(crate) fn metrics(write: bool) -> Result<()> {
    install::for_builds()?;
    let mut command = Command::new(env!("CARGO"));
    command.args([
        "test",
        "--package",
        "onlooker",
        "--features",
        FEATURES,
        "--bin",
        "onlooker",
        "wiring::metrics",
    ]);
    if write {
        command.env("ONLOOKER_WRITE_DOCS", "1");
    }
    run(command)
}

pub(crate) fn lint() -> Result<()> {
    install::for_builds()?;
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&["clippy", "--workspace", "--all-targets", "--features", FEATURES, "--", "-D", "warnings"])?;
    // What is left out by default, in the crates that know of it.
    let with_spans = format!("{FEATURES},onlooker/otel");
    let program = ["clippy", "--package", "onlooker", "--all-targets", "--features", &with_spans];
    cargo(&[&program[..], &["--", "-D", "warnings"]].concat())
}

pub(crate) fn test(test: &Test) -> Result<()> {
    install::for_builds()?;
    install::for_servers()?;
    let mut command = Command::new(env!("CARGO"));
    command.arg("test").args(selection(test.package.as_deref())).args(&test.rest);
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = available_parallelism().map_or(1, usize::from);
        command.env("RUST_TEST_THREADS", cores.min(MAX_TEST_THREADS).to_string());
    }
    if test.full {
        command.env("ONLOOKER_FULL", "1");
    }
    run(command)?;
    // Where all was tested the program has just been built.
    if test.package.is_none() && test.rest.is_empty() { beacon::test() } else { Ok(()) }
}

/// What cargo is told to test. A feature can be named only where its crate is among the selected.
fn selection(package: Option<&str>) -> Vec<&str> {
    match package {
        None => vec!["--workspace", "--features", FEATURES],
        Some("onlooker") => vec!["--package", "onlooker", "--features", FEATURES],
        Some("onlooker-kafka") => vec!["--package", "onlooker-kafka", "--features", "tls"],
        Some(package) => vec!["--package", package],
    }
}

pub(crate) fn bench(bench: &Bench) -> Result<()> {
    install::for_builds()?;
    install::for_servers()?;
    // Together, so that what is measured is what stands in the tree, and librdkafka is built once.
    let packages = ["--package", "onlooker", "--package", "onlooker-bench"];
    cargo(&[&["build", "--release", "--features", FEATURES], &packages[..]].concat())?;
    let mut command = Command::new(target_folder()?.join("release/onlooker-bench"));
    command.args(&bench.arguments);
    run(command)
}

/// Where cargo puts what it builds, which need not be the workspace's `target`: this program lies in its `debug`.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let program = env::current_exe().context("cannot find this program")?;
    let folder = program.ancestors().nth(2).context("this program lies in no target folder")?;
    Ok(folder.to_owned())
}

pub(crate) fn cargo(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments);
    run(command)
}

pub(crate) fn run(mut command: Command) -> Result<()> {
    let status = command.current_dir(workspace()).status();
    let status = status.with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !status.success() {
        let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        let program = Path::new(command.get_program()).file_name().unwrap_or_default();
        bail!("{} {} ended with {status}", program.display(), arguments.join(" "));
    }
    Ok(())
}
