//! What one machine with `onlooker run` carries.

use super::costs::Costs;
use super::popularity::Popularity;
use super::prices::{Machine, Prices};
use super::tiers::{MOST_BUSY, MOST_MEMORY, archive_gib, claims, items_bytes, log_gib};
use super::{GIB, Load};
use serde::Serialize;

/// One process on one machine. Measured on two cores; that more of them help as much was not measured.
///
/// Nobody takes over while it is away; then nothing is lost and nothing taken in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Alone {
    /// Cores that the load keeps busy.
    pub(super) cores: f64,
    pub(super) memory_gib: f64,
    /// Of that, what to set `embedded.dedup_bytes` and `embedded.counts_bytes` to.
    pub(super) dedup_bytes: f64,
    pub(super) counts_bytes: f64,
    pub(super) disk_gib: f64,
    /// The cheapest machine that carries the load; none if none of the prices' does.
    pub(super) fits: Option<Fit>,
    /// What each machine carries at most, of this mix of views, reads and items.
    pub(super) machines: Vec<Carries>,
}

/// A machine that is enough.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Fit {
    pub(super) machine: String,
    pub(super) busy: f64,
    pub(super) dollars_a_month: f64,
}

/// The most that a machine carries, below 70 % busy and within 80 % of its memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Carries {
    pub(super) machine: String,
    pub(super) views_per_s: f64,
    pub(super) reads_per_s: f64,
    pub(super) dollars_a_month: f64,
}

struct Need {
    cores: f64,
    dedup_bytes: f64,
    counts_bytes: f64,
    memory_gib: f64,
    disk_gib: f64,
}

fn need(costs: &Costs, popularity: &Popularity, load: &Load) -> Need {
    let counts_bytes = items_bytes(costs, popularity, load).ceil();
    let dedup_bytes = (claims(costs, load) * costs.alone.claim_bytes()).ceil();
    Need {
        cores: (load.views * costs.alone.view_us() + load.reads * costs.alone.read_us()) / 1e6,
        memory_gib: costs.alone.memory_gib() + (counts_bytes + dedup_bytes) / GIB,
        counts_bytes,
        dedup_bytes,
        disk_gib: log_gib(costs, load) + archive_gib(costs, popularity, load),
    }
}

impl Need {
    fn fits(&self, machine: &Machine) -> bool {
        self.cores <= machine.vcpus * MOST_BUSY && self.memory_gib <= machine.memory_gib * MOST_MEMORY
    }
}

pub(super) fn alone(costs: &Costs, prices: &Prices, load: &Load) -> Alone {
    let popularity = Popularity::new(load.items, costs.load.popularity());
    let wanted = need(costs, &popularity, load);
    let cost = |machine: &Machine, disk_gib: f64| machine.month + disk_gib * prices.disk_gib;
    let enough = prices.machines.iter().filter(|machine| wanted.fits(machine));
    let cheapest = enough.min_by(|a, b| a.month.total_cmp(&b.month));
    let machines = prices.machines.iter().map(|machine| {
        let share = most(|share| need(costs, &popularity, &load.times(share)).fits(machine));
        let most = load.times(share);
        Carries {
            machine: machine.name.clone(),
            views_per_s: most.views,
            reads_per_s: most.reads,
            dollars_a_month: cost(machine, need(costs, &popularity, &most).disk_gib),
        }
    });
    Alone {
        fits: cheapest.map(|machine| Fit {
            machine: machine.name.clone(),
            busy: wanted.cores / machine.vcpus,
            dollars_a_month: cost(machine, wanted.disk_gib),
        }),
        machines: machines.collect(),
        cores: wanted.cores,
        memory_gib: wanted.memory_gib,
        dedup_bytes: wanted.dedup_bytes,
        counts_bytes: wanted.counts_bytes,
        disk_gib: wanted.disk_gib,
    }
}

/// The largest share of the load that fits, to a thousandth; 0 if none does.
fn most(fits: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1e-6);
    while high < 1e9 && fits(high) {
        (low, high) = (high, high * 2.0);
    }
    while high - low > low / 1_000.0 && high > 1e-9 {
        let middle = (low + high) / 2.0;
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}
