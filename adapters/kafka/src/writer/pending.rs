//! What waits for an acknowledgement.

use crate::native;
use rdkafka::error::RDKafkaErrorCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use tokio::sync::{Notify, oneshot};

/// What may wait for an acknowledgement. Counted here and not by the library, so that a batch is taken or refused as a
/// whole.
#[derive(Debug)]
pub(super) struct Queue {
    max_records: usize,
    max_bytes: usize,
    records: AtomicUsize,
    bytes: AtomicUsize,
    drained: Notify,
}

impl Queue {
    pub(super) fn new(max_records: usize, max_bytes: usize) -> Arc<Self> {
        let (records, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { max_records, max_bytes, records, bytes, drained: Notify::new() })
    }

    /// Records that wait.
    pub(super) fn len(&self) -> usize {
        self.records.load(Ordering::Acquire)
    }

    /// Ends when nothing waits.
    pub(super) async fn until_empty(&self) {
        loop {
            let drained = self.drained.notified();
            if self.len() == 0 {
                return;
            }
            drained.await;
        }
    }
}

/// A batch's share of the queue, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    queue: Arc<Queue>,
    records: usize,
    bytes: usize,
}

impl Place {
    pub(super) fn reserve(queue: &Arc<Queue>, records: usize, bytes: usize) -> Option<Self> {
        let all_records = queue.records.fetch_add(records, Ordering::AcqRel) + records;
        let all_bytes = queue.bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let place = Self { queue: Arc::clone(queue), records, bytes };
        (all_records <= queue.max_records && all_bytes <= queue.max_bytes).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queue.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        if self.queue.records.fetch_sub(self.records, Ordering::AcqRel) == self.records {
            self.queue.drained.notify_waiters();
        }
    }
}

/// One batch under way. Every record holds a share; when the last is dropped, the outcome is known and sent.
pub(super) struct Pending {
    /// The code of a record that failed, or 0.
    failure: AtomicI32,
    report: Option<oneshot::Sender<Result<(), RDKafkaErrorCode>>>,
    _place: Place,
}

impl Pending {
    /// With the receiver of its outcome.
    pub(super) fn new(place: Place) -> (Arc<Self>, oneshot::Receiver<Result<(), RDKafkaErrorCode>>) {
        let (report, done) = oneshot::channel();
        (Arc::new(Self { failure: AtomicI32::new(0), report: Some(report), _place: place }), done)
    }

    pub(super) fn fail(&self, code: RDKafkaErrorCode) {
        self.failure.store(code as i32, Ordering::Relaxed);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let outcome = match self.failure.load(Ordering::Relaxed) {
            0 => Ok(()),
            raw => Err(native::code_of(raw)),
        };
        if let Some(report) = self.report.take() {
            // Nobody waits any more if the request was cancelled.
            let _gone = report.send(outcome);
        }
    }
}
