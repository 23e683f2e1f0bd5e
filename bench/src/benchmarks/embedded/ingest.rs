//! Views over HTTP that are on the disk before they are answered.

use super::launch;
use crate::benchmarks::{Options, us_each};
use crate::driver::{Pace, Plan, drive};
use crate::http::post;
use crate::meter::Meter;
use crate::peers::bare;
use crate::stats::{Spread, number};
use crate::table::Table;
use crate::workload::{Shape, Workload, json};
use anyhow::{Result, ensure};
use std::net::SocketAddr;

const CONNECTIONS: usize = 64;
/// Requests a second that a popular counter in one program publishes for itself (GoatCounter's documentation: about 800
/// page views a second on a small virtual machine).
const PUBLISHED: f64 = 800.0;

#[derive(Debug, Default)]
struct Series {
    cpu: Vec<f64>,
    rate: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
}

/// Single views and batches, against a server that only says 202.
pub(super) fn run(options: &Options) -> Result<()> {
    let (bare, bare_address) = bare::start()?;
    for (views, requests) in [(1, options.count(100_000, 500)), (100, options.count(5_000, 50))] {
        println!("### Embedded: requests of {views}, {CONNECTIONS} connections\n");
        let mut table = Table::new([
            "",
            "CPU µs a view",
            "views a second",
            "p50 ms",
            "p99 ms",
            "rate against 800 a second",
        ]);
        let bodies = bodies(views);
        let mut rows: Vec<(&str, Series)> = ["bare axum 202", "on the disk (power)", "in the file (process)"]
            .map(|name| (name, Series::default()))
            .into();
        for _ in 0..options.rounds(5) {
            for (name, series) in &mut rows {
                let folder = tempfile::tempdir()?;
                let durability = if name.contains("power") { "power" } else { "process" };
                let settings = format!("[embedded.log]\ndurability = \"{durability}\"\n");
                let role = launch(options, &folder.path().join("data"), &settings)?.wait_ready()?;
                let (address, watched) = if *name == "bare axum 202" {
                    (bare_address, bare.watched())
                } else {
                    (role.listen()?, role.watched())
                };
                let meter = Meter::open([watched])?;
                let plan = plan(address, requests);
                let outcome = drive(plan, |i| bodies[i as usize % bodies.len()].clone())?;
                ensure!(outcome.failed == 0, "{} of {requests} requests failed", outcome.failed);
                let sent = outcome.answered * views as u64;
                series.cpu.push(us_each(meter.read()?[0].cpu, sent));
                series.rate.push(outcome.rate() * views as f64);
                series.p50.push(outcome.latency.quantile_ms(0.5));
                series.p99.push(outcome.latency.quantile_ms(0.99));
                role.stop()?;
            }
        }
        for (name, series) in &rows {
            let median = |list: &[f64]| number(Spread::of(list.iter().copied()).median);
            table.row([
                (*name).to_owned(),
                Spread::of(series.cpu.iter().copied()).to_string(),
                Spread::of(series.rate.iter().copied()).to_string(),
                median(&series.p50),
                median(&series.p99),
                format!("{} times", Spread::of(series.rate.iter().map(|rate| rate / PUBLISHED))),
            ]);
        }
        println!("{table}");
        println!(
            "CPU of a durable view against the bare 202: {}\n",
            Spread::ratio(&rows[1].1.cpu, &rows[0].1.cpu)
        );
    }
    drop(bare);
    Ok(())
}

fn plan(address: SocketAddr, requests: u64) -> Plan {
    Plan { address, connections: CONNECTIONS, requests, pace: Pace::Closed, status: 202 }
}

fn bodies(views: usize) -> Vec<Vec<u8>> {
    let looks: Vec<_> = Workload::new(Shape::default(), 11, 0).take(views * 256).collect();
    let bodies = looks.chunks(views).enumerate().map(|(i, chunk)| {
        let views: Vec<String> =
            (0..).zip(chunk).map(|(j, look)| json(*look, i as u64 * 1_000 + j)).collect();
        match views.as_slice() {
            [one] => post(one),
            many => post(&format!("[{}]", many.join(","))),
        }
    });
    bodies.collect()
}
