//! One partition: how far it is claimed, committed and decided, and how it finds out after any doubt.

use super::chunk::{Chunk, ChunkBuilder};
use super::command::{Attempt, Cause, Refusal};
use super::decide::Outputs;
use super::note::Note;
use super::overlay::Overlay;
use super::{Job, Settings};
use onlooker_ports::{Applied, Batch, Committed};
use std::collections::VecDeque;
use std::ops::Range;

/// A partition that was refused is tried again after this, in milliseconds: somebody may have put it right.
const REFUSED_AGAIN_MS: u64 = 5_000;
/// The first wait between synchronisations without progress in between, and the longest, in milliseconds.
const SYNC_BACKOFF_MS: Range<u64> = 50..5_000;
/// A share of dead records means something from this many on.
const DEAD_SAMPLE: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Synchronises when this time has come and no transaction holds records of the partition.
    Due(u64),
    /// Waits for the dedup store's position.
    AskedMemory,
    /// Waits for the group's position.
    AskedGroup(Option<Applied>),
    /// Waits until the memory is rebuilt for this state.
    Rebuilding(Applied),
    /// Decides.
    Running,
}

#[derive(Debug)]
pub(super) struct Partition {
    pub(super) id: i32,
    pub(super) phase: Phase,
    pub(super) attempt: Attempt,
    /// Why it synchronises, or did last.
    pub(super) cause: Cause,
    /// Synchronisations since the last progress.
    doubts: u32,
    /// Every record below is claimed: the dedup store stands here, or has been moved on by somebody else.
    pub(super) claimed: i64,
    /// The slice at `claimed`.
    claimed_slice: i64,
    /// Every record below is known to be committed.
    pub(super) committed: i64,
    /// Every record below is decided.
    pub(super) decided: i64,
    /// The running maximum of the slice at `decided`.
    pub(super) slice: i64,
    /// Verdicts are written from here on: the committed offset at the last synchronisation. Those below were written
    /// by whoever committed it.
    pub(super) emit_from: i64,
    pub(super) overlay: Overlay,
    pub(super) outputs: Outputs,
    /// The chunk that is being looked up, with the lowest offset at which the store may stand for the answer.
    pub(super) asking: Option<(Chunk, i64)>,
    /// When it was asked for.
    pub(super) asked_at: u64,
    pub(super) claiming: bool,
    /// Names the reading that was asked for last.
    pub(super) start: u64,
    /// Whether it has begun. What was on its way before it would be taken for what follows.
    pub(super) reading: bool,
    /// Reading was stopped, to begin again when the look-up under way is answered.
    pub(super) parked: bool,
    /// Records that wait, with the place of the next one in each batch.
    queue: VecDeque<(Batch, usize)>,
    pub(super) queued: usize,
    /// Keys and values of the batches that wait, whole.
    pub(super) queued_bytes: usize,
    pub(super) queued_since: u64,
    /// The lowest offset that may be delivered next.
    next: i64,
    /// A loss that was reported already.
    pub(super) reported_loss: Option<(i64, i64)>,
    /// The latest records and the dead among them.
    sample: (usize, usize),
    #[cfg(test)]
    pub(super) early_group: Option<(Option<Committed>, (i64, i64))>,
}

/// What synchronisation found out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Synced {
    Refuse(Refusal),
    Rebuild(Job),
    /// Read from this offset; what stands between it and the committed one below it, if any, is lost.
    Run {
        memory: Applied,
        from: i64,
        lost: Option<(i64, i64)>,
    },
}

impl Partition {
    pub(super) fn new(id: i32) -> Self {
        Self {
            id,
            phase: Phase::Due(0),
            attempt: 0,
            cause: Cause::Assigned,
            doubts: 0,
            claimed: 0,
            claimed_slice: 0,
            committed: 0,
            decided: 0,
            slice: 0,
            emit_from: 0,
            overlay: Overlay::default(),
            outputs: Outputs::default(),
            asking: None,
            asked_at: 0,
            claiming: false,
            start: 0,
            reading: false,
            parked: false,
            queue: VecDeque::new(),
            queued: 0,
            queued_bytes: 0,
            queued_since: 0,
            next: 0,
            reported_loss: None,
            sample: (0, 0),
            #[cfg(test)]
            early_group: None,
        }
    }

    /// Forgets everything: what is kept through a doubt decides a view twice or never.
    pub(super) fn doubt(&mut self, cause: Cause, attempt: Attempt, now: u64) {
        let wait = match (cause, self.doubts) {
            (Cause::Refused, _) => REFUSED_AGAIN_MS,
            (Cause::Assigned, _) | (_, 0) => 0,
            (_, n) => (SYNC_BACKOFF_MS.start << n.min(16)).min(SYNC_BACKOFF_MS.end),
        };
        self.doubts = self.doubts.saturating_add(1);
        self.phase = Phase::Due(now + wait);
        self.attempt = attempt;
        self.cause = cause;
        self.overlay = Overlay::default();
        self.outputs = Outputs::default();
        self.asking = None;
        self.claiming = false;
        self.reading = false;
        self.parked = false;
        self.drop_queue();
    }

    /// Lets go of what waits behind the look-up under way.
    pub(super) fn park(&mut self) {
        self.reading = false;
        self.parked = true;
        self.drop_queue();
        self.next = self.asking.as_ref().map_or(self.decided, |(chunk, _)| chunk.to);
    }

    /// Something went through.
    pub(super) fn progressed(&mut self) {
        self.doubts = 0;
    }

    pub(super) fn drop_queue(&mut self) {
        self.queue.clear();
        self.queued = 0;
        self.queued_bytes = 0;
    }

    /// The decision of a synchronisation. `memory` was read *before* the group's offset: the store's position may grow
    /// at any moment up to what is committed, so the other way round a growing one looks like an offset that was moved
    /// back.
    pub(super) fn synced(
        &self,
        settings: &Settings,
        memory: Option<Applied>,
        committed: Option<&Committed>,
        (earliest, end): (i64, i64),
    ) -> Synced {
        let configured = settings.config.slice_s;
        // Going on from the beginning would count everything again, going on from the end would lose views: an expired
        // group is an error.
        let Some(committed) = committed else { return Synced::Refuse(Refusal::NoCommittedOffset) };
        let (offset, note) = (committed.offset, Note::read(&committed.note));
        if offset > end {
            return Synced::Refuse(Refusal::BeyondEnd { committed: offset, end });
        }
        match memory {
            Some(memory) if memory.offset > offset => {
                let (memory, committed) = (memory.offset, offset);
                Synced::Refuse(Refusal::MemoryAhead { memory, committed })
            }
            // Bringing the store up to it would give the views on the way no verdict, in the belief that they have one.
            Some(memory) if memory.offset < offset && note.is_none() => {
                let (memory, committed) = (memory.offset, offset);
                Synced::Refuse(Refusal::MovedForward { memory, committed })
            }
            // Slices are counted in units of their length: the store's would mean something else now.
            Some(_) if note.is_some_and(|note| note.slice_s != configured) => {
                let noted = note.map_or(0, |note| note.slice_s);
                Synced::Refuse(Refusal::SliceLength { noted, configured })
            }
            // The store can be brought up to the committed offset by deciding again: nothing is written for these.
            Some(memory) if memory.offset == offset || memory.offset >= earliest => {
                let from = memory.offset.max(earliest);
                let lost = (from > memory.offset).then_some((memory.offset, from));
                Synced::Run { memory, from, lost }
            }
            // It is gone, or the log has no records any more from where it stands.
            _ => {
                let to = match note {
                    Some(note) => Applied { offset, slice: note.slice_now(settings) },
                    None if offset == 0 => Applied { offset, slice: 0 },
                    None => return Synced::Refuse(Refusal::NoSlice { committed: offset }),
                };
                let noted_slice_s = note.map_or(configured, |note| note.slice_s);
                #[cfg(test)]
                let to = if settings.breaks(super::sim::Broken::JudgeAgain) {
                    Applied { offset: earliest.max(offset - 6), slice: 0 }
                } else {
                    to
                };
                Synced::Rebuild(Job { partition: self.id, attempt: self.attempt, to, noted_slice_s })
            }
        }
    }

    /// Goes on from a known state: the store stands at `memory`, the group at `committed`.
    pub(super) fn run(&mut self, memory: Applied, committed: i64, from: i64) {
        self.phase = Phase::Running;
        self.overlay = Overlay::from(memory.offset);
        (self.claimed, self.claimed_slice) = (memory.offset, memory.slice);
        (self.decided, self.slice) = (from, memory.slice);
        self.committed = committed;
        // What lies below was written with the commit: writing it again would count it twice.
        self.emit_from = committed;
        self.next = from;
    }

    #[cfg(test)]
    pub(super) fn again_from_committed(&mut self, attempt: Attempt) {
        self.attempt = attempt;
        self.overlay.cut(self.committed);
        self.outputs = Outputs::default();
        self.asking = None;
        self.claiming = false;
        self.drop_queue();
        self.decided = self.committed;
        self.next = self.committed;
    }

    pub(super) fn enqueue(&mut self, batch: Batch, now: u64) {
        // A batch may begin before what was asked for, if it was on its way.
        let skip = batch.iter().take_while(|record| record.offset < self.next).count();
        let Some(next) = batch.next_offset().filter(|_| skip < batch.len()) else { return };
        if self.queued == 0 {
            self.queued_since = now;
        }
        self.next = next;
        self.queued += batch.len() - skip;
        self.queued_bytes += batch.bytes();
        self.queue.push_back((batch, skip));
    }

    /// The lowest offset that has not been delivered yet.
    pub(super) fn awaited(&self) -> i64 {
        self.next
    }

    /// The next records to be looked up.
    pub(super) fn next_chunk(&mut self, settings: &Settings) -> Option<Chunk> {
        let mut builder =
            ChunkBuilder::new(settings, self.id, self.decided, self.slice, self.emit_from, self.queued);
        'batches: while let Some((batch, at)) = self.queue.front_mut() {
            while let Some(record) = batch.get(*at) {
                if !builder.take(&record) {
                    break 'batches;
                }
                *at += 1;
                self.queued -= 1;
            }
            self.queued_bytes -= batch.bytes();
            self.queue.pop_front();
        }
        builder.finish()
    }

    /// Whether this chunk may be given out: not if most records of late are dead.
    pub(super) fn bearable(&mut self, settings: &Settings, chunk: &Chunk) -> Result<(), Refusal> {
        let percent = settings.config.dead_limit_percent;
        let (records, dead) = (self.sample.0 + chunk.items.len(), self.sample.1 + chunk.dead());
        if records >= DEAD_SAMPLE && dead * 100 > records * usize::from(percent) {
            return Err(Refusal::TooManyDead { percent });
        }
        // Older records weigh half each time the sample is full.
        self.sample = if records >= 2 * DEAD_SAMPLE { (records / 2, dead / 2) } else { (records, dead) };
        Ok(())
    }

    /// The next CLAIM: (to, slice, claims, slices to drop).
    pub(super) fn next_claim(&self, settings: &Settings) -> Option<(super::overlay::Claims, Range<i64>)> {
        // Only what is known to be committed: a claim on a view whose verdict is then not written turns the view, when
        // it comes again, into a repeat of itself, and it is counted zero times.
        let limit = self.committed.min(self.decided);
        #[cfg(test)]
        let limit = if settings.breaks(super::sim::Broken::ClaimBeforeCommit) { self.decided } else { limit };
        let claims = self.overlay.claimable(limit, settings.config.batch_records)?;
        // The store holds the slices `claimed_slice - 1` and `claimed_slice`; of these, what lies below the claim's
        // slice - 1 is never asked for again.
        let drop = self.claimed_slice - 1
            ..(self.claimed_slice + 1).min(claims.slice - 1).max(self.claimed_slice - 1);
        Some((claims, drop))
    }

    pub(super) fn claim_done(&mut self, to: i64, slice: i64) {
        self.claiming = false;
        (self.claimed, self.claimed_slice) = (to, slice);
        self.overlay.claimed(to);
        self.drop_overlay();
        self.progressed();
    }

    /// An answer that is still on its way may have been given before the claim was written: what it does not know has
    /// to stay at hand until it has come.
    pub(super) fn drop_overlay(&mut self) {
        let floor = self.asking.as_ref().map_or(self.claimed, |(_, floor)| *floor);
        self.overlay.drop_below(floor);
    }

    pub(super) fn note(&self, settings: &Settings) -> String {
        Note { slice: self.slice, slice_s: settings.config.slice_s }.write()
    }
}
