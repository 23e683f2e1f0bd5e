//! Filter and counter on a log that is full, against a loop that keeps nothing.

use super::{counted, fill, launch, looks};
use crate::benchmarks::{Options, mib, us_each};
use crate::meter::Meter;
use crate::model::Model;
use crate::stats::{Spread, number};
use crate::table::Table;
use crate::workload::{Look, item_name, viewer_hash};
use anyhow::{Result, ensure};
use onlooker_sketch::Sketch;
use std::collections::{HashMap, HashSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
struct Series {
    cpu: Vec<f64>,
    rate: Vec<f64>,
    peak: Vec<f64>,
}

/// Views from the log to sketches.
pub(super) fn run(options: &Options) -> Result<()> {
    let views = options.count(1_000_000, 20_000);
    let (mut ours, mut loops) = (Series::default(), Series::default());
    for round in 0..options.rounds(5) as u64 {
        let list: Vec<Look> = looks(views, round).take(views as usize).collect();
        let model = Model::of(list.iter().copied());
        let (cpu, n) = reference(&list);
        loops.cpu.push(us_each(cpu, views));
        loops.rate.push(views as f64 / cpu.as_secs_f64());
        ensure!(n > 0, "the loop counted nothing");
        measure(options, &list, model.counted(), &mut ours)?;
    }
    print(views, &ours, &loops);
    Ok(())
}

fn measure(options: &Options, list: &[Look], expected: u64, series: &mut Series) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let dir = folder.path().join("data");
    fill(&dir, list.iter().copied())?;
    let mut meter = Meter::open([])?;
    let mut role = launch(options, &dir, "")?;
    meter.add_newborn(role.watched());
    loop {
        role.check_alive()?;
        // A metric that is not there yet is 0.
        if counted(&role).unwrap_or(0) >= expected {
            break;
        }
        sleep(Duration::from_millis(2));
    }
    let (elapsed, costs) = (meter.elapsed(), meter.read()?);
    ensure!(counted(&role)? == expected, "{} views were counted, and {expected} count", counted(&role)?);
    let views = list.len() as u64;
    series.cpu.push(us_each(costs[0].cpu, views));
    series.rate.push(views as f64 / elapsed.as_secs_f64());
    series.peak.push(costs[0].peak_bytes as f64);
    role.stop()
}

/// What the work is without everything that makes it safe: who saw what in a set, a sketch an item. One scope, no window,
/// no log, no archive.
fn reference(list: &[Look]) -> (Duration, u64) {
    let views: Vec<([u8; 16], String)> =
        list.iter().map(|look| (viewer_hash(look.viewer).0, item_name(look.item))).collect();
    let begun = Instant::now();
    let mut seen: HashSet<([u8; 16], &str)> = HashSet::new();
    let mut sketches: HashMap<&str, (u64, Sketch)> = HashMap::new();
    for (viewer, item) in &views {
        if seen.insert((*viewer, item)) {
            let (n, sketch) = sketches.entry(item).or_insert_with(|| (0, Sketch::new_dense()));
            *n += 1;
            sketch.add(viewer);
        }
    }
    (begun.elapsed(), sketches.values().map(|(n, _)| n).sum())
}

fn print(views: u64, ours: &Series, loops: &Series) {
    println!("### Embedded: {} views from the log to sketches\n", number(views as f64));
    let mut table = Table::new(["", "CPU µs a view", "views a second of CPU", "views a second", "peak MiB"]);
    let of_cpu = |series: &Series| Spread::of(series.cpu.iter().map(|us| 1e6 / us)).to_string();
    let spread = |list: &[f64]| Spread::of(list.iter().copied()).to_string();
    table.row([
        "onlooker run, start included".to_owned(),
        spread(&ours.cpu),
        of_cpu(ours),
        spread(&ours.rate),
        mib(Spread::of(ours.peak.iter().copied()).max),
    ]);
    table.row([
        "a hash set and sketches, in memory alone".to_owned(),
        spread(&loops.cpu),
        of_cpu(loops),
        spread(&loops.rate),
        String::new(),
    ]);
    println!("{table}");
    println!("CPU against the loop: {}\n", Spread::ratio(&ours.cpu, &loops.cpu));
}
