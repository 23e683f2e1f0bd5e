//! Steps in any order, on the store and on a model of it.

use super::{CountsUnderTest, key, member, up};
use crate::{
    Apply, ApplyOutcome, Base, CountLookup, CountStore, Dirty, Held, Number, NumberRead, SketchAdd,
    SketchRead,
};
use bytes::Bytes;
use onlooker_event::CountKey;
use onlooker_sketch::Sketch;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Default)]
struct Model {
    applied: Option<i64>,
    sketches: BTreeMap<CountKey, Sketch>,
    dirty: BTreeMap<CountKey, i64>,
    numbers: BTreeMap<CountKey, (Number, bool)>,
}

impl Model {
    fn apply(&mut self, batch: &Apply) -> ApplyOutcome {
        if self.applied != Some(batch.from) {
            return ApplyOutcome::Gap(self.applied);
        }
        let missing = |add: &SketchAdd| !self.sketches.contains_key(&add.key) && add.base.is_none();
        let missing: Vec<_> =
            batch.sketches.iter().enumerate().filter(|(_, add)| missing(add)).map(|(i, _)| i).collect();
        if !missing.is_empty() {
            return ApplyOutcome::Missing(missing);
        }
        for add in &batch.sketches {
            if let Some(sketch) = self.sketches.get_mut(&add.key) {
                let raised = add.members.iter().fold(false, |any, member| sketch.add(member) | any);
                if raised {
                    self.dirty.insert(add.key.clone(), batch.to);
                }
                continue;
            }
            let base = add.base.clone().unwrap_or_default();
            let mut sketch = Sketch::new();
            if let Some(blob) = &base.blob {
                sketch.merge_bytes(blob).expect("a valid base");
            }
            for member in &add.members {
                sketch.add(member);
            }
            self.sketches.insert(add.key.clone(), sketch);
            self.dirty.insert(add.key.clone(), batch.to.max(base.ts));
        }
        for (key, number) in &batch.numbers {
            self.numbers.insert(key.clone(), (*number, true));
        }
        self.applied = Some(batch.to);
        ApplyOutcome::Done
    }

    fn held(&self, key: &CountKey) -> Held {
        Held {
            number: self.numbers.get(key).map(|(number, _)| *number),
            sketch: self.sketches.contains_key(key),
        }
    }

    fn dirty(&self) -> Option<Dirty> {
        let numbers = self.numbers.iter().filter(|(_, (_, dirty))| *dirty).map(|(key, _)| key.clone());
        let sketches = self.dirty.keys().cloned().collect();
        Some(Dirty { applied: self.applied?, sketches, numbers: numbers.collect() })
    }
}

/// Repeatable choices (xorshift).
struct Choice(u64);

impl Choice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn small(&mut self, n: u64) -> i64 {
        i64::try_from(self.below(n)).unwrap_or(0)
    }

    fn some<'a, T>(&mut self, all: &'a [T]) -> Vec<&'a T> {
        all.iter().filter(|_| self.below(3) == 0).collect()
    }

    fn members(&mut self, most: u64) -> Vec<[u8; 16]> {
        let mut members: Vec<_> =
            (0..self.below(most)).map(|_| member(u32::try_from(self.below(400)).unwrap_or(0))).collect();
        members.sort_unstable();
        members.dedup();
        members
    }

    fn batch(&mut self, from: i64, keys: &[CountKey]) -> Apply {
        let to = from + self.small(4);
        let changed_s = u32::try_from(self.below(1_000)).unwrap_or(0);
        let number = |n: u64| Number { n, u: to, changed_s };
        let numbers = self
            .some(keys)
            .into_iter()
            .cloned()
            .collect::<Vec<_>>()
            .into_iter()
            .map(|key| (key, number(self.below(99))));
        let numbers = numbers.collect();
        let sketches = self.some(keys).into_iter().cloned().collect::<Vec<_>>();
        let sketches = sketches.into_iter().map(|key| {
            let members = self.members(6);
            let mut archived = Sketch::new();
            for member in self.members(60) {
                archived.add(&member);
            }
            let blob = (self.below(2) == 0).then(|| Bytes::from(archived.to_redis()));
            let ts = if blob.is_some() { from + self.small(9) - 4 } else { 0 };
            let base = (self.below(5) > 0).then_some(Base { blob, ts });
            SketchAdd { key, members: members.into(), base }
        });
        Apply { from, to, as_of_ms: to, numbers, sketches: sketches.collect() }
    }
}

/// A few hundred steps of counters and flushers of which any may be a zombie; another order for each seed.
pub async fn random_steps_agree_with_a_model<C: CountsUnderTest>(test: &C, partition: i32, seed: u64) {
    let store = test.store();
    let mut choice = Choice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut model = Model::default();
    let keys: Vec<_> = (0..12).map(|n| key(&format!("random-{seed}-{n}"))).collect();
    for step in 0..400 {
        let here = model.applied.unwrap_or(0);
        // Mostly the right offset, else one that is off by a little.
        let from = if choice.below(5) > 0 { here } else { here + choice.small(5) - 2 };
        match choice.below(12) {
            0 => {
                let durable = from - choice.small(3);
                let expected = *model.applied.get_or_insert(durable);
                assert_eq!(up(store.init(partition, durable, 0).await), expected, "step {step}: init");
            }
            1..=4 => {
                let batch = choice.batch(from, &keys);
                let expected = model.apply(&batch);
                assert_eq!(up(store.apply(partition, &batch).await), expected, "step {step}: {batch:?}");
            }
            5 => {
                let asked: Vec<_> = choice.some(&keys).into_iter().cloned().collect();
                let expected = match model.applied {
                    Some(at) if at == from => {
                        CountLookup::Found(asked.iter().map(|k| model.held(k)).collect())
                    }
                    at => CountLookup::Gap(at),
                };
                assert_eq!(up(store.lookup(partition, from, &asked).await), expected, "step {step}: look-up");
            }
            6 | 7 => read_sketches(store, partition, &model, from, &keys).await,
            8 => {
                let expected = model.applied.is_some_and(|at| at >= from).then(|| {
                    let read = |key: &CountKey| match model.numbers.get(key) {
                        Some((number, true)) => NumberRead::Found(*number),
                        _ => NumberRead::Clean,
                    };
                    keys.iter().map(read).collect()
                });
                assert_eq!(
                    up(store.read_numbers(partition, from, &keys).await),
                    expected,
                    "step {step}: numbers"
                );
            }
            9 => {
                let archived: Vec<_> = choice
                    .some(&keys)
                    .into_iter()
                    .map(|key| (key.clone(), model.dirty.get(key).copied().unwrap_or(1)))
                    .collect();
                let archived: Vec<_> =
                    archived.into_iter().map(|(key, t)| (key, t - i64::from(choice.below(4) == 0))).collect();
                let before = model.dirty.len();
                archived.iter().for_each(|(key, t)| {
                    if model.dirty.get(key) == Some(t) {
                        model.dirty.remove(key);
                    }
                });
                let ttl = Duration::from_secs(3_600);
                let settled = up(store.settle_sketches(partition, &archived, ttl).await);
                assert_eq!(settled, before - model.dirty.len(), "step {step}: settle sketches");
            }
            10 => {
                let mut archived = Vec::new();
                let mut expected = 0;
                for key in choice.some(&keys) {
                    let Some((number, dirty)) = model.numbers.get_mut(key) else { continue };
                    archived.push((key.clone(), *number));
                    expected += usize::from(std::mem::take(dirty));
                }
                assert_eq!(
                    up(store.settle_numbers(partition, &archived).await),
                    expected,
                    "step {step}: settle numbers"
                );
            }
            _ => {
                test.evict().await;
                model.sketches.retain(|key, _| model.dirty.contains_key(key));
            }
        }
        assert_eq!(up(store.applied(partition).await), model.applied, "step {step}");
        let mut dirty = up(store.begin(partition).await);
        if let Some(dirty) = &mut dirty {
            dirty.sketches.sort();
            dirty.numbers.sort();
        }
        assert_eq!(dirty, model.dirty(), "step {step}");
    }
}

async fn read_sketches<S: CountStore>(store: &S, partition: i32, model: &Model, at: i64, keys: &[CountKey]) {
    let read = up(store.read_sketches(partition, at, keys).await);
    let Some(read) = read else {
        assert!(model.applied.is_none_or(|applied| applied < at));
        return;
    };
    assert!(model.applied.is_some_and(|applied| applied >= at));
    for (key, read) in keys.iter().zip(read) {
        match (model.dirty.get(key), read) {
            (None, SketchRead::Clean) => {}
            (Some(expected), SketchRead::Found { t, bytes }) => {
                assert_eq!(t, *expected, "{key:?}");
                let sketch = Sketch::from_redis(&bytes).expect("a valid sketch");
                assert!(sketch.register_eq(&model.sketches[key]), "{key:?}");
            }
            (expected, read) => panic!("{key:?} is {read:?}, not {expected:?}"),
        }
    }
}
