//! What may go wrong.

use super::actors::{Actor, Counter, Flusher, Waiting};
use super::broken::Break;
use super::world::{World, fault_of};
use crate::words::Answer;
use onlooker_flusher::round;
use rand::Rng;
use rand::seq::IndexedRandom;

pub(super) const KINDS: &[&str] = &[
    "crash",
    "time-out",
    "request lost",
    "request late",
    "eviction",
    "sweep",
    "store lost",
    "failover",
    "old primary gone",
    "store full",
    "write seen that may vanish",
];

/// A kind of fault: its place in `KINDS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Crash,
    TimeOut,
    RequestLost,
    Late,
    Eviction,
    Sweep,
    Lost,
    Failover,
    OldPrimaryGone,
    Full,
    Unsure,
}

impl World<'_> {
    pub(super) fn happens(&mut self, kind: Kind) {
        self.record.fault(kind as usize);
    }

    pub(super) fn trouble(&mut self) -> Result<(), String> {
        match self.rng.random_range(700..1000) {
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

    /// Whether the store has no memory left for a step.
    pub(super) fn is_full(&mut self) -> bool {
        let full = self.full_percent > 0 && self.rng.random_range(0..100) < self.full_percent;
        if full {
            self.happens(Kind::Full);
        }
        full
    }

    pub(super) fn evict(&mut self) -> Result<(), String> {
        let Some(key) = self.store.evictable().choose(&mut self.rng).cloned() else { return Ok(()) };
        self.store.evict(&key);
        self.happens(Kind::Eviction);
        self.record.say(|| format!("the sketch of {key:?} is evicted"));
        self.check_store()
    }

    pub(super) fn sweep(&mut self) -> Result<(), String> {
        if self.broken == Some(Break::SweepInTwoSteps) {
            if self.swept.is_empty() {
                let clean = self.store.numbers.keys().filter(|k| !self.store.dirty_numbers.contains(*k));
                self.swept = clean.cloned().collect();
                return Ok(());
            }
            self.swept.drain(..).for_each(|key| _ = self.store.numbers.remove(&key));
        } else {
            self.store.sweep(u32::MAX);
        }
        self.happens(Kind::Sweep);
        self.record.say(|| "the janitor removes clean numbers".to_owned());
        self.check_store()
    }

    pub(super) fn lose_everything(&mut self) {
        self.store.flush_all();
        self.happens(Kind::Lost);
        self.record.say(|| "the store loses everything".to_owned());
        // A server that came back empty may yet be replaced by one that remembers an earlier state.
        if self.rng.random_bool(0.5) {
            self.snapshots.clear();
        }
    }

    pub(super) fn fail_over(&mut self) -> Result<(), String> {
        if self.snapshots.is_empty() {
            return Ok(());
        }
        let at = self.rng.random_range(0..self.snapshots.len());
        self.snapshots.truncate(at + 1);
        let earlier = self.snapshots[at].clone();
        let former = std::mem::replace(&mut self.store, earlier);
        self.happens(Kind::Failover);
        let applied = self.store.applied;
        self.record.say(|| format!("the store fails over to an earlier state, at {applied:?}"));
        // The former primary lives on for some, until they notice.
        self.drop_old_store();
        self.old_store = Some(former);
        for actor in self.actors() {
            let stays = self.rng.random_bool(0.3);
            self.waiting(actor).on_old_store = stays;
            if stays {
                self.record.say(|| format!("{actor} goes on talking to the former primary"));
            }
        }
        self.check_store()
    }

    pub(super) fn drop_old_store(&mut self) {
        if self.old_store.take().is_none() {
            return;
        }
        self.happens(Kind::OldPrimaryGone);
        self.record.say(|| "the former primary is gone".to_owned());
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

    pub(super) fn crash(&mut self) {
        let fault = fault_of(self.broken);
        let actor = self.any_actor();
        match actor {
            Actor::Counter(at) => self.counters[at] = Counter::new(&mut self.rng, fault),
            Actor::Flusher(at) => self.flushers[at] = Flusher::default(),
        }
        self.happens(Kind::Crash);
        self.record.say(|| format!("{actor} dies and is started again"));
    }

    /// Nobody waits any more, and the requests may land later.
    pub(super) fn time_out(&mut self) {
        let actor = self.any_actor();
        if !self.waiting(actor).flights.is_empty() {
            self.happens(Kind::TimeOut);
            self.record.say(|| format!("{actor} waits no longer"));
            self.give_up(actor);
        }
    }

    pub(super) fn give_up(&mut self, actor: Actor) {
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

    pub(super) fn drop_flight(&mut self) {
        let waits = |w: &Waiting, id| w.flights.iter().any(|(other, _)| *other == id);
        let lonely: Vec<usize> = (0..self.flights.len())
            .filter(|at| {
                let id = self.flights[*at].id;
                !self.counters.iter().any(|c| waits(&c.waiting, id))
                    && !self.flushers.iter().any(|f| waits(&f.waiting, id))
            })
            .collect();
        if let Some(at) = lonely.choose(&mut self.rng) {
            let flight = self.flights.remove(*at);
            self.happens(Kind::RequestLost);
            self.record.say(|| format!("{}: {} never lands", flight.actor, flight.op.brief()));
        }
    }
}
