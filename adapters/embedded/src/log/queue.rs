//! What waits for a journal's thread. Bounded in bytes; the thread is woken only when it sleeps.

use super::encode::Encoded;
use super::error::{closed, full};
use super::groups::EmbeddedMembership;
use onlooker_ports::PortError;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Bytes of requests that share one write and one sync.
const GROUP_BYTES: usize = 4 << 20;
/// The largest request, so that an entry's lengths fit their fields with room to spare.
pub(crate) const REQUEST_BYTES: usize = 1 << 30;

/// Why nothing was acknowledged.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    /// The group has moved on; nothing was written.
    Stale,
    /// Nothing of it is or will be in the log.
    Nothing(PortError),
    /// It may be found in the log after the next start, whole.
    Unknown(PortError),
}

/// Something to be written. An empty one is answered when all before it was.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) encoded: Encoded,
    /// Refused once the group has moved on from this.
    pub(crate) membership: Option<EmbeddedMembership>,
    /// Answered only once it is durable.
    pub(crate) sync: bool,
    /// Offsets that slots are to go on at, if they have not got there.
    pub(crate) floors: Vec<(usize, i64)>,
    pub(crate) done: oneshot::Sender<Result<(), Refusal>>,
}

#[derive(Debug, Default)]
struct Waiting {
    requests: VecDeque<Request>,
    bytes: usize,
    /// Taken by the thread and not yet answered.
    under_way: bool,
    asleep: bool,
    closing: bool,
}

#[derive(Debug)]
pub(crate) struct Queue {
    limit: usize,
    waiting: Mutex<Waiting>,
    woken: Condvar,
    /// Tells those who wait for silence.
    pub(crate) answered: tokio::sync::Notify,
}

/// What the thread is to do.
#[derive(Debug)]
pub(crate) enum Work {
    Requests(Vec<Request>),
    /// Nobody asked for anything for a while.
    Idle,
    /// All is written, and there will be no more.
    Closed,
}

impl Queue {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, waiting: Mutex::default(), woken: Condvar::new(), answered: tokio::sync::Notify::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that wait, this request included.
    pub(crate) fn push(&self, request: Request) -> Result<usize, PortError> {
        let mut waiting = self.waiting();
        if waiting.closing {
            return Err(closed());
        }
        let bytes = waiting.bytes + request.encoded.bytes();
        // A single request may be larger than the limit, or nothing would ever be.
        if bytes > self.limit && waiting.bytes > 0 && !request.encoded.is_empty() {
            return Err(full(format!("{} bytes wait to be written", waiting.bytes)));
        }
        waiting.bytes = bytes;
        waiting.requests.push_back(request);
        let asleep = std::mem::take(&mut waiting.asleep);
        drop(waiting);
        if asleep {
            self.woken.notify_one();
        }
        Ok(bytes)
    }

    /// The next requests, at most so long from now. Those taken before are answered.
    pub(crate) fn take(&self, wait: Duration) -> Work {
        let mut waiting = self.waiting();
        if std::mem::take(&mut waiting.under_way) && waiting.requests.is_empty() {
            self.answered.notify_waiters();
        }
        loop {
            if !waiting.requests.is_empty() {
                let mut bytes = 0;
                let mut taken = Vec::new();
                while let Some(next) = waiting.requests.front() {
                    bytes += next.encoded.bytes();
                    // Positions are counted in 16 bits.
                    if !taken.is_empty() && (bytes > GROUP_BYTES || taken.len() >= 10_000) {
                        break;
                    }
                    taken.extend(waiting.requests.pop_front());
                }
                waiting.under_way = true;
                return Work::Requests(taken);
            }
            if waiting.closing {
                return Work::Closed;
            }
            waiting.asleep = true;
            let (guard, timeout) =
                self.woken.wait_timeout(waiting, wait).unwrap_or_else(PoisonError::into_inner);
            waiting = guard;
            if timeout.timed_out() && waiting.requests.is_empty() && !waiting.closing {
                waiting.asleep = false;
                return Work::Idle;
            }
        }
    }

    /// Room for others: so many bytes were answered.
    pub(crate) fn release(&self, bytes: usize) -> usize {
        let mut waiting = self.waiting();
        waiting.bytes = waiting.bytes.saturating_sub(bytes);
        waiting.bytes
    }

    pub(crate) fn is_quiet(&self) -> bool {
        let waiting = self.waiting();
        waiting.requests.is_empty() && !waiting.under_way
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.waiting().closing
    }

    /// Takes no more; what waits is still written.
    pub(crate) fn close(&self) {
        self.waiting().closing = true;
        self.woken.notify_one();
    }
}
