//! What is asked of the system whose counts are replaced: in its own process, if it is one.

use super::count::Tail;
use super::wire::{Ask, Blob, Built, Found, Held, Key, Placed, Stored, Written};
use crate::ops::look::now_ms;
use crate::ops::{Out, Sight};
use anyhow::{Context, Result, bail};
use onlooker_event::CountKey;
use onlooker_ports::{
    Archive, Archived, Batch, Bounds, CountObserver, CountRepair, Hold, KeyView, LogObserver, PortError, Put,
    Topic,
};
use onlooker_sketch::Sketch;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::sleep;

pub(crate) async fn answer<S: Sight>(sight: &S, ask: Ask, out: Out) -> Result<()> {
    match ask {
        Ask::Look { partition, keys } => out.line(&look(sight, partition, &keys).await?).await,
        Ask::Put { partition, at, counts } => out.line(&put(sight, partition, at, counts).await?).await,
    }
}

pub(super) async fn look<S: Sight>(sight: &S, partition: i32, keys: &[Key]) -> Result<Found> {
    let keys: Vec<CountKey> = keys.iter().map(|key| key.0.clone()).collect();
    // In this order: what is durable when it is asked for is in the archive when that is read.
    let durable = sight.archive().durable(partition).await.context("the archive")?.unwrap_or(0);
    let rows = sight.archive().read(&keys).await.context("the archive")?;
    let (applied, seen) = sight.counts().observe(partition, &keys).await.context("the counters")?;
    let stored = |(row, seen): (Archived, KeyView)| Stored {
        number: Written { below: row.number.map_or(0, |(_, u)| u), waits: seen.number_dirty },
        members: Written {
            below: row.sketch.as_ref().map_or(0, |(_, t)| *t),
            waits: seen.sketch_dirty.is_some(),
        },
        archive: of_archive(row, durable),
        stuck: seen.sketch_dirty.is_some() && seen.sketch.is_none(),
        counters: applied.map(|applied| Held {
            views: seen.number.map(|number| number.n),
            views_below: applied,
            sketch: seen.sketch.map(Blob),
            sketch_below: applied,
        }),
    };
    Ok(Found { durable, applied, counts: rows.into_iter().zip(seen).map(stored).collect() })
}

/// A cell is of the records below its own offset, and nothing of the count lies between that and what is durable.
fn of_archive(row: Archived, durable: i64) -> Held {
    let (sketch, t) = row.sketch.unzip();
    let (views, u) = row.number.unzip();
    let below = |offset: Option<i64>| offset.unwrap_or(0).max(durable);
    Held { views, views_below: below(u), sketch: sketch.map(Blob), sketch_below: below(t) }
}

/// How long a hold lasts if whoever has it is no more.
const LASTS: Duration = Duration::from_secs(10);
/// How long the counters may take to get where the counts are that are to be put.
const BEHIND: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);
/// Attempts to hold a partition, each of which may be met by a loss.
const ATTEMPTS: usize = 5;

/// Puts counts in place of what there is, under the counter.
pub(super) async fn put<S: Sight>(sight: &S, partition: i32, at: i64, counts: Vec<Built>) -> Result<Placed> {
    let mut tail = Tail::new(partition, at);
    let holder = format!("{:032x}", rand::random::<u128>());
    for _ in 0..ATTEMPTS {
        // All but the newest is read before anybody has to wait.
        let stands = wait(sight, partition, at).await?;
        tail.reach(sight.log(), stands, None).await?;
        let held_from = Instant::now();
        let stands = match sight.counts().hold(partition, &holder, LASTS).await? {
            Hold::Ours { at } => at,
            Hold::Taken => {
                sleep(LASTS / 10).await;
                continue;
            }
            Hold::Nowhere => continue,
        };
        let held = Holding { sight, partition, holder: &holder, stands };
        match held.replace(&mut tail, at, &counts).await {
            Ok(Some(at)) => {
                let held_ms = u64::try_from(held_from.elapsed().as_millis()).unwrap_or(u64::MAX);
                return Ok(Placed { at, held_ms });
            }
            Ok(None) => {}
            Err(error) => {
                // If this fails, too, the hold ends by itself.
                let _ = sight.counts().put_and_release(partition, &holder, stands, &[]).await;
                return Err(error);
            }
        }
    }
    bail!("partition {partition} is held by somebody else, or its counters lose what they have: run it again")
}

/// Until the counters stand at `at` at least.
async fn wait<S: Sight>(sight: &S, partition: i32, at: i64) -> Result<i64> {
    let begun = Instant::now();
    loop {
        let stands = sight.counts().observe(partition, &[]).await.context("the counters")?.0;
        match stands {
            Some(stands) if stands >= at => return Ok(stands),
            _ if begun.elapsed() < BEHIND => sleep(LOOK).await,
            Some(stands) => bail!(
                "the counters of partition {partition} stand at {stands}, and the counts are those of the log below {at}: \
                 does a counter run?"
            ),
            None => bail!("the counters of partition {partition} stand nowhere: does a counter run?"),
        }
    }
}

/// A partition that is held.
struct Holding<'a, S> {
    sight: &'a S,
    partition: i32,
    holder: &'a str,
    stands: i64,
}

impl<S: Sight> Holding<'_, S> {
    /// None: the hold has ended before, and nothing was put.
    async fn replace(&self, tail: &mut Tail, at: i64, counts: &[Built]) -> Result<Option<i64>> {
        if self.stands < tail.to() {
            self.sight.counts().put_and_release(self.partition, self.holder, self.stands, &[]).await?;
            return Ok(None);
        }
        tail.reach(self.sight.log(), self.stands, None).await?;
        let to = self.end().await?;
        let changed_s = u32::try_from(now_ms() / 1_000).unwrap_or(u32::MAX);
        let put = |built: &Built| {
            let key = &built.key.0;
            let mut sketch = Sketch::from_redis(&built.sketch.0)?;
            tail.add_viewers(key, &mut sketch, at, self.stands)?;
            let n = tail.add_views(key, built.views, at, self.stands)?;
            anyhow::Ok(Put { key: key.clone(), sketch: sketch.to_redis().into(), n, changed_s })
        };
        let puts = counts.iter().map(put).collect::<Result<Vec<_>>>()?;
        let put = self.sight.counts().put_and_release(self.partition, self.holder, to, &puts).await?;
        Ok(put.then_some(to))
    }

    /// The highest offset below which the log has nothing that is not counted: behind the last view there may be marks of
    /// transactions.
    async fn end(&self) -> Result<i64> {
        let stable = stable(self.sight, self.partition).await?;
        if stable <= self.stands {
            return Ok(self.stands);
        }
        let (sink, mut batches) = mpsc::channel::<Batch>(1);
        let ranges = [(self.partition, self.stands..stable)];
        let any = async {
            let mut any = false;
            while let Some(batch) = batches.recv().await {
                any |= !batch.is_empty();
                if any {
                    break;
                }
            }
            drop(batches);
            Ok::<_, PortError>(any)
        };
        let (_, any) = tokio::try_join!(self.sight.log().read(Topic::Counted, &ranges, sink), any)?;
        Ok(if any { self.stands } else { stable })
    }
}

pub(super) async fn stable<S: Sight>(sight: &S, partition: i32) -> Result<i64> {
    let bounds = sight.log().bounds(Topic::Counted).await.context("the log")?;
    of_partition(&bounds, partition).map(|bounds| bounds.stable)
}

pub(super) fn of_partition(bounds: &[Bounds], partition: i32) -> Result<Bounds> {
    let of = usize::try_from(partition).ok().and_then(|at| bounds.get(at));
    of.copied().with_context(|| format!("the log has no partition {partition}"))
}
