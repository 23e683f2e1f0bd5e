//! The rooms of a shadow: the same filter and counter as anywhere, which read another system's log.

use super::super::Sight;
use super::super::raw::Source;
use super::feed::{Fed, Feed, Progress, Script};
use super::plan::{Kind, Shadow};
use super::warm::Warm;
use crate::config::Config;
use crate::wiring::embedded::Store;
use anyhow::{Context, Result, bail};
use onlooker_counter::CounterPorts;
use onlooker_event::ItemKey;
use onlooker_filter::FilterPorts;
use onlooker_filter::heart::Note;
use onlooker_ports::{Archive, LogObserver, Position};
use onlooker_stage::{Health, ShutdownTrigger, Supervisor};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How far it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// Offsets that are read, of so many.
    pub(super) done: i64,
    pub(super) of: i64,
    pub(super) elapsed: Duration,
    /// All is read, counted and archived.
    pub(super) whole: bool,
}

const LOOK: Duration = Duration::from_millis(100);
/// Nothing moved for so long.
const STANDSTILL: Duration = Duration::from_secs(60);

/// Reads everything that the shadow wants, from where it was; ends when all of it is counted and archived.
pub(super) async fn run<S: Sight>(
    source: Arc<Source<S>>,
    shadow: &mut Shadow,
    mut config: Config,
    per_s: Option<u32>,
    partial: bool,
    mut tell: impl FnMut(Step) -> Result<()>,
) -> Result<()> {
    config.embedded.partitions = source.partitions();
    // It is counted as it comes, and nobody waits for it.
    config.flusher.interval_ms = config.flusher.interval_ms.min(1_000);
    (config.filter.volatile, config.counter.volatile) = (true, true);
    let mut store = Store::open(&config.embedded).await?;
    shadow.write(&config.embedded.dir)?;
    if store.created() && shadow.kind == Kind::Replay {
        store.judge_from(&starts(shadow, config.filter.slice_s)).await?;
    }
    if !partial && let Some(partition) = lacks(&source, shadow, &store).await? {
        store.close().await;
        bail!(
            "retention has removed records of partition {partition} that this shadow has not read yet: --partial goes on \
             without them, another folder begins anew"
        );
    }
    let items = shadow.items.as_ref().map(|items| {
        let key = |item: &String| ItemKey::parse(item.clone().into()).context("a shadow's item");
        items.iter().map(key).collect::<Result<_>>().map(Arc::new)
    });
    let script =
        Script { topic: shadow.topic(), until: shadow.until.clone(), per_s, items: items.transpose()? };
    let (progress, health, trigger) = (Progress::default(), Health::new(), ShutdownTrigger::default());
    let drain = Duration::from_millis(config.process.drain_ms);
    let mut supervisor = Supervisor::new(trigger.clone(), drain);
    let counter = store.counter_ports();
    match shadow.kind {
        Kind::Replay => {
            let ports = store.filter_ports()?;
            let ports = FilterPorts {
                reader: Feed::new(Arc::clone(&source), ports.reader, script, Arc::clone(&progress)),
                transactor: Warm::new(ports.transactor, shadow.from.clone()),
                history: ports.history,
                dedup: ports.dedup,
            };
            let (settings, sites, own) = (config.filter.clone(), config.filter_sites(), health.clone());
            supervisor.room("filter", |stop| onlooker_filter::run(settings, sites, ports, own, stop));
            let (settings, own) = (config.counter.clone(), health.clone());
            supervisor.room("counter", |stop| onlooker_counter::run(settings, counter, own, stop));
        }
        Kind::Rebuild => {
            let ports = CounterPorts {
                reader: Feed::new(Arc::clone(&source), counter.reader, script, Arc::clone(&progress)),
                counts: counter.counts,
                archive: counter.archive,
                dead: counter.dead,
            };
            let (settings, own) = (config.counter.clone(), health.clone());
            supervisor.room("counter", |stop| onlooker_counter::run(settings, ports, own, stop));
        }
    }
    let (settings, ports, room_health) = (config.flusher.clone(), store.flusher_ports(), health.clone());
    supervisor.room("flusher", |stop| onlooker_flusher::run(settings, ports, room_health, stop));
    let mut running = tokio::spawn(supervisor.run());
    let waited = tokio::select! {
        waited = wait(&store, shadow, &progress, &health, &mut tell) => waited,
        ended = &mut running => {
            ended.context("the rooms ended early")?.context("a room ended early")?;
            bail!("the rooms ended early")
        }
    };
    trigger.request();
    running.await.context("the rooms ended early")?.context("the shadow was not closed in good order")?;
    store.close().await;
    waited?;
    shadow.read.clone_from(&shadow.until);
    shadow.write(&config.embedded.dir)
}

/// Where the filter begins, and in which slice.
fn starts(shadow: &Shadow, slice_s: u32) -> Vec<Position> {
    let slice = (shadow.begin_ms / 1_000).div_euclid(i64::from(slice_s.max(1)));
    let note = |offset: i64| if offset > 0 { Note { slice, slice_s }.write() } else { String::new() };
    let start =
        |(partition, offset): (i32, &i64)| Position { partition, offset: *offset, note: note(*offset) };
    (0..).zip(&shadow.begin).map(start).collect()
}

/// The first partition whose log no longer has what comes next in the shadow.
async fn lacks<S: Sight>(source: &Source<S>, shadow: &Shadow, store: &Store) -> Result<Option<i32>> {
    let bounds = source.bounds(shadow.topic()).await.context("the log")?;
    let (sight, judged) = (store.sight(), store.judged());
    for (at, (bounds, until)) in bounds.iter().zip(&shadow.until).enumerate() {
        let partition = i32::try_from(at)?;
        let reached = match shadow.kind {
            Kind::Replay => judged.get(at).copied().flatten(),
            Kind::Rebuild => sight.archive().durable(partition).await?,
        };
        // A room moves with the records that it gets, which of some items are few.
        let read = shadow.read.get(at).copied().unwrap_or(0);
        if reached.unwrap_or(0).max(read) < bounds.earliest.min(*until) {
            return Ok(Some(partition));
        }
    }
    Ok(None)
}

/// Until every record is judged, counted and archived.
async fn wait(
    store: &Store,
    shadow: &Shadow,
    progress: &Progress,
    health: &Health,
    tell: &mut impl FnMut(Step) -> Result<()>,
) -> Result<()> {
    let (begun, mut moved, mut last) = (Instant::now(), Instant::now(), None);
    let of = shadow.offsets();
    loop {
        let fed = progress.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let taken = match shadow.kind {
            Kind::Replay => store.judged(),
            Kind::Rebuild => store.counted().await?,
        };
        let rest = store.unarchived(shadow.kind == Kind::Replay).await?;
        let done = done(shadow, &taken);
        tell(Step { done, of, elapsed: begun.elapsed(), whole: false })?;
        if is_through(shadow, &fed, &taken) && rest == 0 {
            tell(Step { done: of, of, elapsed: begun.elapsed(), whole: true })?;
            return Ok(());
        }
        if last != Some((done, rest, fed.clone())) {
            (last, moved) = (Some((done, rest, fed)), Instant::now());
        }
        if moved.elapsed() > STANDSTILL {
            let components = health.report(false).components;
            let reasons: Vec<String> =
                components.into_iter().filter_map(|c| Some(format!("{}: {}", c.name, c.reason?))).collect();
            bail!("nothing has moved for {} s: {}", STANDSTILL.as_secs(), reasons.join("; "));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn done(shadow: &Shadow, taken: &[Option<i64>]) -> i64 {
    let of = |((begin, until), taken): ((&i64, &i64), &Option<i64>)| {
        taken.unwrap_or(*begin).clamp(*begin, *until) - begin
    };
    shadow.begin.iter().zip(&shadow.until).zip(taken).map(of).sum()
}

/// Every partition's feed has brought all, and the room has taken it.
fn is_through(shadow: &Shadow, fed: &BTreeMap<i32, Fed>, taken: &[Option<i64>]) -> bool {
    (0..).zip(shadow.until.iter().zip(taken)).all(|(partition, (until, taken))| {
        let taken = taken.unwrap_or(0);
        taken >= *until
            || fed.get(&partition).is_some_and(|fed| fed.through && fed.next.is_none_or(|next| taken >= next))
    })
}
