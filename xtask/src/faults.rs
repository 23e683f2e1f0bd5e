//! Rounds of injected faults, as many as one likes, on a cluster and on one machine.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use onlooker_testkit::install;

use crate::commands::FEATURES;

/// Injects faults at random moments under load; after each round every acknowledged view has one outcome, and every
/// number and sketch is what the log gives. The same seed makes the same schedule
#[derive(Debug, Args)]
pub(crate) struct Faults {
    /// Decides which faults come when
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Rounds on each, of one to five faults
    #[arg(long, default_value_t = 50)]
    rounds: u64,
    /// The first round: with --rounds 1 one that failed is run again
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Only kinds whose names begin with one of these, such as Kill or Broker,Flip
    #[arg(long, default_value = "")]
    only: String,
    /// Only on real Kafka, Redis and Cassandra
    #[arg(long, conflicts_with = "embedded")]
    cluster: bool,
    /// Only on one process over one folder
    #[arg(long)]
    embedded: bool,
}

/// What the tests print at their end.
const MARK: &str = "faults: ";

pub(crate) fn run(faults: &Faults) -> Result<()> {
    install::for_builds()?;
    install::for_servers()?;
    let mut found = Vec::new();
    for (name, left_out) in [("folder::", faults.cluster), ("cluster::", faults.embedded)] {
        if !left_out {
            found.extend(rounds(faults, name)?);
        }
    }
    println!(
        "\n| on | kind | injected | rounds | views acknowledged | violations |\n|---|---|---:|---:|---:|---:|"
    );
    for line in found {
        table(&line)?;
    }
    Ok(())
}

fn rounds(faults: &Faults, test: &str) -> Result<Vec<String>> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--package", "onlooker", "--features", FEATURES, "--test", "faults", "--", test]);
    command.args(["--nocapture"]);
    command.env("ONLOOKER_FAULTS_SEED", faults.seed.to_string());
    command.env("ONLOOKER_FAULTS_ROUNDS", faults.rounds.to_string());
    command.env("ONLOOKER_FAULTS_FIRST", faults.first.to_string());
    command.env("ONLOOKER_FAULTS_ONLY", &faults.only);
    let mut running = command.stdout(Stdio::piped()).spawn().context("cargo cannot be run")?;
    let mut found = Vec::new();
    for line in BufReader::new(running.stdout.take().context("no output")?).lines() {
        let line = line?;
        println!("{line}");
        found.extend(line.split_once(MARK).map(|(_, rest)| rest.to_owned()));
    }
    let status = running.wait()?;
    if !status.success() {
        bail!("a round failed; its timeline and the command that runs it again stand above");
    }
    Ok(found)
}

/// `place=… rounds=… faults=… views=… Kind=N …` as rows. A round with a violation does not get here.
fn table(line: &str) -> Result<()> {
    let (place, rest) =
        line.strip_prefix("place=").and_then(|l| l.split_once(" rounds=")).context("no place")?;
    let mut words = rest.split(' ');
    let rounds = words.next().context("no rounds")?;
    let mut value = |name: &str| {
        let word = words.next().and_then(|word| word.strip_prefix(name)?.strip_prefix('='));
        word.map(str::to_owned).with_context(|| format!("no {name}"))
    };
    let (faults, views) = (value("faults")?, value("views")?);
    for (kind, n) in words.filter_map(|word| word.split_once('=')) {
        println!("| {place} | {kind} | {n} | | | 0 |");
    }
    println!("| {place} | all | {faults} | {rounds} | {views} | 0 |");
    Ok(())
}
