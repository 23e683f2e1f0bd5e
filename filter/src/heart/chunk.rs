//! Consecutive records of one partition, read and made ready to be decided.

use super::Settings;
use crate::rules;
use bytes::Bytes;
use onlooker_event::{DeadReason, Digest128, Reason, TraceParent, client_id_key, dedup_key};
use onlooker_ports::RecordRef;
use onlooker_proto::{Dead, DecodeError, ViewRef, decode_view, encode_dead, encode_view, put_verdict_head};
use onlooker_stage::spans;
use std::ops::Range;
use std::sync::Arc;

/// What a record usually takes of it.
const USUAL_ARENA_BYTES: usize = 128;
/// A chunk holds no more than this of encoded output.
const MAX_ARENA_BYTES: usize = 8 << 20;
/// A dead record's value and key are cut to this, or the log would refuse the record that reports it, for ever.
const MAX_DEAD_PAYLOAD_BYTES: usize = 512 << 10;
const MAX_DEAD_KEY_BYTES: usize = 32 << 10;

/// Records that are looked up together. They lie in one slice, and on one side of the committed offset.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The offset after its last record.
    pub(super) to: i64,
    /// The running maximum of the slice, the same for all of its records.
    pub(super) slice: i64,
    /// Whether its verdicts are to be written: they are not below the committed offset.
    pub(super) emits: bool,
    /// What to look up.
    pub(super) keys: Arc<Vec<Digest128>>,
    pub(super) items: Vec<Item>,
    /// Of the items that belong to a trace, in order.
    pub(super) traces: Vec<Traced>,
    /// Keys and encoded beginnings of outputs, in the order of the items.
    arena: Vec<u8>,
    pub(super) last_append_ms: i64,
}

/// What is known of an item's trace.
#[derive(Debug)]
pub(super) struct Traced {
    /// Its place in the chunk.
    pub(super) item: usize,
    /// As its record says.
    pub(super) trace: TraceParent,
    /// Of its judging, if it is exported.
    pub(super) span: Option<spans::Span>,
}

/// A record, read.
#[derive(Debug)]
pub(super) enum Item {
    /// Settled by its facts.
    Settled { key: Span, head: Span, reason: Reason },
    /// To be decided by what is remembered.
    Open(Open),
    /// Not readable, with the encoded report.
    Dead { key: Span, report: Span, reason: DeadReason },
}

/// A view that needs the memory.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) key: Span,
    pub(super) head: Span,
    pub(super) time_s: u32,
    pub(super) window_s: u32,
    /// The place of its (viewer, item) in the chunk's keys.
    pub(super) claim: u32,
    /// The place of its client id in the chunk's keys, and the item's fingerprint.
    pub(super) id: Option<(u32, u32)>,
}

/// A part of the arena, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

/// Builds a chunk.
#[derive(Debug)]
pub(super) struct ChunkBuilder<'a> {
    settings: &'a Settings,
    partition: i32,
    /// Verdicts from this offset on are written.
    emit_from: i64,
    /// Records that are at hand.
    expected: usize,
    keys: Vec<Digest128>,
    chunk: Chunk,
}

impl<'a> ChunkBuilder<'a> {
    /// An empty chunk after `from`, where the running maximum of the slice is `slice`.
    pub(super) fn new(
        settings: &'a Settings,
        partition: i32,
        from: i64,
        slice: i64,
        emit_from: i64,
        expected: usize,
    ) -> Self {
        let chunk = Chunk {
            to: from,
            slice,
            emits: false,
            keys: Arc::default(),
            items: Vec::new(),
            traces: Vec::new(),
            arena: Vec::new(),
            last_append_ms: 0,
        };
        let expected = expected.min(settings.config.batch_records);
        Self { settings, partition, emit_from, expected, keys: Vec::new(), chunk }
    }

    /// Takes the record, or leaves it for the next chunk and says so with `false`.
    pub(super) fn take(&mut self, record: &RecordRef<'_>) -> bool {
        // Clocks of several brokers may step back; the slice never does.
        let slice = self.settings.slice_of(record.append_ms).max(self.chunk.slice);
        let emits = record.offset >= self.emit_from;
        if self.chunk.items.is_empty() {
            (self.chunk.slice, self.chunk.emits) = (slice, emits);
            self.chunk.items.reserve(self.expected);
            self.keys.reserve(self.expected);
            self.chunk.arena.reserve(self.expected * USUAL_ARENA_BYTES);
        } else if slice != self.chunk.slice
            || emits != self.chunk.emits
            || self.chunk.items.len() >= self.settings.config.batch_records
            || self.chunk.arena.len() >= MAX_ARENA_BYTES
        {
            return false;
        }
        let item = self.read(record);
        if let Some(trace) = record.trace {
            let place = (self.partition, record.offset);
            let span =
                if emits { spans::of_record("filter.judge", "views", place, record.trace) } else { None };
            self.chunk.traces.push(Traced { item: self.chunk.items.len(), trace: *trace, span });
        }
        self.chunk.items.push(item);
        self.chunk.to = record.offset + 1;
        self.chunk.last_append_ms = record.append_ms;
        true
    }

    pub(super) fn finish(mut self) -> Option<Chunk> {
        self.chunk.keys = Arc::new(self.keys);
        (!self.chunk.items.is_empty()).then_some(self.chunk)
    }

    fn read(&mut self, record: &RecordRef<'_>) -> Item {
        if let Some(view) = record.payload.and_then(ViewRef::read) {
            return self.view(record, &view);
        }
        match decode_view(record.payload) {
            // Valid, in an encoding that no collector of ours writes: brought into the usual form.
            Ok(view) => {
                let mut usual = Vec::new();
                encode_view(&view, &mut usual);
                match ViewRef::read(&usual) {
                    Some(view) => self.view(record, &view),
                    None => self.dead(record, DeadReason::Malformed, "not in the usual encoding".to_owned()),
                }
            }
            Err(error) => self.dead(record, error.reason(), detail(&error)),
        }
    }

    fn view(&mut self, record: &RecordRef<'_>, view: &ViewRef<'_>) -> Item {
        let Some(site) = self.settings.sites.get(view.site) else {
            return self.dead(
                record,
                DeadReason::UnknownSite,
                "the site is not in the configuration".to_owned(),
            );
        };
        let arena = &mut self.chunk.arena;
        let start = arena.len();
        arena.extend_from_slice(view.site.as_bytes());
        arena.push(b':');
        arena.extend_from_slice(view.item.as_bytes());
        let middle = arena.len();
        let key = Span::of(start..middle);
        put_verdict_head(arena, view, self.partition, record.offset);
        let head = Span::of(middle..arena.len());
        if let Some(reason) = rules::of_facts(view.facts) {
            return Item::Settled { key, head, reason };
        }
        let item = &arena[start..middle];
        let claim = push(&mut self.keys, dedup_key(view.viewer, item));
        let id = view.client_id.map(|id| {
            let (id, fingerprint) = client_id_key(view.viewer, id, item);
            (push(&mut self.keys, id), fingerprint)
        });
        let window_s = site.window_s;
        Item::Open(Open { key, head, time_s: whole_seconds(view.event_ms), window_s, claim, id })
    }

    fn dead(&mut self, record: &RecordRef<'_>, reason: DeadReason, mut detail: String) -> Item {
        let trace_id = record.trace.map(|trace| tracing::field::display(trace.trace_id()));
        let (partition, offset) = (self.partition, record.offset);
        tracing::debug!(partition, offset, reason = reason.as_str(), trace_id, "record is set aside");
        let cut = |bytes: Option<&[u8]>, limit: usize| {
            let bytes = bytes.unwrap_or_default();
            Bytes::copy_from_slice(&bytes[..bytes.len().min(limit)])
        };
        let (key_len, len) = (record.key.map_or(0, <[u8]>::len), record.payload.map_or(0, <[u8]>::len));
        if key_len > MAX_DEAD_KEY_BYTES || len > MAX_DEAD_PAYLOAD_BYTES {
            detail.push_str(&format!(
                "; cut from a key of {key_len} and a value of {len} bytes, the limits are {MAX_DEAD_KEY_BYTES} and \
                 {MAX_DEAD_PAYLOAD_BYTES} bytes"
            ));
        }
        let dead = Dead {
            reason,
            detail,
            source_topic: self.settings.config.source_topic.clone(),
            source_partition: self.partition,
            source_offset: record.offset,
            source_append_ms: record.append_ms,
            key: cut(record.key, MAX_DEAD_KEY_BYTES),
            payload: cut(record.payload, MAX_DEAD_PAYLOAD_BYTES),
        };
        let arena = &mut self.chunk.arena;
        let start = arena.len();
        arena.extend_from_slice(&dead.key);
        let middle = arena.len();
        encode_dead(&dead, arena);
        Item::Dead { key: Span::of(start..middle), report: Span::of(middle..arena.len()), reason }
    }
}

impl Chunk {
    pub(super) fn bytes(&self, span: Span) -> &[u8] {
        &self.arena[span.start as usize..span.end as usize]
    }

    /// About the bytes of its outputs.
    pub(super) fn output_bytes(&self) -> usize {
        // Slice, claims and versions come behind what the arena holds.
        self.arena.len() + 48 * self.items.len()
    }

    /// How many of its records are dead.
    pub(super) fn dead(&self) -> usize {
        self.items.iter().filter(|item| matches!(item, Item::Dead { .. })).count()
    }
}

impl Span {
    fn of(range: Range<usize>) -> Self {
        // The arena ends a little above its limit of some megabytes.
        let short = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self { start: short(range.start), end: short(range.end) }
    }
}

fn push(keys: &mut Vec<Digest128>, key: Digest128) -> u32 {
    keys.push(key);
    u32::try_from(keys.len() - 1).unwrap_or(u32::MAX)
}

/// Event times are compared in whole seconds, as an access log has them.
pub(super) fn whole_seconds(ms: i64) -> u32 {
    u32::try_from(ms.div_euclid(1_000).max(0)).unwrap_or(u32::MAX)
}

/// The reason for people. It names fields and limits and never a value.
fn detail(error: &DecodeError) -> String {
    error.to_string()
}
