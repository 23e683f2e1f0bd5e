//! What readers see.

use super::{CountsUnderTest, batch, begin, done, key, number, sketch_of, up};
use crate::{CountReader, CountStore, PartitionState, ReadCount, SketchValue};
use onlooker_event::CountKey;
use onlooker_sketch::Sketch;
use std::time::Duration;

/// Where a partition stands, of when it is, and whether it is whole again after a loss.
pub async fn states_tell_when_counts_are_whole<C: CountsUnderTest>(test: &C, partition: i32) {
    let (store, reader) = (test.store(), test.reader());
    assert_eq!(up(reader.partitions().await), None, "no counter has run");
    assert_eq!(up(reader.states(&[partition]).await), [None]);
    assert_eq!(up(store.init(partition, 70, 100).await), 70);
    let partitions = up(reader.partitions().await).expect("a counter has run");
    assert!(partitions >= super::PARTITIONS);
    let state = PartitionState { applied: 70, as_of_ms: 0, whole_at: 100 };
    assert_eq!(up(reader.states(&[partition + 1, partition]).await), [None, Some(state)]);
    done(store, partition, batch(70, 110)).await;
    let state = PartitionState { applied: 110, as_of_ms: 110_000, whole_at: 100 };
    assert_eq!(up(reader.states(&[partition, partition]).await), vec![Some(state); 2]);
    assert_eq!(up(reader.states(&[]).await), []);
    // What is read comes with where its partition stood.
    let asked =
        [(partition, key("nobody")), (partition + 1, key("nobody")), (partition, key("nobody either"))];
    for bytes in [true, false] {
        let found = up(reader.read_with_states(&asked, bytes).await);
        assert!(found.iter().all(|(read, _)| read.views.is_none() && read.sketch.is_none()));
        let states: Vec<_> = found.into_iter().map(|(_, state)| state).collect();
        assert_eq!(states, [Some(state), None, Some(state)]);
    }
    // A batch without records may still say how recent the counts are.
    let mut idle = batch(110, 110);
    idle.as_of_ms = 115_000;
    done(store, partition, idle).await;
    assert_eq!(up(reader.states(&[partition]).await)[0].map(|s| s.as_of_ms), Some(115_000));
}

/// In the order of the keys, repetitions included; estimates are those of the bytes.
pub async fn answers_keep_order_and_kind<C: CountsUnderTest>(test: &C, partition: i32) {
    let (store, reader) = (test.store(), test.reader());
    begin(store, partition, 0).await;
    let keys: Vec<CountKey> = (0..1_000).map(|n| key(&format!("item-{n}"))).collect();
    // A few are so large that they are kept dense.
    let sizes = |n: u32| if n % 200 == 1 { 3_000 } else { 1 + n % 60 };
    let mut first = batch(0, 10);
    for (n, key) in (0u32..).zip(&keys).filter(|(n, _)| n % 3 > 0) {
        first = first.number(key, u64::from(n), 10).add(key, 0..sizes(n));
    }
    done(store, partition, first).await;
    let archived: Vec<_> = (0u32..).zip(&keys).filter(|(n, _)| n % 3 == 1).collect();
    let numbers: Vec<_> =
        archived.iter().map(|(n, key)| ((*key).clone(), number(u64::from(*n), 10))).collect();
    let sketches: Vec<_> = archived.iter().map(|(_, key)| ((*key).clone(), 10)).collect();
    // Whether a count is archived makes no difference to readers.
    assert_eq!(up(store.settle_numbers(partition, &numbers).await), numbers.len());
    assert_eq!(
        up(store.settle_sketches(partition, &sketches, Duration::from_secs(3_600)).await),
        sketches.len()
    );

    let mut order: Vec<u32> = (0..1_000).rev().collect();
    order.extend([5, 5, 0, 999]);
    let asked: Vec<_> = order.iter().map(|n| (partition, keys[*n as usize].clone())).collect();
    let (estimates, bytes) = (up(reader.read(&asked, false).await), up(reader.read(&asked, true).await));
    assert_eq!((estimates.len(), bytes.len()), (asked.len(), asked.len()));
    let absent = ReadCount { views: None, sketch: None, known_absent: false };
    for (n, (estimate, bytes)) in order.iter().zip(estimates.iter().zip(&bytes)) {
        if n % 3 == 0 {
            assert_eq!((estimate, bytes), (&absent, &absent), "item {n}");
            continue;
        }
        let sketch = sketch_of(&[0..sizes(*n)]);
        assert_eq!(estimate.views, Some(u64::from(*n)));
        assert_eq!(estimate.sketch, Some(SketchValue::Estimate(sketch.count())), "item {n}");
        let Some(SketchValue::Bytes(found)) = &bytes.sketch else { panic!("item {n} is {bytes:?}") };
        assert!(Sketch::from_redis(found).is_ok_and(|found| found.register_eq(&sketch)), "item {n}");
    }
    assert_eq!(up(reader.read(&[], true).await), []);
    // A partition that the log does not have holds nothing.
    assert_eq!(up(reader.read(&[(1 << 20, keys[1].clone())], true).await), [absent]);
}

/// Wishes are taken once; what the archive does not know either is told apart from what is only not here.
pub async fn wishes_are_taken_once<C: CountsUnderTest>(test: &C, partition: i32) {
    let (store, reader) = (test.store(), test.reader());
    begin(store, partition, 0).await;
    let keys: Vec<CountKey> = (0..50).map(|n| key(&format!("wish-{n}"))).collect();
    let wishes: Vec<_> = keys.iter().map(|key| (partition, key.clone())).collect();
    assert_eq!(up(store.take_wanted(partition, 10).await), []);
    up(reader.want(&wishes).await);
    up(reader.want(&wishes[..5]).await);
    let mut taken = up(store.take_wanted(partition, 20).await);
    assert_eq!(taken.len(), 20);
    taken.extend(up(store.take_wanted(partition, 1_000).await));
    taken.sort();
    let mut expected = keys.clone();
    expected.sort();
    assert_eq!(taken, expected);
    assert_eq!(up(store.take_wanted(partition, 1_000).await), []);

    // However many there are, they are bounded: a made-up id costs a moment and no memory.
    for round in 0..12 {
        let flood: Vec<_> = (0..5_000).map(|n| (partition, key(&format!("made-up-{round}-{n}")))).collect();
        up(reader.want(&flood).await);
    }
    let mut flooded = 0;
    loop {
        let taken = up(store.take_wanted(partition, 5_000).await).len();
        if taken == 0 {
            break;
        }
        flooded += taken;
    }
    assert!((1..60_000).contains(&flooded), "{flooded} wishes are kept");

    let [unknown, known] = [&keys[0], &keys[1]];
    let long = Duration::from_secs(3_600);
    up(store.mark_absent(partition, &[unknown.clone(), known.clone()], long).await);
    up(store.mark_absent(partition, &[], long).await);
    let asked = [(partition, unknown.clone()), (partition, known.clone()), (partition, keys[2].clone())];
    let absent = async |bytes| {
        let read = up(reader.read(&asked, bytes).await);
        read.iter().map(|read| read.known_absent).collect::<Vec<_>>()
    };
    assert_eq!(absent(true).await, [true, true, false]);
    assert_eq!(absent(false).await, [true, true, false]);
    // The first view ends it, even though the mark would last.
    done(store, partition, batch(0, 10).number(known, 1, 10).add(known, 0..1)).await;
    assert_eq!(absent(false).await, [true, false, false]);
    let clean = [(known.clone(), 10)];
    assert_eq!(up(store.settle_sketches(partition, &clean, long).await), 1);
    up(store.mark_absent(partition, std::slice::from_ref(known), long).await);
    test.evict().await;
    assert!(!absent(true).await[1], "an evicted sketch is not an unknown one");
}
