//! One process with one folder: what a view costs it, from the log to sketches and from a request to the disk, how soon
//! it is back after a stop, and how much memory it takes.

mod drain;
mod ingest;
mod restart;

use super::Options;
use crate::roles::Role;
use crate::workload::{Look, Shape, Workload, view};
use anyhow::{Context, Result, ensure};
use onlooker_embedded::log::{Durability, EmbeddedLog, LogConfig};
use onlooker_embedded::store::Folder;
use onlooker_ports::{LogWriter, OutgoingBatch, Topic};
use std::path::Path;

/// Partitions of the log: the program's default.
const PARTITIONS: u32 = 2;

/// Arguments of the benchmark.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Args {
    /// One part of it; all if not said
    #[arg(value_enum)]
    part: Option<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Views from the log to sketches
    Drain,
    /// Views from requests to the disk
    Ingest,
    /// A folder with ten million views: how soon it is back, and what it takes
    Restart,
}

/// Runs the benchmarks and prints their tables.
pub(crate) fn run(options: &Options, args: &Args) -> Result<()> {
    let wanted = |part| args.part.is_none_or(|only| only == part);
    if wanted(Part::Drain) {
        drain::run(options)?;
    }
    if wanted(Part::Ingest) {
        ingest::run(options)?;
    }
    if wanted(Part::Restart) {
        restart::run(options)?;
    }
    Ok(())
}

/// Views that end about now.
fn looks(views: u64, seed: u64) -> Workload {
    let shape = Shape::default();
    let start = super::now_ms() - views.cast_signed() * 1000 / i64::from(shape.per_second);
    Workload::new(shape, seed, start)
}

/// Appends views to the log of a folder that no process has open.
fn fill(folder: &Path, looks: impl Iterator<Item = Look>) -> Result<()> {
    const AT_ONCE: usize = 5_000;
    let folder = Folder::open(folder)?;
    // Nothing is measured here, and nobody pulls the plug.
    let config = LogConfig { durability: Durability::Process, ..LogConfig::default() };
    let (log, _) = EmbeddedLog::open(&folder.log()?, PARTITIONS, config)?;
    let writer = log.writer();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut batch = OutgoingBatch::default();
        let mut looks = (0..).zip(looks).peekable();
        while let Some((number, look)) = looks.next() {
            let view = view(look, number)?;
            batch.push_with(Topic::Views, &view.viewer.0, |out| onlooker_proto::encode_view(&view, out));
            if batch.len() == AT_ONCE || looks.peek().is_none() {
                writer.append(std::mem::take(&mut batch)).await?;
            }
        }
        log.close().await;
        anyhow::Ok(())
    })
}

/// `onlooker run` on a folder.
fn launch(options: &Options, folder: &Path, settings: &str) -> Result<Role> {
    let settings = format!(
        "[logging]\nlevel = \"warn\"\n[sites.{}]\nsessions = true\n{settings}",
        crate::workload::SITE
    );
    Role::solo(&options.executable, folder, &settings)
}

/// Views that the process has counted, of all partitions together.
fn counted(role: &Role) -> Result<u64> {
    let records = role.metric("onlooker_counter_records_total")?;
    ensure!(records >= 0.0, "a counter below 0");
    Ok(records as u64)
}

/// A process's resident set, in bytes.
fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}
