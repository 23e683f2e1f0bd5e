//! What may go wrong.

use super::Break;
use super::actors::{Actor, Counter, Flusher, Waiting};
use super::world::{World, fault_of};
use crate::words::Answer;
use onlooker_flusher::round;
use rand::Rng;
use rand::seq::IndexedRandom;

impl World {
    pub(super) fn trouble(&mut self, choice: i32) -> Result<(), String> {
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

    pub(super) fn evict(&mut self) -> Result<(), String> {
        let keys: Vec<_> = self.store.evictable.iter().cloned().collect();
        if let Some(key) = keys.choose(&mut self.rng) {
            self.store.evict(key);
        }
        self.check_store()
    }

    pub(super) fn sweep(&mut self) -> Result<(), String> {
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

    pub(super) fn lose_everything(&mut self) {
        self.store.flush_all();
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

    pub(super) fn drop_old_store(&mut self) {
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

    pub(super) fn crash(&mut self) {
        let fault = fault_of(self.broken);
        match self.any_actor() {
            Actor::Counter(at) => self.counters[at] = Counter::new(&mut self.rng, fault),
            Actor::Flusher(at) => self.flushers[at] = Flusher::default(),
        }
    }

    /// Nobody waits any more, and the requests may land later.
    pub(super) fn time_out(&mut self) {
        let actor = self.any_actor();
        if !self.waiting(actor).flights.is_empty() {
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
            self.flights.remove(*at);
        }
    }
}
