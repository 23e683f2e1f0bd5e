//! What the room's side of a reader shares with its two threads.

use super::buffer::Buffer;
use super::membership::KafkaMembership;
use onlooker_ports::PortError;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// What the fetching thread is to do next.
pub(crate) enum Order {
    /// Deliver from here on.
    Start { partition: i32, offset: i64, done: oneshot::Sender<Result<(), PortError>> },
    /// Deliver nothing; tell when that is so.
    Stop { partition: i32, done: oneshot::Sender<Result<(), PortError>> },
    /// Deliver nothing; the group has taken the partition away.
    Halt { partition: i32 },
}

pub(crate) struct State {
    pub(crate) buffer: Buffer<KafkaMembership>,
    pub(crate) orders: VecDeque<Order>,
    /// Told once by `next`.
    pub(crate) failure: Option<PortError>,
    pub(crate) closing: bool,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    /// The fetching thread waits here while the buffer is full.
    turn: Condvar,
    /// The room waits here.
    ready: Notify,
}

impl Shared {
    pub(crate) fn new(buffer: Buffer<KafkaMembership>) -> Self {
        let state = State { buffer, orders: VecDeque::new(), failure: None, closing: false };
        Self { state: Mutex::new(state), turn: Condvar::new(), ready: Notify::new() }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of the state until there may be something to do.
    pub(crate) fn wait_for_turn(&self, state: MutexGuard<'_, State>, wait: Duration) {
        drop(self.turn.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn your_turn(&self) {
        self.turn.notify_one();
    }

    pub(crate) fn announce(&self) {
        self.ready.notify_one();
    }

    pub(crate) async fn announced(&self) {
        self.ready.notified().await;
    }

    pub(crate) fn fail(&self, error: PortError) {
        self.state().failure = Some(error);
        self.announce();
    }
}
