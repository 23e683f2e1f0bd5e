//! Looking on.

use super::{CountsUnderTest, batch, begin, done, key, number, sketch_of, up};
use crate::{CountObserver, CountStore, KeyView};
use onlooker_sketch::Sketch;
use std::time::Duration;

/// Everything about a key is shown as it is, right or wrong; and looking changes nothing.
pub async fn keys_are_seen_as_they_are<C: CountsUnderTest>(
    test: &C,
    observer: &impl CountObserver,
    partition: i32,
) {
    let store = test.store();
    let keys = ["changed", "clean", "spoiled", "never"].map(key);
    let [changed, clean, spoiled, _] = &keys;
    assert_eq!(up(observer.observe(partition, &keys).await), (None, vec![KeyView::default(); 4]));
    begin(store, partition, 0).await;
    let first = batch(0, 10).number(changed, 9, 10).number(clean, 4, 10);
    done(store, partition, first.add(changed, 0..9).add(clean, 0..4).add(spoiled, 0..1)).await;
    assert_eq!(
        up(store.settle_sketches(partition, &[(clean.clone(), 10)], Duration::from_secs(60)).await),
        1
    );
    assert_eq!(up(store.settle_numbers(partition, &[(clean.clone(), number(4, 10))]).await), 1);
    test.spoil(partition, spoiled, Some(b"no sketch")).await;
    let (applied, seen) = up(observer.observe(partition, &keys).await);
    assert_eq!(applied, Some(10));
    let holds = |view: &KeyView, members| {
        let sketch = Sketch::from_redis(view.sketch.as_ref().expect("it is there")).expect("it is one");
        sketch.register_eq(&sketch_of(&[members]))
    };
    assert!(holds(&seen[0], 0..9) && holds(&seen[1], 0..4), "{seen:?}");
    assert_eq!(
        (seen[0].number, seen[0].number_dirty, seen[0].sketch_dirty),
        (Some(number(9, 10)), true, Some(10))
    );
    assert_eq!(seen[0].ttl, None);
    assert_eq!(
        (seen[1].number, seen[1].number_dirty, seen[1].sketch_dirty),
        (Some(number(4, 10)), false, None)
    );
    assert!(seen[1].ttl.is_none_or(|ttl| ttl <= Duration::from_secs(60)), "{seen:?}");
    let bytes = seen[2].sketch.as_ref().expect("something is there");
    assert!(Sketch::from_redis(bytes).is_err(), "{bytes:?}");
    assert_eq!(seen[3], KeyView::default());
    // Something that is no string of bytes at all hides nobody else.
    test.spoil(partition, spoiled, None).await;
    let (_, again) = up(observer.observe(partition, &keys).await);
    assert!(Sketch::from_redis(again[2].sketch.as_ref().expect("something is there")).is_err());
    assert_eq!((&again[0], &again[3]), (&seen[0], &seen[3]));
}
