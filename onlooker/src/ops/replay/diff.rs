//! What a shadow's counts are beside those of the system that it was read from.

use super::super::Sight;
use super::super::raw::Source;
use super::plan::{Kind, Shadow};
use crate::carry::Rows;
use anyhow::{Context, Result, bail};
use onlooker_event::{CountKey, DayNumber, ItemKey, Scope, partition_of};
use onlooker_ports::{Archived, Batch, LogObserver, Topic};
use onlooker_proto::{Counted, decode_counted};
use onlooker_sketch::Sketch;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use tokio::sync::mpsc;

/// A count that is not the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Difference {
    /// `*`, or the day as YYYYMMDD.
    pub(super) scope: String,
    pub(super) site: String,
    pub(super) item: String,
    pub(super) live_views: u64,
    pub(super) shadow_views: u64,
    pub(super) live_uniques: u64,
    pub(super) shadow_uniques: u64,
    /// Registers that are not equal.
    pub(super) registers: usize,
}

/// What was compared.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Compared {
    pub(super) counts: u64,
    pub(super) differences: u64,
    pub(super) live_views: u64,
    pub(super) shadow_views: u64,
}

#[derive(Default)]
struct Pair {
    live: Count,
    shadow: Count,
}

/// A count under construction.
#[derive(Default)]
struct Count {
    views: u64,
    sketch: Sketch,
}

impl Count {
    fn add(&mut self, view: &Counted) {
        self.views += 1;
        self.sketch.add(&view.viewer.0);
    }

    fn of(archived: Archived) -> Result<(Self, i64, i64)> {
        let (blob, t) = archived.sketch.unzip();
        let sketch = blob.map_or_else(|| Ok(Sketch::new()), |blob| Sketch::from_redis(&blob));
        let (views, u) = archived.number.unwrap_or((0, 0));
        Ok((Self { views, sketch: sketch.context("a stored sketch is damaged")? }, t.unwrap_or(0), u))
    }
}

/// The shadow's rows, by key.
pub(super) type ShadowRows = BTreeMap<CountKey, Archived>;

/// Compares. The differences come in the order of their keys.
pub(super) async fn compare<S: Sight>(
    source: &Source<S>,
    shadow: &Shadow,
    rows: ShadowRows,
) -> Result<(Vec<Difference>, Compared)> {
    if source.generation() != shadow.generation {
        bail!("the shadow is of log {}, and this is log {}", shadow.generation, source.generation());
    }
    let mut pairs: BTreeMap<CountKey, Pair> = BTreeMap::new();
    match shadow.kind {
        Kind::Replay => of_replay(source, shadow, rows, &mut pairs).await?,
        Kind::Rebuild => of_rebuild(source, shadow, rows, &mut pairs).await?,
    }
    let mut compared = Compared::default();
    let mut differences = Vec::new();
    for (key, Pair { live, shadow }) in pairs {
        compared.counts += 1;
        if key.scope_bytes() == b"*" {
            compared.live_views += live.views;
            compared.shadow_views += shadow.views;
        }
        let (a, b) = (live.sketch.registers(), shadow.sketch.registers());
        let registers = a.iter().zip(b.iter()).filter(|(a, b)| a != b).count();
        if registers > 0 || live.views != shadow.views {
            compared.differences += 1;
            let item = ItemKey::parse(bytes::Bytes::copy_from_slice(key.item_bytes()));
            let item = item.context("a key that is none")?;
            let (site, item) = item.parts();
            differences.push(Difference {
                scope: String::from_utf8_lossy(key.scope_bytes()).into_owned(),
                site: site.to_owned(),
                item: item.to_owned(),
                live_views: live.views,
                shadow_views: shadow.views,
                live_uniques: live.sketch.count(),
                shadow_uniques: shadow.sketch.count(),
                registers,
            });
        }
    }
    Ok((differences, compared))
}

/// Views that were judged again: beside them stand the verdicts that the system itself gave on the same views.
async fn of_replay<S: Sight>(
    source: &Source<S>,
    shadow: &Shadow,
    rows: ShadowRows,
    pairs: &mut BTreeMap<CountKey, Pair>,
) -> Result<()> {
    for (key, archived) in rows {
        pairs.entry(key).or_default().shadow = Count::of(archived)?.0;
    }
    let items = items(shadow)?;
    // A verdict comes behind its view.
    let begin = source.offsets_at(Topic::Counted, shadow.begin_ms - SKEW_MS).await?;
    let bounds = source.bounds(Topic::Counted).await?;
    let ranges = (0..).zip(begin.iter().zip(&bounds).map(|(begin, bounds)| *begin..bounds.stable));
    read_views(source, &ranges.collect::<Vec<_>>(), |_, _, view| {
        let of = usize::try_from(view.source_partition).ok();
        let range = of.and_then(|at| Some(*shadow.from.get(at)?..*shadow.until.get(at)?));
        let item = ItemKey::new(&view.site, &view.item);
        let named = items.as_ref().is_none_or(|items| items.contains(&item));
        if named && range.is_some_and(|range| range.contains(&view.source_offset)) {
            for key in keys(view, &item) {
                pairs.entry(key).or_default().live.add(view);
            }
        }
    })
    .await
}

/// How far the clocks of the log's servers may be apart, at most.
const SKEW_MS: i64 = 3_600_000;

/// Verdicts that were counted again: both sides are brought to one offset by the log's own records.
async fn of_rebuild<S: Sight>(
    source: &Source<S>,
    shadow: &Shadow,
    rows: ShadowRows,
    pairs: &mut BTreeMap<CountKey, Pair>,
) -> Result<()> {
    let partitions = source.partitions();
    let until = |key: &CountKey| {
        let partition = usize::try_from(partition_of(key.item_bytes(), partitions)).ok();
        partition.and_then(|at| shadow.until.get(at)).copied().unwrap_or(0)
    };
    let items = items(shadow)?;
    // What the system has in its archive, and below which offsets: of sketch, and of views.
    let mut stored: BTreeMap<CountKey, (i64, i64)> = BTreeMap::new();
    for (key, archived) in all(source).await? {
        let named = items.as_ref().is_none_or(|items| items.iter().any(|i| i.as_bytes() == key.item_bytes()));
        if named {
            let (count, t, u) = Count::of(archived)?;
            stored.insert(key.clone(), (t, u));
            pairs.entry(key).or_default().live = count;
        }
    }
    for (key, archived) in rows {
        pairs.entry(key).or_default().shadow = Count::of(archived)?.0;
    }
    // From the lower end of the two to the higher one.
    let mut ranges: Vec<Range<i64>> = shadow.until.iter().map(|until| *until..*until).collect();
    for key in pairs.keys() {
        let at = usize::try_from(partition_of(key.item_bytes(), partitions))?;
        let (t, u) = stored.get(key).copied().unwrap_or((0, 0));
        if let Some(range) = ranges.get_mut(at) {
            *range = range.start.min(t).min(u)..range.end.max(t).max(u);
        }
    }
    read_views(source, &(0..).zip(ranges).collect::<Vec<_>>(), |_, offset, view| {
        let item = ItemKey::new(&view.site, &view.item);
        if !items.as_ref().is_none_or(|items| items.contains(&item)) {
            return;
        }
        for key in keys(view, &item) {
            let until = until(&key);
            let (t, u) = stored.get(&key).copied().unwrap_or((0, 0));
            let pair = pairs.entry(key).or_default();
            // Each side lacks what lies between its own offset and the other's.
            if offset >= u && offset < until {
                pair.live.views += 1;
            }
            if offset >= t && offset < until {
                pair.live.sketch.add(&view.viewer.0);
            }
            if offset >= until && offset < u {
                pair.shadow.views += 1;
            }
            if offset >= until && offset < t {
                pair.shadow.sketch.add(&view.viewer.0);
            }
        }
    })
    .await
}

pub(super) fn items(shadow: &Shadow) -> Result<Option<HashSet<ItemKey>>> {
    let key = |item: &String| ItemKey::parse(item.clone().into()).context("a shadow's item");
    shadow.items.as_ref().map(|items| items.iter().map(key).collect()).transpose()
}

fn keys(view: &Counted, item: &ItemKey) -> [CountKey; 2] {
    [Scope::All, Scope::Day(DayNumber::of_ms(view.event_ms))]
        .map(|scope| CountKey::new(scope, item.as_bytes()))
}

async fn all<S: Sight>(source: &Source<S>) -> Result<Rows> {
    let (sink, mut rows) = mpsc::channel::<Rows>(4);
    let collecting = async {
        let mut all = Rows::new();
        while let Some(rows) = rows.recv().await {
            all.extend(rows);
        }
        Ok(all)
    };
    let scanning = async { source.scan(sink).await.context("the archive") };
    Ok(tokio::try_join!(scanning, collecting)?.1)
}

/// Counted views of these ranges: partition, offset and view. Those that were carried over were counted elsewhere.
pub(super) async fn read_views(
    log: &impl LogObserver,
    ranges: &[(i32, Range<i64>)],
    mut take: impl FnMut(i32, i64, &Counted),
) -> Result<()> {
    let (sink, mut batches) = mpsc::channel::<Batch>(4);
    let reading = async { log.read(Topic::Counted, ranges, sink).await.context("the log") };
    let taking = async {
        while let Some(batch) = batches.recv().await {
            for record in batch.iter() {
                // What the counter cannot read it sets aside; so it is in no count.
                let Ok(view) = decode_counted(record.payload) else { continue };
                let item = ItemKey::new(&view.site, &view.item);
                if view.source_offset >= 0 && record.key == Some(item.as_bytes()) {
                    take(batch.partition, record.offset, &view);
                }
            }
        }
        Ok(())
    };
    if ranges.iter().any(|(_, range)| !range.is_empty()) {
        tokio::try_join!(reading, taking)?;
    }
    Ok(())
}
