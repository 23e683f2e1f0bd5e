//! Archiving: what is dirty, reading it, settling it; eviction; the janitor.

use super::{
    CountsUnderTest, assert_holds, base_of, batch, begin, dirty, done, held, key, members, number,
    read_sketch, sketch_of, up,
};
use crate::{Base, CountStore, Dirty, NumberRead, SketchRead};
use onlooker_event::CountKey;
use std::time::{Duration, Instant};

/// A day: longer than any test.
const LONG: Duration = Duration::from_secs(86_400);

/// A sketch is dirty if a register rose or it was created; a number always.
pub async fn what_is_raised_is_dirty<S: CountStore>(store: &S, partition: i32) {
    let [a, b] = ["a", "b"].map(key);
    begin(store, partition, 0).await;
    done(store, partition, batch(0, 10).number(&a, 5, 10).number(&b, 1, 10).add(&a, 0..5).add(&b, 0..1))
        .await;
    let both = vec![a.clone(), b.clone()];
    assert_eq!(dirty(store, partition).await, (both.clone(), both.clone()));
    assert_eq!(up(store.settle_sketches(partition, &[(a.clone(), 10), (b.clone(), 10)], LONG).await), 2);
    let numbers = [(a.clone(), number(5, 10)), (b.clone(), number(1, 10))];
    assert_eq!(up(store.settle_numbers(partition, &numbers).await), 2);
    assert_eq!(dirty(store, partition).await, (vec![], vec![]));

    // The same viewers again: nothing rises. And a batch in which no view is new: n stays, u does not.
    let again = batch(10, 20).number(&a, 7, 20).number(&b, 1, 20);
    done(store, partition, again.sketch(&a, members(0..5), None).sketch(&b, members(0..1), None)).await;
    assert_eq!(dirty(store, partition).await, (vec![], both.clone()));
    let read = up(store.read_numbers(partition, 20, &both).await);
    assert_eq!(read, Some(vec![NumberRead::Found(number(7, 20)), NumberRead::Found(number(1, 20))]));

    done(store, partition, batch(20, 30).sketch(&a, members(4..6), None)).await;
    assert_eq!(dirty(store, partition).await.0, std::slice::from_ref(&a));
    let (t, sketch) = read_sketch(store, partition, 30, &a).await;
    assert!(t == 30 && sketch.register_eq(&sketch_of(&[0..6])), "{t}");
    let clean = up(store.read_sketches(partition, 30, &[b]).await);
    assert_eq!(clean, Some(vec![SketchRead::Clean]));
}

/// What changed between reading and settling stays dirty; so does what was never read.
pub async fn only_what_is_unchanged_is_settled<S: CountStore>(store: &S, partition: i32) {
    let [a, b, c] = ["a", "b", "c"].map(key);
    begin(store, partition, 0).await;
    let first = batch(0, 10).number(&a, 1, 10).number(&b, 1, 10).number(&c, 1, 10);
    done(store, partition, first.add(&a, 0..1).add(&b, 0..1).add(&c, 0..1)).await;
    // b is raised after it was read; c's number changes and its sketch does not.
    let second = batch(10, 20).number(&b, 2, 20).number(&c, 2, 20);
    done(store, partition, second.sketch(&b, members(1..2), None).sketch(&c, members(0..1), None)).await;
    let sketches = [&a, &b, &c].map(|key| (key.clone(), 10));
    assert_eq!(up(store.settle_sketches(partition, &sketches, LONG).await), 2);
    let numbers = [&a, &b, &c].map(|key| (key.clone(), number(1, 10)));
    assert_eq!(up(store.settle_numbers(partition, &numbers).await), 1);
    assert_eq!(dirty(store, partition).await, (vec![b.clone()], vec![b.clone(), c.clone()]));
    assert_eq!(read_sketch(store, partition, 20, &b).await.0, 20);
    // Nothing of it is lost by being settled, and settling twice is settling once.
    assert_eq!(up(store.settle_numbers(partition, &numbers).await), 0);
    assert_eq!(
        held(store, partition, 20, &[a, b, c]).await.iter().map(|h| h.number).collect::<Vec<_>>(),
        [Some(number(1, 10)), Some(number(2, 20)), Some(number(2, 20)),]
    );
    assert_eq!(up(store.settle_sketches(partition, &[], LONG).await), 0);
    assert_eq!(up(store.settle_numbers(partition, &[(key("never"), number(1, 10))]).await), 0);
}

/// A sketch that differs from the archive cannot be evicted; raising it makes it safe again. Evicts everywhere.
pub async fn only_what_is_clean_is_evicted<C: CountsUnderTest>(test: &C, partition: i32) {
    let store = test.store();
    let [clean, dirty, raised] = ["clean", "dirty", "raised"].map(key);
    let all = [clean.clone(), dirty.clone(), raised.clone()];
    begin(store, partition, 0).await;
    let first = batch(0, 10).number(&clean, 1, 10);
    done(store, partition, first.add(&clean, 0..9).add(&dirty, 0..9).add(&raised, 0..9)).await;
    let archived = [(clean.clone(), 10), (raised.clone(), 10)];
    assert_eq!(up(store.settle_sketches(partition, &archived, LONG).await), 2);
    assert_eq!(up(store.settle_numbers(partition, &[(clean.clone(), number(1, 10))]).await), 1);
    done(store, partition, batch(10, 20).sketch(&raised, members(9..12), None)).await;
    test.evict().await;
    let present: Vec<bool> = held(store, partition, 20, &all).await.iter().map(|h| h.sketch).collect();
    assert_eq!(present, [false, true, true]);
    assert_holds(test, partition, &dirty, &[0..9]).await;
    assert_holds(test, partition, &raised, &[0..12]).await;
    let number_stays = held(store, partition, 20, std::slice::from_ref(&clean)).await[0].number;
    assert_eq!(number_stays, Some(number(1, 10)), "numbers are never evicted");
    // It comes back from the archive, and is dirty until it is written there again.
    let restored = batch(20, 30).sketch(&clean, members(9..10), Some(base_of(0..9, 10)));
    done(store, partition, restored).await;
    test.evict().await;
    assert_holds(test, partition, &clean, &[0..10]).await;
}

/// The list is of one moment; reading below it is refused.
pub async fn a_round_sees_one_moment<S: CountStore>(store: &S, partition: i32) {
    assert_eq!(up(store.begin(partition).await), None);
    let keys: Vec<CountKey> = (0..500).map(|n| key(&format!("item-{n}"))).collect();
    let absent = up(store.read_sketches(partition, 0, &keys).await);
    assert_eq!(absent, None, "there is no state");
    assert_eq!(up(store.read_numbers(partition, 0, &keys).await), None);
    begin(store, partition, 0).await;
    let nothing = Dirty { applied: 0, sketches: vec![], numbers: vec![] };
    assert_eq!(up(store.begin(partition).await), Some(nothing));
    let mut first = batch(0, 500);
    for key in &keys {
        first = first.number(key, 1, 500).sketch(key, members(0..3), Some(Base::default()));
    }
    done(store, partition, first).await;
    let mut round = up(store.begin(partition).await).expect("it has a state");
    assert_eq!((round.applied, round.sketches.len(), round.numbers.len()), (500, 500, 500));
    // Two lists that belong together, each key once.
    for list in [&mut round.sketches, &mut round.numbers] {
        list.sort();
        list.dedup();
        assert_eq!(list.len(), 500);
    }
    for applied in [0, 499, 500] {
        let sketches = up(store.read_sketches(partition, applied, &keys).await).expect("it stands beyond");
        let found = |read: &SketchRead| matches!(read, SketchRead::Found { t: 500, .. });
        assert!(sketches.len() == 500 && sketches.iter().all(found));
        let numbers = up(store.read_numbers(partition, applied, &keys).await).expect("it stands beyond");
        assert_eq!(numbers, vec![NumberRead::Found(number(1, 500)); 500]);
    }
    assert_eq!(up(store.read_sketches(partition, 501, &keys).await), None);
    assert_eq!(up(store.read_numbers(partition, 501, &keys).await), None);
    let archived: Vec<_> = keys.iter().map(|key| (key.clone(), 500)).collect();
    assert_eq!(up(store.settle_sketches(partition, &archived, LONG).await), 500);
}

/// Old numbers that are archived go; young ones and changed ones stay.
pub async fn old_numbers_are_swept<S: CountStore>(store: &S, partition: i32) {
    begin(store, partition, 0).await;
    let keys: Vec<CountKey> = (0..3_000).map(|n| key(&format!("item-{n}"))).collect();
    // By thirds: archived long ago, archived just now, changed since.
    let mut first = batch(0, 10);
    for (n, key) in keys.iter().enumerate() {
        let u = if n < 1_000 { 10 } else { 5_000 };
        first = first.number(key, 1, u);
    }
    done(store, partition, first).await;
    let archived: Vec<_> = keys[..2_000]
        .iter()
        .enumerate()
        .map(|(n, key)| (key.clone(), number(1, if n < 1_000 { 10 } else { 5_000 })))
        .collect();
    assert_eq!(up(store.settle_numbers(partition, &archived).await), 2_000);
    let mut again = batch(10, 20);
    for key in &keys[2_000..] {
        again = again.number(key, 2, 20);
    }
    done(store, partition, again).await;
    let (mut cursor, mut removed) = (0, 0);
    loop {
        let step = up(store.sweep_numbers(partition, cursor, 4_000).await);
        (cursor, removed) = (step.0, removed + step.1);
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(removed, 1_000);
    let numbers: Vec<_> = held(store, partition, 20, &keys).await.iter().map(|h| h.number).collect();
    assert!(numbers[..1_000].iter().all(Option::is_none));
    assert!(numbers[1_000..2_000].iter().all(|n| *n == Some(number(1, 5_000))));
    assert!(numbers[2_000..].iter().all(|n| *n == Some(number(2, 20))), "changed ones stay, however old");
    assert_eq!(dirty(store, partition).await.1.len(), 1_000);
}

/// One flusher at a time, until the claim runs out.
pub async fn rounds_are_claimed_for_a_while<S: CountStore>(store: &S, partition: i32) {
    assert!(up(store.claim_round(partition, LONG).await));
    assert!(!up(store.claim_round(partition, LONG).await));
    assert!(up(store.claim_round(partition + 1, Duration::from_millis(50)).await), "another partition");
    let begun = Instant::now();
    while !up(store.claim_round(partition + 1, Duration::from_millis(50)).await) {
        assert!(begun.elapsed() < Duration::from_secs(10), "the claim never ran out");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
