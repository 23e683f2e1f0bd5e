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
        let outcome = tokio::task::spawn_blocking(move || read(&journal, from_ms, &ends, &sink)).await;
        outcome.map_err(|error| failed(format!("reading ended early: {error}")))?
    }
}

/// A partition that is not through yet.
struct Wanted {
    partition: i32,
    slot: usize,
    start: i64,
    end: i64,
}

fn read<F: FileLayer>(
    journal: &Journal<F>,
    from_ms: i64,
    ends: &[(i32, i64)],
    sink: &mpsc::Sender<Batch>,
) -> Result<(), PortError> {
    let (wanted, places) = plan(journal, from_ms, ends);
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
fn plan<F>(journal: &Journal<F>, from_ms: i64, ends: &[(i32, i64)]) -> (Vec<Wanted>, Vec<ChunkPlace>) {
    let state = journal.state();
    let mut wanted = Vec::new();
    for (partition, end) in ends {
        if let Some(number) = u32::try_from(*partition).ok().filter(|number| *number < journal.partitions) {
            let slot = journal.kind.slot(Topic::Counted, number, journal.partitions);
            let (start, end) = (state.slots[slot].start, (*end).min(state.slots[slot].end));
            wanted.push(Wanted { partition: *partition, slot, start, end });
        }
    }
    let mut places = Vec::new();
    let first =
        state.segments.partition_point(|segment| segment.marks[0].before_ms < from_ms).saturating_sub(1);
    for segment in state.segments.iter().skip(first) {
        for (index, mark) in segment.marks.iter().enumerate().skip(segment.chunk_since(from_ms)) {
            let place = ChunkPlace::of(segment, index);
            let needed = wanted.iter().any(|wanted| mark.ends[wanted.slot] < wanted.end);
            if needed && place.from < place.to {
                places.push(place);
            }
        }
    }
    (wanted, places)
}

fn send_all(
    limit: usize,
    chunk: &Chunk,
    wanted: &Wanted,
    from_ms: i64,
    sink: &mpsc::Sender<Batch>,
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
        sink.blocking_send(batch).map_err(|_| failed("nobody takes the records any more"))?;
    }
    Ok(())
}
