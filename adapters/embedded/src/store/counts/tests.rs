//! The store's promises, and what is its own: the limit.

use super::form::Form;
use super::key::split;
use super::*;
use onlooker_event::{DayNumber, Scope};
use onlooker_ports::conformance::counts;
use onlooker_ports::{Archived, Base, Members, SketchAdd};
use onlooker_sketch::Sketch;
use std::collections::BTreeMap;

struct Test(MemoryCounts);

impl Test {
    fn with_form(&self, partition: i32, key: &CountKey, put: Form) {
        let (scope, name) = split(key);
        let mut partition = self.0.partition(partition).unwrap();
        self.0.account(&mut partition, |partition| {
            let id = partition.find(self.0.hash(name), name).unwrap();
            let slot = partition.item_mut(id).slot_mut(scope).unwrap();
            let (clean, bytes) = (slot.evictable_bytes(), slot.form.heap_bytes());
            slot.form = put;
            partition.heap -= bytes;
            partition.evictable -= clean;
        });
    }
}

impl counts::CountsUnderTest for Test {
    type Store = MemoryCounts;
    type Reader = MemoryCounts;

    fn store(&self) -> &MemoryCounts {
        &self.0
    }

    fn reader(&self) -> &MemoryCounts {
        &self.0
    }

    async fn lose(&self) {
        self.0.clear();
    }

    async fn evict(&self) {
        self.0.evict_all();
    }

    async fn remove(&self, partition: i32, key: &CountKey) {
        self.with_form(partition, key, Form::Absent);
    }

    async fn spoil(&self, partition: i32, key: &CountKey, _with: Option<&[u8]>) {
        self.with_form(partition, key, Form::Broken);
    }
}

#[tokio::test]
async fn it_keeps_the_promises_of_a_count_store() {
    counts::all(&Test(MemoryCounts::new(counts::PARTITIONS, usize::MAX))).await;
}

#[tokio::test]
async fn keys_are_seen_as_they_are() {
    let test = Test(MemoryCounts::new(counts::PARTITIONS, usize::MAX));
    counts::keys_are_seen_as_they_are(&test, &test.0, 0).await;
}

#[tokio::test]
async fn counts_are_put_right() {
    let test = Test(MemoryCounts::new(counts::PARTITIONS, usize::MAX));
    counts::counts_are_put_right(&test, &test.0, 0).await;
    audit(&test.0);
}

/// What is tracked is what is there.
fn audit(store: &MemoryCounts) {
    let mut all = 0;
    for (partition, _) in &store.shared.partitions {
        let partition = lock(partition);
        let (mut heap, mut evictable) = (0, 0);
        for (at, segment) in partition.segments.iter().enumerate() {
            for number in 0..segment.places() {
                let item = partition.item(Partition::id(at, number));
                heap += item.heap_bytes();
                for slot in item.slots() {
                    heap += slot.form.heap_bytes();
                    evictable += slot.evictable_bytes();
                }
            }
        }
        assert_eq!((partition.heap, partition.evictable), (heap, evictable));
        all += partition.bytes();
    }
    assert_eq!(store.used_bytes(), all);
}

/// A counter, a flusher and an archive, as plain as can be, of one partition.
struct Little {
    store: MemoryCounts,
    archive: BTreeMap<CountKey, Archived>,
    truth: BTreeMap<CountKey, (Sketch, u64)>,
    at: i64,
    refused: usize,
    missed: usize,
}

impl Little {
    async fn new(limit_bytes: usize) -> Self {
        let store = MemoryCounts::new(2, limit_bytes);
        assert_eq!(store.init(0, 0, 0).await, Ok(0));
        let (archive, truth) = (BTreeMap::new(), BTreeMap::new());
        Self { store, archive, truth, at: 0, refused: 0, missed: 0 }
    }

    async fn count(&mut self, views: Vec<(CountKey, Vec<[u8; 16]>)>) {
        let keys: Vec<_> = views.iter().map(|(key, _)| key.clone()).collect();
        let CountLookup::Found(held) = self.store.lookup(0, self.at, &keys).await.unwrap() else {
            panic!("it stands elsewhere");
        };
        let to = self.at + 10;
        let mut batch = Apply { from: self.at, to, as_of_ms: 0, numbers: Vec::new(), sketches: Vec::new() };
        for ((key, members), held) in views.into_iter().zip(held) {
            let archived = || self.archive.get(&key).and_then(|row| row.number).map_or(0, |(n, _)| n);
            let n = held.number.map_or_else(archived, |number| number.n) + members.len() as u64;
            let (sketch, views) = self.truth.entry(key.clone()).or_default();
            members.iter().for_each(|member| _ = sketch.add(member));
            *views += members.len() as u64;
            assert_eq!(n, *views, "{key:?}");
            batch.numbers.push((key.clone(), Number { n, u: to, changed_s: 0 }));
            batch.sketches.push(SketchAdd { key, members: members.into(), base: None });
        }
        let mut refusals = 0;
        loop {
            match self.store.apply(0, &batch).await {
                Ok(ApplyOutcome::Done) => break,
                Ok(ApplyOutcome::Missing(missing)) => {
                    self.missed += missing.len();
                    for at in missing {
                        let row =
                            self.archive.get(&batch.sketches[at].key).and_then(|row| row.sketch.clone());
                        let base = row.map(|(blob, ts)| Base { blob: Some(blob), ts });
                        batch.sketches[at].base = Some(base.unwrap_or_default());
                    }
                }
                Err(error @ PortError::Full { .. }) => {
                    self.refused += 1;
                    refusals += 1;
                    assert!(refusals < 5, "a batch of {} sketches never fits: {error}", batch.sketches.len());
                    assert!(*self.store.refusing().borrow());
                    assert_eq!(self.store.applied(0).await, Ok(Some(self.at)), "nothing was changed");
                    self.flush(true).await;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(!*self.store.refusing().borrow());
        self.at = to;
        if self.at % 170 == 0 {
            audit(&self.store);
        }
        let (used, limit) = (self.store.used_bytes(), self.store.limit_bytes());
        assert!(used <= limit.saturating_add(limit / 100 + 4_096), "{used} bytes of {limit}");
    }

    async fn flush(&mut self, numbers_too: bool) {
        let dirty = self.store.begin(0).await.unwrap().unwrap();
        let sketches = self.store.read_sketches(0, dirty.applied, &dirty.sketches).await.unwrap().unwrap();
        let mut settled = Vec::new();
        for (key, read) in dirty.sketches.into_iter().zip(sketches) {
            let SketchRead::Found { t, bytes } = read else { panic!("{key:?} is {read:?}") };
            self.archive.entry(key.clone()).or_default().sketch = Some((bytes, t));
            settled.push((key, t));
        }
        assert_eq!(self.store.settle_sketches(0, &settled, Duration::ZERO).await, Ok(settled.len()));
        if numbers_too {
            let numbers = self.store.read_numbers(0, dirty.applied, &dirty.numbers).await.unwrap().unwrap();
            let mut settled = Vec::new();
            for (key, read) in dirty.numbers.into_iter().zip(numbers) {
                let NumberRead::Found(number) = read else { panic!("{key:?} is {read:?}") };
                self.archive.entry(key.clone()).or_default().number = Some((number.n, number.u));
                settled.push((key, number));
            }
            assert_eq!(self.store.settle_numbers(0, &settled).await, Ok(settled.len()));
        }
        audit(&self.store);
    }

    /// All that was counted is in the archive, register for register.
    async fn check(&mut self) {
        self.flush(true).await;
        assert_eq!(self.archive.len(), self.truth.len());
        for (key, (sketch, views)) in &self.truth {
            let row = &self.archive[key];
            let (bytes, _) = row.sketch.as_ref().unwrap();
            assert!(Sketch::from_redis(bytes).unwrap().register_eq(sketch), "{key:?}");
            assert_eq!(row.number.unwrap().0, *views, "{key:?}");
        }
    }
}

fn key_of(item: u64, day: u32) -> CountKey {
    let scope = match day {
        0 => Scope::All,
        day => Scope::Day(DayNumber(20_000 + i32::try_from(day).unwrap())),
    };
    // Some names are longer than what stands inline.
    let pad = "-".repeat(usize::try_from(item % 5).unwrap() * 6);
    CountKey::new(scope, format!("s:item-{item}{pad}").as_bytes())
}

struct Choice(u64);

impl Choice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    /// Views of a few items, of which low numbers are more frequent, each for all time and its day.
    fn views(&mut self, items: u64, most_members: u64) -> Vec<(CountKey, Vec<[u8; 16]>)> {
        let mut chosen: Vec<u64> = (0..20).map(|_| self.below(items).min(self.below(items))).collect();
        chosen.sort_unstable();
        chosen.dedup();
        let day = u32::try_from(self.below(4)).unwrap() + 1;
        let mut views = Vec::new();
        for item in chosen {
            let members: Vec<[u8; 16]> = (0..=self.below(most_members))
                .map(|_| {
                    u128::from(self.below(5_000)).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
                })
                .map(u128::to_le_bytes)
                .collect();
            views.push((key_of(item, 0), members.clone()));
            views.push((key_of(item, day), members));
        }
        views
    }
}

#[tokio::test]
async fn nothing_is_lost_under_a_limit_that_holds_a_part() {
    for (seed, items, members) in [(1, 300, 60), (2, 4_000, 3), (3, 150, 250)] {
        let mut choice = Choice(seed);
        // How much it would be without a limit.
        let mut free = Little::new(usize::MAX).await;
        let idle = free.store.used_bytes();
        for _ in 0..70 {
            free.count(choice.views(items, members)).await;
        }
        free.check().await;
        assert_eq!((free.refused, free.missed - free.truth.len()), (0, 0));
        let limit = idle + (free.store.used_bytes() - idle) / 5;

        let mut choice = Choice(seed);
        let mut little = Little::new(limit).await;
        for round in 0..70 {
            little.count(choice.views(items, members)).await;
            if round % 7 == 0 {
                little.flush(round % 2 == 0).await;
            }
        }
        little.check().await;
        assert_eq!(little.truth.len(), free.truth.len());
        assert!(little.missed > little.truth.len(), "some were evicted and restored");
        little.store.evict_all();
        audit(&little.store);
    }
}

#[tokio::test]
async fn what_is_not_archived_is_never_evicted() {
    let mut choice = Choice(9);
    let mut little = Little::new(600_000).await;
    let mut refusals = little.store.refusing();
    while little.refused == 0 {
        let before = little.missed;
        little.count(choice.views(500, 40)).await;
        let created = little.truth.len();
        assert!(
            little.refused > 0 || little.missed == created,
            "{before} of {created}: none was missed twice"
        );
    }
    assert!(refusals.has_changed().unwrap() && !*refusals.borrow_and_update());
    little.check().await;
}

#[tokio::test]
async fn a_batch_that_alone_is_too_large_is_refused_for_as_long_as_it_is() {
    let store = MemoryCounts::new(1, 200_000);
    assert_eq!(store.init(0, 0, 0).await, Ok(0));
    let sketches = (0..20).map(|item| {
        let members = (0..6_000u128).map(|n| (n << 20 | item).to_le_bytes()).collect();
        let base = Some(Base::default());
        SketchAdd { key: key_of(u64::try_from(item).unwrap(), 0), members, base }
    });
    let batch = Apply { from: 0, to: 9, as_of_ms: 0, numbers: Vec::new(), sketches: sketches.collect() };
    for _ in 0..2 {
        let error = store.apply(0, &batch).await.unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("200000"), "{error}");
        assert_eq!(store.applied(0).await, Ok(Some(0)));
    }
    // An empty batch needs no room.
    let idle = Apply { from: 0, to: 0, as_of_ms: 0, numbers: Vec::new(), sketches: Vec::new() };
    assert_eq!(store.apply(0, &idle).await, Ok(ApplyOutcome::Done));
    audit(&store);
}

#[tokio::test]
async fn a_base_that_is_no_sketch_changes_nothing() {
    let store = MemoryCounts::new(1, usize::MAX);
    assert_eq!(store.init(0, 0, 0).await, Ok(0));
    let base = Base { blob: Some(bytes::Bytes::from_static(b"HYLL")), ts: 1 };
    let add = SketchAdd { key: key_of(1, 0), members: Members::new(), base: Some(base) };
    let batch = Apply { from: 0, to: 9, as_of_ms: 0, numbers: Vec::new(), sketches: vec![add] };
    let error = store.apply(0, &batch).await.unwrap_err();
    assert!(error.to_string().contains("a base is no sketch"), "{error}");
    assert_eq!(store.applied(0).await, Ok(Some(0)));
}
