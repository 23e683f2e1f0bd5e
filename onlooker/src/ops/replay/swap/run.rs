//! The command's side: finds what is wrong, keeps it, has it replaced, and looks again.

use super::change::{Change, Changes, why};
use super::compare::{Wanted, Wrong, compare};
use super::kept::Kept;
use super::stored::{self, of_partition};
use super::wire::{Ask, Blob, Built, Found, Key, Placed};
use super::{Shadow, item};
use crate::config::Config;
use crate::ops::Sight;
use crate::ops::raw::Source;
use anyhow::{Context, Result, bail};
use onlooker_event::{CountKey, ItemKey, partition_of};
use onlooker_ports::{Archived, LogObserver, Topic};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How often what is still wrong is swapped again.
const ROUNDS: usize = 3;
/// Counts of one hold: one script, 1 MB at most.
const TOGETHER: usize = 64;
/// How long the archive may take to have what was put: six of the flusher's default rounds.
const ARCHIVED: Duration = Duration::from_secs(60);

/// A swap under way.
pub(in super::super) struct Swapping<'a, S> {
    pub(in super::super) source: &'a Source<S>,
    pub(in super::super) shadow: &'a Shadow,
    pub(in super::super) folder: &'a Path,
}

/// What was there before goes.
pub(in super::super) fn confirm(folder: &Path) -> Result<usize> {
    let kept = Kept::read(folder)?.with_context(|| nothing_kept(folder))?;
    if !kept.whole {
        bail!("the swap was interrupted: run --swap again, or --back, before it is confirmed");
    }
    Kept::remove(folder)?;
    Ok(kept.counts.len())
}

fn nothing_kept(folder: &Path) -> String {
    format!("{} keeps nothing of a swap", folder.display())
}

impl<S: Sight> Swapping<'_, S> {
    /// Replaces what is wrong. Keeps the old.
    pub(in super::super) async fn swap(&self, config: &Config) -> Result<Changes> {
        let kept = Kept::read(self.folder)?;
        if kept.as_ref().is_some_and(|kept| kept.whole) {
            bail!(
                "{} keeps what an earlier swap replaced: --confirm lets it go, --back puts it back; then swap again",
                self.folder.display()
            );
        }
        let live = self.live().await?;
        self.refuse_history().await?;
        let mut kept = kept.unwrap_or_default();
        let rows = self.shadow.rows(self.folder, config).await?;
        let mut wanted = self.partitions();
        let mut keys: Vec<BTreeSet<CountKey>> = vec![BTreeSet::new(); wanted.len()];
        for (key, row) in rows {
            let at = self.place(&key)?;
            wanted[at].counts.insert(key.clone(), row);
            keys[at].insert(key);
        }
        for key in live {
            keys[self.place(&key.0)?].insert(key.0);
        }
        for key in kept.counts.keys() {
            keys[self.place(&key.0)?].insert(key.0.clone());
        }
        let keys: Vec<Vec<CountKey>> = keys.into_iter().map(|keys| keys.into_iter().collect()).collect();
        let changes = self.make(&wanted, keys, Some(&mut kept)).await?;
        if kept.counts.is_empty() {
            return Ok(changes);
        }
        kept.whole = true;
        kept.write(self.folder)?;
        Ok(changes)
    }

    /// Puts what was there before back, with what the log has had since.
    pub(in super::super) async fn back(&self) -> Result<Changes> {
        let kept = Kept::read(self.folder)?.with_context(|| nothing_kept(self.folder))?;
        let mut wanted = self.partitions();
        let mut keys = vec![Vec::new(); wanted.len()];
        let bounds = self.source.bounds(Topic::Counted).await.context("the log")?;
        for (at, wanted) in wanted.iter_mut().enumerate() {
            let of = kept.counts.iter().filter(|(_, old)| old.partition == wanted.partition);
            let lowest = of.clone().map(|(_, old)| old.held.views_below.min(old.held.sketch_below)).min();
            let Some(lowest) = lowest else { continue };
            let bounds = of_partition(&bounds, wanted.partition)?;
            if bounds.earliest > lowest {
                bail!(
                    "retention has removed what has come since the swap: the old counts cannot be put back"
                );
            }
            wanted.at = bounds.stable;
            let items: HashSet<ItemKey> = of.clone().map(|(key, _)| item(&key.0)).collect::<Result<_>>()?;
            let mut tail = super::count::Tail::new(wanted.partition, lowest);
            tail.reach(self.source, wanted.at, Some(&items)).await?;
            for (Key(key), old) in of {
                let mut count = old.held.count()?;
                let to = wanted.at;
                count.views = tail.add_views(key, count.views, old.held.views_below.min(to), to)?;
                tail.add_viewers(key, &mut count.sketch, old.held.sketch_below.min(to), to)?;
                let sketch = Some((count.sketch.to_redis().into(), to));
                let row = Archived { sketch, number: Some((count.views, to)) };
                wanted.counts.insert(key.clone(), row);
                keys[at].push(key.clone());
            }
        }
        let changes = self.make(&wanted, keys, None).await?;
        if changes.all.iter().all(|change| change.left.is_none()) {
            Kept::remove(self.folder)?;
        }
        Ok(changes)
    }

    /// Makes counts what is wanted, and looks until they are.
    async fn make(
        &self,
        wanted: &[Wanted],
        mut keys: Vec<Vec<CountKey>>,
        mut kept: Option<&mut Kept>,
    ) -> Result<Changes> {
        let mut changes: BTreeMap<CountKey, Change> = BTreeMap::new();
        let (mut put_at, mut longest_hold_ms) = (vec![None; wanted.len()], 0);
        for round in 0..=ROUNDS {
            let mut left = Vec::new();
            for (wanted, keys) in wanted.iter().zip(&keys) {
                let of = if keys.is_empty() {
                    (Vec::new(), 0)
                } else {
                    compare(self.source, wanted, keys, self.items()?.as_ref()).await?
                };
                left.push(of);
            }
            for wrong in left.iter().flat_map(|(wrong, _)| wrong) {
                let change = changes.entry(wrong.key.clone()).or_insert(Change::of(wrong)?);
                (change.views_now, change.uniques_now) = (wrong.right.views, wrong.right.sketch.count());
            }
            if round == ROUNDS || left.iter().all(|(wrong, _)| wrong.is_empty()) {
                for ((wanted, (wrong, _)), put_at) in wanted.iter().zip(&left).zip(&put_at) {
                    for wrong in wrong {
                        if let Some(change) = changes.get_mut(&wrong.key) {
                            change.left = Some(why(wrong, wanted.partition, *put_at));
                        }
                    }
                }
                break;
            }
            if let Some(kept) = &mut kept {
                for (wanted, (wrong, _)) in wanted.iter().zip(&left) {
                    kept.add(wanted.partition, wrong);
                }
                // Before anything is changed.
                kept.write(self.folder)?;
            }
            for ((wanted, (wrong, at)), put_at) in wanted.iter().zip(&left).zip(&mut put_at) {
                *put_at = self.put(wanted.partition, wrong, *at, &mut longest_hold_ms).await?;
            }
            keys = left
                .into_iter()
                .map(|(wrong, _)| wrong.into_iter().map(|wrong| wrong.key).collect())
                .collect();
        }
        Ok(Changes { all: changes.into_values().collect(), longest_hold_ms })
    }

    /// Puts counts, and waits until the archive has them. The highest offset at which one was put.
    async fn put(
        &self,
        partition: i32,
        wrong: &[Wrong],
        at: i64,
        longest_hold_ms: &mut u64,
    ) -> Result<Option<i64>> {
        let mut highest = None;
        for wrong in wrong.chunks(TOGETHER) {
            let built = |wrong: &Wrong| Built {
                key: Key(wrong.key.clone()),
                views: wrong.right.views,
                sketch: Blob(wrong.right.sketch.to_redis().into()),
            };
            let counts = wrong.iter().map(built).collect();
            let placed = put(self.source, partition, at, counts).await?;
            highest = highest.max(Some(placed.at));
            *longest_hold_ms = placed.held_ms.max(*longest_hold_ms);
        }
        let Some(highest) = highest else { return Ok(None) };
        let begun = Instant::now();
        for wrong in wrong.chunks(TOGETHER) {
            let keys: Vec<Key> = wrong.iter().map(|wrong| Key(wrong.key.clone())).collect();
            loop {
                let found = look(self.source, partition, &keys).await?;
                if found.durable >= highest && found.counts.iter().all(|stored| stored.has(highest)) {
                    break;
                }
                if begun.elapsed() > ARCHIVED {
                    bail!(
                        "the counts of partition {partition} are in place and not in the archive yet: does a flusher run? \
                         Run it again when one does"
                    );
                }
                sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(Some(highest))
    }

    pub(super) fn items(&self) -> Result<Option<HashSet<ItemKey>>> {
        super::super::diff::items(self.shadow)
    }

    fn partitions(&self) -> Vec<Wanted> {
        let of = |(partition, at): (i32, &i64)| Wanted { partition, at: *at, counts: BTreeMap::new() };
        (0..).zip(&self.shadow.until).map(of).collect()
    }

    fn place(&self, key: &CountKey) -> Result<usize> {
        Ok(usize::try_from(partition_of(key.item_bytes(), self.source.partitions()))?)
    }
}

/// What is stored of some keys.
pub(super) async fn look<S: Sight>(source: &Source<S>, partition: i32, keys: &[Key]) -> Result<Found> {
    match source {
        Source::Here(sight) => stored::look(sight, partition, keys).await,
        Source::There(remote) => {
            remote.ask(crate::ops::Ask::Swap(Ask::Look { partition, keys: keys.to_vec() })).await
        }
    }
}

async fn put<S: Sight>(source: &Source<S>, partition: i32, at: i64, counts: Vec<Built>) -> Result<Placed> {
    match source {
        Source::Here(sight) => stored::put(sight, partition, at, counts).await,
        Source::There(remote) => remote.ask(crate::ops::Ask::Swap(Ask::Put { partition, at, counts })).await,
    }
}
