//! Reading files: a chunk at once, verified, its records sorted by slot without moving them.

use super::config::Kind;
use super::files::{FileLayer, read_exact};
use super::format::{Entry, Place};
use super::segment::Segment;
use bytes::Bytes;
use std::io;
use std::path::PathBuf;

/// Consecutive records of one slot in a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) slot: u32,
    pub(crate) count: u32,
    pub(crate) base: i64,
    pub(crate) append_ms: i64,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Run {
    pub(crate) fn end_offset(&self) -> i64 {
        self.base + i64::from(self.count)
    }
}

/// Which part of which file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkPlace {
    pub(crate) path: PathBuf,
    pub(crate) number: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl ChunkPlace {
    pub(crate) fn of(segment: &Segment, chunk: usize) -> Self {
        let (from, to) = (segment.marks.get(chunk).map_or(0, |mark| mark.position), segment.chunk_end(chunk));
        Self { path: segment.path.clone(), number: segment.number, from, to }
    }

    /// Where it stands among all chunks of the journal.
    pub(crate) fn order(&self) -> (u64, u64) {
        (self.number, self.from)
    }
}

/// Why a chunk was not read.
#[derive(Debug)]
pub(crate) enum ChunkError {
    Io(io::Error),
    /// What was written is not what is there.
    Damaged(u64),
}

/// A verified part of a file.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) place: ChunkPlace,
    pub(crate) bytes: Bytes,
    /// By slot, then by offset.
    runs: Vec<Run>,
}

impl Chunk {
    pub(crate) fn read<F: FileLayer>(
        files: &F,
        kind: Kind,
        partitions: u32,
        folder: u64,
        place: ChunkPlace,
    ) -> Result<Self, ChunkError> {
        let file = files.open(&place.path, false).map_err(ChunkError::Io)?;
        let length = usize::try_from(place.to - place.from).unwrap_or(usize::MAX);
        let bytes = read_exact(&file, length, place.from).map_err(ChunkError::Io)?;
        let mut runs = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let position = place.from + at as u64;
            let here = Place { folder, segment: place.number, position };
            let Some(entry) = Entry::parse(&bytes[at..], here) else {
                return Err(ChunkError::Damaged(position));
            };
            let mut start = at + entry.records_at();
            for section in entry.sections() {
                let end = start + section.bytes as usize;
                let slot = kind.slot(section.topic, section.partition, partitions) as u32;
                let (count, base, append_ms) = (section.count, section.base, entry.header.append_ms);
                runs.push(Run { slot, count, base, append_ms, start, end });
                start = end;
            }
            at += entry.header.length;
        }
        runs.sort_unstable_by_key(|run| (run.slot, run.base));
        Ok(Self { place, bytes: bytes.into(), runs })
    }

    /// A slot's runs that end behind the offset, in order.
    pub(crate) fn runs_of(&self, slot: usize, offset: i64) -> &[Run] {
        let slot = slot as u32;
        let from = self.runs.partition_point(|run| (run.slot, run.end_offset()) <= (slot, offset));
        let to = self.runs.partition_point(|run| run.slot <= slot);
        self.runs.get(from..to).unwrap_or_default()
    }
}
