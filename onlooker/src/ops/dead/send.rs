//! Sending letters again, and leaving them for good.

use super::super::look::{duration, now_ms, read};
use super::super::{Out, Sight};
use super::marks::{Attempt, Marks, State};
use super::{Done, Letter, Which, letters};
use anyhow::{Context, Result};
use onlooker_event::partition_of;
use onlooker_ports::{LogObserver, LogWriter, OutgoingBatch, Topic};
use onlooker_proto::{DeadMark, MarkStep};
use std::collections::HashMap;
use std::ops::Range;

/// An append whose result is not known has happened or never will after so long. Milliseconds.
const IN_DOUBT_MS: i64 = 120_000;
/// By how much the clocks of the log's servers may be apart. Milliseconds.
const SKEW_MS: i64 = 300_000;

/// Sends letters again, or discards them. Only those that were there when it began: what dies again is a new letter.
pub(super) async fn work<S: Sight>(sight: &S, which: &Which, retry: bool, out: &Out) -> Result<()> {
    let mut marks = Marks::read(sight).await?;
    let named = !which.places.is_empty();
    for (partition, mut range) in which.ranges(&marks)? {
        while !range.is_empty() {
            let takes = |letter: &Letter| {
                let open = matches!(marks.state(letter.place), State::Open | State::Begun { .. });
                which.takes(letter) && (named || open)
            };
            let (found, rest) = letters(sight, partition, range, takes).await?;
            range = rest;
            let done = step(sight, &mut marks, &found, retry).await?;
            for done in done {
                out.line(&done).await?;
            }
        }
    }
    Ok(())
}

fn done(letter: &Letter, outcome: &str, detail: impl Into<String>) -> Done {
    let (partition, offset) = letter.place;
    Done { partition, offset, outcome: outcome.to_owned(), detail: detail.into() }
}

fn mark(letter: &Letter, step: MarkStep, attempt: Attempt, replaces: Option<Attempt>) -> DeadMark {
    let (letter_partition, letter_offset) = letter.place;
    DeadMark { step, letter_partition, letter_offset, attempt, replaces }
}

async fn step<S: Sight>(sight: &S, marks: &mut Marks, letters: &[Letter], retry: bool) -> Result<Vec<Done>> {
    let mut outcomes = Vec::new();
    let (mut chosen, mut in_doubt) = (Vec::new(), Vec::new());
    for letter in letters {
        match may(sight, marks, letter, retry) {
            Err(why) => outcomes.push(done(letter, "left", why)),
            Ok(None) => chosen.push((letter, None)),
            Ok(Some((attempt, at_ms))) => in_doubt.push((letter, attempt, at_ms)),
        }
    }
    let mut arrived = Vec::new();
    if retry {
        arrived = there(sight, &in_doubt).await?;
    }
    for (letter, attempt, _) in in_doubt {
        if arrived.contains(&letter.place) {
            marks.put(sight, &[mark(letter, MarkStep::Retried, attempt, None)]).await?;
            outcomes.push(done(letter, "retried", "an earlier attempt had sent it"));
        } else {
            chosen.push((letter, Some(attempt)));
        }
    }

    let first = if retry { MarkStep::Begun } else { MarkStep::Discarded };
    let attempts: Vec<DeadMark> =
        chosen.iter().map(|(letter, replaces)| mark(letter, first, rand::random(), *replaces)).collect();
    marks.put(sight, &attempts).await?;
    let mut ours = Vec::new();
    for ((letter, _), begun) in chosen.iter().zip(attempts) {
        match marks.state(letter.place) {
            State::Begun { attempt, .. } if retry && attempt == begun.attempt => ours.push((*letter, begun)),
            State::Discarded if !retry => outcomes.push(done(letter, "discarded", "")),
            other => {
                let why = format!("somebody else was here at the same time: it is {}", other.as_str());
                outcomes.push(done(letter, "left", why));
            }
        }
    }
    send(sight, marks, &ours).await?;
    outcomes.extend(ours.iter().map(|(letter, _)| done(letter, "retried", "")));
    outcomes.sort_by_key(|done| (done.partition, done.offset));
    Ok(outcomes)
}

/// Whether something may be done with the letter; if so, the attempt whose outcome is to be found out first, with its time.
fn may<S: Sight>(
    sight: &S,
    marks: &Marks,
    letter: &Letter,
    retry: bool,
) -> Result<Option<(Attempt, i64)>, String> {
    let state = marks.state(letter.place);
    if let State::Retried | State::Discarded = state {
        return Err(format!("it was {} already", state.as_str()));
    }
    let views = sight.topic(Topic::Views);
    if retry && letter.dead.source_topic != views {
        return Err(format!(
            "it is from {}, and only what is from {views} can be judged again: a verdict was passed on its view, and \
             stays in the log",
            letter.dead.source_topic
        ));
    }
    match state {
        State::Begun { attempt, at_ms } => match now_ms() - at_ms {
            age if age < IN_DOUBT_MS => Err(format!(
                "an attempt was begun {} ago and may be under way; try again in {}",
                duration(age.max(0)),
                duration(IN_DOUBT_MS - age)
            )),
            _ => Ok(Some((attempt, at_ms))),
        },
        _ => Ok(None),
    }
}

/// Which of these letters `views` has again since their attempts began.
async fn there<S: Sight>(sight: &S, letters: &[(&Letter, Attempt, i64)]) -> Result<Vec<(i32, i64)>> {
    let Some(from_ms) = letters.iter().map(|(.., at_ms)| *at_ms - SKEW_MS).min() else {
        return Ok(Vec::new());
    };
    let told = sight.topic(Topic::Views);
    let starts = sight.log().offsets_at(Topic::Views, from_ms).await;
    let starts = starts.with_context(|| format!("times of {told}"))?;
    let bounds = sight.log().bounds(Topic::Views).await.with_context(|| format!("bounds of {told}"))?;
    let count = u32::try_from(bounds.len())?;
    let wanted: HashMap<(&[u8], &[u8]), &Letter> = letters
        .iter()
        .map(|(letter, ..)| ((&letter.dead.key[..], &letter.dead.payload[..]), *letter))
        .collect();
    let keyless = letters.iter().any(|(letter, ..)| letter.dead.key.is_empty());
    let mut ranges: Vec<(i32, Range<i64>)> = Vec::new();
    for (partition, (start, bounds)) in (0..).zip(starts.into_iter().zip(bounds)) {
        let leads =
            |(letter, ..): &(&Letter, Attempt, i64)| partition_of(&letter.dead.key, count) == partition;
        if keyless || letters.iter().any(leads) {
            ranges.push((partition, start.max(bounds.earliest)..bounds.stable));
        }
    }
    let mut found = Vec::new();
    read(sight, Topic::Views, &ranges, |batch| {
        for record in batch.iter() {
            let known = (record.key.unwrap_or_default(), record.payload.unwrap_or_default());
            // Not the original itself, should the letter be so young.
            let is_copy = |letter: &&Letter| {
                (letter.dead.source_partition, letter.dead.source_offset) != (batch.partition, record.offset)
            };
            found.extend(wanted.get(&known).copied().filter(is_copy).map(|letter| letter.place));
        }
        Ok(true)
    })
    .await?;
    Ok(found)
}

/// Appends the originals to `views`, and says so behind the letters.
async fn send<S: Sight>(sight: &S, marks: &mut Marks, letters: &[(&Letter, DeadMark)]) -> Result<()> {
    if letters.is_empty() {
        return Ok(());
    }
    let mut batch = OutgoingBatch::default();
    for (letter, _) in letters {
        batch.push(Topic::Views, &letter.dead.key, &letter.dead.payload);
        batch.trace_last(letter.trace.as_ref());
    }
    let sent = sight.writer()?.append(batch).await;
    sent.with_context(|| {
        format!(
            "appending to {}: whether {} letters arrived is not known. Run this again in {}: it looks first",
            sight.topic(Topic::Views),
            letters.len(),
            duration(IN_DOUBT_MS)
        )
    })?;
    let retried: Vec<DeadMark> = letters
        .iter()
        .map(|(_, begun)| DeadMark { step: MarkStep::Retried, replaces: None, ..*begun })
        .collect();
    marks.put(sight, &retried).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wiring::embedded::{EmbeddedConfig, Store};
    use bytes::Bytes;
    use onlooker_event::DeadReason;
    use onlooker_proto::Dead;

    fn letter(key: &'static [u8], payload: &'static [u8], source_offset: i64) -> Letter {
        let dead = Dead {
            reason: DeadReason::Malformed,
            detail: String::new(),
            source_topic: "views".into(),
            source_partition: 0,
            source_offset,
            source_append_ms: 0,
            key: Bytes::from_static(key),
            payload: Bytes::from_static(payload),
        };
        Letter { place: (0, source_offset), append_ms: 0, dead, trace: None, bytes: payload.len() }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_an_attempt_had_sent_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let config =
            EmbeddedConfig { dir: folder.path().join("data"), partitions: 1, ..EmbeddedConfig::default() };
        let store = Store::open(&config).await.unwrap();
        let sight = store.sight();
        let mut batch = OutgoingBatch::default();
        let records: [(&[u8], &[u8]); 4] = [(b"k", b"one"), (b"k", b"two"), (b"", b"three"), (b"k", b"two")];
        records.iter().for_each(|(key, payload)| batch.push(Topic::Views, key, payload));
        sight.writer().unwrap().append(batch).await.unwrap();
        let letters = [
            // The original alone; it and its copy; a copy of what retention removed; nothing.
            letter(b"k", b"one", 0),
            letter(b"k", b"two", 1),
            letter(b"", b"three", 99),
            letter(b"k", b"four", 98),
        ];
        let asked: Vec<_> = letters.iter().map(|letter| (letter, [0; 16], now_ms())).collect();
        let mut found = there(&sight, &asked).await.unwrap();
        found.sort_unstable();
        assert_eq!(found, [(0, 1), (0, 99)]);
        drop(sight);
        store.close().await;
    }
}
