//! Requests land: late, in any order.

use super::actors::{Actor, Flusher, Op};
use super::broken::Break;
use super::tell;
use super::trouble::Kind;
use super::world::{Flight, World};
use crate::words::Answer;
use onlooker_event::CountKey;
use onlooker_flusher::round;
use onlooker_model::Archive;
use onlooker_ports::{Archived, NumberRead};
use rand::Rng;

impl World<'_> {
    pub(super) fn land(&mut self) -> Result<(), String> {
        if self.flights.is_empty() {
            return Ok(());
        }
        let at = self.rng.random_range(0..self.flights.len());
        self.land_at(at)
    }

    pub(super) fn land_at(&mut self, at: usize) -> Result<(), String> {
        let Flight { id, actor, to_old_store, op } = self.flights.remove(at);
        let asked = if self.record.tells() { op.brief() } else { String::new() };
        let changes = op.changes();
        let awaited = self.waiting(actor).flights.iter().any(|(other, _)| *other == id);
        if !awaited {
            self.happens(Kind::Late);
        }
        let full = matches!(op, Op::Apply(_)) && self.is_full();
        let store = match (&mut self.old_store, to_old_store) {
            (Some(old), true) => old,
            _ => &mut self.store,
        };
        match actor {
            Actor::Counter(counter) => {
                let answer = match op {
                    Op::Applied => Answer::Applied(store.applied),
                    Op::Init { durable, whole_at } => Answer::Initialised(store.init(durable, whole_at)),
                    Op::Lookup { from, keys } => Answer::Found(store.lookup(from, &keys)),
                    // Whether it fits is seen before anything is written.
                    Op::Apply(batch) if full && store.applied == Some(batch.from) => Answer::Refused,
                    Op::Apply(batch) => Answer::Outcome(store.apply(&batch)),
                    Op::Durable => Answer::Durable(self.read_durable()),
                    Op::Read(keys) => Answer::Archived(keys.iter().map(|key| self.read_row(key)).collect()),
                    other => return Err(format!("a counter does not ask {other:?}")),
                };
                let end = if awaited { "" } else { ", and nobody waits for it" };
                self.record.say(|| format!("{actor}: {asked}: {}{end}", tell::answer(&answer)));
                if awaited {
                    self.counters[counter].waiting.flights.clear();
                    let heart = &mut self.counters[counter].heart;
                    heart.answer(answer);
                    let told = heart.take_told();
                    self.seen.hear(&told);
                    if !told.corrupt_stored.is_empty() || !told.damaged_archived.is_empty() {
                        return Err(format!("{told:?} cannot be"));
                    }
                }
            }
            Actor::Flusher(flusher) => {
                let answer = match op {
                    Op::Begin => match store.begin() {
                        Some(dirty) if self.broken == Some(Break::BeginInTwoSteps) => {
                            return self.go_on(id, actor, to_old_store, Op::BeginAgain(dirty));
                        }
                        began => round::Answer::Began(began),
                    },
                    Op::BeginAgain(mut dirty) => {
                        dirty.applied = store.applied.unwrap_or(dirty.applied);
                        round::Answer::Began(Some(dirty))
                    }
                    Op::ReadNumbers { applied, keys } => match store.read_numbers(applied, &keys) {
                        Some(first) if self.broken == Some(Break::NumberInTwoSteps) => {
                            let again = Op::ReadNumbersAgain { applied, keys, first };
                            return self.go_on(id, actor, to_old_store, again);
                        }
                        numbers => round::Answer::Numbers(numbers),
                    },
                    Op::ReadNumbersAgain { applied, keys, first } => {
                        let second = store.read_numbers(applied, &keys).unwrap_or_else(|| first.clone());
                        round::Answer::Numbers(Some(first.iter().zip(&second).map(mixed).collect()))
                    }
                    Op::ReadSketches { applied, keys } => {
                        round::Answer::Sketches(store.read_sketches(applied, &keys))
                    }
                    Op::SettleNumbers(numbers) => {
                        store.settle_numbers(&numbers);
                        round::Answer::Settled
                    }
                    Op::SettleSketches(sketches) => {
                        store.settle_sketches(&sketches);
                        round::Answer::Settled
                    }
                    Op::SetDurable(offset) => {
                        self.check_durable(offset)?;
                        let before = self.archive.durable.get(&0).copied();
                        self.archive.set_durable(0, offset);
                        if self.archive.durable.get(&0).copied() < before {
                            return Err(format!("durable goes back from {before:?} to {offset}"));
                        }
                        self.seen.durable += 1;
                        round::Answer::DurableSet
                    }
                    Op::Write(cell) => {
                        self.archive.write(&cell);
                        self.record.say(|| format!("{actor}: {asked}: done"));
                        return self.acknowledge(flusher, id);
                    }
                    other => return Err(format!("a flusher does not ask {other:?}")),
                };
                let end = if awaited { "" } else { ", and nobody waits for it" };
                self.record.say(|| format!("{actor}: {asked}: {}{end}", tell::round_answer(&answer)));
                if awaited {
                    self.flushers[flusher].waiting.flights.clear();
                    if let Some(round) = &mut self.flushers[flusher].round {
                        round.answer(answer);
                    }
                }
            }
        }
        if changes { self.check_store() } else { Ok(()) }
    }

    /// A step that takes two moments because a condition is left out: under the same id.
    pub(super) fn go_on(&mut self, id: u64, actor: Actor, to_old_store: bool, op: Op) -> Result<(), String> {
        self.flights.push(Flight { id, actor, to_old_store, op });
        Ok(())
    }

    pub(super) fn acknowledge(&mut self, flusher: usize, id: u64) -> Result<(), String> {
        let Flusher { round, waiting } = &mut self.flushers[flusher];
        if let Some(flight) = waiting.flights.iter_mut().find(|(other, _)| *other == id) {
            flight.1 = Some(true);
            if waiting.flights.iter().all(|(_, ok)| ok.is_some()) {
                let all = waiting.flights.drain(..).map(|_| true).collect();
                if let Some(round) = round {
                    round.answer(round::Answer::Written(all));
                }
            }
        }
        self.check_store()
    }

    /// A quorum read sees what was acknowledged, and perhaps what is still on its way and may yet vanish.
    pub(super) fn read_row(&mut self, key: &CountKey) -> Archived {
        if !self.flights.iter().any(|flight| matches!(flight.op, Op::Write(_))) {
            return self.archive.read(key);
        }
        let mut unsure = false;
        let mut seen = Archive::default();
        seen.rows.insert(key.clone(), self.archive.read(key));
        for flight in &self.flights {
            if let Op::Write(cell) = &flight.op {
                let (onlooker_ports::ArchiveCell::Sketch { key: other, .. }
                | onlooker_ports::ArchiveCell::Number { key: other, .. }) = cell;
                if other == key && self.rng.random_bool(0.5) {
                    seen.write(cell);
                    unsure = true;
                }
            }
        }
        if unsure {
            self.happens(Kind::Unsure);
        }
        seen.read(key)
    }

    pub(super) fn read_durable(&mut self) -> Option<i64> {
        let mut seen = self.archive.durable.get(&0).copied();
        for flight in &self.flights {
            if let Op::SetDurable(offset) = flight.op
                && self.rng.random_bool(0.5)
            {
                seen = seen.max(Some(offset));
            }
        }
        seen
    }
}

/// `n` of one reading and `u` of another.
fn mixed((first, second): (&NumberRead, &NumberRead)) -> NumberRead {
    match (first, second) {
        (NumberRead::Found(first), NumberRead::Found(second)) => {
            NumberRead::Found(onlooker_ports::Number { n: first.n, ..*second })
        }
        (first, _) => *first,
    }
}
