//! Records into the bytes of an entry: once by whoever appends, and copied in long runs if several share an entry.

use super::config::Kind;
use super::format::{
    ENTRY_HEADER, EntryHeader, Place, SECTION, Section, put_position, put_record, record_bytes, seal,
};
use onlooker_event::partition_of;
use onlooker_ports::{OutgoingBatch, Topic};
use std::cell::RefCell;

/// Consecutive records of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) slot: u32,
    pub(crate) count: u32,
    pub(crate) bytes: u32,
}

/// A batch as an entry without header: room for it, the sections' table, positions, and the records by slot.
#[derive(Debug)]
pub(crate) struct Encoded {
    buffer: Vec<u8>,
    blocks: Vec<Block>,
    positions: usize,
    position_bytes: usize,
}

#[derive(Debug, Default)]
struct Scratch {
    /// Of each record.
    slots: Vec<u32>,
    /// Of each slot: records, bytes, and where the next record goes.
    tally: Vec<(u32, usize, usize)>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

const ELSEWHERE: u32 = u32::MAX;

fn topic_place(kind: Kind, topic: Topic) -> Option<u32> {
    Some(match (kind, topic) {
        (Kind::Views, Topic::Views) | (Kind::Verdicts, Topic::Counted) => 0,
        (Kind::Verdicts, Topic::Ignored) => 1,
        (Kind::Verdicts, Topic::Dead) => 2,
        _ => return None,
    })
}

/// A position to be committed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark<'a> {
    pub(crate) group: &'a str,
    pub(crate) topic: Topic,
    pub(crate) partition: u32,
    pub(crate) offset: i64,
    pub(crate) note: &'a str,
}

impl Encoded {
    /// The batch's records for this journal, and positions. Records without key go to partition `keyless`.
    pub(crate) fn new<'a>(
        kind: Kind,
        partitions: u32,
        batch: &OutgoingBatch,
        marks: impl Iterator<Item = Mark<'a>>,
        keyless: u32,
    ) -> Self {
        let mut positions = 0;
        let mut position_bytes = Vec::new();
        for mark in marks {
            put_position(&mut position_bytes, mark.group, mark.topic, mark.partition, mark.offset, mark.note);
            positions += 1;
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let Scratch { slots, tally } = scratch;
            slots.clear();
            slots.reserve(batch.len());
            tally.clear();
            tally.resize(kind.topics().len() * partitions as usize, (0, 0, 0));
            for record in batch.iter() {
                let Some(place) = topic_place(kind, record.topic) else {
                    slots.push(ELSEWHERE);
                    continue;
                };
                let partition = match record.key {
                    [] => keyless % partitions,
                    key => partition_of(key, partitions).cast_unsigned(),
                };
                let slot = place * partitions + partition;
                slots.push(slot);
                let (count, bytes, _) = &mut tally[slot as usize];
                *count += 1;
                *bytes += record_bytes(&record);
            }
            let used = tally.iter().filter(|(count, ..)| *count > 0).count();
            let mut blocks = Vec::with_capacity(used);
            let mut at = ENTRY_HEADER + used * SECTION + position_bytes.len();
            for (slot, (count, bytes, cursor)) in tally.iter_mut().enumerate() {
                if *count > 0 {
                    blocks.push(Block { slot: slot as u32, count: *count, bytes: *bytes as u32 });
                    *cursor = at;
                    at += *bytes;
                }
            }
            let mut buffer = vec![0; at.next_multiple_of(8)];
            let before = ENTRY_HEADER + used * SECTION;
            buffer[before..before + position_bytes.len()].copy_from_slice(&position_bytes);
            for (record, slot) in batch.iter().zip(slots.iter()) {
                if *slot == ELSEWHERE {
                    continue;
                }
                let cursor = &mut tally[*slot as usize].2;
                let place = &mut buffer[*cursor..*cursor + record_bytes(&record)];
                put_record(&record, place);
                *cursor += place.len();
            }
            Self { buffer, blocks, positions, position_bytes: position_bytes.len() }
        })
    }

    /// Bytes that it would take as an entry of its own.
    pub(crate) fn bytes(&self) -> usize {
        self.buffer.len()
    }

    pub(crate) fn records(&self) -> usize {
        self.blocks.iter().map(|block| block.count as usize).sum()
    }

    /// True without records and positions.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.positions == 0
    }

    fn records_at(&self) -> usize {
        ENTRY_HEADER + self.blocks.len() * SECTION + self.position_bytes
    }
}

/// An entry that is to be written.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) bytes: Vec<u8>,
    pub(crate) blocks: Vec<Block>,
    /// Where the first block's records begin.
    pub(crate) records_at: usize,
    positions: usize,
    position_bytes: usize,
    padding: usize,
}

impl Built {
    /// One entry of all batches, each slot's records in the order of the batches.
    pub(crate) fn new(mut batches: Vec<Encoded>, slots: usize) -> Self {
        if batches.len() == 1
            && let Some(only) = batches.pop()
        {
            let records_at = only.records_at();
            let content: usize = only.blocks.iter().map(|block| block.bytes as usize).sum();
            return Self {
                padding: only.buffer.len() - records_at - content,
                bytes: only.buffer,
                blocks: only.blocks,
                records_at,
                positions: only.positions,
                position_bytes: only.position_bytes,
            };
        }
        let mut tally = vec![(0u32, 0usize, 0usize); slots];
        for block in batches.iter().flat_map(|batch| &batch.blocks) {
            let (count, bytes, _) = &mut tally[block.slot as usize];
            *count += block.count;
            *bytes += block.bytes as usize;
        }
        let used = tally.iter().filter(|(count, ..)| *count > 0).count();
        let positions = batches.iter().map(|batch| batch.positions).sum();
        let position_bytes = batches.iter().map(|batch| batch.position_bytes).sum();
        let records_at = ENTRY_HEADER + used * SECTION + position_bytes;
        let mut blocks = Vec::with_capacity(used);
        let mut at = records_at;
        for (slot, (count, bytes, cursor)) in tally.iter_mut().enumerate() {
            if *count > 0 {
                blocks.push(Block { slot: slot as u32, count: *count, bytes: *bytes as u32 });
                *cursor = at;
                at += *bytes;
            }
        }
        let mut buffer = vec![0; at.next_multiple_of(8)];
        let mut positions_at = ENTRY_HEADER + used * SECTION;
        for batch in &batches {
            let before = ENTRY_HEADER + batch.blocks.len() * SECTION;
            let mut from = batch.records_at();
            buffer[positions_at..positions_at + batch.position_bytes]
                .copy_from_slice(&batch.buffer[before..from]);
            positions_at += batch.position_bytes;
            for block in &batch.blocks {
                let length = block.bytes as usize;
                let cursor = &mut tally[block.slot as usize].2;
                buffer[*cursor..*cursor + length].copy_from_slice(&batch.buffer[from..from + length]);
                *cursor += length;
                from += length;
            }
        }
        let padding = buffer.len() - at;
        Self { bytes: buffer, blocks, records_at, positions, position_bytes, padding }
    }

    /// Fills in what is known only now; the records follow `ends`.
    pub(crate) fn seal(
        &mut self,
        kind: Kind,
        partitions: u32,
        place: Place,
        synced: u64,
        append_ms: i64,
        ends: &[i64],
    ) {
        for (block, place) in self.blocks.iter().zip(self.bytes[ENTRY_HEADER..].chunks_exact_mut(SECTION)) {
            let topic = kind.topics()[block.slot as usize / partitions as usize];
            let partition = block.slot % partitions;
            let base = ends[block.slot as usize];
            Section { topic, partition, base, count: block.count, bytes: block.bytes }.encode(place);
        }
        let header = EntryHeader {
            length: self.bytes.len(),
            sections: self.blocks.len(),
            positions: self.positions,
            synced,
            append_ms,
            position_bytes: self.position_bytes,
            padding: self.padding,
        };
        seal(&mut self.bytes, place, &header);
    }
}
