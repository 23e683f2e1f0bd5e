//! Views and reads at once, by a timetable, with all rooms and all servers on this machine.

mod report;
mod visible;

use super::Options;
use super::drain::{Keys, until_counted, until_filtered};
use crate::driver::{Outcome, Pace, Plan, drive};
use crate::http::{get, post};
use crate::latency::Latency;
use crate::meter::{Cost, Meter, Watched};
use crate::roles::{Role, Round};
use crate::servers::Servers;
use crate::workload::{Look, SITE, Shape, Workload, Zipf, item_name, json_of};
use anyhow::{Result, anyhow, ensure};
use onlooker_testkit::ports::free_port;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};
use visible::Watcher;

/// The whole load, as the design has it.
const VIEWS_A_SECOND: f64 = 20_000.0;
const READS_A_SECOND: f64 = 10_000.0;

/// Items in a read.
const READ_ITEMS: usize = 3;

/// One in so many views is of an item that nobody has seen, so that the archive is asked for it: the share of views
/// that find their sketch evicted.
const NEW_ITEM: u64 = 100;

/// Arguments of the benchmark.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Shares of the whole load (20,000 views and 10,000 reads a second), in percent
    #[arg(long, value_delimiter = ',', default_value = "25,50,75,100")]
    shares: Vec<u32>,
    /// Views in one POST
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,
    /// Seconds of each share
    #[arg(long, default_value_t = 20)]
    seconds: u32,
}

impl Default for Args {
    fn default() -> Self {
        Self { shares: vec![25, 50, 75, 100], batch: 1, seconds: 20 }
    }
}

/// What one share showed.
#[derive(Debug)]
struct Shown {
    views: Outcome,
    reads: Outcome,
    /// From a view's sending until its count is read. Whole seconds of it mean that the chain lags.
    visible: Latency,
    /// Views that were not seen in time.
    unseen: u64,
    /// How long after the last view everything was applied.
    backlog: Duration,
    costs: Vec<Cost>,
}

/// Runs the benchmark and prints its tables.
pub(crate) fn run(options: &Options, args: &Args) -> Result<()> {
    let (args, rounds) = match options.quick {
        true => (Args { shares: vec![2], seconds: 2, ..args.clone() }, 1),
        false => (args.clone(), options.rounds(3)),
    };
    let servers = Servers::start()?;
    let mut table = report::Report::new(args.batch);
    for number in 0..rounds {
        let mut house = House::start(options, &servers, number)?;
        // Code is compiled, connections are made, the hottest items have their sketches.
        let warm_up = Args { seconds: args.seconds.min(10), ..args.clone() };
        house.share(&servers, &warm_up, 25, (number, 0))?;
        for (i, share) in (1..).zip(&args.shares) {
            eprintln!("round {}, {share} %", number + 1);
            table.add(*share, house.share(&servers, &args, *share, (number, i))?);
        }
        house.stop()?;
    }
    table.print();
    Ok(())
}

/// All rooms, each a process.
struct House {
    round: Round,
    collector: SocketAddr,
    counts: SocketAddr,
    roles: Vec<Role>,
}

impl House {
    fn start(options: &Options, servers: &Servers, number: usize) -> Result<Self> {
        let round = Round::prepare(servers, &options.executable, number)?;
        let free = || Ok::<_, anyhow::Error>(SocketAddr::from(([127, 0, 0, 1], free_port()?)));
        let (collector, counts) = (free()?, free()?);
        let roles = vec![
            round.start("collector", &format!("[collector]\nlisten = \"{collector}\"\n"))?,
            round.start("filter", "")?,
            round.start("counter", "")?,
            round.start("flusher", "")?,
            round.start("counts-api", &format!("[counts_api]\nlisten = \"{counts}\"\n"))?,
        ];
        Ok(Self { round, collector, counts, roles })
    }

    /// A share of the load for some seconds, and then until everything is applied.
    fn share(
        &mut self,
        servers: &Servers,
        args: &Args,
        share: u32,
        (round, nth): (usize, usize),
    ) -> Result<Shown> {
        let part = f64::from(share) / 100.0;
        let (rate, batch) = (VIEWS_A_SECOND * part, u64::from(args.batch));
        let posts = (rate * f64::from(args.seconds) / batch as f64) as u64;
        let reads = (READS_A_SECOND * part * f64::from(args.seconds)) as u64;
        let name = format!("{round}-{nth}");
        let looks: Vec<Look> = Workload::new(Shape::default(), (round * 100 + nth) as u64, 0)
            .take((posts * batch) as usize)
            .collect();
        let zipf = Zipf::new(Shape::default().items, Shape::default().exponent);

        let own = Watched { name: report::GENERATOR, pid: std::process::id() };
        let meter = Meter::open(servers.watched()?.into_iter().chain(self.watched()).chain([own]))?;
        let plan = |address, connections, requests, rate, status| Plan {
            address,
            connections,
            requests,
            pace: Pace::Open { rate },
            status,
        };
        let start = Instant::now();
        let (views, seen, reads) = thread::scope(|scope| {
            let views = scope.spawn(|| {
                let plan = plan(self.collector, 128, posts, rate / batch as f64, 202);
                drive(plan, |i| body(&looks, &name, i, batch))
            });
            let reads = scope.spawn(|| {
                let plan = plan(self.counts, 64, reads, READS_A_SECOND * part, 200);
                drive(plan, |i| read(&zipf, i))
            });
            let watcher = Watcher { collector: self.collector, counts: self.counts, name: &name };
            let seen = watcher.run(scope, Duration::from_secs(args.seconds.into()));
            let join = |r: thread::Result<Result<Outcome>>| r.map_err(|_| anyhow!("a driver panicked"))?;
            Ok::<_, anyhow::Error>((join(views.join())?, seen?, join(reads.join())?))
        })?;
        let costs = meter.read()?;
        let sent = Instant::now();
        self.drained(servers, &meter)?;
        ensure!(views.answered > 0 && reads.answered > 0, "nothing was answered");
        eprintln!("{:.1} s of load", sent.duration_since(start).as_secs_f64());
        Ok(Shown { views, reads, visible: seen.latency, unseen: seen.unseen, backlog: sent.elapsed(), costs })
    }

    fn watched(&self) -> impl Iterator<Item = Watched> {
        self.roles.iter().map(Role::watched)
    }

    fn drained(&mut self, servers: &Servers, meter: &Meter) -> Result<()> {
        let mut seen = Keys::new(servers.dedup.port(), "fapplied", &self.round.tags)?;
        let mut applied = Keys::new(servers.counters.port(), "applied", &self.round.tags)?;
        until_filtered(&mut seen, &self.round, meter, &mut self.roles)?;
        until_counted(&mut applied, &self.round, meter, &mut self.roles).map(drop)
    }

    fn stop(self) -> Result<()> {
        self.roles.into_iter().try_for_each(Role::stop)?;
        self.round.clean_up()
    }
}

/// The request with number i: one view, or an array of them.
fn body(looks: &[Look], name: &str, i: u64, batch: u64) -> Vec<u8> {
    let one = |number: u64| {
        let look = looks[number as usize % looks.len()];
        // A client's id makes a view unique for ever: that of another share must not be the same.
        let id = format!("{name}-{number}");
        match number % NEW_ITEM {
            0 => json_of(&format!("new-{name}-{number}"), &id, look.viewer),
            _ => json_of(&item_name(look.item), &id, look.viewer),
        }
    };
    match batch {
        1 => post(&one(i)),
        _ => {
            let views: Vec<String> = (i * batch..(i + 1) * batch).map(one).collect();
            post(&format!("[{}]", views.join(",")))
        }
    }
}

/// Reads some items, as popular as those that are viewed.
fn read(zipf: &Zipf, i: u64) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(i);
    let items: Vec<String> =
        (0..READ_ITEMS).map(|_| format!("&item={}", item_name(zipf.sample(&mut random)))).collect();
    get(&format!("/v1/counts?site={SITE}{}", items.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::json;

    #[test]
    fn requests_are_views_and_reads() {
        let looks = [Look { viewer: 5, item: 7, at_ms: 0 }];
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let single = text(body(&looks, "0-1", 1, 1));
        assert!(single.contains(r#""item":"article-000007","id":"0-1-1""#), "{single}");
        let batch = text(body(&looks, "0-1", 10, 10));
        assert!(batch.contains(r#"[{"site":"bench","item":"new-0-1-100""#), "{batch}");
        let read = text(read(&Zipf::new(1, 1.0), 3));
        let item = "&item=article-000000";
        assert!(read.starts_with(&format!("GET /v1/counts?site=bench{item}{item}{item} HTTP")), "{read}");
    }

    #[test]
    fn ids_differ_between_shares() {
        let looks = [Look { viewer: 5, item: 7, at_ms: 0 }];
        assert_ne!(body(&looks, "0-1", 1, 1), body(&looks, "0-2", 1, 1));
        assert!(json(looks[0], 1).contains("article-000007"));
    }
}
