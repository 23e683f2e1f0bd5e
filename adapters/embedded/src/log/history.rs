//! Reading what was counted before.

use super::chunk::{Chunk, ChunkPlace};
use super::chunk_failure::chunk_failure;
use super::error::failed;
use super::files::FileLayer;
use super::journal::Journal;
use super::reader::port_error;
use super::shared::Shared;
use super::walk::{Hint, RunAt, shared};
use onlooker_ports::{Batch, PortError, Topic, VerdictHistory};
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Reads counted views from a time on, of all partitions, without belonging to a group.
#[derive(Debug)]
pub struct EmbeddedHistory<F: FileLayer> {
    log: Arc<Shared<F>>,
}

impl<F: FileLayer> EmbeddedHistory<F> {
    pub(crate) fn new(log: Arc<Shared<F>>) -> Self {
        Self { log }
    }
}

impl<F: FileLayer> VerdictHistory for EmbeddedHistory<F> {
    async fn ends(&self) -> Result<Vec<(i32, i64)>, PortError> {
        // Transactions under way included.
        self.log.journal(Topic::Counted).barrier().await.map_err(port_error)?;
        let end = |partition: u32| (partition.cast_signed(), self.log.bounds(Topic::Counted, partition).1);
        Ok((0..self.log.partitions).map(end).collect())
    }

    async fn read(
        &self,
        from_ms: i64,
        ends: &[(i32, i64)],
        sink: mpsc::Sender<Batch>,
    ) -> Result<(), PortError> {
        let journal = Arc::clone(self.log.journal(Topic::Counted));
        let ends = ends.to_vec();
        blocking(move || {
            let ranges: Vec<_> = ends.iter().map(|(partition, end)| (*partition, 0..*end)).collect();
            read(&journal, Topic::Counted, from_ms, &ranges, &mut |batch| sink.blocking_send(batch).is_ok())
        })
        .await
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PortError> + Send + 'static,
) -> Result<T, PortError> {
    let outcome = tokio::task::spawn_blocking(work).await;
    outcome.map_err(|error| failed(format!("reading ended early: {error}")))?
}

/// A partition that is not through yet.
struct Wanted {
    partition: i32,
    slot: usize,
    start: i64,
    end: i64,
}

/// Reads what was appended at `from_ms` or later of these ranges of a topic. `sink` says whether it takes any more.
pub(super) fn read<F: FileLayer>(
    journal: &Journal<F>,
    topic: Topic,
    from_ms: i64,
    ranges: &[(i32, Range<i64>)],
    sink: &mut impl FnMut(Batch) -> bool,
) -> Result<(), PortError> {
    let (wanted, places) = plan(journal, topic, from_ms, ranges);
    for place in places {
        let chunk =
            Chunk::read(&journal.files, journal.kind, journal.partitions, journal.folder, place.clone());
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => {
                chunk_failure(journal, &place, error)?;
                // Retention was faster: what it removed is nobody's to remember.
                continue;
            }
        };
        for wanted in &wanted {
            send_all(journal.config.batch_records, &chunk, wanted, from_ms, sink)?;
        }
    }
    Ok(())
}

/// What is to be read: the partitions, and all chunks that can have their records.
fn plan<F>(
    journal: &Journal<F>,
    topic: Topic,
    from_ms: i64,
    ranges: &[(i32, Range<i64>)],
) -> (Vec<Wanted>, Vec<ChunkPlace>) {
    let state = journal.state();
    let mut wanted = Vec::new();
    for (partition, range) in ranges {
        if let Some(number) = u32::try_from(*partition).ok().filter(|number| *number < journal.partitions) {
            let slot = journal.kind.slot(topic, number, journal.partitions);
            let (start, end) =
                (state.slots[slot].start.max(range.start), range.end.min(state.slots[slot].end));
            wanted.push(Wanted { partition: *partition, slot, start, end });
        }
    }
    wanted.retain(|wanted| wanted.start < wanted.end);
    let mut places = Vec::new();
    let first =
        state.segments.partition_point(|segment| segment.marks[0].before_ms < from_ms).saturating_sub(1);
    let mut chunks = state.segments.iter().skip(first).flat_map(|segment| {
        let since = segment.chunk_since(from_ms);
        segment.marks.iter().enumerate().skip(since).map(move |(index, mark)| (segment, index, mark))
    });
    let mut next = chunks.next();
    while let Some((segment, index, mark)) = next {
        next = chunks.next();
        let after = next.map(|(_, _, mark)| mark);
        let needed = wanted.iter().any(|wanted| {
            let ended = after.is_some_and(|after| after.ends[wanted.slot] <= wanted.start);
            mark.ends[wanted.slot] < wanted.end && !ended
        });
        let place = ChunkPlace::of(segment, index);
        if needed && place.from < place.to {
            places.push(place);
        }
    }
    (wanted, places)
}

fn send_all(
    limit: usize,
    chunk: &Chunk,
    wanted: &Wanted,
    from_ms: i64,
    sink: &mut impl FnMut(Batch) -> bool,
) -> Result<(), PortError> {
    let runs = chunk.runs_of(wanted.slot, wanted.start);
    // Append times rise along the file.
    let runs = &runs[runs.partition_point(|run| run.append_ms < from_ms)..];
    let Some(first) = runs.first() else { return Ok(()) };
    let mut next = first.base.max(wanted.start);
    let mut hint = Hint::default();
    let mut rest = runs;
    while next < wanted.end {
        rest = &rest[rest.partition_point(|run| run.end_offset() <= next)..];
        let at = rest.iter().map(|run| {
            let bytes = &chunk.bytes[run.start..run.end];
            (run.start, RunAt { base: run.base, count: run.count, append_ms: run.append_ms, bytes })
        });
        let room = usize::try_from(wanted.end - next).unwrap_or(limit).min(limit);
        let batch = shared(wanted.partition, &chunk.bytes, at, next, room, &mut hint);
        let Some(after) = batch.next_offset() else { break };
        next = after;
        if !sink(batch) {
            return Err(failed("nobody takes the records any more"));
        }
    }
    Ok(())
}
