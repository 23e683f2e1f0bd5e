//! The fetching thread: orders in, records into the buffer.

use super::shared::{Order, Shared, State};
use crate::error::{failed, from_code};
use crate::fetcher::{Fetched, Fetcher};
use crate::health::Health;
use crate::metrics::ReaderMetrics;
use onlooker_ports::{RecordRef, Topic};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_millis(100);
const ASK_AGAIN: Duration = Duration::from_millis(500);
const QUESTION: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(crate) struct FetchThread {
    pub(crate) fetcher: Fetcher,
    pub(crate) shared: Arc<Shared>,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: ReaderMetrics,
    pub(crate) role: Topic,
    pub(crate) stall_timeout: Duration,
    /// Partitions that are out of range, with the wanted offset; their bounds are asked for.
    lost: HashMap<i32, i64>,
    asked: Option<Instant>,
    /// When something last came from a started partition, and how often it was started again since.
    progress: HashMap<i32, (Instant, u32)>,
    looked: Instant,
}

impl FetchThread {
    pub(crate) fn new(
        fetcher: Fetcher,
        shared: Arc<Shared>,
        health: Arc<Health>,
        metrics: ReaderMetrics,
        role: Topic,
        stall_timeout: Duration,
    ) -> Self {
        Self {
            fetcher,
            shared,
            health,
            metrics,
            role,
            stall_timeout,
            lost: HashMap::new(),
            asked: None,
            progress: HashMap::new(),
            looked: Instant::now(),
        }
    }

    pub(crate) fn run(mut self) {
        loop {
            let shared = Arc::clone(&self.shared);
            let mut state = shared.state();
            if state.closing {
                // Whoever waits for one learns that nobody will do it.
                state.orders.clear();
                return;
            }
            while let Some(order) = state.orders.pop_front() {
                self.obey(order, &mut state);
            }
            if state.buffer.is_full() {
                // The client library goes on fetching up to its own bound; the group is served by another thread.
                shared.wait_for_turn(state, WAIT);
                continue;
            }
            drop(state);
            if self.fetcher.fetch(WAIT) {
                self.deliver();
            }
            self.ask_for_bounds();
            if self.looked.elapsed() >= LOOK_EVERY {
                self.look_around();
            }
        }
    }

    /// Runs under the lock, so that no record fetched before an order is delivered after it.
    fn obey(&mut self, order: Order, state: &mut MutexGuard<'_, State>) {
        match order {
            Order::Start { partition, offset, done } => {
                self.lost.remove(&partition);
                // Not ours any more: the revocation is on its way to the room.
                let outcome = if state.buffer.start(partition, offset) {
                    self.progress.insert(partition, (Instant::now(), 0));
                    self.fetcher.start(partition, offset)
                } else {
                    Ok(())
                };
                let _gone = done.send(outcome);
            }
            Order::Stop { partition, done } => {
                state.buffer.stop(partition);
                let outcome = self.halt(partition);
                let _gone = done.send(outcome);
            }
            Order::Halt { partition } => {
                if let Err(error) = self.halt(partition) {
                    tracing::warn!(%error, partition, "partition does not stop");
                }
            }
        }
    }

    fn halt(&mut self, partition: i32) -> Result<(), onlooker_ports::PortError> {
        self.lost.remove(&partition);
        self.progress.remove(&partition);
        self.fetcher.stop(partition)
    }

    fn deliver(&mut self) {
        self.health.works();
        let now = Instant::now();
        let mut records = 0u64;
        let mut out_of_range = Vec::new();
        let mut failure = None;
        let mut state = self.shared.state();
        let mut seen = None;
        for (partition, fetched) in self.fetcher.fetched() {
            if seen != Some(partition) {
                if let Some(progress) = self.progress.get_mut(&partition) {
                    *progress = (now, 0);
                }
                seen = Some(partition);
            }
            match fetched {
                Fetched::Record(message) => {
                    let trace = message.trace();
                    let record = RecordRef {
                        offset: message.offset(),
                        append_ms: message.timestamp_ms(),
                        key: message.key(),
                        payload: message.payload(),
                        trace: trace.as_ref(),
                    };
                    state.buffer.record(partition, &record);
                    records += 1;
                }
                Fetched::End { offset } => state.buffer.caught_up(partition, offset),
                Fetched::OutOfRange => {
                    if let Some(wanted) = state.buffer.position(partition) {
                        out_of_range.push((partition, wanted));
                    }
                }
                Fetched::Error { code, text } => {
                    let error = from_code(code, format_args!("reading partition {partition}: {text}"));
                    if error.is_transient() {
                        tracing::debug!(%error, "broker reports");
                    } else {
                        failure = Some(error);
                    }
                }
            }
        }
        if failure.is_some() {
            state.failure = failure;
        }
        self.metrics.buffered.set(f64::from(u32::try_from(state.buffer.bytes()).unwrap_or(u32::MAX)));
        drop(state);
        self.shared.announce();
        self.metrics.fetched.increment(records);
        for (partition, wanted) in out_of_range {
            self.lost.insert(partition, wanted);
        }
    }

    /// An offset that is gone is told with what is there instead, once a broker has said it.
    fn ask_for_bounds(&mut self) {
        if self.lost.is_empty() || self.asked.is_some_and(|at| at.elapsed() < ASK_AGAIN) {
            return;
        }
        for (partition, wanted) in self.lost.clone() {
            match self.fetcher.shared().bounds(partition, QUESTION) {
                Ok((earliest, end)) => {
                    self.lost.remove(&partition);
                    self.progress.remove(&partition);
                    if let Err(error) = self.fetcher.stop(partition) {
                        tracing::warn!(%error, partition, "partition does not stop");
                    }
                    self.shared.state().buffer.out_of_range(partition, wanted, earliest, end);
                    self.shared.announce();
                }
                Err(error) => tracing::debug!(%error, partition, "bounds are not known yet"),
            }
        }
        self.asked = Some(Instant::now());
    }

    /// Once a second: lag for the metrics, and whether a partition stands still although it should not.
    fn look_around(&mut self) {
        self.looked = Instant::now();
        let mut suspects = Vec::new();
        {
            let state = self.shared.state();
            for (partition, position) in state.buffer.started() {
                if let Some(end) = self.fetcher.shared().known_end(partition) {
                    let behind = u32::try_from((end - position).max(0)).unwrap_or(u32::MAX);
                    if let Some(lag) = self.metrics.lag(self.role) {
                        lag.set(partition, f64::from(behind));
                    }
                }
                let quiet =
                    self.progress.get(&partition).is_some_and(|(at, _)| at.elapsed() > self.stall_timeout);
                if quiet && !state.buffer.holds(partition) && !self.lost.contains_key(&partition) {
                    suspects.push((partition, position));
                }
            }
        }
        for (partition, position) in suspects {
            self.examine(partition, position);
        }
    }

    /// A partition from which nothing came for long. Mostly there is nothing; but clients have been seen to fall silent
    /// for ever after a rebalance or a broker's restart, with nothing in the logs.
    fn examine(&mut self, partition: i32, position: i64) {
        let end = match self.fetcher.shared().bounds(partition, QUESTION) {
            Ok((_, end)) => end,
            // No broker, no stall.
            Err(_) => return,
        };
        let Some((at, restarts)) = self.progress.get_mut(&partition) else { return };
        *at = Instant::now();
        if end <= position {
            return;
        }
        self.metrics.stalls.increment(1);
        *restarts += 1;
        if *restarts > 1 {
            self.shared.fail(failed(format_args!(
                "partition {partition} stands still at offset {position}, although the log goes to {end}"
            )));
            return;
        }
        tracing::warn!(partition, position, end, "partition stands still and is started again");
        if let Err(error) = self.fetcher.start(partition, position) {
            self.shared.fail(error);
        }
    }
}
