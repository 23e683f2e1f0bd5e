//! The world: servers, network, instances, and everything that can go wrong between any two steps.

use super::check::Right;
use super::faults::{Faults, Kind};
use super::instance::{GroupEvent, Instance, Reply, Request, Tag};
use super::log::{COUNTED, Log};
use super::reference::Reference;
use super::rng::Rng;
use super::store::Store;
use super::{Broken, PARTITIONS, SLICE_S, Violation, WINDOW_S, settings};
use crate::heart::{Notice, Settings};
use onlooker_model::simulation::{Plan, Record};
use std::collections::VecDeque;
use std::sync::Arc;

pub(super) struct World<'a> {
    pub(super) rng: Rng,
    pub(super) record: &'a mut Record,
    pub(super) broken: Option<Broken>,
    pub(super) settings: Arc<Settings>,
    pub(super) now: u64,
    pub(super) append_ms: i64,
    pub(super) log: Log,
    pub(super) references: Vec<Reference>,
    /// What has to come out, by partition and offset.
    pub(super) right: Vec<Vec<Right>>,
    /// Two copies while the store is split, else the first alone.
    pub(super) stores: [Vec<Store>; 2],
    pub(super) snapshots: VecDeque<Vec<Store>>,
    pub(super) requests: Vec<(u64, Tag, Request)>,
    /// On their way for a long time.
    pub(super) late: Vec<(u64, Tag, Request)>,
    pub(super) late_percent: usize,
    /// Commits whose result nobody waits for.
    pub(super) unknown_percent: usize,
    unknown: Vec<u64>,
    pub(super) replies: Vec<(u64, Tag, Reply)>,
    pub(super) instances: Vec<Instance>,
    pub(super) next_instance: u64,
    pub(super) names: u64,
    pub(super) shape: Shape,
    /// How far the clocks of the brokers of `views.counted` are off, and of the others.
    pub(super) skews_ms: [i64; COUNTED + 1],
    /// What was wrong about the store, when it was changed.
    pub(super) wrong: Option<Violation>,
    pub(super) stats: Stats,
}

/// What happened in a run, to see that the runs are not idle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stats {
    pub(super) records: usize,
    pub(super) commits: usize,
    pub(super) rebuilds: usize,
    pub(super) syncs: usize,
    pub(super) unknown: usize,
}

/// What a history is like: most are short, for what goes wrong mostly takes few steps, and more of them are tried so.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shape {
    steps: u32,
    records: usize,
    /// Records that are appended together, at most.
    burst: usize,
    /// Between two appends, at most.
    pub(super) pace_ms: i64,
}

impl Shape {
    fn of(rng: &mut Rng) -> Self {
        let (steps, records) = match rng.below(20) {
            0..12 => (120, 8),
            12..19 => (350, 25),
            _ => (1_200, 80),
        };
        let burst = if rng.chance(70) { 1 } else { 12 };
        let pace_ms = *rng.pick(&[300, 3_000, 12_000]).unwrap();
        Self { steps, records, burst, pace_ms }
    }
}

impl<'a> World<'a> {
    pub(super) fn new(plan: &Plan, broken: Option<Broken>, record: &'a mut Record) -> Self {
        let stores = || (0..PARTITIONS).map(|_| Store::default()).collect::<Vec<_>>();
        let reference = |_| Reference::new(WINDOW_S.into(), SLICE_S.into());
        let mut rng = Rng::new(plan.seed_of_part(0));
        // The smaller, the sooner is everything full.
        let transaction_records = if rng.chance(60) { 12 } else { 4 };
        let mut world = Self {
            rng,
            record,
            broken,
            settings: settings(broken, transaction_records),
            now: 0,
            append_ms: 1_000_000,
            log: Log::new(PARTITIONS),
            references: (0..PARTITIONS).map(reference).collect(),
            right: (0..PARTITIONS).map(|_| Vec::new()).collect(),
            stores: [stores(), stores()],
            snapshots: VecDeque::from([stores()]),
            requests: Vec::new(),
            late: Vec::new(),
            late_percent: 0,
            unknown_percent: 0,
            unknown: Vec::new(),
            replies: Vec::new(),
            instances: Vec::new(),
            next_instance: 1,
            names: 0,
            shape: Shape::default(),
            skews_ms: [0; COUNTED + 1],
            wrong: None,
            stats: Stats::default(),
        };
        world.shape = Shape::of(&mut world.rng);
        world.skews_ms = std::array::from_fn(|_| *world.rng.pick(&[-3_500, -1_000, 0, 2_000]).unwrap());
        if world.rng.chance(25) {
            world.carry_over();
        }
        for _ in 0..2 {
            world.start_instance();
        }
        world.rebalance();
        world
    }

    /// Lives through the steps of the plan with faults, then without until all is judged.
    pub(super) fn live(mut self, plan: &Plan) -> Result<Stats, Violation> {
        let (shape, faults) = (self.shape, Faults::of(plan));
        (self.late_percent, self.unknown_percent) = (faults.late, faults.unknown);
        for step in plan.steps(shape.steps) {
            self.record.step(step);
            self.rng = Rng::new(plan.seed_of(step));
            let one_in = usize::try_from(shape.steps).unwrap() / shape.records;
            if self.rng.below(one_in * shape.burst) == 0 {
                for _ in 0..=self.rng.below(2 * shape.burst - 1) {
                    self.append();
                }
            } else if !self.fault(&faults) {
                self.step()?;
            }
            self.clocks();
            self.check()?;
        }
        self.rng = Rng::new(plan.seed_of_part(1));
        self.record.rest();
        self.heal();
        for step in 0..60_000 {
            self.step()?;
            self.check()?;
            if step % 16 == 0 && self.quiet() {
                return self.check_all().map(|()| self.stats);
            }
        }
        let committed: Vec<i64> = self.log.committed.values().map(|c| c.offset).collect();
        Err(format!("stuck: {committed:?} of {:?}", self.log.views.iter().map(Vec::len).collect::<Vec<_>>()))
    }

    fn quiet(&self) -> bool {
        let ends = self.log.views.iter().map(|log| i64::try_from(log.len()).unwrap());
        let committed = self.log.committed.values().map(|c| c.offset);
        ends.eq(committed) && self.log.is_settled()
    }

    pub(super) fn start_instance(&mut self) {
        self.instances.push(Instance::new(self.next_instance, &self.settings));
        self.next_instance += 1;
    }

    /// A new generation with any members and any assignment.
    pub(super) fn rebalance(&mut self) {
        self.log.generation += 1;
        let generation = self.log.generation;
        // Who stands still is no member any more, as long as there are others.
        let mut alive: Vec<usize> =
            (0..self.instances.len()).filter(|at| self.instances[*at].paused == 0).collect();
        if alive.is_empty() {
            alive = (0..self.instances.len()).collect();
        }
        self.log.members = alive.iter().map(|at| self.instances[*at].id).collect();
        let owners: Vec<usize> = (0..PARTITIONS).map(|_| alive[self.rng.below(alive.len())]).collect();
        let ids: Vec<u64> = owners.iter().map(|at| self.instances[*at].id).collect();
        self.record.say(|| format!("generation {generation}: partitions go to filters {ids:?}"));
        for (at, instance) in self.instances.iter_mut().enumerate() {
            let partitions: Vec<i32> =
                (0..PARTITIONS).filter(|p| owners[*p] == at).map(|p| i32::try_from(p).unwrap()).collect();
            let old = std::mem::replace(&mut instance.believes, partitions.clone());
            if !old.is_empty() {
                instance.events.push_back(GroupEvent::Revoked { partitions: old });
            }
            instance.events.push_back(GroupEvent::Assigned { partitions, generation });
        }
    }

    pub(super) fn send(&mut self, sent: Vec<(u64, Tag, Request)>) {
        for request in sent {
            let ends = matches!(request.2, Request::End { commit: true, .. });
            if ends && self.unknown_percent > 0 && self.rng.chance(self.unknown_percent) {
                self.unknown.push(request.0);
            }
            if self.late_percent > 0 && self.rng.chance(self.late_percent) {
                self.happens(Kind::RequestLate);
                self.late.push(request);
            } else {
                self.requests.push(request);
            }
        }
        while let Some(id) = self.unknown.pop() {
            if let Some(at) = self.instances.iter().position(|i| i.id == id) {
                self.unknown(at);
            }
        }
    }

    pub(super) fn obey(&mut self, at: usize) {
        let mut sent = Vec::new();
        self.instances[at].obey(&mut self.log, &mut sent);
        self.send(sent);
    }

    pub(super) fn notices(&mut self) -> Result<(), Violation> {
        for instance in &mut self.instances {
            while let Some(notice) = instance.machine.next_notice() {
                let id = instance.id;
                match notice {
                    Notice::Refused { partition, why } => return Err(format!("refused {partition}: {why}")),
                    Notice::Lost { partition, from, to } => {
                        return Err(format!("lost {from}..{to} of {partition}"));
                    }
                    Notice::Committed { .. } => self.stats.commits += 1,
                    Notice::Sync { partition, cause } => {
                        self.stats.syncs += 1;
                        self.record.say(|| format!("filter {id} doubts {partition}: {cause:?}"));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
