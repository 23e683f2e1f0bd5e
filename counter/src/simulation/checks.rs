//! What must always hold, and what must hold at rest.

use super::actors::Actor;
use super::truth::contains;
use super::world::World;
use onlooker_flusher::round;
use onlooker_model::Stored;
use onlooker_ports::Archived;
use rand::Rng;

impl World<'_> {
    pub(super) fn check_durable(&self, offset: i64) -> Result<(), String> {
        let mut keys = self.truth.keys();
        keys.try_for_each(|key| {
            let row = self.archive.read(key);
            self.truth.covers(&row, key, offset).map_err(|e| format!("durable {offset} is too high: {e}"))
        })
    }

    pub(super) fn check_store(&self) -> Result<(), String> {
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
    pub(super) fn rest(&mut self) -> Result<(), String> {
        self.calm = true;
        self.record.rest();
        self.drop_old_store();
        while !self.flights.is_empty() {
            if self.rng.random_bool(0.5) {
                self.land()?;
            } else {
                self.drop_flight();
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

    pub(super) fn check_rest(&self) -> Result<(), String> {
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
