//! What a cluster needs: tier by tier, with one machine lost, below 70 % busy.

use super::costs::Costs;
use super::popularity::Popularity;
use super::prices::{Machine, Prices};
use super::{GIB, Load, MONTH_S};
use anyhow::{Context, Result};
use serde::Serialize;

/// Busier than this nothing may be, even with one machine lost: waiting grows fast from here on.
pub(super) const MOST_BUSY: f64 = 0.7;
/// Fuller than this no machine's memory may be.
pub(super) const MOST_MEMORY: f64 = 0.8;

/// A tier of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Tier {
    pub(super) name: &'static str,
    pub(super) replicas: u64,
    pub(super) machine: String,
    /// Of all replicas together.
    pub(super) vcpus: f64,
    /// That the tier takes, all replicas together.
    pub(super) memory_gib: f64,
    pub(super) disk_gib: f64,
    /// Share of its cores that work with all replicas up.
    pub(super) busy: f64,
    /// The same with one lost: at most 0.7.
    pub(super) busy_one_lost: f64,
    pub(super) dollars_a_month: f64,
}

/// A cluster for a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Cluster {
    pub(super) tiers: Vec<Tier>,
    pub(super) traffic_gib_a_month: f64,
    pub(super) traffic_dollars_a_month: f64,
    pub(super) dollars_a_month: f64,
    /// What the topics should have, so that every filter and counter gets work.
    pub(super) partitions: u64,
    /// Items that change in one interval of the flusher.
    pub(super) items_changed_a_flush: f64,
}

/// What a tier has to do.
struct Need {
    name: &'static str,
    /// Fewest replicas.
    least: u64,
    /// Cores that work, all replicas together.
    cores: f64,
    memory: Memory,
    disk_gib: f64,
    /// One thread does it all, so a replica has one core, whatever its machine has.
    one_thread: bool,
}

enum Memory {
    /// Each replica takes it, however many there are.
    Each(f64),
    /// It is shared out among the replicas, twice: each shard has a second copy on another machine.
    SharedTwice(f64),
}

/// Bytes of all items in memory, with the viewers of so many views.
pub(super) fn items_bytes(costs: &Costs, popularity: &Popularity, load: &Load) -> f64 {
    let views = load.views * costs.load.counted_share() * costs.load.history_days() * 86_400.0;
    popularity.sum(views, |viewers| costs.item.bytes(viewers))
}

/// Claims that are remembered at most: of two slices.
pub(super) fn claims(costs: &Costs, load: &Load) -> f64 {
    load.views * costs.load.counted_share() * 2.0 * costs.load.slice_s()
}

/// GiB of both topics, one copy.
pub(super) fn log_gib(costs: &Costs, load: &Load) -> f64 {
    let hours = costs.load.views_hours() + costs.load.counted_share() * costs.load.counted_hours();
    load.views * costs.load.record_bytes() * hours * 3_600.0 / GIB
}

/// GiB of the archive, one copy: all time, and each day by itself. An item's bytes are those of two sketches.
pub(super) fn archive_gib(costs: &Costs, popularity: &Popularity, load: &Load) -> f64 {
    let day = load.views * costs.load.counted_share() * 86_400.0;
    let of_a_day = popularity.sum(day, |viewers| costs.item.bytes(viewers) / 2.0);
    let bytes = items_bytes(costs, popularity, load) / 2.0 + costs.load.archive_days() * of_a_day;
    bytes * costs.load.archive_factor() / GIB
}

pub(super) fn cluster(costs: &Costs, prices: &Prices, load: &Load) -> Result<Cluster> {
    let popularity = Popularity::new(load.items, costs.load.popularity());
    let counted = load.views * costs.load.counted_share();
    let changed = popularity.distinct(counted * costs.load.flush_s());
    // At most: both sketches of an item that changed were raised.
    let sketches = 2.0 * changed / costs.load.flush_s();
    let restored = counted * costs.load.restored_share();
    let copies = costs.load.copies();
    let us = |a_second: f64, each: f64| a_second * each / 1e6;
    let needs = [
        stateless("collector", us(load.views, costs.collector.view_us()), costs.collector.memory_gib()),
        stateless("filter", us(load.views, costs.filter.view_us()), costs.filter.memory_gib()),
        stateless("counter", us(counted, costs.counter.counted_us()), costs.counter.memory_gib()),
        stateless("flusher", us(sketches, costs.flusher.sketch_us()), costs.flusher.memory_gib()),
        stateless("counts-api", us(load.reads, costs.counts_api.read_us()), costs.counts_api.memory_gib()),
        Need {
            name: "Kafka",
            least: 3,
            cores: us(load.views, costs.kafka.view_us()) * copies,
            memory: Memory::Each(costs.kafka.memory_gib()),
            disk_gib: log_gib(costs, load) * copies,
            one_thread: false,
        },
        redis(
            "dedup Redis",
            us(load.views, costs.dedup.view_us()),
            claims(costs, load) * costs.dedup.claim_bytes() / GIB,
        ),
        redis(
            "counters Redis",
            us(counted, costs.counters.counted_us())
                + us(load.reads, costs.counters.read_us())
                + us(sketches, costs.counters.sketch_us()),
            items_bytes(costs, &popularity, load) * costs.counters.memory_factor() / GIB,
        ),
        Need {
            name: "Cassandra",
            least: 3,
            cores: us(sketches, costs.cassandra.sketch_us()) * copies
                // A quorum reads.
                + us(restored, costs.cassandra.restore_us()) * (copies / 2.0).ceil(),
            memory: Memory::Each(costs.cassandra.memory_gib()),
            disk_gib: archive_gib(costs, &popularity, load) * copies,
            one_thread: false,
        },
    ];
    let tiers: Vec<Tier> = needs.iter().map(|need| need.tier(prices)).collect::<Result<_>>()?;
    let traffic = load.views * costs.load.record_bytes() * costs.load.zone_crossings() * MONTH_S / GIB;
    let traffic_dollars = traffic * prices.traffic_gib;
    let workers = tiers.iter().filter(|tier| ["filter", "counter"].contains(&tier.name));
    let most = workers.map(|tier| tier.replicas).max().unwrap_or(1);
    Ok(Cluster {
        dollars_a_month: tiers.iter().map(|tier| tier.dollars_a_month).sum::<f64>() + traffic_dollars,
        tiers,
        traffic_gib_a_month: traffic,
        traffic_dollars_a_month: traffic_dollars,
        partitions: (2 * most).next_power_of_two().max(8),
        items_changed_a_flush: changed,
    })
}

fn stateless(name: &'static str, cores: f64, memory_gib: f64) -> Need {
    Need { name, least: 2, cores, memory: Memory::Each(memory_gib), disk_gib: 0.0, one_thread: false }
}

fn redis(name: &'static str, cores: f64, memory_gib: f64) -> Need {
    Need { name, least: 2, cores, memory: Memory::SharedTwice(memory_gib), disk_gib: 0.0, one_thread: true }
}

impl Need {
    /// The cheapest set of one kind of machine that is enough; of equal ones the smallest.
    fn tier(&self, prices: &Prices) -> Result<Tier> {
        let sets = prices.machines.iter().filter_map(|machine| Some((machine, self.replicas(machine)?)));
        let cost = |(machine, replicas): &(&Machine, f64)| machine.month * replicas;
        let (machine, replicas) = sets.min_by(|a, b| cost(a).total_cmp(&cost(b))).with_context(|| {
            let most = prices.machines.iter().map(|machine| machine.memory_gib).fold(0.0, f64::max);
            format!(
                "machine: none has enough memory for {}, which takes {:.1} GiB; the largest has {most} GiB, of which \
                 {:.0} % may be used",
                self.name,
                self.each_gib(1.0),
                MOST_MEMORY * 100.0
            )
        })?;
        let cores = replicas * self.usable(machine);
        let left = (replicas - 1.0) * self.usable(machine);
        Ok(Tier {
            name: self.name,
            replicas: whole(replicas),
            machine: machine.name.clone(),
            vcpus: replicas * machine.vcpus,
            memory_gib: self.each_gib(replicas) * replicas,
            disk_gib: self.disk_gib,
            // A second copy follows its shard and takes over when that is lost: it carries no load before.
            busy: if self.one_thread { self.cores / (cores / 2.0) } else { self.cores / cores },
            busy_one_lost: if self.one_thread { self.cores / (cores / 2.0) } else { self.cores / left },
            dollars_a_month: replicas * machine.month + self.disk_gib * prices.disk_gib,
        })
    }

    /// Cores of a machine that can work for it.
    fn usable(&self, machine: &Machine) -> f64 {
        if self.one_thread { 1.0 } else { machine.vcpus }
    }

    /// Memory of each of so many replicas.
    fn each_gib(&self, replicas: f64) -> f64 {
        match self.memory {
            Memory::Each(gib) => gib,
            Memory::SharedTwice(gib) => 2.0 * gib / replicas,
        }
    }

    /// How many of these machines are enough; none if no number is.
    fn replicas(&self, machine: &Machine) -> Option<f64> {
        let room = machine.memory_gib * MOST_MEMORY;
        let working = self.cores / (self.usable(machine) * MOST_BUSY);
        let enough = match self.memory {
            Memory::Each(gib) if gib > room => return None,
            Memory::Each(_) => working.ceil() + 1.0,
            Memory::SharedTwice(gib) => 2.0 * working.max(gib / room).ceil().max(1.0),
        };
        Some(enough.max(self.least as f64))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few machines")]
fn whole(count: f64) -> u64 {
    count as u64
}
