//! The tables of the chain.

use super::super::drain::Reading;
use super::super::{mib, us_each};
use super::Chain;
use crate::meter::Cost;
use crate::roles::PARTITIONS;
use crate::servers::{CASSANDRA, COUNTERS, DEDUP, KAFKA};
use crate::stats::{Spread, number};
use crate::table::Table;
use std::collections::BTreeMap;

/// What the peers are called.
pub(super) const PIPELINED: &str = "consumer, pipelines of 100";
pub(super) const AWAITED: &str = "consumer that awaits each command";

/// Filter to sketch.
const CHAIN: [&str; 5] = ["filter", "counter", KAFKA, DEDUP, COUNTERS];

/// All rounds of one kind of drain.
#[derive(Debug, Default)]
struct Series {
    /// µs a view of each process, round by round.
    cpu: BTreeMap<&'static str, Vec<f64>>,
    peak: BTreeMap<&'static str, f64>,
    /// Views a second from the first progress on.
    rate: Vec<f64>,
    /// Seconds from the start of the processes on.
    wall: Vec<f64>,
}

impl Series {
    fn add(&mut self, reading: &Reading, views: u64) {
        for Cost { name, cpu, peak_bytes } in &reading.costs {
            self.cpu.entry(name).or_default().push(us_each(*cpu, views));
            let peak = self.peak.entry(name).or_default();
            *peak = peak.max(*peak_bytes as f64);
        }
        self.rate.push(views as f64 / reading.draining().as_secs_f64());
        self.wall.push(reading.at.as_secs_f64());
    }

    /// Round by round the sum of some processes.
    fn sum(&self, names: impl Fn(&str) -> bool) -> Vec<f64> {
        let lists: Vec<&Vec<f64>> =
            self.cpu.iter().filter(|(name, _)| names(name)).map(|(_, list)| list).collect();
        (0..self.wall.len()).map(|i| lists.iter().filter_map(|list| list.get(i)).sum()).collect()
    }

    fn row(&self, name: &'static str) -> [String; 3] {
        let cpu = self.cpu.get(name).cloned().unwrap_or_default();
        let peak = self.peak.get(name).copied().unwrap_or_default();
        [name.to_owned(), Spread::of(cpu).to_string(), mib(peak)]
    }
}

/// Everything that was measured.
#[derive(Debug)]
pub(super) struct Report {
    views: u64,
    cold: Series,
    warm: Series,
    /// µs a sketch of each process.
    flush: BTreeMap<&'static str, Vec<f64>>,
    flush_rate: Vec<f64>,
    peers: BTreeMap<&'static str, Series>,
}

impl Report {
    pub(super) fn new(views: u64) -> Self {
        Self {
            views,
            cold: Series::default(),
            warm: Series::default(),
            flush: BTreeMap::new(),
            flush_rate: Vec::new(),
            peers: BTreeMap::new(),
        }
    }

    pub(super) fn add_ours(&mut self, chain: &Chain) {
        self.cold.add(&chain.cold, self.views);
        self.warm.add(&chain.warm, self.views);
        let sketches = chain.flushed.sketches;
        for Cost { name, cpu, .. } in &chain.flush {
            self.flush.entry(name).or_default().push(us_each(*cpu, sketches));
        }
        self.flush_rate.push(sketches as f64 / chain.flushed.took.as_secs_f64());
    }

    pub(super) fn add_peer(&mut self, name: &'static str, reading: &Reading, views: u64) {
        self.peers.entry(name).or_default().add(reading, views);
    }

    pub(super) fn print(&self) {
        println!(
            "### Chain: {} views from a filled `views` of {} partitions to sketches\n",
            number(self.views as f64),
            PARTITIONS
        );
        for (name, series) in
            [("every item is new", &self.cold), ("as many again, of the same items", &self.warm)]
        {
            println!("{name}:\n");
            self.print_drain(series);
        }
        println!("the flush in between:\n");
        let mut table = Table::new(["", "CPU µs a sketch archived"]);
        for name in ["flusher", CASSANDRA, COUNTERS] {
            let list = self.flush.get(name).cloned().unwrap_or_default();
            table.row([name.into(), Spread::of(list).to_string()]);
        }
        println!("{table}");
        println!("{} sketches a second\n", Spread::of(self.flush_rate.iter().copied()));
        self.print_peers();
    }

    fn print_drain(&self, series: &Series) {
        let mut table = Table::new(["", "CPU µs a view", "peak MiB"]);
        CHAIN.into_iter().for_each(|name| table.row(series.row(name)));
        let peak = |names: &dyn Fn(&str) -> bool| {
            series.peak.iter().filter(|(name, _)| names(name)).map(|(_, peak)| peak).sum::<f64>()
        };
        let chain = |name: &str| CHAIN.contains(&name);
        table.row([
            "**filter to sketch**".into(),
            Spread::of(series.sum(chain)).to_string(),
            mib(peak(&chain)),
        ]);
        table.row(series.row(CASSANDRA));
        table.row([
            "with the archive".into(),
            Spread::of(series.sum(|_| true)).to_string(),
            mib(peak(&|_| true)),
        ]);
        println!("{table}");
        println!(
            "{} views a second once running; {} s with the start of the processes\n",
            Spread::of(series.rate.iter().copied()),
            Spread::of(series.wall.iter().copied())
        );
    }

    fn print_peers(&self) {
        if self.peers.is_empty() {
            return;
        }
        println!("who counts without our guarantees, and for all time alone:\n");
        let mut table = Table::new([
            "",
            "its own CPU µs a view",
            "with Kafka and both Redis",
            "views a second",
            "ours, new items, against it",
        ]);
        let ours = self.cold.sum(|name| CHAIN.contains(&name));
        for (name, series) in &self.peers {
            let all = series.sum(|_| true);
            table.row([
                (*name).to_owned(),
                Spread::of(series.cpu.get(name).cloned().unwrap_or_default()).to_string(),
                Spread::of(all.iter().copied()).to_string(),
                Spread::of(series.rate.iter().copied()).to_string(),
                Spread::ratio(&ours, &all).to_string(),
            ]);
        }
        println!("{table}");
    }
}
