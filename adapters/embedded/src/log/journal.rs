//! One journal as its readers see it: segments, ends, and the newest records in memory.

use super::config::{Kind, LogConfig};
use super::encode::{Block, Encoded};
use super::error::{closed, failed};
use super::groups::{EmbeddedMembership, Groups};
use super::metrics::JournalMetrics;
use super::queue::{Queue, REQUEST_BYTES, Refusal, Request};
use super::segment::Segment;
use bytes::Bytes;
use onlooker_ports::Topic;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

/// Consecutive records of one slot in memory, as they stand in the file.
#[derive(Debug, Clone)]
pub(crate) struct TailRun {
    pub(crate) base: i64,
    pub(crate) count: u32,
    pub(crate) append_ms: i64,
    pub(crate) bytes: Bytes,
    /// The entry that it is part of.
    entry: u64,
}

impl TailRun {
    pub(crate) fn end(&self) -> i64 {
        self.base + i64::from(self.count)
    }
}

/// One topic's partition.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// Records below are not shown any more.
    pub(crate) start: i64,
    /// Records from here on are not there yet.
    pub(crate) end: i64,
    pub(crate) tail: VecDeque<TailRun>,
}

impl Slot {
    /// From here on all is in memory.
    pub(crate) fn tail_start(&self) -> i64 {
        self.tail.front().map_or(self.end, |run| run.base)
    }
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) slots: Vec<Slot>,
    /// Entries in memory: their bytes.
    entries: VecDeque<usize>,
    first_entry: u64,
    tail_bytes: usize,
}

impl State {
    pub(crate) fn new(segments: VecDeque<Segment>, ends: &[i64]) -> Self {
        let start = |slot| segments.front().map_or(0, |first| first.start(slot));
        let slots = ends.iter().enumerate();
        let slots =
            slots.map(|(slot, end)| Slot { start: start(slot), end: *end, tail: VecDeque::new() }).collect();
        Self { segments, slots, ..Self::default() }
    }

    /// Bytes of all files.
    pub(crate) fn size(&self) -> u64 {
        self.segments.iter().map(|segment| segment.length).sum()
    }

    /// Shows an entry that was written at the end of the last segment.
    pub(crate) fn publish(
        &mut self,
        entry: &Bytes,
        blocks: &[Block],
        records_at: usize,
        append_ms: i64,
        tail_limit: usize,
    ) {
        if let Some(segment) = self.segments.back_mut() {
            // Marks name the ends before the entry: all slots' ends are copied, but only once in a chunk.
            if segment.length - segment.marks.last().map_or(0, |m| m.position) >= super::segment::CHUNK_BYTES
            {
                let ends: Vec<i64> = self.slots.iter().map(|slot| slot.end).collect();
                segment.mark(&ends);
            }
            segment.length += entry.len() as u64;
            segment.last_ms = append_ms;
        }
        let number = self.first_entry + self.entries.len() as u64;
        let mut at = records_at;
        for block in blocks {
            let end = at + block.bytes as usize;
            let slot = &mut self.slots[block.slot as usize];
            let bytes = entry.slice(at..end);
            slot.tail.push_back(TailRun {
                base: slot.end,
                count: block.count,
                append_ms,
                bytes,
                entry: number,
            });
            slot.end += i64::from(block.count);
            at = end;
        }
        if blocks.is_empty() {
            return;
        }
        self.entries.push_back(entry.len());
        self.tail_bytes += entry.len();
        while self.tail_bytes > tail_limit
            && let Some(bytes) = self.entries.pop_front()
        {
            self.tail_bytes -= bytes;
            for slot in &mut self.slots {
                if slot.tail.front().is_some_and(|run| run.entry == self.first_entry) {
                    slot.tail.pop_front();
                }
            }
            self.first_entry += 1;
        }
    }

    /// Nothing below `offset` is shown any more.
    pub(crate) fn raise_start(&mut self, slot: usize, offset: i64) {
        let slot = &mut self.slots[slot];
        slot.start = slot.start.max(offset.min(slot.end));
    }
}

/// What a journal's thread, its writers and its readers share.
#[derive(Debug)]
pub(crate) struct Journal<F> {
    pub(crate) kind: Kind,
    pub(crate) dir: PathBuf,
    pub(crate) files: F,
    pub(crate) partitions: u32,
    pub(crate) folder: u64,
    pub(crate) config: LogConfig,
    pub(crate) groups: Arc<Groups>,
    pub(crate) queue: Queue,
    pub(crate) metrics: JournalMetrics,
    /// False after a write or sync that failed, until one succeeds.
    pub(crate) healthy: AtomicBool,
    state: Mutex<State>,
    /// Of each topic: there is more to read, or a group has changed.
    notify: Vec<Notify>,
}

impl<F> Journal<F> {
    #[expect(clippy::too_many_arguments, reason = "each once, in `open`")]
    pub(crate) fn new(
        kind: Kind,
        dir: PathBuf,
        files: F,
        partitions: u32,
        folder: u64,
        config: LogConfig,
        groups: Arc<Groups>,
        metrics: JournalMetrics,
        state: State,
    ) -> Self {
        Self {
            queue: Queue::new(config.queue_bytes),
            notify: kind.topics().iter().map(|_| Notify::new()).collect(),
            healthy: AtomicBool::new(true),
            state: Mutex::new(state),
            kind,
            dir,
            files,
            partitions,
            folder,
            config,
            groups,
            metrics,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the readers of a topic.
    pub(crate) fn notify(&self, topic: Topic) -> &Notify {
        &self.notify[self.kind.slot(topic, 0, 1)]
    }

    /// Wakes the readers of the topics that have more.
    pub(crate) fn notify_blocks(&self, blocks: &[Block]) {
        for (index, notify) in self.notify.iter().enumerate() {
            if blocks.iter().any(|block| (block.slot / self.partitions) as usize == index) {
                notify.notify_waiters();
            }
        }
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed) && !self.queue.is_closing()
    }

    /// Hands something to the journal's thread and waits for the answer. It is written although nobody waits any more.
    pub(crate) async fn submit(
        &self,
        encoded: Encoded,
        membership: Option<EmbeddedMembership>,
        sync: bool,
    ) -> Result<(), Refusal> {
        self.submit_request(encoded, membership, sync, Vec::new()).await
    }

    async fn submit_request(
        &self,
        encoded: Encoded,
        membership: Option<EmbeddedMembership>,
        sync: bool,
        floors: Vec<(usize, i64)>,
    ) -> Result<(), Refusal> {
        if encoded.bytes() > REQUEST_BYTES {
            return Err(Refusal::Nothing(failed(format!("a batch of {} bytes", encoded.bytes()))));
        }
        let (done, answer) = oneshot::channel();
        let records = encoded.records();
        match self.queue.push(Request { encoded, membership, sync, floors, done }) {
            Ok(bytes) => self.metrics.queued.get(self.kind).set(bytes as f64),
            Err(error) => {
                self.metrics.failed.get(self.kind).increment(1);
                return Err(Refusal::Nothing(error));
            }
        }
        let outcome = answer.await.unwrap_or_else(|_| Err(Refusal::Unknown(closed())));
        match &outcome {
            Ok(()) => self.metrics.appended.get(self.kind).increment(records as u64),
            Err(_) => self.metrics.failed.get(self.kind).increment(1),
        }
        outcome
    }

    /// Waits until all that was handed over before is written or refused.
    pub(crate) async fn barrier(&self) -> Result<(), Refusal> {
        self.raise_ends(Vec::new()).await
    }

    /// Makes slots go on at these offsets, durably, where they have not got there.
    pub(crate) async fn raise_ends(&self, floors: Vec<(usize, i64)>) -> Result<(), Refusal> {
        let empty = onlooker_ports::OutgoingBatch::default();
        let encoded = Encoded::new(self.kind, self.partitions, &empty, std::iter::empty(), 0);
        self.submit_request(encoded, None, false, floors).await
    }
}
