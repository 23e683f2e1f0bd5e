//! `cargo x mutations`: leaves out the protocols' conditions one by one, and expects that something notices.

mod copy;
mod patches;

use std::thread;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::simulate::Protocol;
use crate::simulate::answer::Caught;
use crate::simulate::program::{self, Program, Request};
use crate::simulate::table::{number, table};

#[derive(Debug, Args)]
pub(crate) struct Mutations {
    /// Histories that each simulated one is tried on, at most
    #[arg(long, default_value_t = 300_000)]
    histories: u64,
    /// Those that are switches of a simulation, not patches of the sources
    #[arg(long, conflicts_with = "patches")]
    simulated: bool,
    /// Those that are patches of the sources, run by the crates' own tests
    #[arg(long)]
    patches: bool,
    /// Only those whose name contains this
    #[arg(long, requires = "patches")]
    name: Option<String>,
}

pub(crate) fn run(mutations: &Mutations) -> Result<()> {
    let mut unnoticed = Vec::new();
    if !mutations.patches {
        unnoticed.extend(simulated(mutations.histories)?);
    }
    if !mutations.simulated {
        unnoticed.extend(patched(mutations.name.as_deref().unwrap_or(""))?);
    }
    if !unnoticed.is_empty() {
        bail!("nobody noticed: {}", unnoticed.join(", "));
    }
    Ok(())
}

/// Both protocols at once. Returns those that nobody noticed.
fn simulated(histories: u64) -> Result<Vec<String>> {
    let programs = program::build(&[Protocol::Filter, Protocol::Counter])?;
    let ask = |program: &Program| {
        let request = Request { seed: 0, histories, mutation: Some("all"), timeline: false };
        Caught::read(&program.ask(&request)?)
    };
    let answers: Vec<Result<Vec<Caught>>> = thread::scope(|scope| {
        let asked: Vec<_> = programs.iter().map(|program| scope.spawn(|| ask(program))).collect();
        asked.into_iter().map(|asked| asked.join().ok().context("a worker panicked")?).collect()
    });
    let mut unnoticed = Vec::new();
    for (program, all) in programs.iter().zip(answers) {
        let name = program.protocol.name();
        let rows: Vec<Vec<String>> = all?
            .into_iter()
            .map(|caught| {
                let seen = match &caught.by {
                    Some((_, why)) => short(why),
                    None => "NOTHING".to_owned(),
                };
                if caught.by.is_none() {
                    unnoticed.push(caught.name.clone());
                }
                vec![caught.name, caught.removed, caught.then, number(caught.histories), seen]
            })
            .collect();
        println!(
            "{}",
            table(&[&format!("{name}: mutation"), "removed", "then", "histories", "what was seen"], &rows)
        );
    }
    Ok(unnoticed)
}

/// What a table has room for.
fn short(why: &str) -> String {
    const MOST: usize = 70;
    let text = why.replace('|', "/");
    if text.chars().count() <= MOST {
        text
    } else {
        format!("{}…", text.chars().take(MOST).collect::<String>())
    }
}

/// Patches of a copy of the sources. Returns those that nobody noticed.
fn patched(name: &str) -> Result<Vec<String>> {
    let chosen: Vec<&patches::Patch> =
        patches::ALL.iter().filter(|patch| patch.name.contains(name)).collect();
    let copy = copy::Copy::make()?;
    let mut suites: Vec<patches::Suite> = chosen.iter().map(|patch| patch.suite).collect();
    suites.sort_unstable();
    suites.dedup();
    for suite in suites {
        // Else a test that fails for another reason would be taken for one that noticed.
        if let Some(failed) = copy.run(suite)? {
            bail!("{suite:?} fails without a patch, at {failed}");
        }
    }
    let (mut rows, mut unnoticed) = (Vec::new(), Vec::new());
    for patch in chosen {
        let seen = copy.with(patch, || copy.run(patch.suite))?;
        eprintln!("{}: {}", patch.name, seen.as_deref().unwrap_or("nobody noticed"));
        if seen.is_none() {
            unnoticed.push(patch.name.to_owned());
        }
        let file = patch.file.rsplit('/').next().unwrap_or(patch.file);
        let seen = seen.unwrap_or_else(|| "NOTHING".to_owned());
        rows.push([patch.name, file, patch.removed, patch.then, &seen].map(str::to_owned).to_vec());
    }
    println!("{}", table(&["patch", "file", "removed", "then", "test that fails"], &rows));
    Ok(unnoticed)
}
