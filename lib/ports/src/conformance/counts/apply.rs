//! Adding.

use super::{
    CountsUnderTest, assert_holds, base_of, batch, begin, dirty, done, held, key, members, number,
    read_sketch, seen, up,
};
use crate::{ApplyOutcome, Base, CountLookup, CountStore, Held, ReadCount};
use onlooker_event::CountKey;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

/// A batch that comes twice, too early or too late changes nothing; nor does one on no state at all.
pub async fn batches_stand_on_exactly_their_state<C: CountsUnderTest>(test: &C, partition: i32) {
    let (store, a) = (test.store(), key("a"));
    assert_eq!(up(store.applied(partition).await), None);
    assert_eq!(up(store.lookup(partition, 0, std::slice::from_ref(&a)).await), CountLookup::Gap(None));
    let early = batch(0, 10).number(&a, 1, 10).add(&a, 0..1);
    assert_eq!(up(store.apply(partition, &early).await), ApplyOutcome::Gap(None));
    assert_eq!(up(store.begin(partition).await), None);
    assert_eq!(up(store.applied(partition).await), None);

    assert_eq!(up(store.init(partition, 10, 50).await), 10);
    assert_eq!(up(store.init(partition, 99, 50).await), 10, "a state that stands is left alone");
    done(store, partition, batch(10, 20).number(&a, 1, 20).add(&a, 0..1)).await;
    for (from, to) in [(10, 20), (19, 30), (21, 30), (0, 40)] {
        let stray = batch(from, to).number(&a, 9, to).add(&a, 1..9);
        assert_eq!(up(store.apply(partition, &stray).await), ApplyOutcome::Gap(Some(20)), "{from} to {to}");
        let found = up(store.lookup(partition, from, std::slice::from_ref(&a)).await);
        assert_eq!(found, CountLookup::Gap(Some(20)));
    }
    assert_eq!(up(store.applied(partition).await), Some(20));
    let expected = Held { number: Some(number(1, 20)), sketch: true };
    assert_eq!(held(store, partition, 20, std::slice::from_ref(&a)).await, [expected]);
    assert_holds(test, partition, &a, &[0..1]).await;
}

/// What was added is found again, in the order of the keys, of any length and alphabet.
pub async fn numbers_and_sketches_are_kept<C: CountsUnderTest>(test: &C, partition: i32) {
    let store = test.store();
    begin(store, partition, 0).await;
    let names = ["x".repeat(1_024), "{curly}:}{".into(), "ü/日本\u{1F600}".into(), "*".into()];
    let keys: Vec<CountKey> = names.iter().map(|name| key(name)).collect();
    let [long, curly, wide, star] = &keys[..] else { panic!("four keys") };
    // A number without members: its viewers raised nothing. Members without a number: a sketch alone.
    let first = batch(0, 10).number(long, 3, 10).number(curly, u64::MAX, 10).number(wide, 1, 12);
    done(store, partition, first.add(long, 0..3).add(wide, 5..6).add(star, 0..0)).await;
    let absent = key("absent");
    let asked = [star.clone(), long.clone(), absent.clone(), curly.clone(), wide.clone(), long.clone()];
    let expected = [
        Held { number: None, sketch: true },
        Held { number: Some(number(3, 10)), sketch: true },
        Held::default(),
        Held { number: Some(number(u64::MAX, 10)), sketch: false },
        Held { number: Some(number(1, 12)), sketch: true },
        Held { number: Some(number(3, 10)), sketch: true },
    ];
    assert_eq!(held(store, partition, 10, &asked).await, expected);
    assert_eq!(held(store, partition, 10, &[]).await, []);
    assert_holds(test, partition, long, &[0..3]).await;
    assert_holds(test, partition, wide, &[5..6]).await;
    let nothing = ReadCount { views: None, sketch: None, known_absent: false };
    assert_eq!(seen(test, partition, &absent).await, nothing);

    done(store, partition, batch(10, 20).number(long, 9, 20).sketch(long, members(2..8), None)).await;
    assert_holds(test, partition, long, &[0..8]).await;
    assert_eq!(held(store, partition, 20, std::slice::from_ref(long)).await[0].number, Some(number(9, 20)));
}

/// What the archive has at offset 0 was counted before this log began. The log's first record goes on top of it, and so does
/// a reader's wish before there is any; archived again, it still says offset 0. Evicts everywhere.
pub async fn history_is_counted_on<C: CountsUnderTest>(test: &C, partition: i32) {
    let (store, old) = (test.store(), key("history"));
    begin(store, partition, 0).await;
    let wish = batch(0, 0).number(&old, 7, 0).sketch(&old, Vec::new(), Some(base_of(0..5, 0)));
    done(store, partition, wish).await;
    assert_eq!(dirty(store, partition).await, (vec![old.clone()], vec![old.clone()]));
    assert_eq!(read_sketch(store, partition, 0, &old).await.0, 0);
    assert_eq!(up(store.settle_sketches(partition, &[(old.clone(), 0)], HOUR).await), 1);
    assert_eq!(up(store.settle_numbers(partition, &[(old.clone(), number(7, 0))]).await), 1);
    assert_eq!(dirty(store, partition).await, (vec![], vec![]));
    test.evict().await;
    let evicted = Held { number: Some(number(7, 0)), sketch: false };
    assert_eq!(held(store, partition, 0, std::slice::from_ref(&old)).await, [evicted]);

    let first = batch(0, 10).number(&old, 9, 10);
    let without = first.clone().sketch(&old, members(5..7), None);
    assert_eq!(up(store.apply(partition, &without).await), ApplyOutcome::Missing(vec![0]));
    done(store, partition, first.sketch(&old, members(5..7), Some(base_of(0..5, 0)))).await;
    assert_eq!(read_sketch(store, partition, 10, &old).await.0, 10);
    assert_holds(test, partition, &old, &[0..7]).await;
    let expected = Held { number: Some(number(9, 10)), sketch: true };
    assert_eq!(held(store, partition, 10, std::slice::from_ref(&old)).await, [expected]);
}

/// An absent sketch without a base stops the whole batch, and says which.
pub async fn absent_sketches_are_asked_for<C: CountsUnderTest>(test: &C, partition: i32) {
    let (store, there) = (test.store(), key("there"));
    let gone: Vec<CountKey> = (0..40).map(|n| key(&format!("gone-{n}"))).collect();
    begin(store, partition, 0).await;
    done(store, partition, batch(0, 10).number(&there, 1, 10).add(&there, 0..1)).await;
    let mut next = batch(10, 20).number(&there, 3, 20).sketch(&there, members(1..3), None);
    for (n, key) in (0u32..).zip(&gone) {
        // Of one member, of several, of none; every third one comes with a base.
        let base = n.is_multiple_of(3).then(|| base_of(100..200, 5));
        next = next.number(key, 1, 20).sketch(key, members(0..n % 4), base);
    }
    let expected: Vec<usize> = (0..40usize).filter(|n| !n.is_multiple_of(3)).map(|n| n + 1).collect();
    assert_eq!(up(store.apply(partition, &next).await), ApplyOutcome::Missing(expected));

    assert_eq!(up(store.applied(partition).await), Some(10));
    assert_holds(test, partition, &there, &[0..1]).await;
    assert_eq!(dirty(store, partition).await, (vec![there.clone()], vec![there.clone()]));
    assert_eq!(held(store, partition, 10, &gone).await, vec![Held::default(); 40]);

    for add in &mut next.sketches[1..] {
        add.base = add.base.take().or(Some(Base::default()));
    }
    done(store, partition, next).await;
    for (n, key) in (0u32..).zip(&gone) {
        let base = if n.is_multiple_of(3) { 100..200 } else { 0..0 };
        assert_holds(test, partition, key, &[base, 0..n % 4]).await;
    }
    assert_holds(test, partition, &there, &[0..3]).await;
}

/// A created sketch is its base and the members, changed since it was archived, and marked no lower than its base.
/// One that is present is newer than any base.
pub async fn a_base_is_built_on_and_never_merged<C: CountsUnderTest>(test: &C, partition: i32) {
    let store = test.store();
    let [below, ahead, present, dense] = ["below", "ahead", "present", "dense"].map(key);
    begin(store, partition, 100).await;
    done(store, partition, batch(100, 110).add(&present, 0..5)).await;
    let next = batch(110, 120)
        .sketch(&below, members(10..12), Some(base_of(0..10, 90)))
        .sketch(&ahead, members(10..12), Some(base_of(0..10, 500)))
        .sketch(&present, members(5..7), Some(base_of(50..60, 500)))
        .sketch(&dense, members(0..3), Some(base_of(0..20_000, 90)));
    done(store, partition, next).await;
    assert_holds(test, partition, &below, &[0..12]).await;
    assert_holds(test, partition, &ahead, &[0..12]).await;
    assert_holds(test, partition, &present, &[0..7]).await;
    assert_holds(test, partition, &dense, &[0..20_000]).await;
    for (key, t) in [(&below, 120), (&ahead, 500), (&present, 120), (&dense, 120)] {
        assert_eq!(read_sketch(store, partition, 120, key).await.0, t, "{key:?}");
    }
}

/// A reader's wish: no members, no records, the same offset.
pub async fn wishes_are_restored_without_members<C: CountsUnderTest>(test: &C, partition: i32) {
    let (store, wish, there) = (test.store(), key("wish"), key("there"));
    begin(store, partition, 7).await;
    done(store, partition, batch(7, 9).add(&there, 0..2)).await;
    let ask = batch(9, 9).sketch(&wish, vec![], None).sketch(&there, vec![], None);
    assert_eq!(up(store.apply(partition, &ask).await), ApplyOutcome::Missing(vec![0]));
    let answer = batch(9, 9).sketch(&wish, vec![], Some(base_of(0..50, 4))).sketch(&there, vec![], None);
    done(store, partition, answer).await;
    assert_eq!(up(store.applied(partition).await), Some(9));
    assert_holds(test, partition, &wish, &[0..50]).await;
    assert_holds(test, partition, &there, &[0..2]).await;
    // What was read from the archive may never have been acknowledged there: it is written again.
    assert_eq!(read_sketch(store, partition, 9, &wish).await.0, 9);
}

/// However many believe that they own the partition, one batch follows each state.
pub async fn one_of_many_counters_wins<S: CountStore>(store: &S, partition: i32) {
    let a = key("a");
    begin(store, partition, 0).await;
    for round in 0..20i64 {
        let from = round * 10;
        let counters = [1u32, 2, 3, 4].map(|who| {
            let next = batch(from, from + 10).number(&a, u64::from(who), from + 10).add(&a, who..who + 1);
            async move { up(store.apply(partition, &next).await) }
        });
        let [a, b, c, d] = counters;
        let outcomes = tokio::join!(a, b, c, d);
        let outcomes = [outcomes.0, outcomes.1, outcomes.2, outcomes.3];
        let won = outcomes.iter().filter(|outcome| **outcome == ApplyOutcome::Done).count();
        assert_eq!(won, 1, "round {round}: {outcomes:?}");
    }
    assert_eq!(up(store.applied(partition).await), Some(200));
}

/// More keys and more members than any limit of a scripting language.
pub async fn large_batches_are_one_step<C: CountsUnderTest>(test: &C, partition: i32) {
    let store = test.store();
    begin(store, partition, 0).await;
    let keys: Vec<CountKey> = (0..9_000).map(|n| key(&format!("item-{n}"))).collect();
    let viral = key("viral");
    let mut first = batch(0, 9_000).add(&viral, 0..10_000);
    for key in &keys {
        first = first.number(key, 1, 9_000).add(key, 0..1);
    }
    let mut second = batch(9_000, 20_000).sketch(&viral, members(10_000..30_000), None);
    for key in &keys {
        second = second.number(key, 2, 20_000).sketch(key, members(1..2), None);
    }
    done(store, partition, first).await;
    done(store, partition, second).await;
    assert_holds(test, partition, &viral, &[0..30_000]).await;
    let expected = Held { number: Some(number(2, 20_000)), sketch: true };
    assert_eq!(held(store, partition, 20_000, &keys).await, vec![expected; 9_000]);
    let (sketches, numbers) = dirty(store, partition).await;
    assert_eq!((sketches.len(), numbers.len()), (9_001, 9_000));
    let mut missing = batch(20_000, 20_001);
    for n in 0..9_000 {
        missing = missing.sketch(&key(&format!("other-{n}")), members(0..1), None);
    }
    let all = (0..9_000).collect();
    assert_eq!(up(store.apply(partition, &missing).await), ApplyOutcome::Missing(all));
}
