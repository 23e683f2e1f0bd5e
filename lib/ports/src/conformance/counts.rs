//! What every `CountStore` and `CountReader` keeps, of one implementation together.
//!
//! The functions panic where a promise is broken. Each uses one partition that nobody used before.

#![expect(clippy::single_range_in_vec_init, reason = "a sketch of one range of members is what is meant")]

mod apply;
mod flush;
mod loss;
mod observe;
mod random;
mod read;
mod repair;

pub use apply::{
    a_base_is_built_on_and_never_merged, absent_sketches_are_asked_for, batches_stand_on_exactly_their_state,
    history_is_counted_on, large_batches_are_one_step, numbers_and_sketches_are_kept,
    one_of_many_counters_wins, wishes_are_restored_without_members,
};
pub use flush::{
    a_round_sees_one_moment, old_numbers_are_swept, only_what_is_clean_is_evicted,
    only_what_is_unchanged_is_settled, rounds_are_claimed_for_a_while, what_is_raised_is_dirty,
};
pub use loss::{a_loss_is_noticed_by_an_idle_batch, foreign_hands_are_noticed};
pub use observe::keys_are_seen_as_they_are;
pub use random::random_steps_agree_with_a_model;
pub use read::{answers_keep_order_and_kind, states_tell_when_counts_are_whole, wishes_are_taken_once};
pub use repair::counts_are_put_right;

use crate::{
    Apply, ApplyOutcome, Base, CountLookup, CountReader, CountStore, Held, Number, PortError, ReadCount,
    SketchAdd, SketchRead, SketchValue,
};
use bytes::Bytes;
use onlooker_event::{CountKey, ItemId, ItemKey, Scope, SiteId};
use onlooker_sketch::Sketch;
use std::future::Future;
use std::ops::Range;

/// A store, its reader, and what happens to them.
pub trait CountsUnderTest: Sync {
    /// The counter's and flusher's side.
    type Store: CountStore;
    /// The reader's side.
    type Reader: CountReader;

    /// One client of it.
    fn store(&self) -> &Self::Store;

    /// One reader of it.
    fn reader(&self) -> &Self::Reader;

    /// It loses everything.
    fn lose(&self) -> impl Future<Output = ()> + Send;

    /// Every sketch that may be evicted is, as if memory were short.
    fn evict(&self) -> impl Future<Output = ()> + Send;

    /// Somebody removes a sketch by hand, whatever its state.
    fn remove(&self, partition: i32, key: &CountKey) -> impl Future<Output = ()> + Send;

    /// Somebody puts something else in a sketch's place: these bytes, or something that is no string of bytes at all.
    fn spoil(&self, partition: i32, key: &CountKey, with: Option<&[u8]>) -> impl Future<Output = ()> + Send;
}

/// Partitions that `all` uses, from 0.
pub const PARTITIONS: u32 = 24;

/// All of the suite, on an empty store of at least [`PARTITIONS`] partitions.
pub async fn all<C: CountsUnderTest>(test: &C) {
    let store = test.store();
    states_tell_when_counts_are_whole(test, 0).await;
    batches_stand_on_exactly_their_state(test, 1).await;
    numbers_and_sketches_are_kept(test, 2).await;
    absent_sketches_are_asked_for(test, 3).await;
    a_base_is_built_on_and_never_merged(test, 4).await;
    wishes_are_restored_without_members(test, 5).await;
    one_of_many_counters_wins(store, 6).await;
    what_is_raised_is_dirty(store, 8).await;
    only_what_is_unchanged_is_settled(store, 9).await;
    only_what_is_clean_is_evicted(test, 10).await;
    a_round_sees_one_moment(store, 11).await;
    old_numbers_are_swept(store, 12).await;
    rounds_are_claimed_for_a_while(store, 13).await;
    answers_keep_order_and_kind(test, 14).await;
    wishes_are_taken_once(test, 15).await;
    foreign_hands_are_noticed(test, 16).await;
    history_is_counted_on(test, 21).await;
    for seed in 0..3 {
        random_steps_agree_with_a_model(test, 17 + seed, u64::try_from(seed).unwrap_or(0)).await;
    }
    // Late, because eviction looks at every key.
    large_batches_are_one_step(test, 7).await;
    a_loss_is_noticed_by_an_idle_batch(test, 20).await;
}

/// The key of an item, for all time.
pub fn key(item: &str) -> CountKey {
    let site = SiteId::new("conformance").expect("a plain name");
    let item = ItemId::new(item).expect("an item id");
    CountKey::new(Scope::All, ItemKey::new(&site, &item).as_bytes())
}

/// A member that differs from those of other numbers.
pub fn member(n: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&n.wrapping_mul(2_654_435_769).to_le_bytes());
    bytes[12..].copy_from_slice(&n.to_be_bytes());
    bytes
}

fn members(range: Range<u32>) -> Vec<[u8; 16]> {
    range.map(member).collect()
}

fn sketch_of(ranges: &[Range<u32>]) -> Sketch {
    let mut sketch = Sketch::new();
    for n in ranges.iter().cloned().flatten() {
        sketch.add(&member(n));
    }
    sketch
}

fn base_of(range: Range<u32>, ts: i64) -> Base {
    Base { blob: Some(Bytes::from(sketch_of(&[range]).to_redis())), ts }
}

fn number(n: u64, u: i64) -> Number {
    Number { n, u, changed_s: u32::try_from(u).unwrap_or(0) }
}

fn batch(from: i64, to: i64) -> Apply {
    Apply { from, to, as_of_ms: to * 1_000, numbers: Vec::new(), sketches: Vec::new() }
}

impl Apply {
    fn number(mut self, key: &CountKey, n: u64, u: i64) -> Self {
        self.numbers.push((key.clone(), number(n, u)));
        self
    }

    fn sketch(mut self, key: &CountKey, members: Vec<[u8; 16]>, base: Option<Base>) -> Self {
        self.sketches.push(SketchAdd { key: key.clone(), members: members.into(), base });
        self
    }

    /// A key that the archive does not know, or that is present.
    fn add(self, key: &CountKey, range: Range<u32>) -> Self {
        self.sketch(key, members(range), Some(Base::default()))
    }
}

fn up<T>(outcome: Result<T, PortError>) -> T {
    outcome.expect("the store is up")
}

async fn begin<S: CountStore>(store: &S, partition: i32, durable: i64) {
    assert_eq!(up(store.init(partition, durable, durable).await), durable);
}

async fn done<S: CountStore>(store: &S, partition: i32, batch: Apply) {
    assert_eq!(
        up(store.apply(partition, &batch).await),
        ApplyOutcome::Done,
        "{} to {}",
        batch.from,
        batch.to
    );
}

async fn held<S: CountStore>(store: &S, partition: i32, at: i64, keys: &[CountKey]) -> Vec<Held> {
    match up(store.lookup(partition, at, keys).await) {
        CountLookup::Found(held) => held,
        CountLookup::Gap(at) => panic!("the store stands at {at:?}"),
    }
}

/// Keys of what is dirty, sketches and numbers, sorted.
async fn dirty<S: CountStore>(store: &S, partition: i32) -> (Vec<CountKey>, Vec<CountKey>) {
    let mut dirty = up(store.begin(partition).await).expect("it has a state");
    dirty.sketches.sort();
    dirty.numbers.sort();
    (dirty.sketches, dirty.numbers)
}

/// One changed sketch and its offset.
async fn read_sketch<S: CountStore>(store: &S, partition: i32, at: i64, key: &CountKey) -> (i64, Sketch) {
    let read =
        up(store.read_sketches(partition, at, std::slice::from_ref(key)).await).expect("it stands there");
    match read.as_slice() {
        [SketchRead::Found { t, bytes }] => (*t, Sketch::from_redis(bytes).expect("a valid sketch")),
        other => panic!("{key:?} is {other:?}"),
    }
}

/// What readers find, with the sketch's bytes.
async fn seen<C: CountsUnderTest>(test: &C, partition: i32, key: &CountKey) -> ReadCount {
    up(test.reader().read(&[(partition, key.clone())], true).await).swap_remove(0)
}

/// The sketch holds exactly these members.
async fn assert_holds<C: CountsUnderTest>(test: &C, partition: i32, key: &CountKey, ranges: &[Range<u32>]) {
    match seen(test, partition, key).await.sketch {
        Some(SketchValue::Bytes(bytes)) => {
            let sketch = Sketch::from_redis(&bytes).expect("a valid sketch");
            assert!(sketch.register_eq(&sketch_of(ranges)), "{key:?} does not hold {ranges:?}");
        }
        other => panic!("{key:?} is {other:?}"),
    }
}
