//! Finding single records in the log.

use super::super::Sight;
use super::super::look::read;
use super::super::record::{Record, TopicName};
use anyhow::{Context, Result};
use onlooker_event::{Digest128, View};
use onlooker_ports::{LogObserver, RecordRef};
use onlooker_proto::{ClaimRef, ViewRef, decode_view};
use std::ops::Range;

/// By how much clocks may be apart, and how long a record may be on its way. Milliseconds.
pub(super) const SKEW_MS: i64 = 300_000;
/// Where a record is usually found, before and behind where it is expected; and where it is if a room was late or a clock
/// off. Milliseconds.
const USUAL_MS: (i64, i64) = (2_000, 15_000);
const NEAR_MS: i64 = 900_000;
/// Views that came with the same id of a client's.
const MOST: usize = 20;

/// What a person calls a view.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// Of the collector's making.
    pub(super) view_id: Option<[u8; 16]>,
    /// Of a client's.
    pub(super) text: String,
}

impl Wanted {
    pub(super) fn new(text: &str) -> Self {
        let view_id = uuid::Uuid::parse_str(text).ok().map(uuid::Uuid::into_bytes);
        Self { view_id, text: text.to_owned() }
    }

    /// When the view was received, if its id says so: a UUIDv7 begins with milliseconds since 1970.
    pub(super) fn received_ms(&self) -> Option<i64> {
        let id = self.view_id.filter(|id| id[6] >> 4 == 7)?;
        Some(id[..6].iter().fold(0, |ms, byte| ms << 8 | i64::from(*byte)))
    }

    fn is(&self, record: &RecordRef<'_>) -> bool {
        let named = |view_id: [u8; 16], client_id: Option<&str>| {
            Some(view_id) == self.view_id || client_id.is_some_and(|id| id == self.text)
        };
        match record.payload.and_then(ViewRef::read) {
            Some(view) => named(view.view_id.0, view.client_id),
            None => decode_view(record.payload)
                .is_ok_and(|view| named(view.view_id.0, view.client_id.as_ref().map(|id| id.as_str()))),
        }
    }
}

/// Where to look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) name: TopicName,
    /// None: all.
    pub(super) partition: Option<i32>,
    /// Append times, the end excluded. None: as far as the log goes.
    pub(super) from_ms: Option<i64>,
    pub(super) to_ms: Option<i64>,
}

impl Span {
    async fn ranges<S: Sight>(&self, sight: &S) -> Result<Vec<(i32, Range<i64>)>> {
        let topic = self.name.topic();
        let told = sight.topic(topic);
        let bounds = sight.log().bounds(topic).await.with_context(|| format!("bounds of {told}"))?;
        let mut ranges: Vec<(i32, Range<i64>)> =
            (0..).zip(bounds.iter().map(|bounds| bounds.earliest..bounds.stable)).collect();
        if let Some(ms) = self.from_ms {
            let from = sight.log().offsets_at(topic, ms).await.with_context(|| format!("times of {told}"))?;
            ranges.iter_mut().zip(from).for_each(|((_, range), from)| range.start = range.start.max(from));
        }
        if let Some(ms) = self.to_ms {
            let to = sight.log().offsets_at(topic, ms).await.with_context(|| format!("times of {told}"))?;
            ranges.iter_mut().zip(to).for_each(|((_, range), to)| range.end = range.end.min(to));
        }
        ranges.retain(|(p, range)| self.partition.is_none_or(|only| only == *p) && !range.is_empty());
        Ok(ranges)
    }

    /// Each record; until `each` has seen enough.
    pub(super) async fn each<S: Sight>(
        &self,
        sight: &S,
        mut each: impl FnMut(i32, &RecordRef<'_>) -> bool,
    ) -> Result<()> {
        let ranges = self.ranges(sight).await?;
        read(sight, self.name.topic(), &ranges, |batch| {
            Ok(batch.iter().all(|record| each(batch.partition, &record)))
        })
        .await
    }

    /// The first record that is it.
    pub(super) async fn first<S: Sight>(
        &self,
        sight: &S,
        is: impl Fn(&Record) -> bool,
    ) -> Result<Option<Record>> {
        let mut found = None;
        self.each(sight, |partition, record| {
            let record = Record::read(self.name, partition, record, false);
            if is(&record) {
                found = Some(record);
            }
            found.is_none()
        })
        .await?;
        Ok(found)
    }
}

/// Where to look for what was to be appended at this time or later: first where it takes the least reading.
fn around(ms: i64) -> [(Option<i64>, Option<i64>); 3] {
    let near = Some(ms + NEAR_MS);
    [(Some(ms - USUAL_MS.0), Some(ms + USUAL_MS.1)), (Some(ms - SKEW_MS), near), (near, None)]
}

/// A view in the log.
pub(super) struct Found {
    pub(super) record: Record,
    pub(super) view: View,
}

/// The views that are called so: one if it is the collector's name for it, else the first ones.
pub(super) async fn views<S: Sight>(sight: &S, wanted: &Wanted, since_ms: Option<i64>) -> Result<Vec<Found>> {
    let mut found: Vec<Found> = Vec::new();
    let by_time = wanted.received_ms().filter(|_| since_ms.is_none());
    let spans = match by_time {
        // An id of a client's may look the same, and a clock may have been wrong.
        Some(ms) => around(ms).into_iter().chain([(None, Some(ms - SKEW_MS))]).collect(),
        None => vec![(since_ms, None)],
    };
    for (from_ms, to_ms) in spans {
        let span = Span { name: TopicName::Views, partition: None, from_ms, to_ms };
        span.each(sight, |partition, record| {
            if wanted.is(record)
                && let Ok(view) = decode_view(record.payload)
            {
                let whole = Some(view.view_id.0) == wanted.view_id;
                found.push(Found { record: Record::read(span.name, partition, record, false), view });
                return !whole && found.len() < MOST;
            }
            true
        })
        .await?;
        if !found.is_empty() {
            break;
        }
    }
    found.sort_by_key(|found| (found.record.append_ms, found.record.partition, found.record.offset));
    Ok(found)
}

/// The first outcome that `is` it, of one that was appended at about `from_ms` or later.
pub(super) async fn verdict<S: Sight>(
    sight: &S,
    from_ms: Option<i64>,
    counted_in: Option<i32>,
    is: impl Fn(&Record) -> bool,
) -> Result<Option<Record>> {
    let spans = from_ms.map_or_else(|| vec![(None, None)], |ms| around(ms).to_vec());
    for (from_ms, to_ms) in spans {
        for name in TopicName::VERDICTS {
            let partition = counted_in.filter(|_| name == TopicName::Counted);
            if let Some(found) = (Span { name, partition, from_ms, to_ms }).first(sight, &is).await? {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// Counted views that made a claim, of those that are in `span`.
pub(super) async fn claims<S: Sight>(
    sight: &S,
    span: Span,
    is: impl Fn(&ClaimRef) -> bool,
) -> Result<Vec<Record>> {
    let mut found = Vec::new();
    span.each(sight, |partition, record| {
        if record.payload.and_then(ClaimRef::read).is_some_and(|claim| is(&claim)) {
            found.push(Record::read(TopicName::Counted, partition, record, false));
        }
        true
    })
    .await?;
    Ok(found)
}

/// True if the claim is that of the client's id on this item.
pub(super) fn is_id(claim: &ClaimRef, id: Option<(Digest128, u32)>) -> bool {
    id.is_some() && claim.id_claim == id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_the_collectors_making_says_when() {
        let id = Wanted::new("019aa0d5-4c00-7abc-8def-0123456789ab");
        assert_eq!(id.received_ms(), Some(0x019a_a0d5_4c00));
        for other in ["019aa0d5-4c00-4abc-8def-0123456789ab", "order 12", ""] {
            assert_eq!(Wanted::new(other).received_ms(), None, "{other}");
        }
        assert_eq!(Wanted::new("order 12").view_id, None);
    }
}
