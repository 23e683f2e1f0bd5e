//! The world: servers, network, instances, and everything that can go wrong between any two steps.

use super::faults::Faults;
use super::instance::{GroupEvent, Instance, Reply, Request, Tag};
use super::log::{COUNTED, Log};
use super::reference::Record;
use super::rng::Rng;
use super::store::Store;
use super::{Broken, PARTITIONS, settings};
use crate::heart::{CommitEnd, Notice, Settings};
use onlooker_event::{ClientId, Facts, ItemId, SiteId, View, ViewId, ViewerHash};
use onlooker_ports::BatchBuilder;
use onlooker_proto::encode_view;
use std::sync::Arc;

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) broken: Option<Broken>,
    pub(super) settings: Arc<Settings>,
    pub(super) now: u64,
    pub(super) append_ms: i64,
    pub(super) log: Log,
    /// Two copies while the store is split, else the first alone.
    pub(super) stores: [Vec<Store>; 2],
    pub(super) snapshots: Vec<Vec<Store>>,
    pub(super) requests: Vec<(u64, Tag, Request)>,
    /// On their way for a long time.
    pub(super) late: Vec<(u64, Tag, Request)>,
    pub(super) late_percent: usize,
    pub(super) replies: Vec<(u64, Tag, Reply)>,
    pub(super) instances: Vec<Instance>,
    pub(super) next_instance: u64,
    pub(super) names: u64,
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

pub(super) type Violation = String;

impl World {
    pub(super) fn new(seed: u64, broken: Option<Broken>) -> Self {
        let stores = || (0..PARTITIONS).map(|_| Store::default()).collect::<Vec<_>>();
        let mut world = Self {
            rng: Rng::new(seed),
            broken,
            settings: settings(broken),
            now: 0,
            append_ms: 1_000_000,
            log: Log::new(PARTITIONS),
            stores: [stores(), stores()],
            snapshots: vec![stores()],
            requests: Vec::new(),
            late: Vec::new(),
            late_percent: 0,
            replies: Vec::new(),
            instances: Vec::new(),
            next_instance: 1,
            names: 0,
            stats: Stats::default(),
        };
        for _ in 0..2 {
            world.start_instance();
        }
        world.rebalance();
        world
    }

    /// Runs with faults until `records` are in the log and `steps` are done, then without until all is judged.
    pub(super) fn run(&mut self, records: usize, steps: usize, faults: Faults) -> Result<Stats, Violation> {
        self.late_percent = faults.late;
        for step in 0..steps {
            if self.rng.chance(100 * records / steps.max(1) + 2) && self.stats.records < records {
                self.append();
            }
            self.fault(faults);
            self.step()?;
            if step % 64 == 0 {
                self.check(false)?;
            }
        }
        while self.stats.records < records {
            self.append();
        }
        self.heal();
        for step in 0..60_000 {
            self.step()?;
            if step % 16 == 0 && self.quiet() {
                return self.check(true).map(|()| self.stats);
            }
        }
        Err(format!(
            "stuck: {:?} of {:?}",
            self.log.committed,
            self.log.views.iter().map(Vec::len).collect::<Vec<_>>()
        ))
    }

    fn quiet(&self) -> bool {
        let ends = self.log.views.iter().map(|log| i64::try_from(log.len()).unwrap());
        let committed = self.log.committed.values().map(|c| c.offset);
        ends.eq(committed) && self.log.open().is_empty() && self.log.markers().is_empty()
    }

    pub(super) fn start_instance(&mut self) {
        self.instances.push(Instance::new(self.next_instance, &self.settings));
        self.next_instance += 1;
    }

    /// A new generation with any members and any assignment.
    pub(super) fn rebalance(&mut self) {
        self.log.generation += 1;
        let generation = self.log.generation;
        self.log.members = self.instances.iter().map(|i| i.id).collect();
        let owners: Vec<usize> = (0..PARTITIONS).map(|_| self.rng.below(self.instances.len())).collect();
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

    fn append(&mut self) {
        let partition = self.rng.below(PARTITIONS);
        self.append_ms += self.rng.range(0, 3_000);
        if self.rng.chance(3) {
            self.append_ms += self.rng.range(0, 60_000);
        }
        // Several brokers: the clock of the next record may step back.
        let append_ms = self.append_ms - self.rng.range(0, 1_500);
        let event_ms = append_ms - self.rng.range(0, 9_000);
        let facts = match self.rng.below(20) {
            0 => Facts::PREFETCH,
            1 => Facts::SELF_VIEW,
            _ => Facts(0),
        };
        let id = self.rng.chance(20).then(|| ["a", "b", "c"][self.rng.below(3)]);
        let view = View {
            view_id: ViewId([7; 16]),
            site: SiteId::new("s").unwrap(),
            item: ItemId::new(["x", "y"][self.rng.below(2)]).unwrap(),
            // A viewer's views stand in one partition.
            viewer: ViewerHash([u8::try_from(partition * 2 + self.rng.below(2)).unwrap(); 16]),
            key_version: 1,
            event_ms,
            received_ms: event_ms,
            client_id: id.map(|id| ClientId::new(id).unwrap()),
            user_agent: None,
            referrer: None,
            facts,
        };
        let view = (!self.rng.chance(3)).then_some(view);
        self.log.views[partition].push(Record { append_ms, view });
        self.stats.records += 1;
    }

    pub(super) fn send(&mut self, sent: Vec<(u64, Tag, Request)>) {
        for request in sent {
            let late = self.rng.chance(self.late_percent);
            if late { &mut self.late } else { &mut self.requests }.push(request);
        }
    }

    /// One thing happens, any of those that can.
    fn step(&mut self) -> Result<(), Violation> {
        match self.rng.below(100) {
            0..30 => self.deliver_request(),
            30..60 => self.deliver_reply(),
            60..77 => self.read_views(),
            77..79 => self.deliver_group_event(),
            79..86 => self.write_marker(),
            86..93 => self.read_verdict(),
            93..95 => self.ask_again(),
            95 => self.expire_abandoned(),
            _ => self.pass_time(),
        }
        self.notices()
    }

    fn read_views(&mut self) {
        let at = self.rng.below(self.instances.len());
        let instance = &mut self.instances[at];
        match self.rng.below(3) {
            0 => {
                instance.read_on(self.now);
                return self.obey(at);
            }
            1 if instance.machine.wants_records() => {
                if let Some(batch) = instance.fetched.pop_front() {
                    instance.machine.records(batch, self.now);
                }
                return self.obey(at);
            }
            _ if instance.fetched.len() >= 4 => return,
            _ => {}
        }
        let started: Vec<(i32, i64)> = instance.readers.iter().map(|(p, o)| (*p, *o)).collect();
        let Some((partition, offset)) = self.rng.pick(&started).copied() else { return };
        let place = usize::try_from(partition).unwrap();
        if offset < self.log.earliest[place] {
            instance.readers.remove(&partition);
            instance.machine.out_of_range(partition, self.now);
        } else {
            let mut batch = BatchBuilder::new(partition);
            let count = 1 + self.rng.below(5);
            let mut next = offset;
            for record in self.log.views[place].iter().skip(usize::try_from(offset).unwrap()).take(count) {
                let mut payload = Vec::new();
                match &record.view {
                    Some(view) => encode_view(view, &mut payload),
                    None => payload.extend_from_slice(b"garbage"),
                }
                batch.push(next, record.append_ms, Some(b"key"), Some(&payload));
                next += 1;
            }
            if batch.is_empty() {
                return;
            }
            instance.readers.insert(partition, next);
            instance.fetched.push_back(batch.build());
        }
        self.obey(at);
    }

    pub(super) fn obey(&mut self, at: usize) {
        let mut sent = Vec::new();
        self.instances[at].obey(&mut self.log, &mut sent);
        self.send(sent);
    }

    fn deliver_group_event(&mut self) {
        let at = self.rng.below(self.instances.len());
        let instance = &mut self.instances[at];
        match instance.events.pop_front() {
            Some(GroupEvent::Assigned { partitions, generation }) => {
                instance.generation = generation;
                instance.machine.assigned(&partitions, self.now);
            }
            Some(GroupEvent::Revoked { partitions }) => instance.machine.revoked(&partitions, self.now),
            None => return,
        }
        self.obey(at);
    }

    fn write_marker(&mut self) {
        if let Some((txn, partition)) = self.rng.pick(&self.log.markers()).copied() {
            self.log.write_marker(txn, partition);
        }
    }

    /// A rebuild reads one slot of one partition.
    fn read_verdict(&mut self) {
        let at = self.rng.below(self.instances.len());
        let instance = &mut self.instances[at];
        let rebuilds: Vec<i32> = instance.rebuilds.keys().copied().collect();
        let Some(partition) = self.rng.pick(&rebuilds).copied() else { return };
        let Some(rebuild) = instance.rebuilds.get_mut(&partition) else { return };
        let (Some(ends), true) = (&rebuild.ends, rebuild.verdicts.is_some()) else { return };
        let mut parts = Vec::new();
        for _ in 0..4 {
            let behind: Vec<usize> = (0..COUNTED).filter(|p| rebuild.positions[*p] < ends[*p]).collect();
            let Some(place) = self.rng.pick(&behind).copied() else {
                // Only when all ends are passed is everything below the committed offset known to be in.
                let verdicts = rebuild.verdicts.take();
                rebuild.done = verdicts.and_then(|v| v.finish(&mut parts).into_iter().next());
                break;
            };
            let slot = rebuild.positions[place];
            if slot >= self.log.last_stable(place) {
                break;
            }
            rebuild.positions[place] += 1;
            if let Some((append_ms, key, payload)) = self.log.visible(place, slot) {
                let mut batch = BatchBuilder::new(i32::try_from(place).unwrap());
                batch.push(i64::try_from(slot).unwrap(), append_ms, Some(key), Some(payload));
                if let Some(verdicts) = &mut rebuild.verdicts {
                    verdicts.take(&batch.build(), &mut parts);
                }
            }
        }
        rebuild.parts.extend(parts);
        self.obey(at);
    }

    /// What got lost is asked again.
    pub(super) fn ask_again(&mut self) {
        let at = self.rng.below(self.instances.len());
        let instance = &self.instances[at];
        let lost = |tag: &Tag| {
            !self.requests.iter().any(|(_, t, _)| t == tag) && !self.replies.iter().any(|(_, t, _)| t == tag)
        };
        let lost: Vec<(Tag, Request)> =
            instance.open.iter().filter(|(tag, _)| lost(tag)).map(|(t, r)| (*t, r.clone())).collect();
        let id = instance.id;
        if let Some((tag, request)) = self.rng.pick(&lost).cloned() {
            // Produced records are numbered, so that a broker drops what it has already; the others may be repeated.
            if !matches!(request, Request::Produce { .. }) {
                self.requests.push((id, tag, request));
            } else {
                self.time_out_txn(at);
            }
        }
    }

    pub(super) fn time_out_txn(&mut self, at: usize) {
        let mut sent = Vec::new();
        let instance = &mut self.instances[at];
        instance.abort(&mut sent);
        instance.machine.commit_ended(CommitEnd::Aborted, self.now);
        instance.obey(&mut self.log, &mut sent);
        self.send(sent);
    }

    fn expire_abandoned(&mut self) {
        let driven = |id: u64| self.instances.iter().any(|i| i.txn.as_ref().is_some_and(|t| t.id == id));
        let abandoned: Vec<u64> = self.log.open().into_iter().filter(|id| !driven(*id)).collect();
        if let Some(txn) = self.rng.pick(&abandoned).copied() {
            self.log.end(txn, false);
        }
    }

    fn pass_time(&mut self) {
        self.now += u64::try_from(self.rng.range(1, 200)).unwrap();
        let at = self.rng.below(self.instances.len());
        if let Some(due) = self.instances[at].machine.wake_at(self.now)
            && self.rng.chance(30)
        {
            self.now = due;
        }
        self.instances[at].machine.tick(self.now);
        self.obey(at);
    }

    fn notices(&mut self) -> Result<(), Violation> {
        for instance in &mut self.instances {
            while let Some(notice) = instance.machine.next_notice() {
                match notice {
                    Notice::Refused { partition, why } => return Err(format!("refused {partition}: {why}")),
                    Notice::Lost { partition, from, to } => {
                        return Err(format!("lost {from}..{to} of {partition}"));
                    }
                    Notice::Committed { .. } => self.stats.commits += 1,
                    Notice::Sync { .. } => self.stats.syncs += 1,
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
