//! What partitions ask of the one reader that they share.

use crate::inbox::Delivery;
use onlooker_ports::PortError;
use tokio::sync::{mpsc, oneshot};

/// Deliveries that may wait for a partition.
pub(crate) const DELIVERIES: usize = 4;

/// Which worker asks: a partition that is revoked and assigned again has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkerId {
    pub(crate) partition: i32,
    pub(crate) turn: u64,
}

#[derive(Debug)]
pub(crate) enum Request {
    Stop {
        worker: WorkerId,
        reply: oneshot::Sender<Result<(), PortError>>,
    },
    Start {
        worker: WorkerId,
        offset: i64,
        reply: oneshot::Sender<Result<mpsc::Receiver<Delivery>, PortError>>,
    },
    /// The first offset that the log has, and its end.
    Bounds {
        worker: WorkerId,
        reply: oneshot::Sender<Result<(i64, i64), PortError>>,
    },
    /// What the archive says is durable: partitions and offsets.
    Durable(Vec<(i32, i64)>),
}

/// The partition is no longer this worker's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// A worker's side.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    pub(crate) worker: WorkerId,
    pub(crate) requests: mpsc::UnboundedSender<Request>,
}

impl Desk {
    /// No more deliveries.
    pub(crate) async fn stop(&self) -> Result<Result<(), PortError>, Gone> {
        self.ask(|worker, reply| Request::Stop { worker, reply }).await
    }

    /// Deliveries from this offset on.
    pub(crate) async fn start(
        &self,
        offset: i64,
    ) -> Result<Result<mpsc::Receiver<Delivery>, PortError>, Gone> {
        self.ask(|worker, reply| Request::Start { worker, offset, reply }).await
    }

    pub(crate) async fn bounds(&self) -> Result<Result<(i64, i64), PortError>, Gone> {
        self.ask(|worker, reply| Request::Bounds { worker, reply }).await
    }

    /// One request at a time, so the queue is bounded by the number of workers.
    async fn ask<T>(&self, request: impl FnOnce(WorkerId, oneshot::Sender<T>) -> Request) -> Result<T, Gone> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(request(self.worker, reply)).map_err(|_| Gone)?;
        answer.await.map_err(|_| Gone)
    }
}
