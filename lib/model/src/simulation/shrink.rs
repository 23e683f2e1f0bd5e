//! Making a history shorter that goes wrong.

use super::{Plan, Protocol, Record, Violation, live};
use std::time::{Duration, Instant};

/// Leaves out steps as long as something still goes wrong: first many at once, then fewer, at last one by one. Whatever
/// goes wrong will do; most often it is the same.
pub(super) fn shortest<P: Protocol>(
    seed: u64,
    why: String,
    reached: u32,
    without: Option<P::What>,
    patience: Duration,
) -> Violation {
    let until = Instant::now() + patience;
    let mut record = Record::default();
    let mut goes_wrong = |steps: &[u32]| {
        live::<P>(&Plan::only(seed, steps.to_vec()), without, &mut record).is_err().then(|| record.reached())
    };
    let mut steps: Vec<u32> = (0..reached).collect();
    let mut size = steps.len().div_ceil(2);
    while size > 0 && Instant::now() < until {
        let (mut at, mut shorter) = (0, false);
        while at < steps.len() && Instant::now() < until {
            let end = (at + size).min(steps.len());
            let rest = [&steps[..at], &steps[end..]].concat();
            if let Some(reached) = goes_wrong(&rest) {
                steps = rest;
                steps.retain(|step| *step < reached);
                shorter = true;
            } else {
                at = end;
            }
        }
        // What could not be left out before may be by now.
        if !(size == 1 && shorter) {
            size /= 2;
        }
    }
    let mut record = Record::telling();
    let plan = Plan::only(seed, steps.clone());
    let shortest = live::<P>(&plan, without, &mut record).err().unwrap_or_else(|| why.clone());
    Violation { seed, why, steps_before: reached, steps, shortest, timeline: record.take_lines() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::{Mutation, histories};

    /// Goes wrong when three certain steps come in this order, whatever else does.
    struct Three;

    impl Protocol for Three {
        type What = ();
        const NAME: &'static str = "three";
        const FAULTS: &'static [&'static str] = &["first", "second", "third"];
        const MUTATIONS: &'static [Mutation<()>] = &[];

        fn live(plan: &Plan, _: Option<()>, record: &mut Record) -> Result<(), String> {
            let mut met = 0;
            for step in plan.steps(200) {
                record.step(step);
                if plan.seed_of(step) % 11 == met {
                    record.fault(usize::try_from(met).unwrap());
                    record.say(|| format!("fault {met}"));
                    met += 1;
                }
                assert!(met < 3, "all three");
            }
            record.rest();
            Ok(())
        }
    }

    #[test]
    fn what_is_left_is_what_it_takes() {
        let report = histories::<Three>(5..25, None);
        assert_eq!((report.histories, report.violations), (20, 20));
        let first = report.first.unwrap();
        assert_eq!((first.seed, first.steps.len(), first.timeline.len()), (5, 3, 3));
        assert_eq!(first.shortest, "panicked: all three");
        assert!(first.timeline[2].ends_with("fault 2"), "{:?}", first.timeline);
        assert!(report.faults.iter().all(|n| *n == 20), "{:?}", report.faults);
    }
}
