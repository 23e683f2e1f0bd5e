//! What may happen next, when nothing goes wrong.

use super::Violation;
use super::instance::{GroupEvent, Request, Tag};
use super::log::COUNTED;
use super::world::World;
use crate::heart::CommitEnd;
use onlooker_ports::BatchBuilder;

impl World<'_> {
    /// One thing happens, any of those that can.
    pub(super) fn step(&mut self) -> Result<(), Violation> {
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
}
