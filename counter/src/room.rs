//! The room: one reader, and a worker for each partition that it is given.

use crate::config::CounterConfig;
use crate::desk::{DELIVERIES, Desk, Request, WorkerId};
use crate::heart::{Heart, Limits};
use crate::inbox::Delivery;
use crate::known::Bounds;
use crate::metrics::{CounterMetrics, Server};
use crate::worker::{Shared, Worker};
use onlooker_ports::{Archive, CountStore, GroupEvent, GroupReader, LogWriter, PortError, Position};
use onlooker_stage::{Component, Health, Problems, Shutdown};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long the reader is waited for before requests are looked at.
const READ_WAIT: Duration = Duration::from_millis(25);
/// Without an assignment for so long, the room is ready nevertheless: others may own all partitions.
const NO_ASSIGNMENT: Duration = Duration::from_secs(15);

/// How long a partition that has enough may keep the others waiting.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long all may wait for what is asked of the log aside from reading.
const ASIDE_WAIT: Duration = Duration::from_secs(1);

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
            config,
            counts: ports.counts,
            archive: ports.archive,
            dead: ports.dead,
            metrics: CounterMetrics::register(),
            problems,
            earliest: Mutex::default(),
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

    /// Hands over, and waits a little while the partition has enough. The others wait too; so one that takes longer, for
    /// its store or the archive does, gets no more until it asks for more.
    async fn deliver(&mut self, partition: i32, delivery: Delivery) {
        let Some(to_worker) = self.owned.get(&partition).and_then(|o| o.deliveries.clone()) else { return };
        let Err(mpsc::error::TrySendError::Full(delivery)) = to_worker.try_send(delivery) else { return };
        let patience = Instant::now() + PATIENCE;
        loop {
            tokio::select! {
                permit = to_worker.reserve() => {
                    if let Ok(permit) = permit {
                        permit.send(delivery);
                    }
                    return;
                }
                Some(request) = self.requests.recv() => {
                    self.serve(request).await;
                    let now = self.owned.get(&partition).and_then(|o| o.deliveries.as_ref());
                    if !now.is_some_and(|now| now.same_channel(&to_worker)) {
                        return;
                    }
                }
                () = sleep_until(patience) => {
                    if let Some(owned) = self.owned.get_mut(&partition) {
                        owned.deliveries = None;
                    }
                    if let Err(error) = self.reader.stop(partition).await {
                        tracing::debug!(partition, %error, "reading not stopped");
                    }
                    return;
                }
                () = self.shared.shutdown.requested() => return,
            }
        }
    }

    fn is_current(&self, worker: WorkerId) -> bool {
        self.owned.get(&worker.partition).is_some_and(|owned| owned.worker == worker)
    }

    /// A request of a worker that is no longer the partition's is dropped, and with it the reply: that tells it.
    async fn serve(&mut self, request: Request) {
        match request {
            Request::Stop { worker, reply } if self.is_current(worker) => {
                if let Some(owned) = self.owned.get_mut(&worker.partition) {
                    owned.deliveries = None;
                }
                let _gone = reply.send(self.reader.stop(worker.partition).await);
            }
            Request::Start { worker, offset, reply } if self.is_current(worker) => {
                let started = self.reader.start(worker.partition, offset).await;
                // A channel of its own for each start: what was delivered before can never be taken for what follows.
                let (to_worker, deliveries) = mpsc::channel(DELIVERIES);
                if let (Ok(()), Some(owned)) = (&started, self.owned.get_mut(&worker.partition)) {
                    owned.deliveries = Some(to_worker);
                }
                let _gone = reply.send(started.map(|()| deliveries));
            }
            Request::Bounds { worker, reply } if self.is_current(worker) => {
                // Reading waits meanwhile, of all partitions: not long.
                let bounds = timeout(ASIDE_WAIT, self.reader.bounds(worker.partition)).await;
                let _gone = reply.send(bounds.unwrap_or_else(|_| Err(too_slow())));
            }
            Request::Durable(offsets) => self.commit(&offsets).await,
            Request::Stop { .. } | Request::Start { .. } | Request::Bounds { .. } => {}
        }
    }

    /// Commits what is durable, for lag monitors alone: the counter never starts from it.
    async fn commit(&mut self, durable: &[(i32, i64)]) {
        let changed = |(partition, offset): &&(i32, i64)| {
            self.owned.get(partition).is_some_and(|owned| owned.committed != *offset)
        };
        let position = |(partition, offset): &(i32, i64)| Position {
            partition: *partition,
            offset: *offset,
            note: String::new(),
        };
        let positions: Vec<_> = durable.iter().filter(changed).map(position).collect();
        if positions.is_empty() {
            return;
        }
        let committed = timeout(ASIDE_WAIT, self.reader.commit(&positions)).await;
        if let Err(error) = committed.unwrap_or_else(|_| Err(too_slow())) {
            self.shared.metrics.errors.get(Server::Log).increment(1);
            tracing::warn!(%error, "durable offsets not committed");
            return;
        }
        for position in positions {
            if let Some(owned) = self.owned.get_mut(&position.partition) {
                owned.committed = position.offset;
            }
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

/// Asks now and then what is durable. Apart from a store that lost everything, and from keys that the store does not
/// hold, nothing else in the room touches the archive.
async fn ask_durable<C: CountStore, A: Archive, W: LogWriter>(
    shared: Arc<Shared<C, A, W>>,
    partitions: Arc<Mutex<Vec<i32>>>,
    to_desk: mpsc::UnboundedSender<Request>,
) {
    loop {
        sleep(Duration::from_millis(shared.config.durable_ms)).await;
        let now = partitions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut durable = Vec::with_capacity(now.len());
        for partition in now {
            match shared.archive.durable(partition).await {
                Ok(Some(offset)) => {
                    show_durable(&shared, partition, offset);
                    durable.push((partition, offset));
                }
                Ok(None) => {}
                Err(error) => {
                    shared.metrics.errors.get(Server::Archive).increment(1);
                    tracing::warn!(partition, %error, "what is durable is not known");
                }
            }
        }
        if to_desk.send(Request::Durable(durable)).is_err() {
            return;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "gauges; offsets stay below 2^53")]
fn show_durable<C, A, W>(shared: &Shared<C, A, W>, partition: i32, durable: i64) {
    let earliest = shared.earliest.lock().unwrap_or_else(PoisonError::into_inner).get(&partition).copied();
    shared.metrics.durable.set(partition, durable as f64);
    let Some(earliest) = earliest else { return };
    shared.metrics.retention_margin.set(partition, (durable - earliest) as f64);
    if durable < earliest {
        tracing::error!(
            partition,
            durable,
            earliest,
            "log is kept too short: a loss of the counters store would now lose counts"
        );
    }
}

fn too_slow() -> PortError {
    PortError::Unavailable { server: "log", detail: "no answer in time".into() }
}
