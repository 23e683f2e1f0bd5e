//! What workers get and ask for.

use super::Room;
use crate::desk::{DELIVERIES, Request, WorkerId};
use crate::inbox::Delivery;
use crate::metrics::Server;
use onlooker_ports::{Archive, CountStore, GroupReader, LogWriter, PortError, Position};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

/// How long a partition that has enough may keep the others waiting.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long all may wait for what is asked of the log aside from reading.
const ASIDE_WAIT: Duration = Duration::from_secs(1);

impl<R: GroupReader, C: CountStore, A: Archive, W: LogWriter> Room<R, C, A, W> {
    /// Hands over, and waits a little while the partition has enough. The others wait too; so one that takes longer, for
    /// its store or the archive does, gets no more until it asks for more.
    pub(super) async fn deliver(&mut self, partition: i32, delivery: Delivery) {
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
    pub(super) async fn serve(&mut self, request: Request) {
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
}

fn too_slow() -> PortError {
    PortError::Unavailable { server: "log", detail: "no answer in time".into() }
}
