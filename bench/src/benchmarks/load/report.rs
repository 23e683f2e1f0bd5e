//! The tables of the load.

use super::super::{mib, us_each};
use super::Shown;
use crate::stats::{Spread, number};
use crate::table::Table;
use std::collections::BTreeMap;
use std::time::Duration;

/// What the drivers of the load are called: they take from the same cores.
pub(super) const GENERATOR: &str = "the load's own";

/// What the design asks of both answers.
const GOAL_MS: f64 = 60.0;

/// A lag that does not grow is a second's work at most.
const BACKLOG: Duration = Duration::from_secs(2);

/// Everything that was measured, by share.
#[derive(Debug)]
pub(super) struct Report {
    batch: u16,
    shares: BTreeMap<u32, Vec<Shown>>,
}

impl Report {
    pub(super) fn new(batch: u16) -> Self {
        Self { batch, shares: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, share: u32, shown: Shown) {
        self.shares.entry(share).or_default().push(shown);
    }

    pub(super) fn print(&self) {
        println!("### Load: 100 % is 20,000 views and 10,000 reads of three items a second\n");
        println!(
            "{} a POST; views and reads by a timetable, latency from when a request was due\n",
            match self.batch {
                1 => "one view".to_owned(),
                n => format!("{n} views"),
            }
        );
        self.print_answers();
        self.print_costs();
    }

    fn print_answers(&self) {
        let mut table = Table::new([
            "share",
            "views/s answered",
            "record p50 / p99 ms",
            "reads/s answered",
            "read p50 / p99 ms",
            "visible p50 / p99 ms",
            "failed",
            "behind at the end, s",
            "sustained",
        ]);
        for (share, rounds) in &self.shares {
            let spread = |f: &dyn Fn(&Shown) -> f64| Spread::of(rounds.iter().map(f));
            let pair = |f: &dyn Fn(&Shown, f64) -> f64| {
                let middle = |q| number(spread(&|shown| f(shown, q)).median);
                format!("{} / {}", middle(0.5), spread(&|shown| f(shown, 0.99)))
            };
            let batch = f64::from(self.batch);
            let failed: u64 = rounds.iter().map(|s| s.views.failed + s.reads.failed + s.unseen).sum();
            table.row([
                format!("{share} %"),
                number(spread(&|s| s.views.rate() * batch).median),
                pair(&|s, q| s.views.latency.quantile_ms(q)),
                number(spread(&|s| s.reads.rate()).median),
                pair(&|s, q| s.reads.latency.quantile_ms(q)),
                pair(&|s, q| s.visible.quantile_ms(q)),
                failed.to_string(),
                spread(&|s| s.backlog.as_secs_f64()).to_string(),
                format!("{} of {} rounds", rounds.iter().filter(|s| sustained(s)).count(), rounds.len()),
            ]);
        }
        println!("{table}");
        println!(
            "sustained: nothing failed, both p99 below {GOAL_MS} ms, less than {} s behind at the end\n",
            BACKLOG.as_secs()
        );
    }

    fn print_costs(&self) {
        for (share, rounds) in &self.shares {
            println!("{share} %:\n");
            let mut table = Table::new(["", "CPU µs a view", "share of one core, %", "peak MiB"]);
            let names = rounds.first().map(|s| s.costs.iter().map(|c| c.name).collect::<Vec<_>>());
            for name in names.unwrap_or_default() {
                let costs = || {
                    rounds
                        .iter()
                        .flat_map(|s| s.costs.iter().map(move |c| (s, c)))
                        .filter(|(_, c)| c.name == name)
                };
                let views = |s: &Shown| s.views.answered * u64::from(self.batch);
                table.row([
                    name.to_owned(),
                    Spread::of(costs().map(|(s, c)| us_each(c.cpu, views(s)))).to_string(),
                    number(
                        Spread::of(
                            costs().map(|(s, c)| c.cpu.as_secs_f64() * 100.0 / s.views.elapsed.as_secs_f64()),
                        )
                        .median,
                    ),
                    mib(Spread::of(costs().map(|(_, c)| c.peak_bytes as f64)).max),
                ]);
            }
            let whole = rounds.iter().map(|s| {
                let cpu: Duration = s.costs.iter().filter(|c| c.name != GENERATOR).map(|c| c.cpu).sum();
                us_each(cpu, s.views.answered * u64::from(self.batch))
            });
            table.row(["**all but the load's own**".into(), Spread::of(whole).to_string()]);
            println!("{table}");
        }
    }
}

fn sustained(shown: &Shown) -> bool {
    shown.views.failed + shown.reads.failed + shown.unseen == 0
        && shown.views.latency.quantile_ms(0.99) < GOAL_MS
        && shown.reads.latency.quantile_ms(0.99) < GOAL_MS
        && shown.backlog < BACKLOG
}
