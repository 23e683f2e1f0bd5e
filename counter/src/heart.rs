//! One partition's counter without I/O: it says what to ask next, and takes the answer.
//!
//! What the store holds at offset k is a function of the log below k. The store says which k that is, and every step
//! that changes it begins with "is it still k?". So a late request of a former owner changes nothing, and whatever the
//! store lost is read again from the log.

use crate::known::{Bounds, Known};
use crate::plan::Plan;
use crate::words::{Answer, Ask, Fault, Told, Work};
use onlooker_ports::{ApplyOutcome, Archived, CountLookup};
use onlooker_stage::spans::Span;

#[derive(Debug)]
enum State {
    Applied,
    Durable,
    End { durable: i64 },
    Init { durable: i64, whole_at: i64 },
    Start { offset: i64 },
    Ready,
    Lookup(Box<Plan>),
    Read(Box<Plan>),
    Apply(Box<Plan>),
}

/// Sizes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of archived sketches in one step.
    pub(crate) base_bytes: usize,
    /// Members in one batch from which on a sketch is hot.
    pub(crate) hot_from: usize,
}

#[derive(Debug)]
pub(crate) struct Heart {
    limits: Limits,
    state: State,
    /// Where the store stands, as far as known.
    from: i64,
    /// Append time of the newest record that is in; 0: not known.
    as_of_ms: i64,
    known: Known,
    told: Told,
    fault: Fault,
}

impl Heart {
    pub(crate) fn new(limits: Limits, bounds: Bounds) -> Self {
        Self {
            limits,
            state: State::Applied,
            from: 0,
            as_of_ms: 0,
            known: Known::new(bounds),
            told: Told::default(),
            fault: Fault::None,
        }
    }

    #[cfg(test)]
    pub(crate) fn with_fault(mut self, fault: Fault) -> Self {
        self.fault = fault;
        self
    }

    /// What has to be asked now. Until the answer comes it stays the same.
    pub(crate) fn ask(&self) -> Ask<'_> {
        match &self.state {
            State::Applied => Ask::Applied,
            State::Durable => Ask::Durable,
            State::End { .. } => Ask::End,
            State::Init { durable, whole_at } => Ask::Init { durable: *durable, whole_at: *whole_at },
            State::Start { offset } => Ask::Start { offset: *offset },
            State::Ready => Ask::Work { from: self.from },
            State::Lookup(plan) => Ask::Lookup { from: self.from, keys: plan.asked() },
            State::Read(plan) => Ask::Read { keys: plan.asked(), for_readers: plan.for_readers },
            State::Apply(plan) => Ask::Apply(plan.step()),
        }
    }

    /// Append time of the newest record that the store has, or when the log was last seen to end there; milliseconds
    /// since 1970, 0: not known.
    pub(crate) fn as_of_ms(&self) -> i64 {
        self.as_of_ms
    }

    /// Keys that are remembered.
    pub(crate) fn known_keys(&self) -> usize {
        self.known.len()
    }

    /// What there is to tell since the last call.
    pub(crate) fn take_told(&mut self) -> Told {
        std::mem::take(&mut self.told)
    }

    /// Takes the answer to what `ask` asks.
    pub(crate) fn answer(&mut self, answer: Answer) {
        let state = std::mem::replace(&mut self.state, State::Applied);
        self.state = match (state, answer) {
            (State::Applied, Answer::Applied(Some(offset))) if self.fault != Fault::SyncToDurable => {
                State::Start { offset }
            }
            // Only a store that stands nowhere is set to `durable`. While it stands somewhere, both `durable` and the
            // committed offset may be far from there, and every step would meet a gap for ever.
            (State::Applied, Answer::Applied(_)) => State::Durable,
            (State::Durable, Answer::Durable(durable)) => State::End { durable: durable.unwrap_or(0) },
            (State::End { durable }, Answer::End(whole_at)) => State::Init { durable, whole_at },
            (State::Init { durable, .. }, Answer::Initialised(_)) if self.fault == Fault::SyncToDurable => {
                State::Start { offset: durable }
            }
            (State::Init { .. }, Answer::Initialised(offset)) => State::Start { offset },
            (State::Start { offset }, Answer::Started) => {
                self.from = offset;
                State::Ready
            }
            (State::Ready, Answer::Work(work)) => self.begin(work),
            (State::Lookup(plan), Answer::Found(CountLookup::Found(found))) => self.looked_up(plan, &found),
            (State::Read(plan), Answer::Archived(rows)) => self.archived(plan, rows),
            // The archive was only read, so asking again is safe, and the look-up before it still holds: if not, the
            // step will meet a gap. A reader's wish is not worth waiting for.
            (State::Read(plan), Answer::Doubt) if !plan.for_readers => State::Read(plan),
            (State::Read(_), Answer::Doubt) => State::Ready,
            (State::Apply(plan), Answer::Refused) => State::Apply(plan),
            (State::Apply(plan), Answer::Outcome(outcome)) => self.outcome(plan, outcome),
            (_, Answer::Found(CountLookup::Gap(_))) => self.gap(),
            // A time-out, or an answer to something else: only the store can say where it stands.
            _ => self.doubt(),
        };
    }

    fn begin(&mut self, work: Work) -> State {
        self.known.tend();
        let from = self.from;
        let mut plan = match work {
            Work::Records { grouped, to } => {
                // Records from below would be counted twice: numbers are absolute, so this is the last place where
                // that could be noticed.
                if grouped.first < from || grouped.to > to {
                    return self.doubt();
                }
                let as_of_ms = self.as_of_ms.max(grouped.newest_ms);
                Plan::of_records(from, to, as_of_ms, *grouped, &mut self.known)
            }
            Work::Nothing { to, as_of_ms } => Plan::empty(from, to.max(from), self.as_of_ms.max(as_of_ms)),
            Work::Wishes { keys, now_s } => {
                Plan::of_wishes(from, self.as_of_ms, now_s, &keys, &mut self.known)
            }
            Work::Skip { to } => {
                let mut plan = Plan::empty(from, to.max(from), self.as_of_ms);
                plan.restart = true;
                plan
            }
        };
        if plan.ask_store(&self.known) {
            return State::Lookup(Box::new(plan));
        }
        self.build(Box::new(plan))
    }

    fn looked_up(&mut self, mut plan: Box<Plan>, found: &[onlooker_ports::Held]) -> State {
        if found.len() != plan.asked().len() {
            return self.doubt();
        }
        if plan.looked_up(found, &mut self.known) {
            return State::Read(plan);
        }
        self.build(plan)
    }

    fn archived(&mut self, mut plan: Box<Plan>, rows: Vec<Archived>) -> State {
        if rows.len() != plan.asked().len() {
            return self.doubt();
        }
        plan.archived(rows, &mut self.known, &mut self.told);
        if !plan.built() || self.fault == Fault::RaiseWhenSending {
            return self.build(plan);
        }
        plan.rebuild(&self.known);
        plan.spread(self.limits.base_bytes, self.as_of_ms);
        State::Apply(plan)
    }

    fn build(&mut self, mut plan: Box<Plan>) -> State {
        plan.build(&mut self.known, &mut self.told, self.fault);
        plan.spread(self.limits.base_bytes, self.as_of_ms);
        if plan.is_void() { State::Ready } else { State::Apply(plan) }
    }

    fn outcome(&mut self, mut plan: Box<Plan>, outcome: ApplyOutcome) -> State {
        match outcome {
            ApplyOutcome::Gap(_) => self.gap(),
            ApplyOutcome::Corrupt(sketches) => {
                plan.corrupt(&sketches, &mut self.known, &mut self.told);
                State::Apply(plan)
            }
            // Nothing has changed. The archive is read *now*, after this answer, and the step repeated at the same
            // `from`: a base that was read earlier may lack what was added, archived and evicted since.
            ApplyOutcome::Missing(sketches) => {
                if plan.at_main() && plan.missing(&sketches, &self.known) {
                    return State::Read(plan);
                }
                self.doubt()
            }
            ApplyOutcome::Done => {
                let (created, restored) = plan.bases();
                self.told.created += created;
                self.told.restored += restored;
                if !plan.at_main() {
                    plan.next_step();
                    return State::Apply(plan);
                }
                plan.settle(&mut self.known, self.limits.hot_from, self.fault);
                (self.from, self.as_of_ms) = (plan.to(), plan.as_of_ms());
                if let Some(grouped) = &mut plan.grouped {
                    grouped.spans.drain(..).for_each(Span::done);
                    self.told.applied = Some((grouped.records, grouped.oldest_ms));
                }
                // With the plan go its bases: at any later offset they are too old.
                if plan.restart { State::Start { offset: self.from } } else { State::Ready }
            }
        }
    }

    fn gap(&mut self) -> State {
        self.told.gaps += 1;
        self.doubt()
    }

    /// Everything that was known rests on an unbroken chain of the heart's own steps. It is broken.
    fn doubt(&mut self) -> State {
        if self.fault == Fault::KeepNumbersAtGap {
            self.known.forget_registers();
        } else if self.fault == Fault::KeepRegistersAtGap {
            self.known.forget_numbers();
        } else {
            self.known.forget();
        }
        // What is in after a loss is older than what was.
        self.as_of_ms = 0;
        State::Applied
    }
}
