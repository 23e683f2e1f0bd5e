//! Requests arrive and are served, in any order; answers arrive, in any order.

use super::Broken;
use super::instance::{Instance, Reply, Request, Step, Tag};
use super::log::{COUNTED, Log, State};
use super::world::World;
use crate::heart::CommitEnd;
use crate::heart::rebuild::Verdicts;
use std::sync::Arc;

impl World<'_> {
    pub(super) fn deliver_request(&mut self) -> bool {
        if !self.late.is_empty() && self.rng.chance(3) {
            let at = self.rng.below(self.late.len());
            self.requests.push(self.late.swap_remove(at));
        }
        if self.requests.is_empty() {
            return false;
        }
        let at = self.rng.below(self.requests.len());
        let (id, tag, request) = self.requests[at].clone();
        if let Request::AskGroup { partition, .. } = request
            && self.log.unstable(partition)
            && self.broken != Some(Broken::UnstableOffsets)
        {
            // The coordinator answers when the transaction has ended.
            return false;
        }
        if let Request::Produce { txn, .. } = request
            && !self.log.may_begin(txn)
        {
            return false;
        }
        self.requests.swap_remove(at);
        let copy = self.instances.iter().find(|i| i.id == id).map_or(0, |i| i.store);
        let brief = self.record.tells().then(|| request.brief());
        let reply = self.serve(copy, id, request);
        self.record.say(|| format!("filter {id}: {}: {}", brief.unwrap_or_default(), reply.brief()));
        self.replies.push((id, tag, reply));
        true
    }

    fn serve(&mut self, copy: usize, id: u64, request: Request) -> Reply {
        let place = |partition: i32| usize::try_from(partition).unwrap();
        let changes = match &request {
            Request::Claim { partition, .. } | Request::Install { partition, .. } => Some(*partition),
            _ => None,
        };
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
                let append_ms = self.append_ms + self.skews_ms[partition] + self.rng.range(-400, 400);
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
        if let Some(partition) = changes {
            self.wrong = self.check_memory(copy, partition).err();
        }
        self.snapshots.push_back(self.stores[0].clone());
        if self.snapshots.len() > 200 {
            self.snapshots.pop_front();
        }
        reply
    }

    pub(super) fn deliver_reply(&mut self) -> bool {
        if self.replies.is_empty() {
            return false;
        }
        let at = self.rng.below(self.replies.len());
        let to = self.replies[at].0;
        if self.instances.iter().any(|i| i.id == to && i.paused > 0) {
            return false;
        }
        let (id, tag, reply) = self.replies.swap_remove(at);
        let Some(at) = self.instances.iter().position(|i| i.id == id) else { return false };
        let Some(request) = self.instances[at].open.remove(&tag) else { return false };
        self.answer(at, request, reply);
        true
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
}
