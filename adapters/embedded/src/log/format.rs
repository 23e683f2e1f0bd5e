//! The bytes of a segment: a header, then entries. All numbers are little-endian.
//!
//! ```text
//! segment header                            entry: one append, transaction or group of them
//!  0 magic "ONLKSEG\0"                       0 magic "ONLE"
//!  8 version u16, journal u8, 0 u8           4 crc u32, over all that follows
//! 12 partitions u32                          8 length u32, of the whole entry, a multiple of 8
//! 16 folder u64                             12 sections u16, positions u16
//! 24 segment's number u64                   16 folder u64
//! 32 made at i64 (ms)                       24 segment's number u64
//! 40 the previous segment's length u64      32 position of this entry u64
//! 48 last append time i64 (ms)              40 synced u64: all before was durable
//! 56 positions u32                          48 appended at i64 (ms)
//! 60 length u32, of the whole header        56 bytes of positions u32
//! 64 end of every slot, i64 each            60 bytes of padding at the end u32
//!    positions                              64 sections, 24 bytes each:
//!    crc u32, over all before                    topic u8, 0 (3), partition u32,
//!                                                first offset i64, records u32, bytes u32
//! position:                                    positions
//!  group's length u16, note's length u16,       each section's records:
//!  topic u8, 0 (3), partition u32,                key's length u32, value's length u32, key, value
//!  offset i64, group, note
//! ```
//!
//! A record that belongs to a trace has the highest bit of its key's length set, and behind its value 25 bytes: trace id,
//! parent id, flags. That is version 2; a segment of version 1 has none, and nothing else is different. What goes on
//! behind one of version 1 begins with a segment of its own, so that a segment's version is true of all of it.
//!
//! An entry names its own place, so that no other bytes can pass for it. `synced` tells a torn tail, which a loss of
//! power leaves behind, from damage: whole entries that follow vouch for what was durable before them.

use super::config::{Kind, topic_code, topic_of};
use onlooker_event::TraceParent;
use onlooker_ports::{OutgoingRef, Topic};

pub(crate) const VERSION: u16 = 2;
pub(crate) const SEGMENT_MAGIC: &[u8; 8] = b"ONLKSEG\0";
pub(crate) const ENTRY_MAGIC: &[u8; 4] = b"ONLE";
pub(crate) const ENTRY_HEADER: usize = 64;
pub(crate) const SECTION: usize = 24;
pub(crate) const SEGMENT_HEADER: usize = 64;
const POSITION: usize = 20;
/// The group under whose name a partition's first offset is kept where records were removed one by one.
pub(crate) const LOG_START: &str = "";
/// The position of a group that has none any more.
pub(crate) const FORGOTTEN: i64 = -1;

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

pub(crate) fn i64_at(bytes: &[u8], at: usize) -> i64 {
    u64_at(bytes, at).cast_signed()
}

/// A group's position as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) group: String,
    pub(crate) topic: Topic,
    pub(crate) partition: u32,
    pub(crate) offset: i64,
    pub(crate) note: String,
}

/// Group and note are kept up to 64 KiB - 1 each.
pub(crate) fn put_position(
    out: &mut Vec<u8>,
    group: &str,
    topic: Topic,
    partition: u32,
    offset: i64,
    note: &str,
) {
    let (group_len, note_len) = (group.len().min(0xffff), note.len().min(0xffff));
    out.extend_from_slice(&(group_len as u16).to_le_bytes());
    out.extend_from_slice(&(note_len as u16).to_le_bytes());
    out.extend_from_slice(&[topic_code(topic), 0, 0, 0]);
    out.extend_from_slice(&partition.to_le_bytes());
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&group.as_bytes()[..group_len]);
    out.extend_from_slice(&note.as_bytes()[..note_len]);
}

/// So many positions, and the bytes behind them. None if that is not what the bytes are.
pub(crate) fn take_positions(mut bytes: &[u8], count: usize) -> Option<(Vec<Kept>, &[u8])> {
    let mut kept = Vec::new();
    for _ in 0..count {
        let (group_len, note_len) = (u16_at(bytes, 0) as usize, u16_at(bytes, 2) as usize);
        let end = POSITION + group_len + note_len;
        let whole = bytes.get(..end)?;
        let text = |range: std::ops::Range<usize>| String::from_utf8(whole[range].to_vec()).ok();
        kept.push(Kept {
            group: text(POSITION..POSITION + group_len)?,
            topic: topic_of(whole[4])?,
            partition: u32_at(whole, 8),
            offset: i64_at(whole, 12),
            note: text(POSITION + group_len..end)?,
        });
        bytes = &bytes[end..];
    }
    Some((kept, bytes))
}

/// A segment's first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// What its records may look like.
    pub(crate) version: u16,
    pub(crate) kind: Kind,
    pub(crate) partitions: u32,
    pub(crate) folder: u64,
    pub(crate) number: u64,
    pub(crate) made_ms: i64,
    /// 0 for the first.
    pub(crate) previous_length: u64,
    pub(crate) last_ms: i64,
    /// Where each slot goes on.
    pub(crate) ends: Vec<i64>,
    /// All positions of all groups (in the journal of verdicts), so that older segments may go.
    pub(crate) positions: Vec<Kept>,
}

/// Why the first bytes of a segment are no header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// Shorter than it says, or wrong.
    Broken,
    /// Another version.
    Newer(u16),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER + 8 * self.ends.len() + 64 * self.positions.len());
        out.extend_from_slice(SEGMENT_MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&[self.kind.index() as u8, 0]);
        out.extend_from_slice(&self.partitions.to_le_bytes());
        out.extend_from_slice(&self.folder.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.made_ms.to_le_bytes());
        out.extend_from_slice(&self.previous_length.to_le_bytes());
        out.extend_from_slice(&self.last_ms.to_le_bytes());
        out.extend_from_slice(&(self.positions.len() as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for end in &self.ends {
            out.extend_from_slice(&end.to_le_bytes());
        }
        for kept in &self.positions {
            put_position(&mut out, &kept.group, kept.topic, kept.partition, kept.offset, &kept.note);
        }
        // Entries begin at a multiple of 8.
        while (out.len() + 4) % 8 != 0 {
            out.push(0);
        }
        let length = out.len() as u32 + 4;
        out[60..64].copy_from_slice(&length.to_le_bytes());
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// The whole header's length, as its first 64 bytes say.
    pub(crate) fn length(fixed: &[u8]) -> Result<usize, HeaderFault> {
        if fixed.len() < SEGMENT_HEADER || &fixed[..8] != SEGMENT_MAGIC {
            return Err(HeaderFault::Broken);
        }
        let version = u16_at(fixed, 8);
        if version > VERSION {
            return Err(HeaderFault::Newer(version));
        }
        let length = u32_at(fixed, 60) as usize;
        // A header of that size would be a sign of damage, not of very many groups.
        let sane = (SEGMENT_HEADER + 4..=1 << 28).contains(&length);
        if sane { Ok(length) } else { Err(HeaderFault::Broken) }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let length = Self::length(bytes)?;
        let whole = bytes.get(..length).ok_or(HeaderFault::Broken)?;
        let (body, crc) = whole.split_at(length - 4);
        if crc32fast::hash(body) != u32_at(crc, 0) {
            return Err(HeaderFault::Broken);
        }
        let kind = Kind::ALL.iter().copied().find(|kind| kind.index() == usize::from(body[10]));
        let kind = kind.ok_or(HeaderFault::Broken)?;
        let partitions = u32_at(body, 12);
        let slots = kind.topics().len() * partitions as usize;
        let after = SEGMENT_HEADER + 8 * slots;
        let rest = body.get(after..).ok_or(HeaderFault::Broken)?;
        let positions = take_positions(rest, u32_at(body, 56) as usize).ok_or(HeaderFault::Broken)?.0;
        Ok(Self {
            version: u16_at(body, 8),
            kind,
            partitions,
            folder: u64_at(body, 16),
            number: u64_at(body, 24),
            made_ms: i64_at(body, 32),
            previous_length: u64_at(body, 40),
            last_ms: i64_at(body, 48),
            ends: (0..slots).map(|slot| i64_at(body, SEGMENT_HEADER + 8 * slot)).collect(),
            positions,
        })
    }
}

/// An entry's own words about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryHeader {
    pub(crate) length: usize,
    pub(crate) sections: usize,
    pub(crate) positions: usize,
    pub(crate) synced: u64,
    pub(crate) append_ms: i64,
    pub(crate) position_bytes: usize,
    pub(crate) padding: usize,
}

/// Where an entry has to be to be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) folder: u64,
    pub(crate) segment: u64,
    pub(crate) position: u64,
}

/// Completes the header of an entry whose content stands behind it, and returns nothing but certainty: after this the
/// bytes are what `Entry::parse` takes.
pub(crate) fn seal(entry: &mut [u8], place: Place, header: &EntryHeader) {
    entry[..4].copy_from_slice(ENTRY_MAGIC);
    entry[8..12].copy_from_slice(&(header.length as u32).to_le_bytes());
    entry[12..14].copy_from_slice(&(header.sections as u16).to_le_bytes());
    entry[14..16].copy_from_slice(&(header.positions as u16).to_le_bytes());
    entry[16..24].copy_from_slice(&place.folder.to_le_bytes());
    entry[24..32].copy_from_slice(&place.segment.to_le_bytes());
    entry[32..40].copy_from_slice(&place.position.to_le_bytes());
    entry[40..48].copy_from_slice(&header.synced.to_le_bytes());
    entry[48..56].copy_from_slice(&header.append_ms.to_le_bytes());
    entry[56..60].copy_from_slice(&(header.position_bytes as u32).to_le_bytes());
    entry[60..64].copy_from_slice(&(header.padding as u32).to_le_bytes());
    let crc = crc32fast::hash(&entry[8..]);
    entry[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// Records of one partition in an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) topic: Topic,
    pub(crate) partition: u32,
    pub(crate) base: i64,
    pub(crate) count: u32,
    pub(crate) bytes: u32,
}

impl Section {
    pub(crate) fn encode(&self, out: &mut [u8]) {
        out[..4].copy_from_slice(&[topic_code(self.topic), 0, 0, 0]);
        out[4..8].copy_from_slice(&self.partition.to_le_bytes());
        out[8..16].copy_from_slice(&self.base.to_le_bytes());
        out[16..20].copy_from_slice(&self.count.to_le_bytes());
        out[20..24].copy_from_slice(&self.bytes.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            topic: topic_of(*bytes.first()?)?,
            partition: u32_at(bytes, 4),
            base: i64_at(bytes, 8),
            count: u32_at(bytes, 16),
            bytes: u32_at(bytes, 20),
        })
    }
}

/// A whole, verified entry in a buffer.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) header: EntryHeader,
    bytes: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The length that the bytes claim; none if they begin no entry.
    pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
        if bytes.len() < ENTRY_HEADER || &bytes[..4] != ENTRY_MAGIC {
            return None;
        }
        let length = u32_at(bytes, 8) as usize;
        (length >= ENTRY_HEADER && length.is_multiple_of(8)).then_some(length)
    }

    /// The entry at the start of `bytes`, if it is whole, right, and belongs here.
    pub(crate) fn parse(bytes: &'a [u8], place: Place) -> Option<Self> {
        let bytes = bytes.get(..Self::length(bytes)?)?;
        let here =
            Place { folder: u64_at(bytes, 16), segment: u64_at(bytes, 24), position: u64_at(bytes, 32) };
        if here != place || crc32fast::hash(&bytes[8..]) != u32_at(bytes, 4) {
            return None;
        }
        let header = EntryHeader {
            length: bytes.len(),
            sections: u16_at(bytes, 12) as usize,
            positions: u16_at(bytes, 14) as usize,
            synced: u64_at(bytes, 40),
            append_ms: i64_at(bytes, 48),
            position_bytes: u32_at(bytes, 56) as usize,
            padding: u32_at(bytes, 60) as usize,
        };
        let before = ENTRY_HEADER + SECTION * header.sections + header.position_bytes;
        let entry = Self { header, bytes };
        let content: usize = entry.sections().map(|section| section.bytes as usize).sum();
        (before + content + header.padding == bytes.len()).then_some(entry)
    }

    pub(crate) fn sections(&self) -> impl Iterator<Item = Section> + use<'a> {
        let table = self.bytes.get(ENTRY_HEADER..).unwrap_or_default();
        table.chunks_exact(SECTION).take(self.header.sections).filter_map(Section::decode)
    }

    /// Where the first section's records begin, from the entry's start.
    pub(crate) fn records_at(&self) -> usize {
        ENTRY_HEADER + SECTION * self.header.sections + self.header.position_bytes
    }

    pub(crate) fn positions(&self) -> Option<Vec<Kept>> {
        let start = ENTRY_HEADER + SECTION * self.header.sections;
        let bytes = &self.bytes[start..start + self.header.position_bytes];
        take_positions(bytes, self.header.positions).map(|(kept, _)| kept)
    }
}

/// Set in a key's length: the record's trace follows its value.
const TRACED: u32 = 1 << 31;

/// A record's place in a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordAt {
    /// Where the key begins; the value follows it.
    pub(crate) start: usize,
    pub(crate) key_len: u32,
    pub(crate) payload_len: u32,
    traced: bool,
}

impl RecordAt {
    /// Where its trace begins, or the next record if it has none.
    pub(crate) fn payload_end(self) -> usize {
        self.start + self.key_len as usize + self.payload_len as usize
    }

    pub(crate) fn end(self) -> usize {
        self.payload_end() + if self.traced { TraceParent::BYTES } else { 0 }
    }

    /// Its trace; `bytes` are those that it was read from.
    pub(crate) fn trace(self, bytes: &[u8]) -> Option<TraceParent> {
        if !self.traced {
            return None;
        }
        TraceParent::from_bytes(bytes.get(self.payload_end()..self.end())?.try_into().ok()?)
    }

    /// The record at this place, if the buffer goes that far.
    pub(crate) fn read(bytes: &[u8], at: usize) -> Option<Self> {
        let lengths = bytes.get(at..at + 8)?;
        let (key, payload_len) = (u32_at(lengths, 0), u32_at(lengths, 4));
        let found = Self { start: at + 8, key_len: key & !TRACED, payload_len, traced: key & TRACED != 0 };
        (found.end() <= bytes.len()).then_some(found)
    }
}

/// Bytes that a record takes.
pub(crate) fn record_bytes(record: &OutgoingRef<'_>) -> usize {
    8 + record.key.len() + record.payload.len() + record.trace.map_or(0, |_| TraceParent::BYTES)
}

/// Writes a record into its place, which has just its bytes.
pub(crate) fn put_record(record: &OutgoingRef<'_>, place: &mut [u8]) {
    let (key, payload) = (record.key, record.payload);
    let (payload_at, trace_at) = (8 + key.len(), 8 + key.len() + payload.len());
    let traced = record.trace.map_or(0, |_| TRACED);
    place[..4].copy_from_slice(&(key.len() as u32 | traced).to_le_bytes());
    place[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    place[8..payload_at].copy_from_slice(key);
    place[payload_at..trace_at].copy_from_slice(payload);
    if let Some(trace) = record.trace {
        place[trace_at..].copy_from_slice(&trace.to_bytes());
    }
}
