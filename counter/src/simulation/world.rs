//! The world: who may do what next is decided by the seed.

use super::actors::{Actor, Counter, Flusher, Op, Waiting};
use super::truth::{Truth, contains};
use super::{Break, Seen};
use crate::heart::{Answer, Ask, Fault, Work};
use onlooker_event::CountKey;
use onlooker_flusher::round;
use onlooker_model::{Archive, Counts, Rule, Stored};
use onlooker_ports::{Archived, CountLookup, NumberRead};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

#[derive(Debug)]
struct Flight {
    id: u64,
    actor: Actor,
    /// Sent to the store that was replaced.
    to_old_store: bool,
    op: Op,
}

#[derive(Debug)]
pub(super) struct World {
    rng: StdRng,
    broken: Break,
    truth: Truth,
    store: Counts,
    /// After a failover, the former primary, to which some still talk.
    old_store: Option<Counts>,
    /// Earlier states, to one of which the store may fall back.
    snapshots: Vec<Counts>,
    archive: Archive,
    flights: Vec<Flight>,
    next_id: u64,
    counters: Vec<Counter>,
    flushers: Vec<Flusher>,
    /// A janitor that looks first and removes later has seen these.
    swept: Vec<CountKey>,
    /// No more faults: everything may come to rest.
    calm: bool,
    seen: Seen,
    /// How often a request is answered before anything else happens.
    prompt: f64,
    /// How often what may go wrong does.
    trouble: f64,
}

impl World {
    pub(super) fn new(seed: u64, broken: Break) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let fault = fault_of(broken);
        let counters = (0..rng.random_range(1..=2)).map(|_| Counter::new(&mut rng, fault)).collect();
        let flushers = (0..rng.random_range(1..=2)).map(|_| Flusher::default()).collect();
        let without = if let Break::Store(rule) = broken { Some(rule) } else { None };
        Self {
            broken,
            truth: Truth::default(),
            store: Counts { without, ..Counts::default() },
            old_store: None,
            snapshots: Vec::new(),
            archive: Archive { without_timestamps: broken == Break::Timestamps, ..Archive::default() },
            flights: Vec::new(),
            next_id: 0,
            counters,
            flushers,
            swept: Vec::new(),
            calm: false,
            seen: Seen::default(),
            prompt: *[0.0, 0.5, 0.95].choose(&mut rng).unwrap_or(&0.0),
            trouble: *[0.1, 0.4, 1.0].choose(&mut rng).unwrap_or(&1.0),
            rng,
        }
    }

    /// Some hundred steps, and then rest. An error is a violation.
    pub(super) fn run_and_tell(mut self) -> Result<Seen, String> {
        for _ in 0..self.rng.random_range(50..700) {
            self.step()?;
        }
        self.rest()?;
        Ok(self.seen)
    }

    fn step(&mut self) -> Result<(), String> {
        if self.store.applied.is_none() && self.rng.random_bool(0.03) {
            self.fail_over()?;
        }
        let choice = self.rng.random_range(0..1000);
        match choice {
            0..450 => self.act(),
            450..600 => self.land(),
            600..700 if self.truth.len() < 40 => {
                self.append();
                Ok(())
            }
            700.. if self.rng.random_bool(self.trouble) => self.trouble(choice),
            _ => Ok(()),
        }
    }

    fn trouble(&mut self, choice: i32) -> Result<(), String> {
        match choice {
            700..770 => self.time_out(),
            770..840 => return self.evict(),
            840..880 => return self.sweep(),
            880..900 => self.crash(),
            900..930 => self.snapshots.push(self.store.clone()),
            930..940 => self.lose_everything(),
            940..960 => return self.fail_over(),
            960..980 => self.drop_old_store(),
            _ => self.drop_flight(),
        }
        Ok(())
    }

    fn append(&mut self) {
        let rng = &mut self.rng;
        let gap = if rng.random_bool(0.7) { 0 } else { rng.random_range(1..3) };
        let (item, viewer, day) = (rng.random_range(0..2), rng.random_range(0..7), rng.random_range(0..2));
        self.truth.append(gap, item, viewer, day);
    }

    // What may go wrong.

    fn evict(&mut self) -> Result<(), String> {
        let keys: Vec<_> = self.store.evictable.iter().cloned().collect();
        if let Some(key) = keys.choose(&mut self.rng) {
            self.store.evict(key);
        }
        self.check_store()
    }

    fn sweep(&mut self) -> Result<(), String> {
        if self.broken == Break::SweepInTwoSteps {
            if self.swept.is_empty() {
                let clean = self.store.numbers.keys().filter(|k| !self.store.dirty_numbers.contains(*k));
                self.swept = clean.cloned().collect();
            } else {
                self.swept.drain(..).for_each(|key| _ = self.store.numbers.remove(&key));
            }
        } else {
            self.store.sweep(u32::MAX);
        }
        self.check_store()
    }

    fn lose_everything(&mut self) {
        self.store.flush_all();
        // A server that came back empty may yet be replaced by one that remembers an earlier state.
        if self.rng.random_bool(0.5) {
            self.snapshots.clear();
        }
    }

    fn fail_over(&mut self) -> Result<(), String> {
        if self.snapshots.is_empty() {
            return Ok(());
        }
        let at = self.rng.random_range(0..self.snapshots.len());
        self.snapshots.truncate(at + 1);
        let earlier = self.snapshots[at].clone();
        let former = std::mem::replace(&mut self.store, earlier);
        // The former primary lives on for some, until they notice.
        self.drop_old_store();
        self.old_store = Some(former);
        for at in 0..self.counters.len() {
            self.counters[at].waiting.on_old_store = self.rng.random_bool(0.3);
        }
        for at in 0..self.flushers.len() {
            self.flushers[at].waiting.on_old_store = self.rng.random_bool(0.3);
        }
        self.check_store()
    }

    fn drop_old_store(&mut self) {
        self.old_store = None;
        self.flights.retain(|flight| !flight.to_old_store);
        for actor in self.actors() {
            let waiting = self.waiting(actor);
            // Who waited for it runs into a time-out.
            if waiting.on_old_store && !waiting.flights.is_empty() {
                self.give_up(actor);
            }
            self.waiting(actor).on_old_store = false;
        }
    }

    fn crash(&mut self) {
        let fault = fault_of(self.broken);
        match self.any_actor() {
            Actor::Counter(at) => self.counters[at] = Counter::new(&mut self.rng, fault),
            Actor::Flusher(at) => self.flushers[at] = Flusher::default(),
        }
    }

    /// Nobody waits any more, and the requests may land later.
    fn time_out(&mut self) {
        let actor = self.any_actor();
        if !self.waiting(actor).flights.is_empty() {
            self.give_up(actor);
        }
    }

    fn give_up(&mut self, actor: Actor) {
        let flights = std::mem::take(&mut self.waiting(actor).flights);
        let acknowledged = flights.iter().map(|(_, ok)| *ok == Some(true)).collect();
        match actor {
            Actor::Counter(at) => self.counters[at].heart.answer(Answer::Doubt),
            Actor::Flusher(at) => {
                let Some(round) = &mut self.flushers[at].round else { return };
                let writes = matches!(round.ask(), round::Ask::Write(_));
                let answer = if writes { round::Answer::Written(acknowledged) } else { round::Answer::Doubt };
                round.answer(answer);
            }
        }
    }

    fn drop_flight(&mut self) {
        let waits = |w: &Waiting, id| w.flights.iter().any(|(other, _)| *other == id);
        let lonely: Vec<usize> = (0..self.flights.len())
            .filter(|at| {
                let id = self.flights[*at].id;
                !self.counters.iter().any(|c| waits(&c.waiting, id))
                    && !self.flushers.iter().any(|f| waits(&f.waiting, id))
            })
            .collect();
        if let Some(at) = lonely.choose(&mut self.rng) {
            self.flights.remove(*at);
        }
    }

    // Who does what.

    fn actors(&self) -> Vec<Actor> {
        let counters = (0..self.counters.len()).map(Actor::Counter);
        counters.chain((0..self.flushers.len()).map(Actor::Flusher)).collect()
    }

    fn any_actor(&mut self) -> Actor {
        let actors = self.actors();
        *actors.choose(&mut self.rng).unwrap()
    }

    fn waiting(&mut self, actor: Actor) -> &mut Waiting {
        match actor {
            Actor::Counter(at) => &mut self.counters[at].waiting,
            Actor::Flusher(at) => &mut self.flushers[at].waiting,
        }
    }

    fn act(&mut self) -> Result<(), String> {
        let actor = self.any_actor();
        self.act_as(actor)?;
        let prompt = self.rng.random_bool(self.prompt);
        while prompt && let Some(at) = self.flights.iter().position(|f| f.actor == actor) {
            self.land_at(at)?;
        }
        Ok(())
    }

    fn act_as(&mut self, actor: Actor) -> Result<(), String> {
        if !self.waiting(actor).flights.is_empty() {
            return Ok(());
        }
        match actor {
            Actor::Counter(at) => self.count(at),
            Actor::Flusher(at) => self.flush(at),
        }
    }

    fn send(&mut self, actor: Actor, op: Op) {
        let id = self.next_id;
        self.next_id += 1;
        let waiting = self.waiting(actor);
        waiting.flights.push((id, None));
        let to_old_store = waiting.on_old_store && !op.to_archive();
        self.flights.push(Flight { id, actor, to_old_store, op });
    }

    fn count(&mut self, at: usize) -> Result<(), String> {
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
                counter.earlier = self.archive.clone();
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
    fn read_wrongly(&mut self, at: usize, keys: &[CountKey]) -> Option<Vec<Archived>> {
        let counter = &mut self.counters[at];
        match self.broken {
            Break::ReadBeforeLookup => Some(keys.iter().map(|key| counter.earlier.read(key)).collect()),
            Break::NilIsZero => {
                let row = |key| Archived { number: None, ..self.archive.read(key) };
                Some(keys.iter().map(row).collect())
            }
            Break::BasesKept => {
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

    fn work(&mut self, from: i64) -> Option<Work> {
        let idle = self.broken != Break::NoIdleApply;
        let choice = if self.calm { 0 } else { self.rng.random_range(0..10) };
        if choice < 7 {
            if let Some(grouped) = self.truth.read(from, self.rng.random_range(1..5)) {
                // Up to the next record there is nothing: the offset may already stand there.
                let next = self.truth.next_record(grouped.to).unwrap_or(self.truth.end);
                let to = if self.rng.random_bool(0.5) { grouped.to } else { next };
                return Some(Work::Records { grouped, to });
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

    fn flush(&mut self, at: usize) -> Result<(), String> {
        let pages = self.rng.random_range(1..4);
        let round = self.flushers[at].round.get_or_insert_with(|| round::Round::new(pages, None));
        let op = match round.ask() {
            round::Ask::Begin => Op::Begin,
            round::Ask::ReadNumbers { applied, keys } => Op::ReadNumbers { applied, keys: keys.to_vec() },
            round::Ask::ReadSketches { applied, keys } => Op::ReadSketches { applied, keys: keys.to_vec() },
            round::Ask::Write(cells) => {
                let cells = cells.to_vec();
                if self.broken == Break::NoAcknowledgement {
                    round.answer(round::Answer::Written(vec![true; cells.len()]));
                }
                for cell in &cells {
                    self.truth.check_cell(cell)?;
                    self.send(Actor::Flusher(at), Op::Write(cell.clone()));
                }
                if self.broken == Break::NoAcknowledgement {
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
            round::Ask::End(_) => {
                self.flushers[at].round = None;
                return Ok(());
            }
        };
        self.send(Actor::Flusher(at), op);
        Ok(())
    }

    // Requests land.

    fn land(&mut self) -> Result<(), String> {
        if self.flights.is_empty() {
            return Ok(());
        }
        let at = self.rng.random_range(0..self.flights.len());
        self.land_at(at)
    }

    fn land_at(&mut self, at: usize) -> Result<(), String> {
        let Flight { id, actor, to_old_store, op } = self.flights.remove(at);
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
                    Op::Apply(batch) => Answer::Outcome(store.apply(&batch)),
                    Op::Durable => Answer::Durable(self.read_durable()),
                    Op::Read(keys) => Answer::Archived(keys.iter().map(|key| self.read_row(key)).collect()),
                    other => return Err(format!("a counter does not ask {other:?}")),
                };
                if let Answer::Found(CountLookup::Found(found)) = &answer {
                    debug_assert!(!found.is_empty());
                }
                let waiting = &mut self.counters[counter].waiting.flights;
                if waiting.iter().any(|(other, _)| *other == id) {
                    waiting.clear();
                    let heart = &mut self.counters[counter].heart;
                    heart.answer(answer);
                    self.seen.hear(&heart.take_told());
                }
            }
            Actor::Flusher(flusher) => {
                let answer = match op {
                    Op::Begin => match store.begin() {
                        Some(dirty) if self.broken == Break::BeginInTwoSteps => {
                            return self.go_on(id, actor, to_old_store, Op::BeginAgain(dirty));
                        }
                        began => round::Answer::Began(began),
                    },
                    Op::BeginAgain(mut dirty) => {
                        dirty.applied = store.applied.unwrap_or(dirty.applied);
                        round::Answer::Began(Some(dirty))
                    }
                    Op::ReadNumbers { applied, keys } => match store.read_numbers(applied, &keys) {
                        Some(first) if self.broken == Break::NumberInTwoSteps => {
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
                        self.archive.set_durable(0, offset);
                        self.seen.durable += 1;
                        round::Answer::DurableSet
                    }
                    Op::Write(cell) => {
                        self.archive.write(&cell);
                        return self.acknowledge(flusher, id);
                    }
                    other => return Err(format!("a flusher does not ask {other:?}")),
                };
                let waiting = &mut self.flushers[flusher].waiting.flights;
                if waiting.iter().any(|(other, _)| *other == id) {
                    waiting.clear();
                    if let Some(round) = &mut self.flushers[flusher].round {
                        round.answer(answer);
                    }
                }
            }
        }
        self.check_store()
    }

    /// A step that takes two moments because a condition is left out: under the same id.
    fn go_on(&mut self, id: u64, actor: Actor, to_old_store: bool, op: Op) -> Result<(), String> {
        self.flights.push(Flight { id, actor, to_old_store, op });
        Ok(())
    }

    fn acknowledge(&mut self, flusher: usize, id: u64) -> Result<(), String> {
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
    fn read_row(&mut self, key: &CountKey) -> Archived {
        let mut seen = Archive::default();
        seen.rows.insert(key.clone(), self.archive.read(key));
        for flight in &self.flights {
            if let Op::Write(cell) = &flight.op {
                let (onlooker_ports::ArchiveCell::Sketch { key: other, .. }
                | onlooker_ports::ArchiveCell::Number { key: other, .. }) = cell;
                if other == key && self.rng.random_bool(0.5) {
                    seen.write(cell);
                }
            }
        }
        seen.read(key)
    }

    fn read_durable(&mut self) -> Option<i64> {
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

    // What must always hold.

    fn check_durable(&self, offset: i64) -> Result<(), String> {
        let mut keys = self.truth.keys();
        keys.try_for_each(|key| {
            let row = self.archive.read(key);
            self.truth.covers(&row, key, offset).map_err(|e| format!("durable {offset} is too high: {e}"))
        })
    }

    fn check_store(&self) -> Result<(), String> {
        let Some(applied) = self.store.applied else { return Ok(()) };
        for key in self.truth.keys() {
            let truth = self.truth.below(key, applied);
            let row = self.archive.read(key);
            let n = match self.store.numbers.get(key) {
                Some(number) => {
                    let exact = self.truth.below(key, number.u).n;
                    if number.n != exact {
                        return Err(format!(
                            "{key:?} has {} views below {}, not {exact}",
                            number.n, number.u
                        ));
                    }
                    number.n
                }
                None => row.number.map_or(0, |(n, _)| n),
            };
            if n < truth.n {
                return Err(format!("{key:?} has {n} of {} views below {applied}", truth.n));
            }
            match self.store.sketches.get(key) {
                Some(Stored::Sketch(sketch)) => {
                    if !contains(sketch, &truth.sketch) {
                        return Err(format!("the sketch of {key:?} lacks members below {applied}"));
                    }
                    let mark = self.store.dirty_sketches.get(key);
                    if mark.is_some_and(|t| !sketch.register_eq(&self.truth.below(key, *t).sketch)) {
                        return Err(format!("the sketch of {key:?} is not the log below its mark {mark:?}"));
                    }
                }
                Some(_) => return Err(format!("{key:?} is no sketch")),
                None => {
                    let row = Archived { number: Some((u64::MAX, 0)), ..row };
                    self.truth.covers(&row, key, applied).map_err(|e| format!("absent, and {e}"))?;
                }
            }
        }
        Ok(())
    }

    /// Everything that is under way lands or vanishes, one counter and one flusher go on, nothing else happens: soon
    /// every count is exact, in the store and in the archive.
    fn rest(&mut self) -> Result<(), String> {
        self.calm = true;
        self.drop_old_store();
        while !self.flights.is_empty() {
            if self.rng.random_bool(0.5) {
                self.land()?
            } else {
                self.drop_flight()
            }
            if self.rng.random_bool(0.2) {
                self.time_out();
            }
        }
        for actor in self.actors() {
            if !self.waiting(actor).flights.is_empty() {
                self.give_up(actor);
            }
        }
        self.counters.truncate(1);
        self.flushers.truncate(1);
        let mut loss = self.rng.random_bool(0.3);
        let mut rounds = 0;
        for _ in 0..2000 {
            self.act_as(Actor::Counter(0))?;
            while !self.flights.is_empty() {
                self.land_at(0)?;
            }
            let caught_up = self.store.applied == Some(self.truth.end);
            let ended =
                self.flushers[0].round.as_ref().is_some_and(|r| matches!(r.ask(), round::Ask::End(_)));
            rounds += usize::from(caught_up && ended);
            if rounds > 2 && loss {
                // On a partition that is quiet by now.
                self.lose_everything();
                (loss, rounds) = (false, 0);
            } else if rounds > 2 {
                return self.check_rest();
            }
            self.act_as(Actor::Flusher(0))?;
            while !self.flights.is_empty() {
                self.land_at(0)?;
            }
        }
        Err(format!("never came to rest: {:?} of {}", self.store.applied, self.truth.end))
    }

    fn check_rest(&self) -> Result<(), String> {
        let end = self.truth.end;
        for key in self.truth.keys() {
            let truth = self.truth.below(key, end);
            let row = self.archive.read(key);
            let n = self.store.numbers.get(key).map(|number| number.n);
            if n.unwrap_or(truth.n) != truth.n || row.number.map(|(n, _)| n) != Some(truth.n) {
                return Err(format!("at rest {key:?} has {n:?}, {:?} of {} views", row.number, truth.n));
            }
            if let Some(Stored::Sketch(sketch)) = self.store.sketches.get(key)
                && !sketch.register_eq(&truth.sketch)
            {
                return Err(format!("at rest the sketch of {key:?} is not the log's"));
            }
            let exact = row.sketch.is_some_and(|(bytes, _)| {
                onlooker_sketch::Sketch::from_redis(&bytes).is_ok_and(|s| s.register_eq(&truth.sketch))
            });
            if !exact {
                return Err(format!("at rest the archived sketch of {key:?} is not the log's"));
            }
        }
        if self.archive.durable.get(&0) != Some(&end) && end > 0 {
            return Err(format!("at rest {:?} is durable of {end}", self.archive.durable.get(&0)));
        }
        Ok(())
    }
}

fn fault_of(broken: Break) -> Fault {
    match broken {
        Break::Heart(fault) => fault,
        Break::Store(Rule::UnchangedIsDirty) => Fault::TellUnchanged,
        _ => Fault::None,
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
