//! The world: servers, network, instances, and everything that can go wrong between any two steps.

use super::instance::{GroupEvent, Instance, Reply, Request, Step, Tag};
use super::log::{COUNTED, Log, State};
use super::reference::{self, Record};
use super::rng::Rng;
use super::store::Store;
use super::{Broken, PARTITIONS, SLICE_S, WINDOW_S, settings};
use crate::heart::rebuild::Verdicts;
use crate::heart::{CommitEnd, Notice, Settings};
use onlooker_event::{ClientId, Facts, ItemId, SiteId, Verdict, View, ViewId, ViewerHash};
use onlooker_ports::{BatchBuilder, Topic};
use onlooker_proto::{decode_counted, decode_dead, decode_ignored, encode_view};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often what goes wrong, in 1,000 steps.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) crash: usize,
    pub(super) rebalance: usize,
    pub(super) store_lost: usize,
    pub(super) store_set_back: usize,
    pub(super) split_brain: usize,
    pub(super) lost_request: usize,
    pub(super) time_out: usize,
    pub(super) retention: usize,
    pub(super) txn_expires: usize,
    /// Requests that arrive much later than they were sent, in 100 of them.
    pub(super) late: usize,
}

pub(super) struct World {
    rng: Rng,
    broken: Option<Broken>,
    settings: Arc<Settings>,
    now: u64,
    append_ms: i64,
    log: Log,
    /// Two copies while the store is split, else the first alone.
    stores: [Vec<Store>; 2],
    snapshots: Vec<Vec<Store>>,
    requests: Vec<(u64, Tag, Request)>,
    /// On their way for a long time.
    late: Vec<(u64, Tag, Request)>,
    late_percent: usize,
    replies: Vec<(u64, Tag, Reply)>,
    instances: Vec<Instance>,
    next_instance: u64,
    names: u64,
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

    fn start_instance(&mut self) {
        self.instances.push(Instance::new(self.next_instance, &self.settings));
        self.next_instance += 1;
    }

    /// A new generation with any members and any assignment.
    fn rebalance(&mut self) {
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

    fn fault(&mut self, faults: Faults) {
        let mut happens = |per_mille: usize| self.rng.below(1_000) < per_mille;
        let crash = happens(faults.crash);
        let rebalance = happens(faults.rebalance);
        let lost = happens(faults.store_lost);
        let set_back = happens(faults.store_set_back);
        let split = happens(faults.split_brain);
        let request = happens(faults.lost_request);
        let time_out = happens(faults.time_out);
        let retention = happens(faults.retention);
        let expires = happens(faults.txn_expires);
        if crash {
            self.crash();
        }
        if rebalance {
            self.rebalance();
        }
        if lost {
            let partition = self.rng.below(PARTITIONS);
            self.stores[0][partition] = Store::default();
        }
        if set_back {
            // A replica lacks the last few writes, or is a backup.
            let last = self.snapshots.len() - 1;
            let back = if self.rng.chance(70) { self.rng.below(5) } else { self.rng.below(last + 1) };
            self.stores[0] = self.snapshots[last.saturating_sub(back)].clone();
        }
        if split {
            self.split_or_join();
        }
        if request && !self.requests.is_empty() {
            let at = self.rng.below(self.requests.len());
            self.requests.swap_remove(at);
        }
        if time_out {
            self.time_out();
        }
        if retention {
            let partition = self.rng.below(PARTITIONS);
            let committed = self.log.committed[&i32::try_from(partition).unwrap()].offset;
            let earliest = &mut self.log.earliest[partition];
            *earliest = self.rng.range(*earliest, committed.max(*earliest));
        }
        if expires && let Some(txn) = self.rng.pick(&self.log.open()).copied() {
            self.log.end(txn, false);
        }
        if self.broken == Some(Broken::ClaimsExpire) && self.rng.chance(2) {
            let partition = self.rng.below(PARTITIONS);
            self.stores[0][partition].slices.pop_last();
        }
    }

    /// kill -9: what it has sent may still arrive.
    fn crash(&mut self) {
        let at = self.rng.below(self.instances.len());
        self.instances.swap_remove(at);
        self.start_instance();
        if self.rng.chance(80) {
            self.rebalance();
        }
    }

    /// One of the instances talks to another copy of the store for a while; one copy survives.
    fn split_or_join(&mut self) {
        if self.instances.iter().all(|i| i.store == 0) {
            self.stores[1] = self.stores[0].clone();
            let at = self.rng.below(self.instances.len());
            self.instances[at].store = 1;
            return;
        }
        if self.rng.chance(50) {
            self.stores[0] = self.stores[1].clone();
        }
        self.instances.iter_mut().for_each(|i| i.store = 0);
    }

    /// A client stops waiting: it asks the store again, or gives its transaction up.
    fn time_out(&mut self) {
        let at = self.rng.below(self.instances.len());
        let instance = &mut self.instances[at];
        let open: Vec<Tag> = instance.open.keys().copied().collect();
        let ending = |tag: &&Tag| matches!(instance.open[*tag], Request::End { .. });
        let Some(mut tag) = self.rng.pick(&open).copied() else { return };
        // The end of a transaction is the one request whose loss leaves a doubt.
        if let Some(end) = open.iter().find(ending)
            && self.rng.chance(50)
        {
            tag = *end;
        }
        let request = instance.open[&tag].clone();
        let mut sent = Vec::new();
        match request {
            Request::Produce { .. } | Request::SendOffsets { .. } => {
                instance.abort(&mut sent);
                instance.machine.commit_ended(CommitEnd::Aborted, self.now);
            }
            Request::End { txn, .. } => {
                instance.forget_txn(txn);
                instance.txn = None;
                self.stats.unknown += 1;
                instance.machine.commit_ended(CommitEnd::Unknown, self.now);
            }
            // The first request may still arrive, before or after the second.
            again => sent.push((instance.id, tag, again)),
        }
        instance.obey(&mut self.log, &mut sent);
        self.send(sent);
    }

    fn send(&mut self, sent: Vec<(u64, Tag, Request)>) {
        for request in sent {
            let late = self.rng.chance(self.late_percent);
            if late { &mut self.late } else { &mut self.requests }.push(request);
        }
    }

    /// No more faults: everybody is in the group, every question is asked until it is answered.
    fn heal(&mut self) {
        self.late_percent = 0;
        self.instances.iter_mut().for_each(|i| i.store = 0);
        self.rebalance();
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

    fn deliver_request(&mut self) {
        if !self.late.is_empty() && self.rng.chance(3) {
            let at = self.rng.below(self.late.len());
            self.requests.push(self.late.swap_remove(at));
        }
        if self.requests.is_empty() {
            return;
        }
        let at = self.rng.below(self.requests.len());
        let (id, tag, request) = self.requests[at].clone();
        if let Request::AskGroup { partition, .. } = request
            && self.log.unstable(partition)
            && self.broken != Some(Broken::UnstableOffsets)
        {
            // The coordinator answers when the transaction has ended.
            return;
        }
        if let Request::Produce { txn, .. } = request
            && !self.log.may_begin(txn)
        {
            return;
        }
        self.requests.swap_remove(at);
        let copy = self.instances.iter().find(|i| i.id == id).map_or(0, |i| i.store);
        let reply = self.serve(copy, id, request);
        self.replies.push((id, tag, reply));
    }

    fn serve(&mut self, copy: usize, id: u64, request: Request) -> Reply {
        let place = |partition: i32| usize::try_from(partition).unwrap();
        let store = &mut self.stores[copy];
        let reply = match request {
            Request::AskMemory { partition, .. } => return Reply::Memory(store[place(partition)].applied),
            Request::Lookup { partition, bounds: (low, high), slice, keys, .. } => {
                return Reply::Lookup(store[place(partition)].lookup(low, high, slice, &keys));
            }
            Request::Claim { partition, span, slice, claims, drop, .. } => {
                Reply::Claim(store[place(partition)].claim(self.broken, span, slice, &claims, drop))
            }
            Request::Stage { part, .. } => Reply::Stage(store[place(part.partition)].stage(
                self.broken,
                &part.name,
                part.part,
                part.slice,
                &part.claims,
            )),
            Request::Install { partition, job, name, parts, .. } => {
                Reply::Install(store[place(partition)].install(self.broken, job.to, &name, parts))
            }
            Request::AskGroup { partition, .. } => {
                let end = i64::try_from(self.log.views[place(partition)].len()).unwrap();
                let committed = self.log.committed.get(&partition).cloned();
                return Reply::Group(committed, (self.log.earliest[place(partition)], end));
            }
            Request::Ends { .. } => {
                let end = |p: usize| match self.broken {
                    Some(Broken::RebuildWithoutEnds) => self.log.last_stable(p),
                    _ => self.log.outputs[p].len(),
                };
                return Reply::Ends((0..COUNTED).map(end).collect());
            }
            Request::Produce { txn, partition, records } => {
                // Another broker's clock.
                let append_ms = self.append_ms + self.rng.range(-1_000, 1_000);
                return Reply::Txn(txn, self.log.produce(txn, partition, &records, append_ms));
            }
            Request::SendOffsets { txn, generation, positions } => {
                let checked = self.broken != Some(Broken::AnyMembership);
                return Reply::Txn(txn, self.log.send_offsets(txn, (id, generation), checked, &positions));
            }
            Request::End { txn, commit } => {
                return Reply::Txn(txn, self.log.end(txn, commit) == State::Committed);
            }
        };
        self.snapshots.push(self.stores[0].clone());
        if self.snapshots.len() > 200 {
            self.snapshots.remove(0);
        }
        reply
    }

    fn deliver_reply(&mut self) {
        if self.replies.is_empty() {
            return;
        }
        let at = self.rng.below(self.replies.len());
        let (id, tag, reply) = self.replies.swap_remove(at);
        let Some(at) = self.instances.iter().position(|i| i.id == id) else { return };
        let Some(request) = self.instances[at].open.remove(&tag) else { return };
        self.answer(at, request, reply);
    }

    fn answer(&mut self, at: usize, request: Request, reply: Reply) {
        let now = self.now;
        let mut sent = Vec::new();
        let instance = &mut self.instances[at];
        let machine = &mut instance.machine;
        match (request, reply) {
            (Request::AskMemory { partition, attempt }, Reply::Memory(memory)) => {
                machine.memory_stands(partition, attempt, memory, now);
            }
            (Request::AskGroup { partition, attempt }, Reply::Group(committed, bounds)) => {
                machine.group_stands(partition, attempt, committed.as_ref(), bounds, now);
            }
            (Request::Lookup { partition, attempt, .. }, Reply::Lookup(found)) => {
                machine.looked_up(partition, attempt, found, now);
            }
            (Request::Claim { partition, attempt, span, slice, .. }, Reply::Claim(outcome)) => {
                machine.claimed(partition, attempt, (span.1, slice), outcome, now);
            }
            (Request::Stage { attempt, part }, Reply::Stage(ok)) => {
                if let Some(rebuild) =
                    instance.rebuilds.get_mut(&part.partition).filter(|r| r.job.attempt == attempt)
                {
                    rebuild.staging = false;
                    if !ok {
                        instance.rebuilds.remove(&part.partition);
                        machine.rebuilt(part.partition, attempt, None, now);
                    }
                }
            }
            (Request::Install { partition, attempt, .. }, Reply::Install(outcome)) => {
                if instance.rebuilds.get(&partition).is_some_and(|r| r.job.attempt == attempt) {
                    instance.rebuilds.remove(&partition);
                    self.stats.rebuilds += 1;
                    machine.rebuilt(partition, attempt, Some(outcome), now);
                }
            }
            (Request::Ends { partition, attempt }, Reply::Ends(ends)) => {
                if let Some(rebuild) =
                    instance.rebuilds.get_mut(&partition).filter(|r| r.job.attempt == attempt)
                {
                    self.names += 1;
                    let name = format!("fresh-{}", self.names);
                    let verdicts = Verdicts::new(Arc::clone(&self.settings), &[rebuild.job], &name);
                    let from_ms = verdicts.from_ms();
                    // Seeking by time: the first record at or after it.
                    rebuild.positions = (0..COUNTED).map(|p| self.log.seek(p, from_ms)).collect();
                    rebuild.verdicts = Some(verdicts);
                    rebuild.ends = Some(ends);
                }
            }
            (_, Reply::Txn(txn, ok)) => {
                if instance.txn.as_ref().is_some_and(|t| t.id == txn) {
                    Self::txn_answer(instance, &self.log, self.broken, ok, now, &mut sent);
                }
            }
            (request, reply) => unreachable!("{request:?} answered by {reply:?}"),
        }
        instance.obey(&mut self.log, &mut sent);
        self.send(sent);
    }

    fn txn_answer(
        instance: &mut Instance,
        log: &Log,
        broken: Option<Broken>,
        ok: bool,
        now: u64,
        sent: &mut Vec<(u64, Tag, Request)>,
    ) {
        let Some(txn) = &mut instance.txn else { return };
        match (txn.step, ok) {
            (Step::Ending, _) => {
                instance.txn = None;
                let end = if ok { CommitEnd::Done } else { CommitEnd::Aborted };
                instance.machine.commit_ended(end, now);
            }
            (_, false) => {
                instance.abort(sent);
                instance.machine.commit_ended(CommitEnd::Aborted, now);
            }
            (_, true) => {
                txn.waiting -= 1;
                if txn.waiting == 0 {
                    instance.go_on(log, broken, sent);
                }
            }
        }
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

    fn obey(&mut self, at: usize) {
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
    fn ask_again(&mut self) {
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

    fn time_out_txn(&mut self, at: usize) {
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

    /// Every written verdict is the reference's, and the only one of its record; at the end every record has one.
    fn check(&self, all: bool) -> Result<(), Violation> {
        let mut written: BTreeMap<(i32, i64), Verdict> = BTreeMap::new();
        let right: Vec<Vec<(Verdict, i64)>> = self
            .log
            .views
            .iter()
            .map(|log| reference::verdicts(log, WINDOW_S.into(), SLICE_S.into()))
            .collect();
        for (topic, key, payload) in self.log.written() {
            let (place, verdict, slice) = parse(topic, key, payload)?;
            if written.insert(place, verdict).is_some() {
                return Err(format!("twice: {place:?}"));
            }
            let (expected, expected_slice) =
                right[usize::try_from(place.0).unwrap()][usize::try_from(place.1).unwrap()];
            if verdict != expected {
                return Err(format!("{place:?} is {verdict:?}, not {expected:?}"));
            }
            if slice.is_some_and(|slice| slice != expected_slice) {
                return Err(format!("{place:?} lies in slice {slice:?}, not {expected_slice}"));
            }
        }
        let records: usize = right.iter().map(Vec::len).sum();
        if all && written.len() != records {
            return Err(format!("{} of {records} records have a verdict", written.len()));
        }
        Ok(())
    }
}

type Place = (i32, i64);

/// Where a written record comes from, what it says, and its slice.
fn parse(topic: Topic, key: &[u8], payload: &[u8]) -> Result<(Place, Verdict, Option<i64>), Violation> {
    let text = |error: onlooker_proto::DecodeError| error.to_string();
    match topic {
        Topic::Counted => {
            let c = decode_counted(Some(payload)).map_err(text)?;
            let expected = format!("{}:{}", c.site, c.item);
            if key != expected.as_bytes() {
                return Err(format!("the key of {expected} is {key:?}"));
            }
            Ok(((c.source_partition, c.source_offset), Verdict::Counted, Some(c.slice)))
        }
        Topic::Ignored => {
            let i = decode_ignored(Some(payload)).map_err(text)?;
            Ok(((i.source_partition, i.source_offset), Verdict::Ignored(i.reason), Some(i.slice)))
        }
        _ => {
            let d = decode_dead(Some(payload)).map_err(text)?;
            Ok(((d.source_partition, d.source_offset), Verdict::Dead(d.reason), None))
        }
    }
}
