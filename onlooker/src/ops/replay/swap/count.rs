//! A count under construction, and the log's views that it is built of.

use super::super::diff::read_views;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use onlooker_event::{CountKey, DayNumber, ItemKey, Scope};
use onlooker_ports::LogObserver;
use onlooker_sketch::Sketch;
use std::collections::{HashMap, HashSet};

/// Views and viewers of one key.
#[derive(Debug, Clone, Default)]
pub(super) struct Count {
    pub(super) views: u64,
    pub(super) sketch: Sketch,
}

impl Count {
    /// Of what is stored; what is not is 0.
    pub(super) fn of(views: Option<u64>, sketch: Option<&Bytes>) -> Result<Self> {
        let sketch = sketch.map_or_else(|| Ok(Sketch::new()), |bytes| Sketch::from_redis(bytes));
        Ok(Self { views: views.unwrap_or(0), sketch: sketch.context("a sketch is damaged")? })
    }
}

/// Counted views of one partition, from some offset on, by key. As many as came in since a shadow was made.
pub(super) struct Tail {
    partition: i32,
    from: i64,
    to: i64,
    views: HashMap<CountKey, Vec<(i64, [u8; 16])>>,
}

impl Tail {
    pub(super) fn new(partition: i32, from: i64) -> Self {
        Self { partition, from, to: from, views: HashMap::new() }
    }

    /// Every view of the partition from its beginning up to here is known.
    pub(super) fn to(&self) -> i64 {
        self.to
    }

    /// Reads on, so that everything below `to` is known; of these items alone, if any are named.
    pub(super) async fn reach(
        &mut self,
        log: &impl LogObserver,
        to: i64,
        items: Option<&HashSet<ItemKey>>,
    ) -> Result<()> {
        if to <= self.to {
            return Ok(());
        }
        let views = &mut self.views;
        read_views(log, &[(self.partition, self.to..to)], |_, offset, view| {
            let item = ItemKey::new(&view.site, &view.item);
            if items.is_none_or(|items| items.contains(&item)) {
                for scope in [Scope::All, Scope::Day(DayNumber::of_ms(view.event_ms))] {
                    let key = CountKey::new(scope, item.as_bytes());
                    views.entry(key).or_default().push((offset, view.viewer.0));
                }
            }
        })
        .await?;
        self.to = to;
        Ok(())
    }

    /// Adds to the number what the log has of a key from one offset to another.
    pub(super) fn add_views(&self, key: &CountKey, views: u64, from: i64, to: i64) -> Result<u64> {
        Ok(views + self.of(key, from, to)?.count() as u64)
    }

    /// Likewise to the sketch.
    pub(super) fn add_viewers(&self, key: &CountKey, sketch: &mut Sketch, from: i64, to: i64) -> Result<()> {
        self.of(key, from, to)?.for_each(|(_, viewer)| _ = sketch.add(viewer));
        Ok(())
    }

    fn of(&self, key: &CountKey, from: i64, to: i64) -> Result<impl Iterator<Item = &(i64, [u8; 16])>> {
        if from < to && (from < self.from || to > self.to) {
            bail!("partition {} was counted from {from} on anew meanwhile: run it again", self.partition);
        }
        let all = self.views.get(key).into_iter().flatten();
        Ok(all.filter(move |(offset, _)| (from..to).contains(offset)))
    }
}
