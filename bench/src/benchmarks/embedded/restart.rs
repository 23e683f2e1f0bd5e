//! How soon a folder with many views is back, and how much memory the process takes.

use super::{counted, fill, launch, looks, resident};
use crate::benchmarks::{Options, mib};
use crate::http::{Connection, get};
use crate::model::Model;
use crate::roles::Role;
use crate::stats::number;
use crate::table::Table;
use crate::workload::item_name;
use anyhow::{Result, ensure};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Fills, counts, stops, starts again: after a stop in good order and after `kill -9`.
pub(super) fn run(options: &Options) -> Result<()> {
    let views = options.count(10_000_000, 20_000);
    let folder = tempfile::tempdir()?;
    let dir = folder.path().join("data");
    let empty = launch(options, &dir, "")?.wait_ready()?;
    sleep(Duration::from_secs(1));
    let idle_bytes = resident(empty.watched().pid)?;
    let before = crate::meter::cpu(empty.watched().pid)?;
    let window = Duration::from_secs(if options.quick { 1 } else { 10 });
    sleep(window);
    let idle_cpu = crate::meter::cpu(empty.watched().pid)?.saturating_sub(before);
    empty.stop()?;

    fill(&dir, looks(views, 3).take(views as usize))?;
    let model = Model::of(looks(views, 3).take(views as usize));
    let role = launch(options, &dir, "")?;
    while counted(&role).unwrap_or(0) < model.counted() {
        sleep(Duration::from_millis(20));
    }
    let full_bytes = resident(role.watched().pid)?;
    let (item, expected) = model.items().max_by_key(|(_, n)| *n).unwrap_or_default();
    ensure!(shows(&role, item)? == Some(expected), "the first item's number is not {expected}");
    role.stop()?;

    let mut table = Table::new(["", "until ready, s", "until the first item's count is right, s"]);
    let (ready, right) = again(options, &dir, item, expected, false)?;
    table.row(["after a stop".to_owned(), number(ready), number(right)]);
    let (ready, right) = again(options, &dir, item, expected, true)?;
    table.row(["after kill -9".to_owned(), number(ready), number(right)]);
    println!("### Embedded: a folder with {} views\n", number(views as f64));
    println!("{table}");
    println!(
        "resident: {} MiB idle and empty, {} MiB with {} items and all claims\n\
         idle: {:.2} % of one core over {} s\n",
        mib(idle_bytes as f64),
        mib(full_bytes as f64),
        model.items().count(),
        100.0 * idle_cpu.as_secs_f64() / window.as_secs_f64(),
        window.as_secs(),
    );
    Ok(())
}

/// Starts; with `kill`, kills it once it is ready and starts once more, and that start is measured.
fn again(options: &Options, dir: &Path, item: u32, expected: u64, kill: bool) -> Result<(f64, f64)> {
    if kill {
        launch(options, dir, "")?.wait_ready()?.kill()?;
    }
    let begun = Instant::now();
    let role = launch(options, dir, "")?.wait_ready()?;
    let ready = begun.elapsed().as_secs_f64();
    while shows(&role, item)? != Some(expected) {
        sleep(Duration::from_millis(5));
    }
    let right = begun.elapsed().as_secs_f64();
    role.stop()?;
    Ok((ready, right))
}

/// The number of views that is told for an item; none while it is not known.
fn shows(role: &Role, item: u32) -> Result<Option<u64>> {
    let mut connection = Connection::open(role.listen()?, Duration::from_secs(10))?;
    let answer = connection.send(&get(&format!("/v1/counts?item={}", item_name(item))))?;
    let answer: serde_json::Value = serde_json::from_slice(&answer.body)?;
    Ok(answer["counts"][0]["views"].as_u64().filter(|_| answer["counts"][0]["status"] == "ok"))
}
