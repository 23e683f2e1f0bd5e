//! The room: one reader, and a worker for each partition that it is given.

mod durable;
mod serve;

use crate::config::CounterConfig;
use crate::desk::{Desk, Request, WorkerId};
use crate::heart::{Heart, Limits};
use crate::inbox::Delivery;
use crate::known::Bounds;
use crate::metrics::{CounterMetrics, Server};
use crate::worker::{Shared, Worker};
use durable::ask_durable;
use onlooker_ports::{Archive, CountStore, GroupEvent, GroupReader, LogWriter, PortError};
use onlooker_stage::{Component, Health, Problems, Shutdown};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long the reader is waited for before requests are looked at.
const READ_WAIT: Duration = Duration::from_millis(25);
/// Without an assignment for so long, the room is ready nevertheless: others may own all partitions.
const NO_ASSIGNMENT: Duration = Duration::from_secs(15);

/// No part: clearing it says that nothing is the matter, with no partition at all.
const NOBODY: onlooker_stage::problems::Part = (-1, "");

/// What the counter needs.
#[derive(Debug)]
pub struct CounterPorts<R, C, A, W> {
    /// Of `views.counted`.
    pub reader: R,
    /// The counters store.
    pub counts: C,
    /// The archive.
    pub archive: A,
    /// For `views.dead`.
    pub dead: W,
}

/// Why the room ended.
#[derive(Debug, thiserror::Error)]
pub enum CounterError {
    /// A server refuses for good, or contradicts what the protocol rests on.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A defect.
    #[error("a partition's worker panicked: {0}")]
    Panicked(String),
}

struct Owned {
    worker: WorkerId,
    deliveries: Option<mpsc::Sender<Delivery>>,
    task: AbortHandle,
    committed: i64,
}

struct Room<R, C, A, W> {
    reader: R,
    shared: Arc<Shared<C, A, W>>,
    bounds: Bounds,
    component: Component,
    owned: BTreeMap<i32, Owned>,
    /// The same, for the task that asks what is durable.
    partitions: Arc<Mutex<Vec<i32>>>,
    workers: JoinSet<Result<(), PortError>>,
    to_desk: mpsc::UnboundedSender<Request>,
    requests: mpsc::UnboundedReceiver<Request>,
    turns: u64,
    began: Instant,
}

/// Counts until shutdown is requested, then finishes what is under way and leaves the group.
///
/// Waits for servers that are away. It may die at any moment: nothing is lost and nothing counted twice.
///
/// # Errors
/// When a server refuses the login or its settings contradict what the protocol rests on.
pub async fn run<R, C, A, W>(
    config: CounterConfig,
    ports: CounterPorts<R, C, A, W>,
    health: Health,
    shutdown: Shutdown,
) -> Result<(), CounterError>
where
    R: GroupReader,
    C: CountStore,
    A: Archive,
    W: LogWriter,
{
    let component = health.component_with_deadline("counter.log", Duration::from_secs(config.stall_s));
    let problems = Problems::new(health.component("counter"));
    let drain = Duration::from_millis(config.drain_ms);
    let bounds = Bounds::new(config.known_keys, config.hot_sketches);
    let (to_desk, requests) = mpsc::unbounded_channel();
    let mut room = Room {
        reader: ports.reader,
        shared: Arc::new(Shared {
            turns: Semaphore::new(config.applies_at_once),
            config,
            counts: ports.counts,
            archive: ports.archive,
            dead: ports.dead,
            metrics: CounterMetrics::register(),
            problems,
            earliest: Mutex::default(),
            progress: Mutex::default(),
            shutdown: shutdown.clone(),
        }),
        bounds,
        component,
        owned: BTreeMap::new(),
        partitions: Arc::default(),
        workers: JoinSet::new(),
        to_desk,
        requests,
        turns: 0,
        began: Instant::now(),
    };
    let durable = tokio::spawn(ask_durable(
        Arc::clone(&room.shared),
        Arc::clone(&room.partitions),
        room.to_desk.clone(),
    ));
    let result = room.run().await;
    durable.abort();
    if result.is_err() {
        // Nobody has asked the workers to stop, and they need no time: each may die at any moment.
        room.workers.abort_all();
    }
    room.drain(drain).await;
    result
}

impl<R: GroupReader, C: CountStore, A: Archive, W: LogWriter> Room<R, C, A, W> {
    async fn run(&mut self) -> Result<(), CounterError> {
        while !self.shared.shutdown.is_requested() {
            self.component.beat();
            while let Ok(request) = self.requests.try_recv() {
                self.serve(request).await;
            }
            while let Some(ended) = self.workers.try_join_next() {
                worker_ended(ended)?;
            }
            match self.reader.next(READ_WAIT).await {
                Ok(Some(event)) => {
                    self.component.ready();
                    self.take(event).await;
                }
                Ok(None) if !self.owned.is_empty() => self.component.ready(),
                Ok(None) if self.began.elapsed() > NO_ASSIGNMENT => {
                    self.component.ready();
                    self.shared.problems.clear(NOBODY);
                }
                Ok(None) => {}
                Err(error) => {
                    self.shared.metrics.errors.get(Server::Log).increment(1);
                    if !error.is_transient() {
                        return Err(error.into());
                    }
                    self.component.unready("waiting for the log");
                    tracing::debug!(%error, "reading failed");
                    sleep(READ_WAIT).await;
                }
            }
        }
        Ok(())
    }

    async fn take(&mut self, event: GroupEvent<R::Membership>) {
        match event {
            GroupEvent::Assigned { partitions, .. } => {
                tracing::info!(partitions = ?partitions, "partitions assigned");
                partitions.into_iter().for_each(|partition| self.assign(partition));
                self.share();
            }
            GroupEvent::Revoked { partitions } => {
                tracing::info!(partitions = ?partitions, "partitions revoked");
                partitions.into_iter().for_each(|partition| self.revoke(partition));
                self.share();
            }
            GroupEvent::Records(batch) => self.deliver(batch.partition, Delivery::Records(batch)).await,
            GroupEvent::CaughtUp { partition, next_offset } => {
                self.deliver(partition, Delivery::CaughtUp(next_offset)).await;
            }
            GroupEvent::OutOfRange { partition, wanted, earliest, end } => {
                self.deliver(partition, Delivery::OutOfRange { wanted, earliest, end }).await;
            }
        }
    }

    fn assign(&mut self, partition: i32) {
        self.revoke(partition);
        self.turns += 1;
        self.shared.began(partition);
        let worker = WorkerId { partition, turn: self.turns };
        let desk = Desk { worker, requests: self.to_desk.clone() };
        let config = &self.shared.config;
        let limits = Limits { base_bytes: config.base_bytes, hot_from: config.hot_members };
        let heart = Heart::new(limits, self.bounds.clone());
        // Until it has caught up with the store it is not ready.
        self.shared.problems.set((partition, "server"), "finding out where the counters stand");
        let task = self.workers.spawn(Worker::new(Arc::clone(&self.shared), desk, heart).run());
        self.owned.insert(partition, Owned { worker, deliveries: None, task, committed: -1 });
    }

    /// Ends the worker wherever it is. A step that is under way may still land: its next owner meets a gap then.
    fn revoke(&mut self, partition: i32) {
        if let Some(owned) = self.owned.remove(&partition) {
            owned.task.abort();
            self.shared.earliest.lock().unwrap_or_else(PoisonError::into_inner).remove(&partition);
            self.shared.progress.lock().unwrap_or_else(PoisonError::into_inner).remove(&partition);
            self.shared.metrics.clear(partition);
            self.shared.problems.clear_partition(partition);
        }
    }

    /// Divides what is bounded for the process among the partitions.
    fn share(&mut self) {
        self.bounds.partitions.store(self.owned.len(), Ordering::Relaxed);
        let mut partitions = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        *partitions = self.owned.keys().copied().collect();
        if self.owned.is_empty() {
            self.shared.problems.clear(NOBODY);
        }
    }

    /// Workers finish the call that is under way; what they ask for meanwhile is still served.
    async fn drain(mut self, wait: Duration) {
        let deadline = Instant::now() + wait;
        while !self.workers.is_empty() {
            tokio::select! {
                Some(ended) = self.workers.join_next() => {
                    if let Err(error) = worker_ended(ended) {
                        tracing::warn!(%error, "worker ended badly");
                    }
                }
                Some(request) = self.requests.recv() => self.serve(request).await,
                () = sleep_until(deadline) => break,
            }
        }
        self.workers.abort_all();
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        if timeout(left, self.reader.close(left)).await.is_err() {
            tracing::warn!("group not left in time");
        }
    }
}

fn worker_ended(ended: Result<Result<(), PortError>, JoinError>) -> Result<(), CounterError> {
    match ended {
        Ok(result) => Ok(result?),
        Err(error) if error.is_cancelled() => Ok(()),
        Err(error) => Err(CounterError::Panicked(error.to_string())),
    }
}
