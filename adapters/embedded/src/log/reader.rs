//! Reading one topic as a member of a group.

use super::chunk::{Chunk, ChunkError, ChunkPlace};
use super::chunk_failure::chunk_failure;
use super::encode::{Encoded, Mark};
use super::error::{closed, failed};
use super::files::FileLayer;
use super::groups::{EmbeddedMembership, News};
use super::journal::{Journal, TailRun};
use super::metrics::ReaderMetrics;
use super::queue::Refusal;
use super::shared::Shared;
use super::walk::{Hint, RunAt, gathered, shared};
use onlooker_ports::{Batch, Committed, GroupEvent, GroupReader, OutgoingBatch, PortError, Position, Topic};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// A run of so many records is handed out where it lies; smaller ones are gathered into one batch.
const LARGE_RUN: u32 = 256;
/// Records and bytes that are gathered at once, about.
const GATHERED_RECORDS: usize = 1_000;
const GATHERED_BYTES: usize = 128 << 10;

/// What we do with a partition.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    assigned: bool,
    /// Where delivery goes on; none while it stands still.
    next: Option<i64>,
    /// The end that was told last.
    told_end: Option<i64>,
    hint: Hint,
}

/// Where a partition's next record is.
enum Found {
    Memory(TailRun),
    Gathered(Batch),
    File(ChunkPlace),
    End(i64),
    Lost { earliest: i64, end: i64 },
}

type Loading = JoinHandle<Result<Chunk, ChunkError>>;

/// A member of a group.
///
/// Partitions that are read from files are served in the order in which their records stand there, so that one chunk
/// at a time serves all of them. Dropped without `close` it leaves the group all the same.
pub struct EmbeddedReader<F: FileLayer> {
    log: Arc<Shared<F>>,
    topic: Topic,
    group: String,
    member: Option<u64>,
    parts: Vec<Part>,
    /// Who is served first the next time.
    turn: usize,
    chunk: Option<Arc<Chunk>>,
    /// Kept here, since whoever calls `next` may drop it in the middle.
    loading: Option<(ChunkPlace, Loading)>,
    metrics: ReaderMetrics,
}

impl<F: FileLayer> EmbeddedReader<F> {
    pub(crate) fn new(log: Arc<Shared<F>>, topic: Topic, group: &str) -> Self {
        let member = log.groups.join(topic, group);
        log.journal(topic).notify(topic).notify_waiters();
        Self {
            member: Some(member),
            parts: vec![Part::default(); log.partitions as usize],
            group: group.to_owned(),
            metrics: ReaderMetrics::register(),
            turn: 0,
            chunk: None,
            loading: None,
            topic,
            log,
        }
    }

    fn journal(&self) -> &Arc<Journal<F>> {
        self.log.journal(self.topic)
    }

    fn leave(&mut self) {
        if let Some(member) = self.member.take() {
            self.log.groups.leave(self.topic, &self.group, member);
            self.journal().notify(self.topic).notify_waiters();
        }
        self.parts.iter_mut().for_each(|part| *part = Part::default());
    }

    fn news(&mut self) -> Option<GroupEvent<EmbeddedMembership>> {
        let news = self.log.groups.news(self.topic, &self.group, self.member?)?;
        // Others may have waited for our having heard.
        self.journal().notify(self.topic).notify_waiters();
        Some(match news {
            News::Assigned(partitions, membership) => {
                tracing::info!(
                    group = self.group,
                    topic = super::config::topic_name(self.topic),
                    ?partitions,
                    generation = membership.generation,
                    "partitions assigned"
                );
                for partition in &partitions {
                    if let Some(part) = self.part(*partition) {
                        *part = Part { assigned: true, ..Part::default() };
                    }
                }
                GroupEvent::Assigned { partitions, membership }
            }
            News::Revoked(partitions) => {
                for partition in &partitions {
                    if let Some(lag) = self.metrics.lag(self.topic) {
                        lag.clear(*partition);
                    }
                    if let Some(part) = self.part(*partition) {
                        *part = Part::default();
                    }
                }
                GroupEvent::Revoked { partitions }
            }
        })
    }

    fn part(&mut self, partition: i32) -> Option<&mut Part> {
        self.parts.get_mut(usize::try_from(partition).ok()?)
    }

    /// Where the next record of a partition is.
    fn find(&self, index: usize, next: i64) -> Found {
        let journal = self.journal();
        let slot = journal.kind.slot(self.topic, index as u32, journal.partitions);
        let state = journal.state();
        let place = &state.slots[slot];
        if next < place.start || next > place.end {
            return Found::Lost { earliest: place.start, end: place.end };
        }
        if next == place.end {
            return Found::End(place.end);
        }
        if next >= place.tail_start() {
            let from = place.tail.partition_point(|run| run.end() <= next);
            // Offsets that were left out.
            let there = place.tail.get(from).map_or(place.end, |run| run.base);
            if there > next {
                return Found::Lost { earliest: there, end: place.end };
            }
            let Some(first) = place.tail.get(from) else { return Found::End(place.end) };
            if first.count >= LARGE_RUN {
                return Found::Memory(first.clone());
            }
            // Copied under the lock: less than to keep the runs alive beyond it, as long as it is little.
            let (mut records, mut bytes) = (0, 0);
            let runs = place.tail.range(from..).take_while(|run| {
                let more = run.count < LARGE_RUN && records < GATHERED_RECORDS && bytes < GATHERED_BYTES;
                records += run.count as usize;
                bytes += run.bytes.len();
                more
            });
            let runs = runs.map(|run| RunAt {
                base: run.base,
                count: run.count,
                append_ms: run.append_ms,
                bytes: &run.bytes,
            });
            let limit = self.log.config.batch_records.min(GATHERED_RECORDS);
            return Found::Gathered(gathered(index as i32, runs, next, limit, &mut Hint::default()));
        }
        let after = state.segments.partition_point(|segment| segment.start(slot) <= next);
        match state.segments.get(after.saturating_sub(1)) {
            Some(segment) => Found::File(ChunkPlace::of(segment, segment.chunk_of(slot, next))),
            None => Found::Lost { earliest: place.start, end: place.end },
        }
    }

    fn batch_of_tail(&mut self, index: usize, next: i64, run: &TailRun) -> Batch {
        let limit = self.log.config.batch_records;
        let at = RunAt { base: run.base, count: run.count, append_ms: run.append_ms, bytes: &run.bytes };
        shared(index as i32, &run.bytes, std::iter::once((0, at)), next, limit, &mut self.parts[index].hint)
    }

    fn batch_of_chunk(&mut self, chunk: &Chunk, index: usize, next: i64) -> Batch {
        let (kind, partitions) = (self.journal().kind, self.log.partitions);
        let slot = kind.slot(self.topic, index as u32, partitions);
        let runs = chunk.runs_of(slot, next).iter().map(|run| {
            let bytes = &chunk.bytes[run.start..run.end];
            (run.start, RunAt { base: run.base, count: run.count, append_ms: run.append_ms, bytes })
        });
        let limit = self.log.config.batch_records;
        shared(index as i32, &chunk.bytes, runs, next, limit, &mut self.parts[index].hint)
    }

    /// The next thing to tell of the started partitions, or the chunk that is needed for it.
    fn deliver(&mut self) -> Result<Option<Delivery>, PortError> {
        let count = self.parts.len();
        let mut needed: Option<(usize, i64, ChunkPlace)> = None;
        for step in 0..count {
            let index = (self.turn + step) % count;
            let Some(next) = self.parts[index].next else { continue };
            match self.find(index, next) {
                Found::Memory(run) => {
                    self.turn = index + 1;
                    let batch = self.batch_of_tail(index, next, &run);
                    return self.handed_out(index, next, batch).map(Some);
                }
                Found::Gathered(batch) => {
                    self.turn = index + 1;
                    return self.handed_out(index, next, batch).map(Some);
                }
                Found::End(end) => {
                    if self.parts[index].told_end != Some(end) {
                        self.parts[index].told_end = Some(end);
                        self.turn = index + 1;
                        if let Some(lag) = self.metrics.lag(self.topic) {
                            lag.set(index as i32, 0.0);
                        }
                        let event = GroupEvent::CaughtUp { partition: index as i32, next_offset: end };
                        return Ok(Some(Delivery::Event(event)));
                    }
                }
                Found::Lost { earliest, end } => return Ok(Some(self.lost(index, next, earliest, end))),
                Found::File(place) => {
                    if needed.as_ref().is_none_or(|(.., other)| place.order() < other.order()) {
                        needed = Some((index, next, place));
                    }
                }
            }
        }
        let Some((index, next, place)) = needed else { return Ok(None) };
        match &self.chunk {
            // The last chunk of the last file grows: what was read of it does as long as it has the record.
            Some(chunk) if chunk.place.order() == place.order() => {
                let chunk = Arc::clone(chunk);
                let batch = self.batch_of_chunk(&chunk, index, next);
                if batch.is_empty() && chunk.place != place {
                    return Ok(Some(Delivery::Load(place)));
                }
                if batch.is_empty()
                    && let Some((earliest, end)) = self.behind_gap(index, next)
                {
                    return Ok(Some(self.lost(index, next, earliest, end)));
                }
                self.handed_out(index, next, batch).map(Some)
            }
            _ => Ok(Some(Delivery::Load(place))),
        }
    }

    fn lost(&mut self, index: usize, wanted: i64, earliest: i64, end: i64) -> Delivery {
        self.parts[index].next = None;
        Delivery::Event(GroupEvent::OutOfRange { partition: index as i32, wanted, earliest, end })
    }

    /// Where a partition goes on whose verified file does not have this offset: where the next file begins.
    fn behind_gap(&self, index: usize, next: i64) -> Option<(i64, i64)> {
        let journal = self.journal();
        let slot = journal.kind.slot(self.topic, index as u32, journal.partitions);
        let state = journal.state();
        let after = state.segments.partition_point(|segment| segment.start(slot) <= next);
        let segment = state.segments.get(after.checked_sub(1)?)?;
        let is_last_chunk = segment.chunk_of(slot, next) + 1 == segment.marks.len();
        let earliest = state.segments.get(after)?.start(slot);
        is_last_chunk.then_some((earliest, state.slots[slot].end))
    }

    fn handed_out(&mut self, index: usize, from: i64, batch: Batch) -> Result<Delivery, PortError> {
        let Some(next) = batch.next_offset() else {
            let detail = format!("offset {from} of partition {index} is not where it should be");
            tracing::error!(topic = super::config::topic_name(self.topic), detail, "log is damaged");
            return Err(failed(detail));
        };
        self.parts[index].next = Some(next);
        Ok(Delivery::Event(GroupEvent::Records(batch)))
    }

    /// Waits for the chunk that is being read.
    async fn load(&mut self, place: ChunkPlace) -> Result<(), PortError> {
        if self.loading.as_ref().is_none_or(|(other, _)| *other != place) {
            let journal = Arc::clone(self.journal());
            let wanted = place.clone();
            let task = tokio::task::spawn_blocking(move || {
                Chunk::read(&journal.files, journal.kind, journal.partitions, journal.folder, wanted)
            });
            self.loading = Some((place.clone(), task));
        }
        let Some((_, task)) = &mut self.loading else { return Ok(()) };
        let outcome = task.await.map_err(|error| failed(format!("reading ended early: {error}")));
        self.loading = None;
        match outcome? {
            Ok(chunk) => {
                self.metrics.read.increment(chunk.bytes.len() as u64);
                self.chunk = Some(Arc::new(chunk));
                Ok(())
            }
            Err(error) => chunk_failure(self.journal(), &place, error),
        }
    }

    async fn look(
        &mut self,
        deadline: tokio::time::Instant,
    ) -> Result<Option<GroupEvent<EmbeddedMembership>>, PortError> {
        loop {
            let journal = Arc::clone(self.journal());
            let notified = journal.notify(self.topic).notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.member.is_none() {
                return Err(failed("the reader is closed"));
            }
            if let Some(event) = self.news() {
                return Ok(Some(event));
            }
            match self.deliver()? {
                Some(Delivery::Event(event)) => return Ok(Some(event)),
                Some(Delivery::Load(place)) => {
                    self.load(place).await?;
                    continue;
                }
                None => {}
            }
            if tokio::time::timeout_at(deadline, notified).await.is_err() {
                return if journal.queue.is_closing() { Err(closed()) } else { Ok(None) };
            }
        }
    }
}

enum Delivery {
    Event(GroupEvent<EmbeddedMembership>),
    Load(ChunkPlace),
}

impl<F: FileLayer> Drop for EmbeddedReader<F> {
    fn drop(&mut self) {
        self.leave();
    }
}

pub(crate) fn port_error(refusal: Refusal) -> PortError {
    match refusal {
        Refusal::Nothing(error) | Refusal::Unknown(error) => error,
        Refusal::Stale => failed("a membership where none was given"),
    }
}

impl<F: FileLayer> GroupReader for EmbeddedReader<F> {
    type Membership = EmbeddedMembership;

    async fn next(&mut self, wait: Duration) -> Result<Option<GroupEvent<EmbeddedMembership>>, PortError> {
        // Who has always more to read must not keep others from running.
        tokio::task::consume_budget().await;
        let event = self.look(tokio::time::Instant::now() + wait).await?;
        if let Some(GroupEvent::Records(batch)) = &event
            && let Some(lag) = self.metrics.lag(self.topic)
        {
            let (_, end) = self.log.bounds(self.topic, batch.partition.cast_unsigned());
            lag.set(batch.partition, (end - batch.next_offset().unwrap_or(end)) as f64);
        }
        Ok(event)
    }

    async fn start(&mut self, partition: i32, offset: i64) -> Result<(), PortError> {
        if self.member.is_none() {
            return Err(failed("the reader is closed"));
        }
        if let Some(part) = self.part(partition)
            && part.assigned
        {
            *part = Part { assigned: true, next: Some(offset), ..Part::default() };
        }
        Ok(())
    }

    async fn stop(&mut self, partition: i32) -> Result<(), PortError> {
        if let Some(part) = self.part(partition) {
            part.next = None;
        }
        Ok(())
    }

    async fn committed(&mut self, partition: i32) -> Result<Option<Committed>, PortError> {
        // A transaction that was handed over before this question is decided before it is answered.
        self.log.journal(Topic::Counted).barrier().await.map_err(port_error)?;
        Ok(self.log.groups.committed(self.topic, &self.group, partition.cast_unsigned()))
    }

    async fn bounds(&mut self, partition: i32) -> Result<(i64, i64), PortError> {
        match u32::try_from(partition) {
            Ok(partition) if partition < self.log.partitions => Ok(self.log.bounds(self.topic, partition)),
            _ => Err(failed(format!("there is no partition {partition}"))),
        }
    }

    async fn commit(&mut self, positions: &[Position]) -> Result<(), PortError> {
        if positions.is_empty() {
            return Ok(());
        }
        let (topic, group) = (self.topic, self.group.as_str());
        let marks = marks(positions, group, topic, self.log.partitions)?;
        let journal = self.log.journal(Topic::Counted);
        let nothing = OutgoingBatch::default();
        let encoded = Encoded::new(journal.kind, journal.partitions, &nothing, marks.into_iter(), 0);
        // Not synced by itself: an older position after a loss of power does no harm.
        journal.submit(encoded, None, false).await.map_err(port_error)
    }

    async fn partitions(&mut self) -> Result<u32, PortError> {
        Ok(self.log.partitions)
    }

    async fn close(&mut self, _: Duration) {
        self.leave();
    }
}

/// Positions as they are written.
pub(crate) fn marks<'a>(
    positions: &'a [Position],
    group: &'a str,
    topic: Topic,
    partitions: u32,
) -> Result<Vec<Mark<'a>>, PortError> {
    let mark = |position: &'a Position| match u32::try_from(position.partition) {
        Ok(partition) if partition < partitions => {
            Ok(Mark { group, topic, partition, offset: position.offset, note: &position.note })
        }
        _ => Err(failed(format!("there is no partition {}", position.partition))),
    };
    positions.iter().map(mark).collect()
}
