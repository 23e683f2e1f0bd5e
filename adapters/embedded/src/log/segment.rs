//! What is known of a segment without reading it: where its chunks begin, and which offsets they hold.

use super::files::{FileLayer, LogFile, read_exact, write_all};
use super::format::{i64_at, u16_at, u32_at, u64_at};
use std::io;
use std::path::{Path, PathBuf};

/// A chunk is read and verified at once: large enough to read a disk at its speed, small enough to be thrown away.
pub(crate) const CHUNK_BYTES: u64 = 512 << 10;

const INDEX_MAGIC: &[u8; 8] = b"ONLKIDX\0";
const INDEX_VERSION: u16 = 1;
const INDEX_HEADER: usize = 56;

/// Where a chunk begins; it ends where the next one does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) position: u64,
    /// When the last entry before it was appended.
    pub(crate) before_ms: i64,
    /// Each slot's next offset at this place.
    pub(crate) ends: Box<[i64]>,
}

/// A segment that readers may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    /// What its records may look like.
    pub(crate) version: u16,
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    pub(crate) made_ms: i64,
    /// What stands behind this is not for readers (yet).
    pub(crate) length: u64,
    pub(crate) last_ms: i64,
    /// The first stands behind the header and says where the segment's slots begin.
    pub(crate) marks: Vec<Mark>,
}

/// A segment's name: its number, so that names sort as numbers do.
pub(crate) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:020}.log"))
}

pub(crate) fn index_path(segment: &Path) -> PathBuf {
    segment.with_extension("idx")
}

/// The number in a segment's name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log").filter(|digits| digits.len() == 20)?;
    digits.parse().ok()
}

impl Segment {
    /// Where the slot begins.
    pub(crate) fn start(&self, slot: usize) -> i64 {
        self.marks.first().map_or(0, |mark| mark.ends[slot])
    }

    pub(crate) fn header_length(&self) -> u64 {
        self.marks.first().map_or(0, |mark| mark.position)
    }

    /// Where a chunk ends.
    pub(crate) fn chunk_end(&self, chunk: usize) -> u64 {
        self.marks.get(chunk + 1).map_or(self.length, |next| next.position)
    }

    /// The chunk that has, or would have, this offset.
    pub(crate) fn chunk_of(&self, slot: usize, offset: i64) -> usize {
        self.marks.partition_point(|mark| mark.ends[slot] <= offset).saturating_sub(1)
    }

    /// The first chunk that can hold an entry of this time or later.
    pub(crate) fn chunk_since(&self, ms: i64) -> usize {
        self.marks.partition_point(|mark| mark.before_ms < ms).saturating_sub(1)
    }

    /// Takes note of an entry that was written at the segment's end, before it is counted in `length` and `last_ms`.
    pub(crate) fn mark(&mut self, ends: &[i64]) {
        let since = self.marks.last().map_or(0, |mark| mark.position);
        if self.length - since >= CHUNK_BYTES {
            self.marks.push(Mark { position: self.length, before_ms: self.last_ms, ends: ends.into() });
        }
    }

    /// Writes the marks beside the segment. They are a cache: whoever reads them verifies them, and can do without.
    pub(crate) fn write_index<F: FileLayer>(&self, files: &F) -> io::Result<()> {
        let mut out = Vec::new();
        out.extend_from_slice(INDEX_MAGIC);
        out.extend_from_slice(&INDEX_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        let slots = self.marks.first().map_or(0, |mark| mark.ends.len());
        out.extend_from_slice(&(slots as u32).to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.made_ms.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&self.last_ms.to_le_bytes());
        out.extend_from_slice(&(self.marks.len() as u64).to_le_bytes());
        for mark in &self.marks {
            out.extend_from_slice(&mark.position.to_le_bytes());
            out.extend_from_slice(&mark.before_ms.to_le_bytes());
            mark.ends.iter().for_each(|end| out.extend_from_slice(&end.to_le_bytes()));
        }
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        let file = files.open(&index_path(&self.path), true)?;
        file.set_len(0)?;
        write_all(&file, &out, 0)
    }

    /// Replaces what the header alone tells by what the index says; false if there is none that fits. `self` has the
    /// first mark and the length already.
    pub(crate) fn read_index<F: FileLayer>(&mut self, files: &F) -> bool {
        let read = || -> io::Result<Vec<u8>> {
            let file = files.open(&index_path(&self.path), false)?;
            let length = usize::try_from(file.length()?).unwrap_or(0);
            read_exact(&file, length, 0)
        };
        let Ok(bytes) = read() else { return false };
        match self.parse_index(&bytes) {
            Some((last_ms, marks)) => {
                self.last_ms = last_ms;
                self.marks = marks;
                true
            }
            None => false,
        }
    }

    fn parse_index(&self, bytes: &[u8]) -> Option<(i64, Vec<Mark>)> {
        let body = bytes.get(..bytes.len().checked_sub(4)?)?;
        let slots = self.marks.first()?.ends.len();
        let mark_bytes = 16 + 8 * slots;
        let fits = body.len() >= INDEX_HEADER
            && &body[..8] == INDEX_MAGIC
            && crc32fast::hash(body) == u32_at(bytes, body.len())
            && u16_at(body, 8) == INDEX_VERSION
            && u32_at(body, 12) as usize == slots
            && u64_at(body, 16) == self.number
            && i64_at(body, 24) == self.made_ms
            && u64_at(body, 32) == self.length
            && u64_at(body, 48) as usize == (body.len() - INDEX_HEADER) / mark_bytes;
        if !fits {
            return None;
        }
        let marks = body[INDEX_HEADER..].chunks_exact(mark_bytes).map(|mark| Mark {
            position: u64_at(mark, 0),
            before_ms: i64_at(mark, 8),
            ends: (0..slots).map(|slot| i64_at(mark, 16 + 8 * slot)).collect(),
        });
        let marks: Vec<Mark> = marks.collect();
        (marks.first() == self.marks.first()).then(|| (i64_at(body, 40), marks))
    }
}
