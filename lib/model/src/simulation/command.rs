//! What `cargo x simulate` and `cargo x mutations` ask of a test program, by its environment, and how it answers.

use super::{Caught, Mutation, Protocol, Report, catch, histories, told};
use std::fmt::Write as _;
use std::{env, fs};

/// Whether a test was asked for something else than its usual few histories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// No.
    Nothing,
    /// Yes, and it was done.
    Done,
}

/// Does what the environment asks for, if anything:
///
/// | variable | |
/// |---|---|
/// | `SIMULATE` | a file for the answer |
/// | `SIMULATE_SEED`, `SIMULATE_HISTORIES` | the first seed, and how many (one) |
/// | `SIMULATE_MUTATION` | the condition that is left out; `all`: each in turn, until it is noticed |
/// | `SIMULATE_TIMELINE` | one history is told |
///
/// # Panics
/// When it was asked wrongly, or the answer cannot be written.
pub fn asked<P: Protocol>() -> Asked {
    let Ok(file) = env::var("SIMULATE") else { return Asked::Nothing };
    let number = |name: &str| {
        env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
    };
    let (first, many) = (number("SIMULATE_SEED").unwrap_or(0), number("SIMULATE_HISTORIES").unwrap_or(1));
    let mutation = env::var("SIMULATE_MUTATION").ok();
    let answer = match mutation.as_deref() {
        Some("all") => {
            let all =
                P::MUTATIONS.iter().map(|mutation| of_caught(&catch::<P>(mutation, first..first + many)));
            all.collect()
        }
        name => {
            let without = name.map(|name| named::<P>(name).what);
            if env::var_os("SIMULATE_TIMELINE").is_some() {
                let (lines, lived) = told::<P>(first, without);
                lines.iter().for_each(|line| println!("{line}"));
                println!(
                    "{}",
                    lived.map_or_else(|why| format!("went wrong: {why}"), |()| "went well".to_owned())
                );
            }
            of_report(&histories::<P>(first..first + many, without))
        }
    };
    fs::write(&file, answer).unwrap_or_else(|error| panic!("{file}: {error}"));
    Asked::Done
}

fn named<P: Protocol>(name: &str) -> &'static Mutation<P::What> {
    P::MUTATIONS.iter().find(|mutation| mutation.name == name).unwrap_or_else(|| {
        let names: Vec<&str> = P::MUTATIONS.iter().map(|mutation| mutation.name).collect();
        panic!("{name} is no mutation; there are {}", names.join(", "))
    })
}

/// A line for each figure: name, tab, value.
fn of_report(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| _ = writeln!(text, "{name}\t{value}");
    line("histories", &report.histories);
    line("steps", &report.steps);
    line("micros", &report.spent.as_micros());
    line("violations", &report.violations);
    for (kind, n) in report.kinds.iter().zip(&report.faults) {
        line(&format!("fault {kind}"), n);
    }
    if let Some(first) = &report.first {
        line("seed", &first.seed);
        first.to_string().lines().for_each(|told| line("told", &told));
    }
    text
}

/// One line for a mutation.
fn of_caught(caught: &Caught) -> String {
    let Caught { name, removed, then, histories, by, spent } = caught;
    let (seed, why) = by.as_ref().map_or((String::new(), ""), |(seed, why)| (seed.to_string(), why));
    let why = why.lines().next().unwrap_or_default();
    format!("{name}\t{removed}\t{then}\t{histories}\t{}\t{seed}\t{why}\n", spent.as_micros())
}
