//! From what was read to what is answered. No I/O.

use onlooker_ports::{PartitionState, ReadCount, SketchValue};
use onlooker_sketch::{Sketch, bounds};

/// What an item's count is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Status {
    /// Whole as of `as_of`.
    Ok,
    /// Something of it was evicted and is being brought back; there are no values until then.
    Warming,
    /// The counters lost data and have not yet caught up with the log: values may be too low, or absent.
    Rebuilding,
    /// The sketch is damaged, so there are no uniques; the views are exact nevertheless.
    Repairing,
}

impl Status {
    pub(crate) const ALL: &'static [Status] =
        &[Status::Ok, Status::Warming, Status::Rebuilding, Status::Repairing];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warming => "warming",
            Status::Rebuilding => "rebuilding",
            Status::Repairing => "repairing",
        }
    }
}

/// One item's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) views: Option<u64>,
    pub(crate) uniques: Option<Uniques>,
    pub(crate) status: Status,
    /// Every view that the log took before this is counted. Milliseconds since 1970 (UTC).
    pub(crate) as_of_ms: Option<i64>,
}

/// How many different viewers: the estimate, and where the truth lies with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uniques {
    pub(crate) estimate: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Uniques {
    /// Nobody views without a view: so never more than those, however the estimate errs.
    fn within(estimate: u64, views: u64) -> Self {
        let (low, high) = bounds(estimate);
        Self { estimate: estimate.min(views), low: low.min(views), high: high.min(views) }
    }
}

/// Sums up the scopes of one item, all of them in one partition.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    views: u64,
    estimate: u64,
    /// The first sketch is kept as it is: most sums are over one.
    merged: Option<Sketch>,
    /// A number is absent, and it is not known that there is none.
    no_views: bool,
    /// The same of a sketch.
    no_sketch: bool,
    damaged: bool,
    /// The weakest of all states that were seen; none inside: one was absent.
    state: Option<Option<PartitionState>>,
}

impl Sum {
    /// Adds what was read of one scope while its partition stood so. True: the key should be wished for.
    pub(crate) fn add(&mut self, read: &ReadCount, state: Option<PartitionState>) -> bool {
        self.state = Some(match self.state {
            None => state,
            Some(before) => PartitionState::weaker(before, state),
        });
        let mut wish = false;
        match read.views {
            Some(views) => self.views = self.views.saturating_add(views),
            None if read.known_absent => {}
            None => {
                self.no_views = true;
                wish = true;
            }
        }
        match &read.sketch {
            Some(SketchValue::Estimate(estimate)) => self.estimate = self.estimate.max(*estimate),
            Some(SketchValue::Bytes(bytes)) => match &mut self.merged {
                Some(merged) => self.damaged |= merged.merge_bytes(bytes).is_err(),
                None => match Sketch::from_redis(bytes) {
                    Ok(sketch) => self.merged = Some(sketch),
                    Err(_) => self.damaged = true,
                },
            },
            // Nothing can bring it back but the counter itself, so it is not wished for.
            Some(SketchValue::Corrupt) => self.damaged = true,
            None if read.known_absent => {}
            None => {
                self.no_sketch = true;
                wish = true;
            }
        }
        wish
    }

    /// The answer.
    pub(crate) fn finish(self) -> Count {
        let state = self.state.flatten();
        let as_of_ms = state.map(|state| state.as_of_ms).filter(|ms| *ms > 0);
        let whole = state.is_some_and(|state| state.applied >= state.whole_at);
        let missing = self.no_views || (self.no_sketch && !self.damaged);
        let status = match () {
            () if state.is_none() => Status::Rebuilding,
            () if missing => Status::Warming,
            () if self.damaged => Status::Repairing,
            () if !whole => Status::Rebuilding,
            () => Status::Ok,
        };
        if missing || state.is_none() {
            // A part of a sum is as wrong as a 0.
            return Count { views: None, uniques: None, status, as_of_ms };
        }
        let estimate = self.merged.map_or(self.estimate, |merged| merged.count());
        let uniques = (!self.damaged).then(|| Uniques::within(estimate, self.views));
        Count { views: Some(self.views), uniques, status, as_of_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    const WHOLE: Option<PartitionState> = Some(PartitionState { applied: 9, as_of_ms: 1_000, whole_at: 4 });
    const BEHIND: Option<PartitionState> = Some(PartitionState { applied: 3, as_of_ms: 900, whole_at: 4 });

    fn read(views: Option<u64>, sketch: Option<SketchValue>) -> ReadCount {
        ReadCount { views, sketch, known_absent: false }
    }

    fn one(read: &ReadCount, state: Option<PartitionState>) -> (Count, bool) {
        let mut sum = Sum::default();
        let wish = sum.add(read, state);
        (sum.finish(), wish)
    }

    #[test]
    fn a_whole_count_is_ok() {
        let (count, wish) = one(&read(Some(12), Some(SketchValue::Estimate(7))), WHOLE);
        assert!(!wish);
        let uniques = Some(Uniques { estimate: 7, low: 7, high: 7 });
        assert_eq!(count, Count { views: Some(12), uniques, status: Status::Ok, as_of_ms: Some(1_000) });
    }

    #[test]
    fn what_is_absent_is_wished_for_and_no_zero() {
        for (views, sketch) in [(None, None), (Some(3), None), (None, Some(SketchValue::Estimate(2)))] {
            let (count, wish) = one(&read(views, sketch), WHOLE);
            assert!(wish);
            assert_eq!((count.views, count.uniques, count.status), (None, None, Status::Warming));
        }
    }

    #[test]
    fn what_is_known_to_be_absent_is_zero() {
        let (count, wish) = one(&ReadCount { views: None, sketch: None, known_absent: true }, WHOLE);
        assert!(!wish);
        let none = Some(Uniques { estimate: 0, low: 0, high: 0 });
        assert_eq!((count.views, count.uniques, count.status), (Some(0), none, Status::Ok));
    }

    #[test]
    fn a_loss_is_told_until_the_replay_has_passed_it() {
        let (count, _) = one(&read(Some(5), Some(SketchValue::Estimate(5))), BEHIND);
        assert_eq!((count.views, count.status, count.as_of_ms), (Some(5), Status::Rebuilding, Some(900)));
        let (count, _) = one(&read(Some(5), Some(SketchValue::Estimate(5))), None);
        assert_eq!((count.views, count.uniques, count.status), (None, None, Status::Rebuilding));
    }

    #[test]
    fn a_damaged_sketch_leaves_the_views() {
        let (count, wish) = one(&read(Some(5), Some(SketchValue::Corrupt)), WHOLE);
        assert!(!wish);
        assert_eq!((count.views, count.uniques, count.status), (Some(5), None, Status::Repairing));
        let junk = SketchValue::Bytes(Bytes::from_static(b"HYLL\x01junk"));
        assert_eq!(one(&read(Some(5), Some(junk)), WHOLE).0.status, Status::Repairing);
    }

    #[test]
    fn uniques_never_exceed_views() {
        let (count, _) = one(&read(Some(100_000), Some(SketchValue::Estimate(100_400))), WHOLE);
        let uniques = count.uniques.unwrap();
        assert_eq!((uniques.estimate, uniques.high), (100_000, 100_000));
        assert!(uniques.low < 100_000);
    }

    fn sketch_of(members: &[u16]) -> Sketch {
        let mut sketch = Sketch::new();
        for member in members {
            sketch.add(&member.to_be_bytes());
        }
        sketch
    }

    /// What a reader may find of one scope.
    fn any_read() -> impl Strategy<Value = ReadCount> {
        let sketch = prop_oneof![
            4 => prop::collection::vec(any::<u16>(), 0..40)
                .prop_map(|members| Some(SketchValue::Bytes(sketch_of(&members).to_redis().into()))),
            1 => Just(None),
            1 => Just(Some(SketchValue::Corrupt)),
        ];
        (prop::option::weighted(0.8, 0..1_000u64), sketch, any::<bool>()).prop_map(
            |(views, sketch, absent)| {
                let known_absent = absent && views.is_none() && sketch.is_none();
                ReadCount { views, sketch, known_absent }
            },
        )
    }

    fn any_state() -> impl Strategy<Value = Option<PartitionState>> {
        let state = (0..9i64, 0..5_000i64, 0..9i64);
        prop::option::weighted(
            0.9,
            state.prop_map(|(applied, as_of_ms, whole_at)| PartitionState { applied, as_of_ms, whole_at }),
        )
    }

    proptest! {
        #[test]
        fn an_answer_never_claims_more_than_was_read(parts in prop::collection::vec((any_read(), any_state()), 1..6)) {
            let mut sum = Sum::default();
            let mut wished = false;
            for (read, state) in &parts {
                wished |= sum.add(read, *state);
            }
            let count = sum.finish();
            let absent = |r: &ReadCount| !r.known_absent && (r.views.is_none() || r.sketch.is_none());
            let whole = |s: &Option<PartitionState>| s.is_some_and(|s| s.applied >= s.whole_at);
            let damaged = parts.iter().any(|(r, _)| r.sketch == Some(SketchValue::Corrupt));
            prop_assert_eq!(wished, parts.iter().any(|(r, _)| absent(r)));
            let sound = !wished && !damaged && parts.iter().all(|(_, s)| whole(s));
            prop_assert!(count.status != Status::Ok || sound);
            // A loss between two reads of one sum is a doubt; without one, what is sound is said to be.
            let steady = parts.iter().all(|(_, s)| s.map(|s| s.whole_at) == parts[0].1.map(|s| s.whole_at));
            prop_assert!(count.status == Status::Ok || !sound || !steady);
            if let Some(views) = count.views {
                prop_assert_eq!(views, parts.iter().filter_map(|(r, _)| r.views).sum::<u64>());
                prop_assert!(parts.iter().all(|(r, s)| s.is_some() && (r.views.is_some() || r.known_absent)));
            }
            if let Some(uniques) = count.uniques {
                prop_assert!(!wished && !damaged);
                prop_assert!(uniques.low <= uniques.estimate && uniques.estimate <= uniques.high);
                prop_assert!(uniques.high <= count.views.unwrap());
            }
            if let Some(as_of) = count.as_of_ms {
                prop_assert!(parts.iter().all(|(_, s)| s.is_none_or(|s| as_of <= s.as_of_ms)));
            }
        }

        #[test]
        fn a_range_counts_each_viewer_once(days in prop::collection::vec(prop::collection::vec(any::<u16>(), 1..200), 1..8)) {
            let mut sum = Sum::default();
            let mut everybody = Sketch::new();
            for members in &days {
                let sketch = sketch_of(members);
                everybody.merge(&sketch);
                sum.add(&read(Some(members.len() as u64), Some(SketchValue::Bytes(sketch.to_redis().into()))), WHOLE);
            }
            let count = sum.finish();
            let views = days.iter().map(Vec::len).sum::<usize>() as u64;
            prop_assert_eq!(count.views, Some(views));
            prop_assert_eq!(count.uniques.unwrap().estimate, everybody.count().min(views));
        }
    }
}
