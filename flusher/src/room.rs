//! The room: each partition's turn in time.

use crate::config::FlusherConfig;
use crate::metrics::FlusherMetrics;
use crate::turn::{Memory, Shared};
use onlooker_ports::{Archive, CountStore, PortError};
use onlooker_stage::{Health, Problems, Shutdown};
use rand::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

/// Between two flushes of everything, so that a store that stays short of memory does not keep the archive busy.
const BREATH: Duration = Duration::from_millis(200);

/// What the flusher needs.
#[derive(Debug)]
pub struct FlusherPorts<C, A> {
    /// The counters store.
    pub counts: C,
    /// The archive.
    pub archive: A,
    /// How many partitions the counters are spread over.
    pub partitions: u32,
    /// True while the store refuses batches for want of memory: then everything is flushed at once, since what is
    /// archived may be evicted. None: the store does not say so.
    pub hurry: Option<watch::Receiver<bool>>,
}

/// Why the room ended.
#[derive(Debug, thiserror::Error)]
pub enum FlusherError {
    /// A server refuses for good, or contradicts what the protocol rests on.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A defect.
    #[error("a partition's turn panicked: {0}")]
    Panicked(String),
}

type Turns = JoinSet<(Memory, Result<(), PortError>)>;

/// Flushes until shutdown is requested, then each partition once more.
///
/// Any number of flushers may run; they share the partitions by short claims, on which nothing but the amount of work
/// rests. It may die at any moment.
///
/// # Errors
/// When a server refuses the login or its settings contradict what the protocol rests on.
pub async fn run<C: CountStore, A: Archive>(
    config: FlusherConfig,
    ports: FlusherPorts<C, A>,
    health: Health,
    shutdown: Shutdown,
) -> Result<(), FlusherError> {
    let drain = Duration::from_millis(config.drain_ms);
    let interval = config.interval();
    // Ready with the first turn that goes well.
    let component = health.component("flusher");
    let shared = Arc::new(Shared {
        config,
        counts: ports.counts,
        archive: ports.archive,
        metrics: FlusherMetrics::register(),
        problems: Problems::new(component),
    });
    // Before the first round a partition grows old from now on; without a value nobody would notice.
    (0..ports.partitions).for_each(|partition| shared.flushed(i32::try_from(partition).unwrap_or(i32::MAX)));
    let mut turns = Turns::new();
    let mut due = first_turns(ports.partitions, interval);
    let (mut hurry, mut hurry_from) = (ports.hurry, Instant::now());
    while !shutdown.is_requested() {
        let next = due.first_key_value().map(|((at, _), _)| *at);
        let room = turns.len() < shared.config.concurrency;
        tokio::select! {
            () = shutdown.requested() => {}
            Some(ended) = turns.join_next() => {
                let memory = turn_ended(ended)?;
                // A little more than the interval, so that this flusher's own claim has run out by then, and flushers
                // that began together drift apart.
                let pause = interval.mul_f64(rand::rng().random_range(1.02..1.1));
                due.insert((memory.began + pause, memory.partition), memory);
            }
            () = pressed(&mut hurry, hurry_from) => {
                hurry_from = Instant::now() + BREATH;
                let waiting = std::mem::take(&mut due).into_values();
                due.extend(waiting.map(|memory| ((hurry_from - BREATH, memory.partition), Memory { hurry: true, ..memory })));
            }
            () = sleep_until(next.unwrap_or_else(Instant::now)), if room && next.is_some() => {
                if let Some((_, mut memory)) = due.pop_first() {
                    let shared = Arc::clone(&shared);
                    memory.began = Instant::now();
                    turns.spawn(async move {
                        let result = shared.turn(&mut memory).await;
                        (memory, result)
                    });
                }
            }
        }
    }
    let waiting = due.into_values().collect();
    match timeout(drain, last_rounds(&shared, &mut turns, waiting)).await {
        Ok(result) => result,
        Err(_) => {
            // Nothing is lost: what is dirty stays dirty.
            tracing::warn!("last rounds not done in time");
            Ok(())
        }
    }
}

/// Ends when the store is short of memory, but not before `from`.
async fn pressed(hurry: &mut Option<watch::Receiver<bool>>, from: Instant) {
    if let Some(hurry) = hurry {
        sleep_until(from).await;
        if hurry.wait_for(|short| *short).await.is_ok() {
            return;
        }
    }
    // Nobody will say so any more.
    std::future::pending().await
}

/// Partitions by when their turn is.
type Due = BTreeMap<(Instant, i32), Memory>;

/// Spread over the interval, so that the servers' load is even.
fn first_turns(partitions: u32, interval: Duration) -> Due {
    let now = Instant::now();
    let turn = |at: u32| {
        let partition = i32::try_from(at).unwrap_or(i32::MAX);
        let when = now + interval.mul_f64(f64::from(at) / f64::from(partitions));
        ((when, partition), Memory { partition, began: when, durable: None, next_sweep: when, hurry: false })
    };
    (0..partitions).map(turn).collect()
}

/// What the counter has applied until now is archived, whoever claimed the round.
async fn last_rounds<C: CountStore, A: Archive>(
    shared: &Arc<Shared<C, A>>,
    turns: &mut Turns,
    mut waiting: Vec<Memory>,
) -> Result<(), FlusherError> {
    while let Some(ended) = turns.join_next().await {
        waiting.push(turn_ended(ended)?);
    }
    let mut waiting = waiting.into_iter();
    loop {
        while turns.len() < shared.config.concurrency
            && let Some(mut memory) = waiting.next()
        {
            let shared = Arc::clone(shared);
            turns.spawn(async move {
                let result = shared.round(&mut memory).await;
                (memory, result)
            });
        }
        match turns.join_next().await {
            Some(ended) => _ = turn_ended(ended)?,
            None => return Ok(()),
        }
    }
}

fn turn_ended(ended: Result<(Memory, Result<(), PortError>), JoinError>) -> Result<Memory, FlusherError> {
    let (memory, result) = ended.map_err(|error| FlusherError::Panicked(error.to_string()))?;
    result?;
    Ok(memory)
}
