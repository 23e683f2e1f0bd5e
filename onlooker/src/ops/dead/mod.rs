//! `onlooker dead`: what could not be judged, and what becomes of it.

mod args;
mod fields;
mod marks;
mod send;

pub(crate) use args::{DeadArgs, run};

use super::look::read;
use super::record::{Record, TopicName, trace_id};
use super::{Out, Sight};
use crate::import::hex;
use anyhow::{Result, bail};
use marks::{Marks, State};
use onlooker_event::TraceParent;
use onlooker_ports::Topic;
use onlooker_proto::{Dead, DeadEntry, decode_dead_entry};
use serde::{Deserialize, Serialize};
use std::ops::Range;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    List {
        which: Which,
        /// Those too that were retried or discarded.
        settled: bool,
    },
    Show {
        place: (i32, i64),
        headers: bool,
    },
    Retry(Which),
    Discard(Which),
}

/// Letters.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Which {
    /// Partition and offset in `views.dead`. None: all, with this reason if there is one.
    places: Vec<(i32, i64)>,
    reason: Option<String>,
    /// Appended since then. Milliseconds since 1970.
    since_ms: Option<i64>,
}

/// A letter and what became of it.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// `open`, `begun`, `retried` or `discarded`.
    state: String,
    #[serde(flatten)]
    record: Record,
}

/// A letter with its bytes, hexadecimal.
#[derive(Debug, Serialize, Deserialize)]
struct Whole {
    #[serde(flatten)]
    line: Line,
    /// When the original was appended. Milliseconds since 1970.
    source_append_ms: i64,
    key: String,
    payload: String,
}

/// What was done with a letter, or why nothing was.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    partition: i32,
    offset: i64,
    /// `retried`, `discarded`, or `left`.
    outcome: String,
    detail: String,
}

/// A letter, to be worked with.
struct Letter {
    place: (i32, i64),
    append_ms: i64,
    dead: Dead,
    trace: Option<TraceParent>,
    bytes: usize,
}

pub(super) async fn answer<S: Sight>(sight: &S, ask: Ask, out: Out) -> Result<()> {
    match ask {
        Ask::List { which, settled } => list(sight, &which, settled, &out).await,
        Ask::Show { place, headers } => show(sight, place, headers, &out).await,
        Ask::Retry(which) => send::work(sight, &which, true, &out).await,
        Ask::Discard(which) => send::work(sight, &which, false, &out).await,
    }
}

/// Records of a step: what is read before anything is done with it.
const STEP: usize = 500;
const STEP_BYTES: usize = 16 << 20;

/// Reads letters from a range on, until there are enough. What is left of the range.
async fn letters<S: Sight>(
    sight: &S,
    partition: i32,
    mut range: Range<i64>,
    takes: impl Fn(&Letter) -> bool,
) -> Result<(Vec<Letter>, Range<i64>)> {
    let (mut letters, mut bytes) = (Vec::new(), 0);
    let mut full_at = None;
    read(sight, Topic::Dead, &[(partition, range.clone())], |batch| {
        for record in batch.iter() {
            if letters.len() >= STEP || bytes >= STEP_BYTES {
                full_at = Some(record.offset);
                return Ok(false);
            }
            let Ok(DeadEntry::Letter(dead)) = decode_dead_entry(record.payload) else { continue };
            let size = record.payload.map_or(0, <[u8]>::len);
            let place = (batch.partition, record.offset);
            let trace = record.trace.copied();
            let letter = Letter { place, append_ms: record.append_ms, dead, trace, bytes: size };
            if takes(&letter) {
                bytes += letter.bytes;
                letters.push(letter);
            }
        }
        Ok(true)
    })
    .await?;
    range.start = full_at.unwrap_or(range.end);
    Ok((letters, range))
}

impl Which {
    fn takes(&self, letter: &Letter) -> bool {
        let named = self.reason.as_deref().is_none_or(|reason| reason == letter.dead.reason.as_str());
        named && self.since_ms.is_none_or(|since| letter.append_ms >= since)
    }

    /// Where they are, of what the marks were read of.
    fn ranges(&self, marks: &Marks) -> Result<Vec<(i32, Range<i64>)>> {
        if self.places.is_empty() {
            return Ok(marks.ranges());
        }
        let known = marks.ranges();
        let mut ranges = Vec::new();
        for (partition, offset) in &self.places {
            let of = known.iter().find(|(p, _)| p == partition);
            match of {
                Some((_, range)) if range.contains(offset) => ranges.push((*partition, *offset..offset + 1)),
                Some((_, range)) => bail!(
                    "{partition}:{offset} is not in the log: it has the offsets {} to {} of this partition",
                    range.start,
                    range.end - 1
                ),
                None => bail!("{partition}:{offset}: views.dead has {} partitions", known.len()),
            }
        }
        Ok(ranges)
    }
}

async fn list<S: Sight>(sight: &S, which: &Which, settled: bool, out: &Out) -> Result<()> {
    let marks = Marks::read(sight).await?;
    for (partition, mut range) in which.ranges(&marks)? {
        while !range.is_empty() {
            let takes = |letter: &Letter| {
                let done = matches!(marks.state(letter.place), State::Retried | State::Discarded);
                which.takes(letter) && (settled || !done)
            };
            let (found, rest) = letters(sight, partition, range, takes).await?;
            range = rest;
            for letter in found {
                out.line(&letter.line(&marks, false)).await?;
            }
        }
    }
    Ok(())
}

impl Letter {
    fn line(&self, marks: &Marks, headers: bool) -> Line {
        let (partition, offset) = self.place;
        let mut record = Record::of_letter(partition, offset, self.append_ms, self.dead.clone(), headers);
        record.trace_id = self.trace.as_ref().map(trace_id);
        Line { state: marks.state(self.place).as_str().to_owned(), record }
    }
}

async fn show<S: Sight>(sight: &S, place: (i32, i64), headers: bool, out: &Out) -> Result<()> {
    let marks = Marks::read(sight).await?;
    let which = Which { places: vec![place], ..Which::default() };
    let [(partition, range)] = &which.ranges(&marks)?[..] else { bail!("one letter is shown at a time") };
    let (found, _) = letters(sight, *partition, range.clone(), |_| true).await?;
    let Some(letter) = found.first() else {
        bail!(
            "{}:{} is no letter: `onlooker tail --topic {}` shows what it is",
            place.0,
            place.1,
            TopicName::Dead.as_str()
        );
    };
    let whole = Whole {
        line: letter.line(&marks, headers),
        source_append_ms: letter.dead.source_append_ms,
        key: hex(&letter.dead.key),
        payload: hex(&letter.dead.payload),
    };
    out.line(&whole).await
}
