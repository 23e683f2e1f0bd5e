//! Counts that are replaced under whoever counts.

use super::{
    CountsUnderTest, assert_holds, batch, begin, dirty, done, held, key, number, read_sketch, seen,
    sketch_of, up,
};
use crate::{
    ApplyOutcome, CountLookup, CountObserver, CountReader, CountRepair, CountStore, Held, Hold, Number,
    NumberRead, Put, SketchRead,
};
use bytes::Bytes;
use onlooker_event::CountKey;
use std::ops::Range;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(600);
const MOMENT: Duration = Duration::from_millis(1);

/// All about holds and puts, on an empty store. Loses everything, of all partitions, at the end.
pub async fn counts_are_put_right<C: CountsUnderTest>(
    test: &C,
    repair: &(impl CountRepair + CountObserver),
    first: i32,
) {
    a_hold_stops_every_step_and_no_reader(test, repair, first).await;
    a_hold_ends_by_itself(test, repair, first + 1).await;
    what_is_put_is_all_there_is(test, repair, first + 2).await;
    counters_wait_for_the_release(test, repair, first + 3).await;
    a_loss_takes_a_hold_along(test, repair, first + 4).await;
}

fn put(key: &CountKey, members: Range<u32>, n: u64) -> Put {
    Put { key: key.clone(), sketch: Bytes::from(sketch_of(&[members]).to_redis()), n, changed_s: 5 }
}

fn ours(at: i64) -> Hold {
    Hold::Ours { at }
}

async fn a_hold_stops_every_step_and_no_reader<C: CountsUnderTest>(
    test: &C,
    repair: &(impl CountRepair + CountObserver),
    partition: i32,
) {
    let (store, reader, a) = (test.store(), test.reader(), key("a"));
    let one = std::slice::from_ref(&a);
    assert_eq!(up(repair.hold(partition, "me", LONG).await), Hold::Nowhere);
    assert!(!up(repair.put_and_release(partition, "me", 0, &[]).await));
    begin(store, partition, 0).await;
    done(store, partition, batch(0, 10).number(&a, 3, 10).add(&a, 0..3)).await;
    let (state, count) = (up(reader.states(&[partition]).await), seen(test, partition, &a).await);
    let looked_at = up(repair.observe(partition, one).await);
    assert_eq!(up(repair.hold(partition, "me", LONG).await), ours(10));
    assert_eq!(up(repair.hold(partition, "other", LONG).await), Hold::Taken);
    assert_eq!(up(repair.hold(partition, "me", LONG).await), ours(10));

    assert_eq!(up(store.lookup(partition, 10, one).await), CountLookup::Gap(None));
    let next = batch(10, 20).number(&a, 4, 20).add(&a, 0..4);
    assert_eq!(up(store.apply(partition, &next).await), ApplyOutcome::Gap(None));
    assert_eq!(up(store.begin(partition).await), None);
    assert_eq!(up(store.read_sketches(partition, 10, one).await), None);
    assert_eq!(up(store.read_numbers(partition, 10, one).await), None);
    assert_eq!(up(reader.states(&[partition]).await), state);
    assert_eq!(seen(test, partition, &a).await, count);
    let with_state = up(reader.read_with_states(&[(partition, a.clone())], true).await).swap_remove(0);
    assert_eq!(with_state, (count.clone(), state[0]));
    assert_eq!(up(repair.observe(partition, one).await), looked_at);
    assert_eq!(up(repair.observe(partition, &[]).await).0, Some(10));

    // Nobody else's hold is ended, and one that ends without a put leaves everything as it was.
    assert!(!up(repair.put_and_release(partition, "other", 10, &[put(&a, 0..9, 9)]).await));
    assert!(up(repair.put_and_release(partition, "me", 10, &[]).await));
    assert!(!up(repair.put_and_release(partition, "me", 10, &[]).await), "it has ended");
    assert_eq!(up(repair.observe(partition, one).await), looked_at);
    assert_eq!(up(reader.states(&[partition]).await), state);
    done(store, partition, next).await;
    assert_holds(test, partition, &a, &[0..4]).await;
}

async fn a_hold_ends_by_itself<C: CountsUnderTest>(
    test: &C,
    repair: &(impl CountRepair + CountObserver),
    partition: i32,
) {
    let (store, a) = (test.store(), key("a"));
    begin(store, partition, 0).await;
    done(store, partition, batch(0, 10).number(&a, 3, 10).add(&a, 0..3)).await;
    assert_eq!(up(repair.hold(partition, "me", MOMENT).await), ours(10));
    assert_eq!(up(store.applied(partition).await), Some(10), "the store stands where it stood");
    assert!(!up(repair.put_and_release(partition, "me", 10, &[put(&a, 0..9, 9)]).await));
    assert_eq!(up(repair.hold(partition, "me", MOMENT).await), ours(10));
    assert_eq!(up(store.init(partition, 0, 0).await), 10, "and is set to nothing else");
    // Also where nobody has asked meanwhile.
    assert_eq!(up(repair.hold(partition, "me", MOMENT).await), ours(10));
    let other = async {
        loop {
            match up(repair.hold(partition, "other", LONG).await) {
                Hold::Taken => tokio::task::yield_now().await,
                hold => return hold,
            }
        }
    };
    assert_eq!(other.await, ours(10));
    assert!(up(repair.put_and_release(partition, "other", 12, &[]).await));
    assert_eq!(up(store.applied(partition).await), Some(12));
    assert_holds(test, partition, &a, &[0..3]).await;
}

async fn what_is_put_is_all_there_is<C: CountsUnderTest>(
    test: &C,
    repair: &(impl CountRepair + CountObserver),
    partition: i32,
) {
    let store = test.store();
    let keys = ["dirty", "clean", "spoiled", "removed", "new", "never"].map(key);
    let [changed, clean, spoiled, removed, new, never] = &keys;
    begin(store, partition, 0).await;
    let mut first = batch(0, 10);
    for key in &keys[..4] {
        first = first.number(key, 7, 10).add(key, 0..7);
    }
    done(store, partition, first).await;
    assert_eq!(up(store.settle_sketches(partition, &[(clean.clone(), 10)], LONG).await), 1);
    assert_eq!(up(store.settle_numbers(partition, &[(clean.clone(), number(7, 10))]).await), 1);
    test.spoil(partition, spoiled, Some(b"no sketch")).await;
    test.remove(partition, removed).await;
    up(store.mark_absent(partition, &[new.clone(), never.clone()], LONG).await);
    assert!(seen(test, partition, new).await.known_absent);

    assert_eq!(up(repair.hold(partition, "me", LONG).await), ours(10));
    let mut puts: Vec<Put> = keys[..5].iter().map(|key| put(key, 2..6, 4)).collect();
    puts[0] = put(changed, 0..0, 0);
    assert!(up(repair.put_and_release(partition, "me", 15, &puts).await));
    assert_eq!(up(store.applied(partition).await), Some(15));
    let (sketches, numbers) = dirty(store, partition).await;
    let mut expected = keys[..5].to_vec();
    expected.sort();
    assert_eq!((&sketches, &numbers), (&expected, &expected));
    let put_number = |n| Number { n, u: 15, changed_s: 5 };
    for key in &keys[1..5] {
        let (t, sketch) = read_sketch(store, partition, 15, key).await;
        assert!(t == 15 && sketch.register_eq(&sketch_of(&[2..6])), "{key:?} is of {t}");
        let count = seen(test, partition, key).await;
        assert_eq!((count.views, count.known_absent), (Some(4), false), "{key:?}");
    }
    let found = held(store, partition, 15, &keys).await;
    assert_eq!(found[0], Held { number: Some(put_number(0)), sketch: true });
    assert_eq!(found[4], Held { number: Some(put_number(4)), sketch: true });
    assert_eq!(found[5], Held::default());
    assert!(seen(test, partition, never).await.known_absent);

    // A flusher archives and settles it as anything, and it is counted on.
    let read = up(store.read_numbers(partition, 15, std::slice::from_ref(changed)).await);
    assert_eq!(read, Some(vec![NumberRead::Found(put_number(0))]));
    let sketches: Vec<_> = keys[..5].iter().map(|key| (key.clone(), 15)).collect();
    let mut numbers: Vec<_> = keys[..5].iter().map(|key| (key.clone(), put_number(4))).collect();
    numbers[0].1 = put_number(0);
    assert_eq!(up(store.settle_sketches(partition, &sketches, LONG).await), 5);
    assert_eq!(up(store.settle_numbers(partition, &numbers).await), 5);
    assert_eq!(dirty(store, partition).await, (vec![], vec![]));
    done(store, partition, batch(15, 20).number(clean, 5, 20).sketch(clean, vec![super::member(9)], None))
        .await;
    assert_holds(test, partition, clean, &[2..6, 9..10]).await;
    test.evict().await;
    assert_eq!(
        up(store.read_sketches(partition, 20, std::slice::from_ref(spoiled)).await),
        Some(vec![SketchRead::Clean])
    );
    assert_eq!(seen(test, partition, spoiled).await.sketch, None, "it could be evicted");
}

async fn counters_wait_for_the_release<C: CountsUnderTest>(
    test: &C,
    repair: &(impl CountRepair + CountObserver),
    partition: i32,
) {
    let (store, a) = (test.store(), key("a"));
    begin(store, partition, 0).await;
    done(store, partition, batch(0, 10).number(&a, 3, 10).add(&a, 0..3)).await;
    for (from, at) in [(10, 10), (10, 14)] {
        assert_eq!(up(repair.hold(partition, "me", LONG).await), ours(from));
        let waits = async { up(store.applied(partition).await) };
        let release = async {
            // Some turns, so that it would have been seen to answer.
            for _ in 0..20 {
                assert_eq!(up(repair.hold(partition, "me", LONG).await), ours(from));
            }
            up(repair.put_and_release(partition, "me", at, &[put(&a, 0..2, 2)]).await)
        };
        assert_eq!(tokio::join!(waits, release), (Some(at), true));
    }
    // One that began to start anew before somebody else had, too.
    assert_eq!(up(repair.hold(partition, "me", LONG).await), ours(14));
    let release = async { up(repair.put_and_release(partition, "me", 14, &[]).await) };
    let (stands, released) = tokio::join!(store.init(partition, 3, 30), release);
    assert_eq!((up(stands), released), (14, true));
    assert_eq!(up(test.reader().states(&[partition]).await)[0].map(|state| state.whole_at), Some(0));

    // What rests on what was there before does not fit, although the offset is the same.
    let late = batch(14, 20).number(&a, 9, 20).sketch(&a, vec![super::member(8)], None);
    assert_eq!(up(repair.hold(partition, "me", LONG).await), ours(14));
    assert!(up(repair.put_and_release(partition, "me", 14, &[put(&a, 0..5, 5)]).await));
    for _ in 0..2 {
        match up(store.apply(partition, &late).await) {
            ApplyOutcome::Gap(_) => {}
            other => panic!("a late batch is {other:?}"),
        }
    }
    assert_eq!(up(test.reader().states(&[partition]).await)[0].map(|state| state.applied), Some(14));
    assert_eq!(up(store.begin(partition).await).map(|dirty| dirty.applied), Some(14));
    assert_holds(test, partition, &a, &[0..5]).await;
    assert_eq!(up(store.applied(partition).await), Some(14));
    done(store, partition, batch(14, 20).number(&a, 6, 20).sketch(&a, vec![super::member(8)], None)).await;
    assert_holds(test, partition, &a, &[0..5, 8..9]).await;
}

async fn a_loss_takes_a_hold_along<C: CountsUnderTest>(
    test: &C,
    repair: &(impl CountRepair + CountObserver),
    partition: i32,
) {
    let (store, a) = (test.store(), key("a"));
    begin(store, partition, 0).await;
    done(store, partition, batch(0, 10).number(&a, 3, 10).add(&a, 0..3)).await;
    assert_eq!(up(repair.hold(partition, "me", LONG).await), ours(10));
    test.lose().await;
    assert!(!up(repair.put_and_release(partition, "me", 10, &[put(&a, 0..9, 9)]).await));
    assert_eq!(up(store.applied(partition).await), None);
    assert_eq!(up(store.init(partition, 4, 10).await), 4);
    assert_eq!(held(store, partition, 4, &[a]).await, [Held::default()]);
}
