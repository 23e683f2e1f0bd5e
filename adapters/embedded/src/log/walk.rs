//! From runs of records to the batches that rooms get.

use super::format::RecordAt;
use bytes::Bytes;
use onlooker_ports::{Batch, BatchBuilder, SharedBatchBuilder};

/// Where in a run the next record stands, so that a run that is handed out in parts is not walked again from its
/// start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hint {
    base: i64,
    offset: i64,
    /// From the run's start.
    at: usize,
}

/// A run of records wherever it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunAt<'a> {
    pub(crate) base: i64,
    pub(crate) count: u32,
    pub(crate) append_ms: i64,
    /// The run's own bytes.
    pub(crate) bytes: &'a [u8],
}

impl RunAt<'_> {
    /// Goes over the records from `offset` on until `take` has had enough; gives where it stopped.
    fn walk(&self, offset: i64, hint: &mut Hint, mut take: impl FnMut(i64, i64, RecordAt) -> bool) -> i64 {
        let known = hint.base == self.base && hint.offset <= offset && hint.offset > self.base;
        let (mut next, mut at) = if known { (hint.offset, hint.at) } else { (self.base, 0) };
        let end = self.base + i64::from(self.count);
        while next < end {
            // The entry's checksum was right, so this is only a question of what its writer believed.
            let Some(record) = RecordAt::read(self.bytes, at) else { break };
            if next >= offset && !take(next, self.append_ms, record) {
                break;
            }
            at = record.end();
            next += 1;
        }
        *hint = Hint { base: self.base, offset: next, at };
        next
    }
}

fn key_len(record: RecordAt) -> Option<u32> {
    (record.key_len > 0).then_some(record.key_len)
}

/// A batch over the buffer that the runs lie in; each run with the place of its first byte. At most so many records.
pub(crate) fn shared<'a>(
    partition: i32,
    buffer: &Bytes,
    runs: impl Iterator<Item = (usize, RunAt<'a>)> + Clone,
    offset: i64,
    limit: usize,
    hint: &mut Hint,
) -> Batch {
    let there: usize = runs.clone().map(|(_, run)| run.count as usize).sum();
    let mut batch = SharedBatchBuilder::new(partition, buffer.clone(), there.min(limit));
    let mut next = offset;
    for (start, run) in runs {
        if batch.len() >= limit || run.base > next {
            break;
        }
        next = run.walk(next, hint, |offset, append_ms, record| {
            let (at, payload_len) = (start + record.start, Some(record.payload_len));
            let taken =
                batch.len() < limit && batch.push(offset, append_ms, at, key_len(record), payload_len);
            if taken && let Some(trace) = record.trace(run.bytes) {
                batch.trace_last(Some(&trace));
            }
            taken
        });
    }
    batch.build()
}

/// Room for a few records of usual size; what takes more grows.
const FEW: usize = 64;
const USUAL_BYTES: usize = 160;

/// A batch with a copy of the runs, which are small and lie in buffers of their own.
pub(crate) fn gathered<'a>(
    partition: i32,
    runs: impl Iterator<Item = RunAt<'a>>,
    offset: i64,
    limit: usize,
    hint: &mut Hint,
) -> Batch {
    let mut batch = BatchBuilder::with_capacity(partition, FEW, FEW * USUAL_BYTES);
    let mut next = offset;
    for run in runs {
        if batch.len() >= limit || run.base > next {
            break;
        }
        next = run.walk(next, hint, |offset, append_ms, record| {
            if batch.len() >= limit {
                return false;
            }
            let middle = record.start + record.key_len as usize;
            let key = (record.key_len > 0).then(|| &run.bytes[record.start..middle]);
            batch.push(offset, append_ms, key, Some(&run.bytes[middle..record.payload_end()]));
            if let Some(trace) = record.trace(run.bytes) {
                batch.trace_last(Some(&trace));
            }
            true
        });
    }
    batch.build()
}
