//! The decision: what each view of a chunk is, given what is remembered.

use super::chunk::{Chunk, Item, Open, Traced};
use super::command::Tally;
use super::overlay::{Decided, Deciding, Overlay};
use crate::config::FilterConfig;
use crate::rules::{self, Memory, Question, RULE_SET_VERSION};
use onlooker_event::{Reason, Verdict};
use onlooker_ports::{OutgoingBatch, Remembered, Topic};
use onlooker_proto::{put_counted_tail, put_ignored_tail};
use onlooker_stage::spans::Span;

/// Verdicts that are not in a transaction yet.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    pub(super) batch: OutgoingBatch,
    pub(super) tally: Tally,
    /// Of views that are traced and judged: they end with the transaction.
    pub(super) spans: Vec<Span>,
}

impl Outputs {
    /// The verdict that was written last is on a view of this trace.
    fn follow(&mut self, traced: Traced, verdict: Verdict) {
        let Traced { trace, span, .. } = traced;
        let place = span.as_ref().and_then(Span::place).unwrap_or(trace);
        self.batch.trace_last(Some(&place));
        self.spans.extend(span.map(|mut span| {
            let (outcome, reason) = match verdict {
                Verdict::Counted => ("counted", None),
                Verdict::Ignored(reason) => ("ignored", Some(reason.as_str())),
                Verdict::Dead(reason) => ("dead", Some(reason.as_str())),
            };
            span.text("onlooker.outcome", outcome);
            reason.into_iter().for_each(|reason| span.text("onlooker.reason", reason));
            span
        }));
    }
}

/// Decides a chunk. `found` is what the dedup store remembers of the chunk's keys, in their order.
pub(super) fn decide(
    config: &FilterConfig,
    chunk: &mut Chunk,
    found: &[Remembered],
    overlay: &Overlay,
    outputs: &mut Outputs,
) -> Decided {
    let mut traces = std::mem::take(&mut chunk.traces).into_iter().peekable();
    let chunk = &*chunk;
    if chunk.emits {
        outputs.batch.reserve(chunk.items.len(), chunk.output_bytes());
    }
    let mut deciding = Deciding::new(chunk.slice, chunk.keys.len());
    for (place, item) in chunk.items.iter().enumerate() {
        let traced = traces.next_if(|traced| traced.item == place);
        let verdict = match item {
            Item::Open(open) => judge(chunk, open, found, overlay, &mut deciding, outputs),
            Item::Settled { reason, .. } => Verdict::Ignored(*reason),
            Item::Dead { reason, .. } => Verdict::Dead(*reason),
        };
        // Catching up: the verdict was written by whoever committed the offset; only the memory needs it again.
        if chunk.emits {
            outputs.tally.add(verdict);
            write(config, chunk, item, verdict, &mut outputs.batch);
            if let Some(traced) = traced {
                outputs.follow(traced, verdict);
            }
        }
    }
    if chunk.emits {
        outputs.tally.last_append_ms = chunk.last_append_ms;
    }
    deciding.finish(chunk.to, chunk.items.len())
}

fn judge(
    chunk: &Chunk,
    open: &Open,
    found: &[Remembered],
    overlay: &Overlay,
    deciding: &mut Deciding,
    outputs: &mut Outputs,
) -> Verdict {
    let key = chunk.keys[open.claim as usize];
    let times = memory(chunk, open.claim, found, overlay, deciding);
    let ids = open.id.map(|(id, fingerprint)| (id, fingerprint, memory(chunk, id, found, overlay, deciding)));
    let question = Question {
        time_s: open.time_s,
        window_s: open.window_s,
        times,
        id: ids.map(|(_, fingerprint, memory)| (fingerprint, memory)),
    };
    if let Some(reason) = rules::of_memory(&question) {
        return Verdict::Ignored(reason);
    }
    if let Some((_, fingerprint, memory)) = ids
        && rules::is_reuse(fingerprint, memory)
    {
        outputs.tally.reused_ids += u64::from(chunk.emits);
    }
    // Copied only where a key was counted before in this slice, which is rare.
    let times_before = times.newer.to_vec();
    let ids_before = ids.map(|(id, fingerprint, memory)| (id, fingerprint, memory.newer.to_vec()));
    deciding.count(key, &times_before, open.time_s);
    if let Some((id, fingerprint, before)) = ids_before {
        deciding.count(chunk.keys[id as usize], &before, fingerprint);
    }
    Verdict::Counted
}

/// What is remembered of a key below the record in question: own decisions that are not claimed yet come first, for
/// they contain what the store knows of the key in that slice.
fn memory<'a>(
    chunk: &Chunk,
    key: u32,
    found: &'a [Remembered],
    overlay: &'a Overlay,
    deciding: &'a Deciding,
) -> Memory<'a> {
    let digest = &chunk.keys[key as usize];
    let found = &found[key as usize];
    let of_slice = |slice, stored: &'a Vec<u32>| overlay.get(deciding, digest, slice).unwrap_or(stored);
    Memory { older: of_slice(chunk.slice - 1, &found.older), newer: of_slice(chunk.slice, &found.newer) }
}

fn write(config: &FilterConfig, chunk: &Chunk, item: &Item, verdict: Verdict, out: &mut OutgoingBatch) {
    let (key, head) = match item {
        Item::Open(Open { key, head, .. }) | Item::Settled { key, head, .. } => (*key, *head),
        Item::Dead { key, report, .. } => (*key, *report),
    };
    let (key, head) = (chunk.bytes(key), chunk.bytes(head));
    match (verdict, item) {
        (Verdict::Counted, Item::Open(open)) => {
            let claim = chunk.keys[open.claim as usize];
            let id = open.id.map(|(id, fingerprint)| (chunk.keys[id as usize], fingerprint));
            out.push_with(Topic::Counted, key, |out| {
                out.extend_from_slice(head);
                put_counted_tail(out, (chunk.slice, config.slice_s), claim, id, RULE_SET_VERSION);
            });
        }
        (Verdict::Ignored(reason), _) => ignored(out, key, head, reason, chunk.slice),
        // Only an open item is ever counted.
        (Verdict::Dead(_) | Verdict::Counted, _) => out.push(Topic::Dead, key, head),
    }
}

fn ignored(out: &mut OutgoingBatch, key: &[u8], head: &[u8], reason: Reason, slice: i64) {
    out.push_with(Topic::Ignored, key, |out| {
        out.extend_from_slice(head);
        put_ignored_tail(out, reason, RULE_SET_VERSION, slice);
    });
}
