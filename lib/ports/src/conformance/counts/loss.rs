//! What is lost, and what others break.

use super::{CountsUnderTest, assert_holds, base_of, batch, begin, dirty, done, key, members, number, up};
use crate::{ApplyOutcome, CountReader, CountStore, Held, SketchRead, SketchValue};
use std::time::Duration;

/// An empty batch finds out; then everything starts anew from what is durable. Loses everything, of all partitions.
pub async fn a_loss_is_noticed_by_an_idle_batch<C: CountsUnderTest>(test: &C, partition: i32) {
    let (store, a) = (test.store(), key("a"));
    begin(store, partition, 0).await;
    done(store, partition, batch(0, 10).number(&a, 3, 10).add(&a, 0..3)).await;
    done(store, partition, batch(10, 10)).await;
    test.lose().await;
    assert_eq!(up(store.apply(partition, &batch(10, 10)).await), ApplyOutcome::Gap(None));
    assert_eq!(up(store.begin(partition).await), None);
    assert_eq!(up(store.read_sketches(partition, 10, std::slice::from_ref(&a)).await), None);
    assert_eq!(up(store.settle_sketches(partition, &[(a.clone(), 10)], Duration::from_secs(60)).await), 0);
    assert_eq!(up(store.settle_numbers(partition, &[(a.clone(), number(3, 10))]).await), 0);
    assert_eq!(up(store.applied(partition).await), None);

    // The replay, on top of an archive that is ahead of it.
    assert_eq!(up(store.init(partition, 5, 10).await), 5);
    let late = batch(10, 20).number(&a, 9, 20);
    assert_eq!(up(store.apply(partition, &late).await), ApplyOutcome::Gap(Some(5)));
    let replay = batch(5, 8).number(&a, 3, 10).sketch(&a, members(1..2), None);
    assert_eq!(up(store.apply(partition, &replay).await), ApplyOutcome::Missing(vec![0]));
    let replay = batch(5, 8).number(&a, 3, 10).sketch(&a, members(1..2), Some(base_of(0..3, 10)));
    done(store, partition, replay).await;
    assert_holds(test, partition, &a, &[0..3]).await;
    assert_eq!(super::read_sketch(store, partition, 8, &a).await.0, 10);
    assert_eq!(up(test.reader().partitions().await).map(|n| n >= super::PARTITIONS), Some(true));
}

/// A sketch that vanished although it differed from the archive, or that is no sketch, is reported and built on by
/// nobody; everything else goes on.
pub async fn foreign_hands_are_noticed<C: CountsUnderTest>(test: &C, partition: i32) {
    let store = test.store();
    let [gone, text, set, fine] = ["gone", "text", "set", "fine"].map(key);
    begin(store, partition, 0).await;
    let first = batch(0, 10).add(&gone, 0..9).add(&text, 0..9).add(&set, 0..9).add(&fine, 0..9);
    done(store, partition, first.number(&fine, 9, 10)).await;
    let clean = [(text.clone(), 10), (set.clone(), 10), (fine.clone(), 10)];
    assert_eq!(up(store.settle_sketches(partition, &clean, Duration::from_secs(3_600)).await), 3);
    test.remove(partition, &gone).await;
    test.spoil(partition, &text, Some(b"not a sketch")).await;
    test.spoil(partition, &set, None).await;

    // Of the whole batch; the first answer may name those that are absent alone.
    let mut next = batch(10, 20).number(&fine, 12, 20).sketch(&gone, members(9..10), Some(base_of(0..9, 5)));
    next = next.sketch(&text, members(9..10), None).sketch(&set, members(9..12), None);
    next = next.sketch(&fine, members(9..12), None);
    let mut broken = Vec::new();
    while let ApplyOutcome::Corrupt(which) = up(store.apply(partition, &next).await) {
        assert!(!which.is_empty() && which.iter().all(|i| *i < next.sketches.len()));
        assert_eq!(up(store.applied(partition).await), Some(10), "the batch was not applied");
        let kept = std::mem::take(&mut next.sketches);
        for (index, add) in kept.into_iter().enumerate() {
            let list = if which.contains(&index) { &mut broken } else { &mut next.sketches };
            list.push(add);
        }
    }
    let mut broken: Vec<_> = broken.into_iter().map(|add| add.key).collect();
    broken.sort();
    let mut expected = vec![gone.clone(), text.clone(), set.clone()];
    expected.sort();
    assert_eq!(broken, expected);
    assert_eq!(up(store.applied(partition).await), Some(20), "the rest was applied");
    assert_holds(test, partition, &fine, &[0..12]).await;

    // None of them counts as archived, or the log could be given up.
    let (sketches, _) = dirty(store, partition).await;
    assert!(expected.iter().all(|key| sketches.contains(key)), "{sketches:?}");
    let read = up(store.read_sketches(partition, 20, &[gone.clone(), set.clone()]).await);
    assert_eq!(read, Some(vec![SketchRead::Corrupt; 2]));

    // Readers: each key for itself.
    let asked = [&text, &fine, &set, &gone, &fine].map(|key| (partition, key.clone()));
    for bytes in [true, false] {
        let read = up(test.reader().read(&asked, bytes).await);
        let corrupt = Some(SketchValue::Corrupt);
        assert_eq!((&read[0].sketch, &read[2].sketch, &read[3].sketch), (&corrupt, &corrupt, &None));
        assert!(read[1].sketch.is_some() && read[1].sketch != corrupt);
        assert_eq!(read[1], read[4]);
        assert_eq!(read[1].views, Some(12));
    }
    let held = super::held(store, partition, 20, &[fine]).await;
    assert_eq!(held, [Held { number: Some(number(12, 20)), sketch: true }]);
}
