//! Which counts are not what they should be.

use super::count::{Count, Tail};
use super::wire::{Found, Held, Key, Stored};
use crate::ops::Sight;
use crate::ops::raw::Source;
use anyhow::{Context, Result, bail};
use onlooker_event::{CountKey, ItemKey};
use onlooker_ports::Archived;
use std::collections::{BTreeMap, HashSet};

/// What counts of one partition should be: these, below an offset, with what the log has behind it. Those that are not
/// named are 0 there.
pub(super) struct Wanted {
    pub(super) partition: i32,
    pub(super) at: i64,
    pub(super) counts: BTreeMap<CountKey, Archived>,
}

/// A count that is not as it should be.
pub(super) struct Wrong {
    pub(super) key: CountKey,
    pub(super) stored: Stored,
    /// Where: `archive`, `counters`.
    pub(super) places: Vec<&'static str>,
    /// What it should be, below the end of the tail.
    pub(super) right: Count,
}

/// Keys of one question: with their sketches from two places some 3 MB.
const TOGETHER: usize = 100;

/// Compares what is stored of these keys with what it should be, both brought to one offset by the log's own records.
pub(super) async fn compare<S: Sight>(
    source: &Source<S>,
    wanted: &Wanted,
    keys: &[CountKey],
    items: Option<&HashSet<ItemKey>>,
) -> Result<(Vec<Wrong>, i64)> {
    let partition = wanted.partition;
    let found = super::run::look(source, partition, &[]).await?;
    let Some(applied) = found.applied else {
        bail!("the counters of partition {partition} stand nowhere: does a counter run?");
    };
    let mut tail = Tail::new(partition, wanted.at.min(found.durable).min(applied));
    tail.reach(source, wanted.at, items).await?;
    let mut wrong = Vec::new();
    for keys in keys.chunks(TOGETHER) {
        let asked: Vec<Key> = keys.iter().cloned().map(Key).collect();
        let Found { counts, .. } = super::run::look(source, partition, &asked).await?;
        let held = |stored: &Stored| {
            [Some(&stored.archive), stored.counters.as_ref()]
                .into_iter()
                .flatten()
                .cloned()
                .collect::<Vec<_>>()
        };
        let highest = counts.iter().flat_map(held).map(|held| held.views_below.max(held.sketch_below)).max();
        tail.reach(source, highest.unwrap_or(0), items).await?;
        for (key, stored) in keys.iter().zip(counts) {
            let row = wanted.counts.get(key).cloned().unwrap_or_default();
            let right = Count::of(row.number.map(|(n, _)| n), row.sketch.as_ref().map(|(bytes, _)| bytes));
            let right = right.context("the shadow")?;
            let mut places = Vec::new();
            for (place, held) in [("archive", Some(&stored.archive)), ("counters", stored.counters.as_ref())]
            {
                // What is not among the counters was evicted; what is not in the archive is 0.
                let Some(held) = held else { continue };
                let absent_is_fine = place == "counters" && !stored.stuck;
                if differs(&tail, key, held, &right, wanted.at, absent_is_fine)? {
                    places.push(place);
                }
            }
            if !places.is_empty() {
                wrong.push(Wrong { key: key.clone(), stored, places, right });
            }
        }
    }
    // What is to be put is of one offset.
    for wrong in &mut wrong {
        wrong.right.views = tail.add_views(&wrong.key, wrong.right.views, wanted.at, tail.to())?;
        tail.add_viewers(&wrong.key, &mut wrong.right.sketch, wanted.at, tail.to())?;
    }
    Ok((wrong, tail.to()))
}

fn differs(
    tail: &Tail,
    key: &CountKey,
    held: &Held,
    right: &Count,
    at: i64,
    absent_is_fine: bool,
) -> Result<bool> {
    if held.views.is_some() || !absent_is_fine {
        let to = at.max(held.views_below);
        let views = tail.add_views(key, held.views.unwrap_or(0), held.views_below, to)?;
        if views != tail.add_views(key, right.views, at, to)? {
            return Ok(true);
        }
    }
    if held.sketch.is_none() && absent_is_fine {
        return Ok(false);
    }
    let Ok(mut stored) = held.count() else { return Ok(true) };
    if held.sketch.as_ref().and_then(|blob| told(&blob.0)).is_some_and(|count| count != stored.sketch.count())
    {
        return Ok(true);
    }
    let to = at.max(held.sketch_below);
    tail.add_viewers(key, &mut stored.sketch, held.sketch_below, to)?;
    let mut sketch = right.sketch.clone();
    tail.add_viewers(key, &mut sketch, at, to)?;
    Ok(!stored.sketch.register_eq(&sketch))
}

/// The count that a sketch's header carries, which Redis answers with; none where it is marked as stale.
fn told(bytes: &[u8]) -> Option<u64> {
    let count = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    (count >> 63 == 0).then_some(count)
}
