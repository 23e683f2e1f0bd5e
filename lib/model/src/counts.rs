//! One partition of the counters store.

use bytes::Bytes;
use onlooker_event::CountKey;
use onlooker_ports::{
    Apply, ApplyOutcome, CountLookup, Dirty, Held, Number, NumberRead, ReadCount, SketchAdd, SketchRead,
    SketchValue,
};
use onlooker_sketch::Sketch;
use std::collections::{BTreeMap, BTreeSet};

/// A condition that can be left out, to see that a test would notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A step is applied only if the store stands exactly at `from`.
    ApplyExact,
    /// The same, but a store that is further is good enough, and stays there.
    ApplyNotFurther,
    /// A step that does not fit is answered by a gap. Without it, it changes nothing and says that it did.
    ApplyTellsGap,
    /// A look-up is answered only if the store stands at `from`.
    LookupExact,
    /// A sketch that is absent without a base is `Missing`.
    Missing,
    /// A sketch made from a base is marked with the base's timestamp if that is higher.
    BaseTimestamp,
    /// A sketch made from a base is marked as changed.
    CreatedIsDirty,
    /// A number that did not change is marked as changed too. Without it, a number with `UNCHANGED` is not.
    UnchangedIsDirty,
    /// A sketch that changed loses its TTL.
    Persist,
    /// A sketch that is present ignores the base. Without it, the base is merged into it.
    PresentIgnoresBase,
    /// The same. Without it, the base replaces it, as a `SET` would.
    BaseReplacesNothing,
    /// Only what is archived may be evicted.
    EvictCleanOnly,
    /// The store's position is set only where there is none.
    InitOnce,
    /// A round's readings are refused when the store stands below where the round began.
    ReadNotBelow,
    /// A sketch is settled only if its mark is the one that was archived.
    SettleSketchCompares,
    /// A number is settled only if it is the one that was archived.
    SettleNumberCompares,
}

/// In `changed_s`: the batch did not change the number. Only for leaving `UnchangedIsDirty` out.
pub const UNCHANGED: u32 = u32::MAX - 1;

/// Wishes that are kept.
const WISHES: usize = 10_000;

/// What stands under a sketch's key.
#[derive(Debug, Clone)]
pub enum Stored {
    /// A sketch.
    Sketch(Sketch),
    /// Bytes that are none.
    Junk(Bytes),
    /// Something that is no string of bytes at all.
    Foreign,
}

/// One partition's keys.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Where it stands.
    pub applied: Option<i64>,
    /// As of; milliseconds since 1970.
    pub as_of_ms: i64,
    /// Whole again from here on.
    pub whole_at: i64,
    /// The sketches.
    pub sketches: BTreeMap<CountKey, Stored>,
    /// Those that may be evicted.
    pub evictable: BTreeSet<CountKey>,
    /// Changed sketches with their marks.
    pub dirty_sketches: BTreeMap<CountKey, i64>,
    /// The numbers.
    pub numbers: BTreeMap<CountKey, Number>,
    /// Changed numbers.
    pub dirty_numbers: BTreeSet<CountKey>,
    /// What readers asked for.
    pub wanted: BTreeSet<CountKey>,
    /// What the archive does not know.
    pub absent: BTreeSet<CountKey>,
    /// A flush round is claimed until then.
    pub claimed_until: Option<tokio::time::Instant>,
    /// The condition that is left out.
    pub without: Option<Rule>,
}

impl Counts {
    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Everything is lost, but for the rule that is left out.
    pub fn flush_all(&mut self) {
        *self = Self { without: self.without, ..Self::default() };
    }

    /// Evicts one of the sketches that may be.
    pub fn evict(&mut self, key: &CountKey) {
        if self.evictable.remove(key) || !self.keeps(Rule::EvictCleanOnly) {
            self.sketches.remove(key);
        }
    }

    /// The sketches that may be evicted.
    pub fn evictable(&self) -> Vec<CountKey> {
        if self.keeps(Rule::EvictCleanOnly) {
            return self.evictable.iter().cloned().collect();
        }
        self.sketches.keys().cloned().collect()
    }

    /// INIT.
    pub fn init(&mut self, durable: i64, whole_at: i64) -> i64 {
        if self.applied.is_none() || !self.keeps(Rule::InitOnce) {
            (self.applied, self.whole_at, self.as_of_ms) = (Some(durable), whole_at, 0);
        }
        self.applied.unwrap_or(durable)
    }

    /// LOOKUP.
    pub fn lookup(&self, from: i64, keys: &[CountKey]) -> CountLookup {
        if self.applied != Some(from) && self.keeps(Rule::LookupExact) {
            return CountLookup::Gap(self.applied);
        }
        let held = |key: &CountKey| Held {
            number: self.numbers.get(key).copied(),
            sketch: self.sketches.contains_key(key),
        };
        CountLookup::Found(keys.iter().map(held).collect())
    }

    /// APPLY.
    pub fn apply(&mut self, batch: &Apply) -> ApplyOutcome {
        let fits = match self.without {
            Some(Rule::ApplyExact) => self.applied.is_some(),
            Some(Rule::ApplyNotFurther) => self.applied.is_some_and(|a| a >= batch.from),
            _ => self.applied == Some(batch.from),
        };
        if !fits && self.keeps(Rule::ApplyTellsGap) {
            return ApplyOutcome::Gap(self.applied);
        }
        if !fits {
            return ApplyOutcome::Done;
        }
        let (mut missing, mut corrupt) = (Vec::new(), Vec::new());
        for (at, sketch) in batch.sketches.iter().enumerate() {
            match self.sketches.get(&sketch.key) {
                Some(Stored::Sketch(_)) => {}
                Some(Stored::Junk(_) | Stored::Foreign) => corrupt.push(at),
                None if self.dirty_sketches.contains_key(&sketch.key) => corrupt.push(at),
                None if sketch.base.is_none() => missing.push(at),
                None => {}
            }
        }
        if !corrupt.is_empty() {
            for at in &corrupt {
                // It does not count as archived, or the log could be given up.
                let key = &batch.sketches[*at].key;
                self.dirty_sketches.entry(key.clone()).or_insert(batch.from);
                self.evictable.remove(key);
            }
            return ApplyOutcome::Corrupt(corrupt);
        }
        if !missing.is_empty() && self.keeps(Rule::Missing) {
            return ApplyOutcome::Missing(missing);
        }
        for sketch in &batch.sketches {
            self.absent.remove(&sketch.key);
            self.add(sketch, batch.to);
        }
        for (key, number) in &batch.numbers {
            self.absent.remove(key);
            self.numbers.insert(key.clone(), *number);
            if self.keeps(Rule::UnchangedIsDirty) || number.changed_s != UNCHANGED {
                self.dirty_numbers.insert(key.clone());
            }
        }
        let further = self.applied.filter(|_| self.without == Some(Rule::ApplyNotFurther));
        self.applied = Some(batch.to.max(further.unwrap_or(batch.to)));
        if batch.as_of_ms != 0 {
            self.as_of_ms = batch.as_of_ms;
        }
        ApplyOutcome::Done
    }

    fn add(&mut self, add: &SketchAdd, to: i64) {
        let base = add.base.clone().unwrap_or_default();
        let from_base = || base.blob.as_ref().and_then(|b| Sketch::from_redis(b).ok()).unwrap_or_default();
        let ignore_base = self.keeps(Rule::PresentIgnoresBase);
        let replace = !self.keeps(Rule::BaseReplacesNothing) && add.base.is_some();
        if let Some(Stored::Sketch(sketch)) = self.sketches.get_mut(&add.key) {
            let mut rose = false;
            if replace {
                *sketch = from_base();
            }
            for member in &add.members {
                rose |= sketch.add(member);
            }
            if !ignore_base {
                rose |= sketch.merge(&from_base());
            }
            if rose {
                self.dirty_sketches.insert(add.key.clone(), to);
                if self.keeps(Rule::Persist) {
                    self.evictable.remove(&add.key);
                }
            }
            return;
        }
        let mut sketch = from_base();
        for member in &add.members {
            sketch.add(member);
        }
        self.sketches.insert(add.key.clone(), Stored::Sketch(sketch));
        if self.keeps(Rule::CreatedIsDirty) {
            let mark = if self.keeps(Rule::BaseTimestamp) { to.max(base.ts) } else { to };
            self.dirty_sketches.insert(add.key.clone(), mark);
        } else {
            self.evictable.insert(add.key.clone());
        }
    }

    /// What a reader finds.
    pub fn read(&self, key: &CountKey, bytes: bool) -> ReadCount {
        let views = self.numbers.get(key).map(|number| number.n);
        let sketch = self.sketches.get(key).map(|stored| match stored {
            Stored::Sketch(sketch) if bytes => SketchValue::Bytes(sketch.to_redis().into()),
            Stored::Sketch(sketch) => SketchValue::Estimate(sketch.count()),
            Stored::Junk(_) | Stored::Foreign => SketchValue::Corrupt,
        });
        ReadCount { views, sketch, known_absent: self.absent.contains(key) }
    }

    /// Notes that the archive does not know these keys.
    pub fn mark_absent(&mut self, keys: &[CountKey]) {
        let unknown = |key: &&CountKey| !self.numbers.contains_key(*key) && !self.sketches.contains_key(*key);
        let unknown: Vec<_> = keys.iter().filter(unknown).cloned().collect();
        self.absent.extend(unknown);
    }

    /// Wishes; those beyond the bound are dropped.
    pub fn want(&mut self, key: &CountKey) {
        if self.wanted.len() < WISHES {
            self.wanted.insert(key.clone());
        }
    }

    /// BEGIN.
    pub fn begin(&self) -> Option<Dirty> {
        Some(Dirty {
            applied: self.applied?,
            sketches: self.dirty_sketches.keys().cloned().collect(),
            numbers: self.dirty_numbers.iter().cloned().collect(),
        })
    }

    fn stale(&self, applied: i64) -> bool {
        self.keeps(Rule::ReadNotBelow) && self.applied.is_none_or(|a| a < applied)
    }

    /// READ_S.
    pub fn read_sketches(&self, applied: i64, keys: &[CountKey]) -> Option<Vec<SketchRead>> {
        let read = |key: &CountKey| match (self.dirty_sketches.get(key), self.sketches.get(key)) {
            (None, _) => SketchRead::Clean,
            (Some(_), None | Some(Stored::Foreign)) => SketchRead::Corrupt,
            (Some(t), Some(Stored::Sketch(s))) => SketchRead::Found { t: *t, bytes: s.to_redis().into() },
            (Some(t), Some(Stored::Junk(bytes))) => SketchRead::Found { t: *t, bytes: bytes.clone() },
        };
        (!self.stale(applied)).then(|| keys.iter().map(read).collect())
    }

    /// READ_N.
    pub fn read_numbers(&self, applied: i64, keys: &[CountKey]) -> Option<Vec<NumberRead>> {
        let read = |key: &CountKey| match (self.dirty_numbers.contains(key), self.numbers.get(key)) {
            (false, _) => NumberRead::Clean,
            (true, None) => NumberRead::Corrupt,
            (true, Some(number)) => NumberRead::Found(*number),
        };
        (!self.stale(applied)).then(|| keys.iter().map(read).collect())
    }

    /// SETTLE_S.
    pub fn settle_sketches(&mut self, archived: &[(CountKey, i64)]) -> usize {
        let mut settled = 0;
        for (key, t) in archived {
            let mark = self.dirty_sketches.get(key);
            if mark == Some(t) || (mark.is_some() && !self.keeps(Rule::SettleSketchCompares)) {
                self.dirty_sketches.remove(key);
                self.evictable.insert(key.clone());
                settled += 1;
            }
        }
        settled
    }

    /// SETTLE_N.
    pub fn settle_numbers(&mut self, archived: &[(CountKey, Number)]) -> usize {
        let mut settled = 0;
        for (key, number) in archived {
            let same = self.numbers.get(key).is_some_and(|held| held.u == number.u);
            if (same || !self.keeps(Rule::SettleNumberCompares)) && self.dirty_numbers.remove(key) {
                settled += 1;
            }
        }
        settled
    }

    /// The janitor.
    pub fn sweep(&mut self, changed_before_s: u32) -> usize {
        let before = self.numbers.len();
        let dirty = &self.dirty_numbers;
        self.numbers.retain(|key, number| number.changed_s >= changed_before_s || dirty.contains(key));
        before - self.numbers.len()
    }
}
