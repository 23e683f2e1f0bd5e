//! The world: who may do what next is decided by the seed.

use super::Seen;
use super::actors::{Actor, Counter, Flusher, Op, Waiting};
use super::broken::Break;
use super::truth::Truth;
use crate::words::{Answer, Ask, Fault, Work};
use onlooker_event::CountKey;
use onlooker_flusher::round;
use onlooker_model::simulation::{Plan, Record};
use onlooker_model::{Archive, Counts, Rule};
use onlooker_ports::Archived;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

#[derive(Debug)]
pub(super) struct Flight {
    pub(super) id: u64,
    pub(super) actor: Actor,
    /// Sent to the store that was replaced.
    pub(super) to_old_store: bool,
    pub(super) op: Op,
}

#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) rng: SmallRng,
    pub(super) record: &'a mut Record,
    pub(super) broken: Option<Break>,
    pub(super) truth: Truth,
    pub(super) store: Counts,
    /// After a failover, the former primary, to which some still talk.
    pub(super) old_store: Option<Counts>,
    /// Earlier states, to one of which the store may fall back.
    pub(super) snapshots: Vec<Counts>,
    pub(super) archive: Archive,
    pub(super) flights: Vec<Flight>,
    pub(super) next_id: u64,
    pub(super) counters: Vec<Counter>,
    pub(super) flushers: Vec<Flusher>,
    /// A janitor that looks first and removes later has seen these.
    pub(super) swept: Vec<CountKey>,
    /// No more faults: everything may come to rest.
    pub(super) calm: bool,
    pub(super) seen: Seen,
    /// How often a request is answered before anything else happens.
    pub(super) prompt: f64,
    /// How often what may go wrong does.
    pub(super) trouble: f64,
    /// How often the store has no memory for a step, in 100.
    pub(super) full_percent: u32,
    steps: u32,
}

impl<'a> World<'a> {
    pub(super) fn new(plan: &Plan, broken: Option<Break>, record: &'a mut Record) -> Self {
        let mut rng = SmallRng::seed_from_u64(plan.seed_of_part(0));
        let fault = fault_of(broken);
        let counters = (0..rng.random_range(1..=2)).map(|_| Counter::new(&mut rng, fault)).collect();
        let flushers = (0..rng.random_range(1..=2)).map(|_| Flusher::default()).collect();
        let without = if let Some(Break::Store(rule)) = broken { Some(rule) } else { None };
        let steps = match rng.random_range(0..20) {
            0..10 => rng.random_range(20..100),
            10..17 => rng.random_range(100..250),
            _ => rng.random_range(250..600),
        };
        let (truth, archive) = beginning(plan, broken);
        Self {
            record,
            broken,
            truth,
            store: Counts { without, ..Counts::default() },
            old_store: None,
            snapshots: Vec::new(),
            archive,
            flights: Vec::new(),
            next_id: 0,
            counters,
            flushers,
            swept: Vec::new(),
            calm: false,
            seen: Seen::default(),
            prompt: *[0.0, 0.5, 0.95].choose(&mut rng).unwrap_or(&0.0),
            trouble: *[0.1, 0.4, 1.0].choose(&mut rng).unwrap_or(&1.0),
            full_percent: *[0, 0, 0, 20].choose(&mut rng).unwrap_or(&0),
            steps,
            rng,
        }
    }

    /// The steps of the plan, and then rest. An error is a violation.
    pub(super) fn live(mut self, plan: &Plan) -> Result<Seen, String> {
        for step in plan.steps(self.steps) {
            self.record.step(step);
            self.rng = SmallRng::seed_from_u64(plan.seed_of(step));
            self.step()?;
        }
        self.rng = SmallRng::seed_from_u64(plan.seed_of_part(1));
        self.full_percent = 0;
        self.rest()?;
        Ok(self.seen)
    }

    pub(super) fn step(&mut self) -> Result<(), String> {
        if self.store.applied.is_none() && self.rng.random_bool(0.03) {
            self.fail_over()?;
        }
        match self.rng.random_range(0..1000) {
            600..620 => self.commit(),
            620..720 if self.truth.len() < 40 => {
                self.append();
                Ok(())
            }
            720.. if self.rng.random_bool(self.trouble) => self.trouble(),
            450.. if !self.flights.is_empty() => self.land(),
            _ => self.act(),
        }
    }

    /// What is durable is committed to the log's group: from there on the log may drop its records.
    fn commit(&mut self) -> Result<(), String> {
        let durable = self.read_durable();
        let committed = if self.broken == Some(Break::CommitsApplied) { self.store.applied } else { durable };
        let Some(offset) = committed else { return Ok(()) };
        self.record.say(|| format!("{offset} is committed"));
        self.check_durable(offset)
    }

    pub(super) fn append(&mut self) {
        let rng = &mut self.rng;
        let gap = if rng.random_bool(0.7) { 0 } else { rng.random_range(1..3) };
        let (item, viewer, day) = (rng.random_range(0..2), rng.random_range(0..7), rng.random_range(0..2));
        self.truth.append(gap, item, viewer, day);
        let end = self.truth.end;
        self.record.say(|| format!("record {}: item {item}, viewer {viewer}, day {day}", end - 1));
    }

    pub(super) fn actors(&self) -> Vec<Actor> {
        let counters = (0..self.counters.len()).map(Actor::Counter);
        counters.chain((0..self.flushers.len()).map(Actor::Flusher)).collect()
    }

    pub(super) fn any_actor(&mut self) -> Actor {
        let actors = self.actors();
        *actors.choose(&mut self.rng).unwrap()
    }

    pub(super) fn waiting(&mut self, actor: Actor) -> &mut Waiting {
        match actor {
            Actor::Counter(at) => &mut self.counters[at].waiting,
            Actor::Flusher(at) => &mut self.flushers[at].waiting,
        }
    }

    /// Somebody who waits for nothing goes on; if there is nobody, a request lands.
    pub(super) fn act(&mut self) -> Result<(), String> {
        let mut free = self.actors();
        free.retain(|actor| self.waiting(*actor).flights.is_empty());
        let Some(actor) = free.choose(&mut self.rng).copied() else { return self.land() };
        self.act_as(actor)?;
        let prompt = self.rng.random_bool(self.prompt);
        while prompt && let Some(at) = self.flights.iter().position(|f| f.actor == actor) {
            self.land_at(at)?;
        }
        Ok(())
    }

    pub(super) fn act_as(&mut self, actor: Actor) -> Result<(), String> {
        if !self.waiting(actor).flights.is_empty() {
            return Ok(());
        }
        match actor {
            Actor::Counter(at) => self.count(at),
            Actor::Flusher(at) => self.flush(at),
        }
    }

    pub(super) fn send(&mut self, actor: Actor, op: Op) {
        let id = self.next_id;
        self.next_id += 1;
        let waiting = self.waiting(actor);
        waiting.flights.push((id, None));
        let to_old_store = waiting.on_old_store && !op.to_archive();
        self.flights.push(Flight { id, actor, to_old_store, op });
    }

    pub(super) fn count(&mut self, at: usize) -> Result<(), String> {
        let end = self.truth.end;
        let counter = &mut self.counters[at];
        let op = match counter.heart.ask() {
            Ask::Applied => Op::Applied,
            Ask::Durable => Op::Durable,
            Ask::End => {
                counter.heart.answer(Answer::End(end));
                return Ok(());
            }
            Ask::Init { durable, whole_at } => Op::Init { durable, whole_at },
            Ask::Start { .. } => {
                counter.heart.answer(Answer::Started);
                return Ok(());
            }
            Ask::Work { from } => {
                if let Some(work) = self.work(from) {
                    self.counters[at].heart.answer(Answer::Work(work));
                }
                return Ok(());
            }
            Ask::Lookup { from, keys } => {
                if matches!(self.broken, Some(Break::NumberReadBeforeLookup | Break::BaseReadBeforeMissing)) {
                    counter.earlier = self.archive.clone();
                }
                Op::Lookup { from, keys: keys.to_vec() }
            }
            Ask::Read { keys, .. } => {
                let keys = keys.to_vec();
                if let Some(rows) = self.read_wrongly(at, &keys) {
                    self.counters[at].heart.answer(Answer::Archived(rows));
                    return Ok(());
                }
                Op::Read(keys)
            }
            Ask::Apply(step) => Op::Apply(step.clone()),
        };
        self.send(Actor::Counter(at), op);
        Ok(())
    }

    /// The conditions on reading the archive, left out.
    pub(super) fn read_wrongly(&mut self, at: usize, keys: &[CountKey]) -> Option<Vec<Archived>> {
        let counter = &mut self.counters[at];
        match self.broken {
            Some(Break::NumberReadBeforeLookup) => {
                let row =
                    |key| Archived { number: counter.earlier.read(key).number, ..self.archive.read(key) };
                Some(keys.iter().map(row).collect())
            }
            Some(Break::BaseReadBeforeMissing) => {
                let row =
                    |key| Archived { sketch: counter.earlier.read(key).sketch, ..self.archive.read(key) };
                Some(keys.iter().map(row).collect())
            }
            Some(Break::NilIsZero) => {
                let row = |key| Archived { number: None, ..self.archive.read(key) };
                Some(keys.iter().map(row).collect())
            }
            Some(Break::BasesKept) => {
                let kept = &mut counter.kept;
                let row = |key: &CountKey| {
                    let now = self.archive.read(key);
                    let first = kept.entry(key.clone()).or_insert_with(|| now.clone());
                    Archived { sketch: first.sketch.clone(), number: now.number }
                };
                Some(keys.iter().map(row).collect())
            }
            _ => None,
        }
    }

    pub(super) fn work(&mut self, from: i64) -> Option<Work> {
        let idle = self.broken != Some(Break::NoIdleApply);
        let choice = if self.calm { 0 } else { self.rng.random_range(0..10) };
        if choice < 7 {
            if let Some(grouped) = self.truth.read(from, self.rng.random_range(1..5)) {
                // Up to the next record there is nothing: the offset may already stand there.
                let next = self.truth.next_record(grouped.to).unwrap_or(self.truth.end);
                let to = if self.rng.random_bool(0.5) { grouped.to } else { next };
                return Some(Work::Records { grouped: Box::new(grouped), to });
            }
            let to = self.truth.end;
            return (idle || to > from).then_some(Work::Nothing { to, as_of_ms: 1 });
        }
        if choice < 8 {
            return idle.then_some(Work::Nothing { to: 0, as_of_ms: 0 });
        }
        let all: Vec<_> = self.truth.keys().cloned().collect();
        let most = self.rng.random_range(1..3);
        let keys: Vec<_> = all.choose_multiple(&mut self.rng, most).cloned().collect();
        Some(Work::Wishes { keys, now_s: 7 })
    }

    pub(super) fn flush(&mut self, at: usize) -> Result<(), String> {
        let pages = self.rng.random_range(1..4);
        let round = self.flushers[at].round.get_or_insert_with(|| round::Round::new(pages, None));
        let op = match round.ask() {
            round::Ask::Begin => Op::Begin,
            round::Ask::ReadNumbers { applied, keys } => Op::ReadNumbers { applied, keys: keys.to_vec() },
            round::Ask::ReadSketches { applied, keys } => Op::ReadSketches { applied, keys: keys.to_vec() },
            round::Ask::Write(cells) => {
                let cells = cells.to_vec();
                if self.broken == Some(Break::NoAcknowledgement) {
                    round.answer(round::Answer::Written(vec![true; cells.len()]));
                }
                for cell in &cells {
                    self.truth.check_cell(cell)?;
                    self.send(Actor::Flusher(at), Op::Write(cell.clone()));
                }
                if self.broken == Some(Break::NoAcknowledgement) {
                    self.flushers[at].waiting.flights.clear();
                }
                return Ok(());
            }
            round::Ask::SettleNumbers(numbers) => Op::SettleNumbers(numbers.to_vec()),
            round::Ask::SettleSketches(sketches) => Op::SettleSketches(sketches.to_vec()),
            round::Ask::SetDurable(offset) => {
                self.check_durable(offset)?;
                Op::SetDurable(offset)
            }
            round::Ask::End(round::Ending::Corrupt) => {
                return Err(format!("{:?} cannot be", round.done().corrupt));
            }
            round::Ask::End(ending) => {
                self.record.say(|| format!("flusher {at} ends a round: {ending:?}"));
                self.flushers[at].round = None;
                return Ok(());
            }
        };
        self.send(Actor::Flusher(at), op);
        Ok(())
    }
}

/// Every third log begins with what was counted in another one, and with some of its records.
fn beginning(plan: &Plan, broken: Option<Break>) -> (Truth, Archive) {
    let mut rng = SmallRng::seed_from_u64(plan.seed_of_part(2));
    let without = if let Some(Break::Archive(timestamp)) = broken { Some(timestamp) } else { None };
    let (mut truth, mut archive) = (Truth::default(), Archive { without, ..Archive::default() });
    if plan.seed().is_multiple_of(3) {
        for item in 0..rng.random_range(1..=3) {
            // One-sided at times: some viewers are known in the log as well, some items are not.
            let viewers: Vec<u8> = (0..rng.random_range(1..6)).map(|_| rng.random_range(0..9)).collect();
            let cells = truth.begin_with(item, &viewers, 0);
            cells.iter().for_each(|cell| archive.write(cell));
            for viewer in viewers.iter().filter(|viewer| **viewer % 2 == 0) {
                truth.carry_over(item, *viewer, 0);
            }
        }
    }
    (truth, archive)
}

pub(super) fn fault_of(broken: Option<Break>) -> Fault {
    match broken {
        Some(Break::Heart(fault)) => fault,
        Some(Break::Store(Rule::UnchangedIsDirty)) => Fault::TellUnchanged,
        _ => Fault::None,
    }
}
