//! The world: servers, network, instances, and everything that can go wrong between any two steps.

use super::check::Right;
use super::faults::{Faults, Kind};
use super::instance::{GroupEvent, Instance, Reply, Request, Tag};
use super::log::{COUNTED, Log, ViewRecord, place_of};
use super::reference::{self, Reference};
use super::rng::Rng;
use super::store::Store;
use super::{Broken, PARTITIONS, SLICE_S, Violation, WINDOW_S, settings};
use crate::heart::{CommitEnd, Note, Notice, Settings};
use crate::rules::RULE_SET_VERSION;
use onlooker_event::{ClientId, Facts, ItemId, SiteId, View, ViewId, ViewerHash, client_id_key, dedup_key};
use onlooker_model::simulation::{Plan, Record};
use onlooker_ports::{BatchBuilder, Committed};
use onlooker_proto::{CARRIED_OVER, Counted, encode_counted, encode_view};
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
    shape: Shape,
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
struct Shape {
    steps: u32,
    records: usize,
    /// Records that are appended together, at most.
    burst: usize,
    /// Between two appends, at most.
    pace_ms: i64,
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

    /// A view of some viewer whose views stand in the partition, at a time like that of appending.
    fn view(&mut self, partition: usize, event_ms: i64) -> View {
        let facts = match self.rng.below(20) {
            0 => Facts::PREFETCH,
            1 => Facts::SELF_VIEW,
            _ => Facts(0),
        };
        let id = self.rng.chance(30).then(|| ["a", "b", "c"][self.rng.below(3)]);
        View {
            view_id: ViewId([7; 16]),
            site: SiteId::new("s").unwrap(),
            item: ItemId::new(["x", "y"][self.rng.below(2)]).unwrap(),
            viewer: ViewerHash([u8::try_from(partition * 2 + self.rng.below(2)).unwrap(); 16]),
            key_version: 1,
            event_ms,
            received_ms: event_ms,
            client_id: id.map(|id| ClientId::new(id).unwrap()),
            user_agent: None,
            referrer: None,
            facts,
        }
    }

    /// The log begins with the claims of another one, and its first note names their slice.
    fn carry_over(&mut self) {
        let now_s = self.append_ms / 1_000;
        let slice = now_s / i64::from(SLICE_S);
        for partition in 0..PARTITIONS {
            let mut carried = Vec::new();
            for _ in 0..self.rng.below(5) {
                let time_s = now_s - self.rng.range(0, 45);
                let view = View { facts: Facts(0), ..self.view(partition, time_s * 1_000) };
                let (key, slice) = (format!("{}:{}", view.site, view.item), time_s / i64::from(SLICE_S));
                let id = view.client_id.as_ref();
                let counted = Counted {
                    view_id: view.view_id,
                    site: view.site.clone(),
                    item: view.item.clone(),
                    viewer: view.viewer,
                    event_ms: view.event_ms,
                    source_partition: i32::try_from(partition).unwrap(),
                    source_offset: CARRIED_OVER,
                    slice,
                    slice_s: SLICE_S,
                    claim: dedup_key(view.viewer, key.as_bytes()),
                    id_claim: id.map(|id| client_id_key(view.viewer, id.as_str(), key.as_bytes())),
                    rule_version: RULE_SET_VERSION,
                };
                let mut payload = Vec::new();
                encode_counted(&counted, &mut payload);
                self.log.carry_over(place_of(key.as_bytes()), self.append_ms, key.as_bytes(), payload);
                self.record.say(|| format!("carried over for {partition}: {view:?} in slice {slice}"));
                carried.push((view, slice));
            }
            self.references[partition].goes_on(slice, &carried);
            let note = Note { slice, slice_s: SLICE_S }.write();
            let partition = i32::try_from(partition).unwrap();
            self.log.committed.insert(partition, Committed { offset: 0, note });
        }
    }

    fn append(&mut self) {
        let partition = self.rng.below(PARTITIONS);
        self.append_ms += self.rng.range(0, self.shape.pace_ms);
        match self.rng.below(30) {
            0 => self.append_ms += self.rng.range(0, 60_000),
            // Where a slice begins is where clocks matter.
            1..5 => {
                let slice_ms = i64::from(SLICE_S) * 1_000;
                self.append_ms = (self.append_ms / slice_ms + 1) * slice_ms + self.rng.range(0, 1_000);
            }
            _ => {}
        }
        // Several brokers: the clock of the next record may step back.
        let append_ms = self.append_ms - self.rng.range(0, 1_500);
        // Within what the collector lets through, early or late.
        let event_ms = append_ms + self.rng.range(-9_000, 9_000);
        let view = self.view(partition, event_ms);
        let view = (!self.rng.chance(3)).then_some(view);
        let mut payload = Vec::new();
        match &view {
            Some(view) => encode_view(view, &mut payload),
            None => payload.extend_from_slice(b"garbage"),
        }
        let verdict = self.references[partition].judge(&reference::Record { append_ms, view: view.clone() });
        let offset = self.log.views[partition].len();
        self.record.say(|| {
            let what = view.map_or("garbage".to_owned(), |v| {
                let id = v.client_id.as_ref().map(|id| id.as_str().to_owned());
                format!("viewer {} sees {} at {} ms, id {id:?}", v.viewer.0[0], v.item, v.event_ms)
            });
            format!("views {partition}/{offset}: {what}: {verdict:?}")
        });
        self.right[partition].push(Right { verdict, written: false });
        self.log.views[partition].push(ViewRecord { append_ms, payload });
        self.stats.records += 1;
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

    /// One thing happens, any of those that can.
    fn step(&mut self) -> Result<(), Violation> {
        for instance in &mut self.instances {
            instance.paused = instance.paused.saturating_sub(1);
        }
        for _ in 0..8 {
            let happened = match self.rng.below(100) {
                0..30 => self.deliver_request(),
                30..60 => self.deliver_reply(),
                60..77 => self.read_views(),
                77..79 => self.deliver_group_event(),
                79..86 => self.write_marker(),
                86..93 => self.read_verdict(),
                93..95 => self.ask_again(),
                95 => self.expire_abandoned(),
                _ => self.pass_time(),
            };
            if happened {
                break;
            }
        }
        self.wrong.take().map_or(Ok(()), Err)?;
        self.notices()
    }

    /// One of those that do not stand still.
    fn awake(&mut self) -> Option<usize> {
        let at = self.rng.below(self.instances.len());
        (self.instances[at].paused == 0).then_some(at)
    }

    fn read_views(&mut self) -> bool {
        let Some(at) = self.awake() else { return false };
        let happened = match self.rng.below(3) {
            0 => self.instances[at].read_on(self.now),
            1 => self.deliver_records(at),
            _ => self.fetch(at),
        };
        self.obey(at);
        happened
    }

    fn deliver_records(&mut self, at: usize) -> bool {
        let instance = &mut self.instances[at];
        if !instance.machine.wants_records() {
            return false;
        }
        let Some(batch) = instance.fetched.pop_front() else { return false };
        let (id, partition, next) = (instance.id, batch.partition, batch.next_offset());
        self.record.say(|| format!("filter {id} gets records of {partition} up to {next:?}"));
        instance.machine.records(batch, self.now);
        true
    }

    fn fetch(&mut self, at: usize) -> bool {
        let instance = &mut self.instances[at];
        let started: Vec<(i32, i64)> = instance.readers.iter().map(|(p, o)| (*p, *o)).collect();
        let Some((partition, offset)) = self.rng.pick(&started).copied() else { return false };
        if instance.fetched.len() >= 4 {
            return false;
        }
        let place = usize::try_from(partition).unwrap();
        if offset < self.log.earliest[place] {
            instance.readers.remove(&partition);
            instance.machine.out_of_range(partition, self.now);
            return true;
        }
        let count = 1 + self.rng.below(5);
        let first = usize::try_from(offset).unwrap();
        let mut batch = BatchBuilder::new(partition);
        let mut next = offset;
        for record in self.log.views[place].iter().skip(first).take(count) {
            batch.push(next, record.append_ms, Some(b"key"), Some(&record.payload));
            next += 1;
        }
        if batch.is_empty() {
            return false;
        }
        instance.readers.insert(partition, next);
        instance.fetched.push_back(batch.build());
        true
    }

    pub(super) fn obey(&mut self, at: usize) {
        let mut sent = Vec::new();
        self.instances[at].obey(&mut self.log, &mut sent);
        self.send(sent);
    }

    fn deliver_group_event(&mut self) -> bool {
        let Some(at) = self.awake() else { return false };
        let instance = &mut self.instances[at];
        let id = instance.id;
        match instance.events.pop_front() {
            Some(GroupEvent::Assigned { partitions, generation }) => {
                instance.generation = generation;
                self.record.say(|| format!("filter {id} hears of generation {generation}: {partitions:?}"));
                instance.machine.assigned(&partitions, self.now);
            }
            Some(GroupEvent::Revoked { partitions }) => {
                self.record.say(|| format!("filter {id} hears that {partitions:?} are taken away"));
                instance.machine.revoked(&partitions, self.now);
            }
            None => return false,
        }
        self.obey(at);
        true
    }

    fn write_marker(&mut self) -> bool {
        let Some((txn, partition)) = self.rng.pick(&self.log.markers()).copied() else { return false };
        self.record.say(|| match partition {
            Some(partition) => format!("transaction {txn}: its end shows in output {partition}"),
            None => format!("transaction {txn}: its offsets are what is committed"),
        });
        self.log.write_marker(txn, partition);
        true
    }

    /// A rebuild reads some slots.
    fn read_verdict(&mut self) -> bool {
        let Some(at) = self.awake() else { return false };
        let instance = &mut self.instances[at];
        let rebuilds: Vec<i32> = instance.rebuilds.keys().copied().collect();
        let Some(partition) = self.rng.pick(&rebuilds).copied() else { return false };
        let Some(rebuild) = instance.rebuilds.get_mut(&partition) else { return false };
        let (Some(ends), true) = (&rebuild.ends, rebuild.verdicts.is_some()) else { return false };
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
        true
    }

    /// What got lost is asked again.
    fn ask_again(&mut self) -> bool {
        let Some(at) = self.awake() else { return false };
        let instance = &self.instances[at];
        let lost = |tag: &Tag| {
            !self.requests.iter().any(|(_, t, _)| t == tag) && !self.replies.iter().any(|(_, t, _)| t == tag)
        };
        let lost: Vec<(Tag, Request)> =
            instance.open.iter().filter(|(tag, _)| lost(tag)).map(|(t, r)| (*t, r.clone())).collect();
        let id = instance.id;
        let Some((tag, request)) = self.rng.pick(&lost).cloned() else { return false };
        // Produced records are numbered, so that a broker drops what it has already; the others may be repeated.
        if !matches!(request, Request::Produce { .. }) {
            self.requests.push((id, tag, request));
        } else {
            self.time_out_txn(at);
        }
        true
    }

    fn time_out_txn(&mut self, at: usize) {
        let mut sent = Vec::new();
        let instance = &mut self.instances[at];
        instance.abort(&mut sent);
        instance.machine.commit_ended(CommitEnd::Aborted, self.now);
        instance.obey(&mut self.log, &mut sent);
        self.send(sent);
    }

    fn expire_abandoned(&mut self) -> bool {
        let driven = |id: u64| self.instances.iter().any(|i| i.txn.as_ref().is_some_and(|t| t.id == id));
        let abandoned: Vec<u64> = self.log.open().into_iter().filter(|id| !driven(*id)).collect();
        let Some(txn) = self.rng.pick(&abandoned).copied() else { return false };
        self.record.say(|| format!("transaction {txn} expires, nobody drives it"));
        self.log.end(txn, false);
        true
    }

    fn pass_time(&mut self) -> bool {
        self.now += u64::try_from(self.rng.range(1, 200)).unwrap();
        let Some(at) = self.awake() else { return true };
        if let Some(due) = self.instances[at].machine.wake_at(self.now)
            && self.rng.chance(30)
        {
            self.now = due;
        }
        self.instances[at].machine.tick(self.now);
        self.obey(at);
        true
    }

    fn notices(&mut self) -> Result<(), Violation> {
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
