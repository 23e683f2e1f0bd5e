//! The numbers and members of a step, and what is known once it is applied.

use super::{Plan, Planned};
use crate::group::Seen;
use crate::known::{Entry, Known, LeaveOut};
use crate::words::{Fault, Told};
use onlooker_event::CountKey;
use onlooker_ports::{Apply, Members, Number, SketchAdd};

impl Plan {
    /// Builds the step, once every number is known.
    pub(crate) fn build(&mut self, known: &mut Known, told: &mut Told, fault: Fault) {
        let (from, to, as_of_ms) = (self.from, self.to, self.as_of_ms);
        let mut main = Apply { from, to, as_of_ms, numbers: Vec::new(), sketches: Vec::new() };
        main.numbers.reserve(self.keys.len());
        let mut main_of = Vec::with_capacity(self.keys.len());
        for ((at, planned), key) in (0u32..).zip(&mut self.keys).zip(&self.names) {
            let entry = known.get_mut(planned.id);
            let group = planned.item.and_then(|item| {
                let grouped = self.grouped.as_ref()?;
                grouped.items.get(item as usize).map(|group| grouped.of(group))
            });
            let sketch = match group {
                None => {
                    main.numbers.extend(restored_number(key, planned, entry, to, self.now_s));
                    restored_sketch(key, planned)
                }
                Some(seen) => {
                    let day = planned.day;
                    let seen = seen.iter().filter(move |s| day.is_none_or(|day| s.day == day));
                    let number = entry.number.unwrap_or_default();
                    main.numbers.push((key.clone(), counted(number, seen.clone(), to, fault)));
                    added_sketch(key, planned, entry, seen, told)
                }
            };
            if fault == Fault::RaiseWhenSending
                && let (Some(sketch), Some(leave_out)) = (&sketch, &mut entry.leave_out)
            {
                leave_out.raise(&sketch.members);
            }
            if let Some(sketch) = sketch {
                main.sketches.push(sketch);
                main_of.push(at);
            }
        }
        (self.main, self.main_of, self.built) = (main, main_of, true);
    }

    /// The store stands at `to`: what was sent is now known. Only now: registers that were raised when sending would
    /// hold members that the store never got.
    pub(crate) fn settle(&self, known: &mut Known, hot_from: usize, fault: Fault) {
        for ((key, number), (planned, name)) in self.main.numbers.iter().zip(self.counted_keys()) {
            debug_assert_eq!(key, name, "a number for each planned key, in order");
            known.get_mut(planned.id).number = Some(*number);
        }
        if self.for_readers {
            return;
        }
        for (sketch, at) in self.main.sketches.iter().zip(&self.main_of) {
            let id = self.keys[*at as usize].id;
            if known.get(id).leave_out.is_none() && sketch.members.len() >= hot_from {
                known.get_mut(id).leave_out = known.new_registers();
            }
            if let Some(leave_out) = &mut known.get_mut(id).leave_out {
                leave_out.raise(&sketch.members);
                if fault == Fault::SeedFromBase {
                    leave_out.seed(sketch.base.as_ref());
                }
            }
        }
    }

    /// The planned keys that `main.numbers` has, in its order.
    fn counted_keys(&self) -> impl Iterator<Item = (&Planned, &CountKey)> {
        self.keys.iter().zip(&self.names).filter(|(p, _)| p.item.is_some() || p.restore_number)
    }
}

/// The number after the batch: only records at or above `u` are added, since those below are in `n` already, which
/// happens when the archive was further than the store (after a loss); and `u` never goes back.
fn counted<'a>(number: Number, seen: impl Iterator<Item = &'a Seen>, to: i64, fault: Fault) -> Number {
    let (mut n, mut changed_s) = (number.n, number.changed_s);
    for view in seen {
        n += u64::from(view.offset >= number.u || fault == Fault::CountAll);
        changed_s = changed_s.max(view.append_s);
    }
    if fault == Fault::TellUnchanged && n == number.n {
        changed_s = u32::MAX - 1;
    }
    let u = if fault == Fault::UIsTo { to } else { to.max(number.u) };
    Number { n, u, changed_s }
}

/// For a reader: the number that the store does not hold, as of the step.
fn restored_number(
    key: &CountKey,
    planned: &Planned,
    entry: &Entry,
    to: i64,
    now_s: u32,
) -> Option<(CountKey, Number)> {
    let number = entry.number.unwrap_or_default();
    let restored = Number { n: number.n, u: number.u.max(to), changed_s: now_s };
    planned.restore_number.then(|| (key.clone(), restored))
}

/// For a reader: the sketch that the store does not hold, if the archive does.
fn restored_sketch(key: &CountKey, planned: &mut Planned) -> Option<SketchAdd> {
    let base = planned.base.take().filter(|base| base.blob.is_some())?;
    planned.absent.then(|| SketchAdd { key: key.clone(), members: Members::new(), base: Some(base) })
}

/// The members that may raise a register; none if there are none, and then the sketch need not even be there.
fn added_sketch<'a>(
    key: &CountKey,
    planned: &mut Planned,
    entry: &mut Entry,
    seen: impl Iterator<Item = &'a Seen>,
    told: &mut Told,
) -> Option<SketchAdd> {
    if entry.out_of_service {
        return None;
    }
    let members: Members = match &mut entry.leave_out {
        None => seen.map(|s| s.member).collect(),
        Some(leave_out) => {
            let LeaveOut { registers, spared, .. } = leave_out;
            let before = *spared;
            let raises = |s: &&Seen| {
                let raises = registers.would_raise(s.hash);
                *spared = spared.saturating_add(u32::from(!raises));
                raises
            };
            let members = seen.filter(raises).map(|s| s.member).collect();
            told.spared += u64::from(*spared - before);
            members
        }
    };
    if members.is_empty() {
        return None;
    }
    told.sent += members.len() as u64;
    Some(SketchAdd { key: key.clone(), members, base: planned.base.take() })
}
