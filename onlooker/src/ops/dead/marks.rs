//! What became of letters, as the marks behind them say.
//!
//! A mark stands in its letter's partition, so that all marks of a letter have an order, and are kept for longer than the
//! letter. Who wants to send a letter again says so first, and goes on only if no mark came before: of two at once one
//! gives way, and a letter is never sent twice. If nothing says how an attempt ended, `views` itself is asked.

use super::super::Sight;
use super::super::look::read;
use anyhow::{Context, Result, bail};
use onlooker_event::partition_of;
use onlooker_ports::{LogObserver, LogWriter, OutgoingBatch, Topic};
use onlooker_proto::{DeadEntry, DeadMark, MarkStep, decode_dead_entry, encode_dead_mark};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Names an attempt.
pub(super) type Attempt = [u8; 16];

/// What became of a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    #[default]
    Open,
    /// Somebody began to send it again, at this time of the log, and nothing says how it ended.
    Begun {
        attempt: Attempt,
        at_ms: i64,
    },
    Retried,
    Discarded,
}

impl State {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            State::Open => "open",
            State::Begun { .. } => "begun",
            State::Retried => "retried",
            State::Discarded => "discarded",
        }
    }

    /// After one more mark.
    #[must_use]
    fn after(self, mark: &DeadMark, at_ms: i64) -> Self {
        // A mark that rests on what was not so any more says nothing.
        let current = match self {
            State::Open => None,
            State::Begun { attempt, .. } => Some(attempt),
            State::Retried | State::Discarded => return self,
        };
        match mark.step {
            MarkStep::Retried => State::Retried,
            MarkStep::Begun if mark.replaces == current => State::Begun { attempt: mark.attempt, at_ms },
            MarkStep::Discarded if mark.replaces == current => State::Discarded,
            MarkStep::Begun | MarkStep::Discarded => self,
        }
    }
}

/// The marks of all letters, up to where they were read.
pub(super) struct Marks {
    /// By place of the letter. What has no mark is open.
    states: HashMap<(i32, i64), State>,
    /// Per partition of `views.dead`: where reading goes on.
    next: Vec<i64>,
    /// Where it began.
    first: Vec<i64>,
}

/// How long a mark may take until it can be read.
const VISIBLE: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl Marks {
    /// Reads all of `views.dead`.
    pub(super) async fn read<S: Sight>(sight: &S) -> Result<Self> {
        let bounds = bounds(sight).await?;
        let next: Vec<i64> = bounds.iter().map(|range| range.start).collect();
        let mut marks = Self { states: HashMap::new(), first: next.clone(), next };
        marks.advance(sight, &bounds, |_| {}).await?;
        Ok(marks)
    }

    /// What was read: partitions with their offsets.
    pub(super) fn ranges(&self) -> Vec<(i32, Range<i64>)> {
        (0..).zip(self.first.iter().zip(&self.next).map(|(first, next)| *first..*next)).collect()
    }

    pub(super) fn state(&self, place: (i32, i64)) -> State {
        self.states.get(&place).copied().unwrap_or_default()
    }

    async fn advance<S: Sight>(
        &mut self,
        sight: &S,
        bounds: &[Range<i64>],
        mut seen: impl FnMut(&Attempt),
    ) -> Result<()> {
        let starts = self.next.iter().zip(bounds).map(|(next, range)| range.start.max(*next)..range.end);
        let ranges: Vec<(i32, Range<i64>)> = (0..).zip(starts).collect();
        read(sight, Topic::Dead, &ranges, |batch| {
            for record in batch.iter() {
                let Ok(DeadEntry::Mark(mark)) = decode_dead_entry(record.payload) else { continue };
                // One in another partition than its letter's has no place in the order.
                if mark.letter_partition == batch.partition && mark.letter_offset < record.offset {
                    let state = self.states.entry((batch.partition, mark.letter_offset)).or_default();
                    *state = state.after(&mark, record.append_ms);
                    seen(&mark.attempt);
                }
            }
            Ok(true)
        })
        .await?;
        for (next, (_, range)) in self.next.iter_mut().zip(ranges) {
            *next = range.end.max(*next);
        }
        Ok(())
    }

    /// Appends marks, and reads on until each has found its place in the order.
    pub(super) async fn put<S: Sight>(&mut self, sight: &S, marks: &[DeadMark]) -> Result<()> {
        if marks.is_empty() {
            return Ok(());
        }
        let partitions = u32::try_from(self.next.len())?;
        let mut batch = OutgoingBatch::default();
        for mark in marks {
            let key = key_into(mark.letter_partition, mark.letter_offset, partitions)?;
            batch.push_with(Topic::Dead, key.as_bytes(), |out| encode_dead_mark(mark, out));
        }
        let appended = sight.writer()?.append(batch).await;
        appended.with_context(|| format!("appending to {}", sight.topic(Topic::Dead)))?;
        let mut missing: HashSet<Attempt> = marks.iter().map(|mark| mark.attempt).collect();
        let begun = Instant::now();
        loop {
            let bounds = bounds(sight).await?;
            self.advance(sight, &bounds, |attempt| {
                missing.remove(attempt);
            })
            .await?;
            if missing.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > VISIBLE {
                bail!(
                    "what was appended to {} cannot be read yet: a transaction is open there; try again later",
                    sight.topic(Topic::Dead)
                );
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

async fn bounds<S: Sight>(sight: &S) -> Result<Vec<Range<i64>>> {
    let bounds = sight.log().bounds(Topic::Dead).await;
    let bounds = bounds.with_context(|| format!("bounds of {}", sight.topic(Topic::Dead)))?;
    Ok(bounds.into_iter().map(|bounds| bounds.earliest..bounds.stable).collect())
}

/// A key that leads to the letter's partition: the letter's own may be none.
fn key_into(partition: i32, offset: i64, partitions: u32) -> Result<String> {
    let mut keys = (0..1_000 * u64::from(partitions)).map(|n| format!("dead:{partition}:{offset}:{n}"));
    let key = keys.find(|key| partition_of(key.as_bytes(), partitions) == partition);
    key.with_context(|| format!("views.dead has no partition {partition}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(step: MarkStep, attempt: u8, replaces: Option<u8>) -> DeadMark {
        let name = |n| [n; 16];
        DeadMark {
            step,
            letter_partition: 0,
            letter_offset: 0,
            attempt: name(attempt),
            replaces: replaces.map(name),
        }
    }

    fn told(marks: &[DeadMark]) -> State {
        marks.iter().fold(State::Open, |state, mark| state.after(mark, 5))
    }

    #[test]
    fn of_two_who_begin_one_gives_way() {
        let begun = |n| State::Begun { attempt: [n; 16], at_ms: 5 };
        let both = [mark(MarkStep::Begun, 1, None), mark(MarkStep::Begun, 2, None)];
        assert_eq!(told(&both), begun(1));
        // Two take the same attempt over.
        let again = [both[0], mark(MarkStep::Begun, 3, Some(1)), mark(MarkStep::Begun, 4, Some(1))];
        assert_eq!(told(&again), begun(3));
        assert_eq!(told(&[both[0], mark(MarkStep::Discarded, 9, None)]), begun(1));
    }

    #[test]
    fn what_is_done_stays_done() {
        for (done, state) in [(MarkStep::Retried, State::Retried), (MarkStep::Discarded, State::Discarded)] {
            for late in [MarkStep::Begun, MarkStep::Retried, MarkStep::Discarded] {
                assert_eq!(told(&[mark(done, 1, None), mark(late, 2, None)]), state);
            }
        }
        // Whoever was taken over had sent it after all.
        let late = [
            mark(MarkStep::Begun, 1, None),
            mark(MarkStep::Begun, 2, Some(1)),
            mark(MarkStep::Retried, 1, None),
        ];
        assert_eq!(told(&late), State::Retried);
        let given_up = [mark(MarkStep::Begun, 1, None), mark(MarkStep::Discarded, 2, Some(1))];
        assert_eq!(told(&given_up), State::Discarded);
    }

    #[test]
    fn every_partition_has_a_key_that_leads_there() {
        for partition in 0..64 {
            let key = key_into(partition, 7, 64).unwrap();
            assert_eq!(partition_of(key.as_bytes(), 64), partition);
        }
        assert!(key_into(64, 7, 64).is_err());
    }
}
