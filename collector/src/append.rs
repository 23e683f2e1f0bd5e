//! Handing records to the log, in bounded time.

use crate::metrics::CollectorMetrics;
use crate::quiet::{Quiet, WARN_EVERY, jittered};
use onlooker_event::{TraceId, TraceParent};
use onlooker_ports::{LogWriter, OutgoingBatch, PortError};
use onlooker_stage::http::ApiError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long an acknowledgement that did not come counts against the log. Longer, and a collector that gets no traffic
/// because of it would never find out that the log is back.
const STALL_COUNTS: Duration = Duration::from_secs(5);

/// The log, and how it does.
#[derive(Debug)]
pub(crate) struct Appender<L> {
    log: L,
    limit: Duration,
    trouble: Quiet,
    started: Instant,
    /// Milliseconds from `started` to the last time that no acknowledgement came in time; 0 once one has.
    stalled_ms: AtomicU64,
}

impl<L: LogWriter> Appender<L> {
    pub(crate) fn new(log: L, limit: Duration) -> Self {
        Self {
            log,
            limit,
            trouble: Quiet::every(WARN_EVERY),
            started: Instant::now(),
            stalled_ms: AtomicU64::new(0),
        }
    }

    /// Waits until the log has all records, or says 503. When the time is over, or the future dropped, they may reach
    /// the log nevertheless: a client that repeats the request repeats its ids.
    pub(crate) async fn append(
        &self,
        batch: OutgoingBatch,
        metrics: &CollectorMetrics,
    ) -> Result<(), ApiError> {
        let accepted = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        // All views of a request are of one trace.
        let trace_id = batch.iter().next().and_then(|record| record.trace).map(TraceParent::trace_id);
        let start = Instant::now();
        let outcome = tokio::time::timeout_at((start + self.limit).into(), self.log.append(batch)).await;
        metrics.append.record(start.elapsed().as_secs_f64());
        match outcome {
            Ok(Ok(())) => {
                if self.stalled_ms.load(Ordering::Relaxed) != 0 {
                    self.stalled_ms.store(0, Ordering::Relaxed);
                }
                metrics.accepted.increment(accepted);
                Ok(())
            }
            Ok(Err(error)) => Err(self.unavailable(&error, trace_id)),
            Err(_) => {
                // A frozen broker closes no connection, so the log itself may not know yet.
                self.stalled_ms.store(self.now_ms().max(1), Ordering::Relaxed);
                let waited_ms = self.limit.as_millis();
                let detail = format!("no acknowledgement within {waited_ms} ms");
                Err(self.unavailable(&PortError::Unavailable { server: "log", detail }, trace_id))
            }
        }
    }

    fn unavailable(&self, error: &PortError, trace_id: Option<TraceId>) -> ApiError {
        let (code, message) = match error {
            PortError::Full { .. } => (
                "log_full",
                "the log takes no more at the moment, its queue or its disk is full; send the views again",
            ),
            _ => (
                "log_unavailable",
                "the log did not acknowledge the views; send them again with the same ids",
            ),
        };
        if let Some(held_back) = self.trouble.due() {
            let trace_id = trace_id.map(tracing::field::display);
            tracing::warn!(%error, code, held_back, trace_id, "views were not acknowledged");
        }
        ApiError::unavailable(code, message, jittered())
    }

    /// Why no traffic should come here, if so.
    pub(crate) fn trouble(&self) -> Option<&'static str> {
        if !self.log.is_reachable() {
            return Some("the log cannot be reached");
        }
        let stalled_ms = self.stalled_ms.load(Ordering::Relaxed);
        let counts = u128::from(self.now_ms().saturating_sub(stalled_ms)) < STALL_COUNTS.as_millis();
        (stalled_ms != 0 && counts).then_some("the log does not acknowledge")
    }

    /// Waits for what is under way, at most this long.
    pub(crate) async fn flush(&self, wait: Duration) {
        if let Err(error) = self.log.flush(wait).await {
            tracing::error!(%error, "the log did not take everything before the deadline");
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
