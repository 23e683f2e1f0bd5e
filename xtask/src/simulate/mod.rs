//! `cargo x simulate`: many short histories of the protocols' own state machines.

pub(crate) mod answer;
pub(crate) mod program;
pub(crate) mod table;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use answer::Answer;
use program::{Program, Request};

/// Programs that run at once, at most.
pub(crate) const AT_ONCE: usize = 2;
/// Histories that a program is asked for at once, at most: after each such part there is something to tell.
const PART: u64 = 50_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// Each view is judged once.
    Filter,
    /// Counter and flusher: each counted view is in each count.
    Counter,
}

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Counter => "counter",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Simulate {
    /// How many of each protocol
    #[arg(long, default_value_t = 20_000)]
    histories: u64,
    /// The first one's seed; each of the others has the next
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Of one protocol alone
    #[arg(long)]
    only: Option<Protocol>,
    /// Without this condition of the protocol; `cargo x mutations` names them
    #[arg(long, requires = "only")]
    mutation: Option<String>,
    /// Tells the first history from beginning to end
    #[arg(long, requires = "only")]
    timeline: bool,
}

/// A part of the work, and which protocol it is of.
type Part<'a> = (usize, &'a Program, Range<u64>);

pub(crate) fn run(simulate: &Simulate) -> Result<()> {
    let protocols = simulate.only.map_or_else(|| vec![Protocol::Filter, Protocol::Counter], |one| vec![one]);
    let programs = program::build(&protocols)?;
    if simulate.timeline {
        return tell(&programs[0], simulate);
    }
    let end = simulate.seed.checked_add(simulate.histories).context("no seed is that high")?;
    let size = simulate.histories.div_ceil(AT_ONCE as u64).clamp(1, PART);
    let mut parts = VecDeque::new();
    let mut from = simulate.seed;
    while from < end {
        let to = (from + size).min(end);
        parts.extend(programs.iter().enumerate().map(|(at, program)| (at, program, from..to)));
        from = to;
    }
    let began = Instant::now();
    let answers = work(parts, protocols.len(), simulate.mutation.as_deref())?;
    let named: Vec<(&str, &Answer)> = protocols.iter().map(|p| p.name()).zip(&answers).collect();
    println!("{}", table::of_answers(&named));
    println!("{:.0} s, {AT_ONCE} programs at once", began.elapsed().as_secs_f64());
    let mut violations = 0;
    for (name, answer) in &named {
        violations += answer.violations;
        let Some(seed) = answer.seed else { continue };
        println!("\n{}: {}\n", name, answer.told.join("\n"));
        let mutation = simulate.mutation.as_ref().map(|m| format!(" --mutation {m}")).unwrap_or_default();
        println!("again: cargo x simulate --only {name} --seed {seed} --histories 1{mutation}");
        println!("told in full: cargo x simulate --only {name} --seed {seed}{mutation} --timeline");
    }
    if violations > 0 {
        bail!("{violations} histories went wrong");
    }
    Ok(())
}

/// Parts are taken by whoever is free; what a protocol's parts come to is added up.
fn work(parts: VecDeque<Part<'_>>, protocols: usize, mutation: Option<&str>) -> Result<Vec<Answer>> {
    let sums = Mutex::new(vec![Answer::default(); protocols]);
    let parts = Mutex::new(parts);
    let worker = || -> Result<()> {
        loop {
            let next = parts.lock().ok().and_then(|mut parts| parts.pop_front());
            let Some((at, program, seeds)) = next else { return Ok(()) };
            let many = seeds.end - seeds.start;
            let text =
                program.ask(&Request { seed: seeds.start, histories: many, mutation, timeline: false })?;
            let answer = Answer::read(&text)?;
            eprintln!(
                "{} {}..{}: {} went wrong",
                program.protocol.name(),
                seeds.start,
                seeds.end,
                answer.violations
            );
            if let Ok(mut sums) = sums.lock() {
                sums[at].add(answer);
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(done) => done,
            Err(_) => bail!("a worker panicked"),
        })
    })?;
    sums.into_inner().ok().context("a worker panicked")
}

fn tell(program: &Program, simulate: &Simulate) -> Result<()> {
    let mutation = simulate.mutation.as_deref();
    let request = Request { seed: simulate.seed, histories: 1, mutation, timeline: true };
    let answer = Answer::read(&program.ask(&request)?)?;
    if answer.violations > 0 {
        bail!("the history went wrong");
    }
    Ok(())
}
