//! What a view costs the collector, against an HTTP server that only says 202.

use super::{Options, mib, us_each};
use crate::driver::{Pace, Plan, drive};
use crate::http::post;
use crate::meter::{Meter, Watched};
use crate::peers::bare;
use crate::roles::Round;
use crate::servers::Servers;
use crate::stats::{Spread, number};
use crate::table::Table;
use crate::workload::{Shape, Workload, json};
use anyhow::{Result, ensure};
use onlooker_testkit::ports::free_port;
use std::net::SocketAddr;

const BATCH: usize = 100;
const CONNECTIONS: usize = 64;

/// A figure for each round.
#[derive(Debug, Default)]
struct Series {
    /// CPU of the server under test, µs a request.
    cpu: Vec<f64>,
    /// CPU of Kafka, µs a request.
    kafka: Vec<f64>,
    /// Requests a second.
    rate: Vec<f64>,
    /// Milliseconds.
    p50: Vec<f64>,
    p99: Vec<f64>,
    peak: Vec<f64>,
}

/// One way of sending.
struct Mode {
    name: &'static str,
    views: usize,
    requests: u64,
    pace: Pace,
}

/// Runs the benchmark and prints its tables.
pub(crate) fn run(options: &Options) -> Result<()> {
    let servers = Servers::start()?;
    let round = Round::prepare(&servers, &options.executable, 0)?;
    let listen = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let collector = round.start("collector", &format!("[collector]\nlisten = \"{listen}\"\n"))?;
    let (bare, bare_address) = bare::start()?;

    let modes = [
        Mode {
            name: "single views, as fast as they are answered",
            views: 1,
            requests: options.count(60_000, 500),
            pace: Pace::Closed,
        },
        Mode {
            name: "single views, 3,000 a second",
            views: 1,
            requests: options.count(15_000, 500),
            pace: Pace::Open { rate: 3_000.0 },
        },
        Mode {
            name: "batches of 100, as fast as they are answered",
            views: BATCH,
            requests: options.count(3_000, 20),
            pace: Pace::Closed,
        },
    ];
    let [kafka, ..] = servers.watched()?;
    for mode in &modes {
        let bodies = bodies(mode.views);
        let (mut ours, mut theirs) = (Series::default(), Series::default());
        // The first round warms up: the broker's code is compiled, connections and topics are known.
        for number in 0..=options.rounds(5) {
            for (series, address, watched) in
                [(&mut theirs, bare_address, bare.watched()), (&mut ours, listen, collector.watched())]
            {
                let figures = measure(mode, address, &bodies, watched, kafka.clone())?;
                if number > 0 || options.quick {
                    series.add(figures);
                }
            }
        }
        print(mode, &ours, &theirs);
    }
    drop(bare);
    collector.stop()?;
    round.clean_up()
}

/// Different requests, so that no cache is tested.
fn bodies(views: usize) -> Vec<Vec<u8>> {
    let looks: Vec<_> = Workload::new(Shape::default(), 7, 0).take(views * 256).collect();
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

struct Figures {
    cpu: f64,
    kafka: f64,
    rate: f64,
    p50: f64,
    p99: f64,
    peak: f64,
}

fn measure(
    mode: &Mode,
    address: SocketAddr,
    bodies: &[Vec<u8>],
    server: Watched,
    kafka: Watched,
) -> Result<Figures> {
    let meter = Meter::open([server, kafka])?;
    let plan =
        Plan { address, connections: CONNECTIONS, requests: mode.requests, pace: mode.pace, status: 202 };
    let outcome = drive(plan, |i| bodies[i as usize % bodies.len()].clone())?;
    ensure!(outcome.failed == 0, "{} of {} requests failed", outcome.failed, mode.requests);
    let costs = meter.read()?;
    let [server, kafka] = costs.as_slice() else { return Err(anyhow::anyhow!("two were watched")) };
    Ok(Figures {
        cpu: us_each(server.cpu, outcome.answered),
        kafka: us_each(kafka.cpu, outcome.answered),
        rate: outcome.rate(),
        p50: outcome.latency.quantile_ms(0.5),
        p99: outcome.latency.quantile_ms(0.99),
        peak: server.peak_bytes as f64,
    })
}

impl Series {
    fn add(&mut self, figures: Figures) {
        let Figures { cpu, kafka, rate, p50, p99, peak } = figures;
        self.cpu.push(cpu);
        self.kafka.push(kafka);
        self.rate.push(rate);
        self.p50.push(p50);
        self.p99.push(p99);
        self.peak.push(peak);
    }
}

fn print(mode: &Mode, ours: &Series, theirs: &Series) {
    println!("### Collector: {}\n", mode.name);
    let mut table = Table::new([
        "",
        "CPU µs a request",
        "CPU µs a view",
        "views a second",
        "p50 ms",
        "p99 ms",
        "peak MiB",
    ]);
    let views = mode.views as f64;
    for (name, series) in [("bare axum 202", theirs), ("collector", ours)] {
        let each = |list: &[f64], factor: f64| Spread::of(list.iter().map(|x| x * factor));
        table.row([
            name.to_owned(),
            each(&series.cpu, 1.0).to_string(),
            each(&series.cpu, 1.0 / views).to_string(),
            each(&series.rate, views).to_string(),
            number(each(&series.p50, 1.0).median),
            number(each(&series.p99, 1.0).median),
            mib(each(&series.peak, 1.0).max),
        ]);
    }
    println!("{table}");
    println!("CPU against the bare 202: {}", Spread::ratio(&ours.cpu, &theirs.cpu));
    println!(
        "Kafka behind the collector: {} µs a view\n",
        Spread::of(ours.kafka.iter().map(|us| us / views))
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_single_views_and_arrays() {
        let single = bodies(1);
        assert_eq!(single.len(), 256);
        let text = String::from_utf8(single[3].clone()).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        let view: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(view["site"], "bench");
        let text = String::from_utf8(bodies(BATCH)[0].clone()).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        let views: Vec<serde_json::Value> = serde_json::from_str(body).unwrap();
        assert_eq!(views.len(), BATCH);
    }
}
