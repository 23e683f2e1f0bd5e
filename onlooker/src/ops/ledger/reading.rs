//! Fills a book from the log, each record once.

use super::super::Sight;
use super::super::look::read;
use super::super::record::TopicName;
use super::book::{Book, Outcome};
use anyhow::{Context, Result, bail};
use onlooker_ports::{Bounds, LogObserver, RecordRef, Topic};
use onlooker_proto::{
    ClaimRef, DeadEntry, ViewRef, decode_counted, decode_dead_entry, decode_ignored, decode_view,
};
use std::ops::Range;
use std::time::{Duration, Instant};

/// The site of what cannot be read.
pub(super) const UNREADABLE: &str = "(unreadable)";
/// By how much the clocks of the log's servers may be apart. Milliseconds.
const SKEW_MS: i64 = 300_000;
const HOUR_MS: i64 = 3_600_000;
/// Offsets of a partition that are read at once.
const STEP: i64 = 50_000;
/// Partitions of outcomes are read together to about the same time, so that few views wait for theirs.
const APART_MS: i64 = 60_000;
/// How long outcomes may take until they can be read: their transaction may have a partition to go to yet.
const VISIBLE: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A partition of outcomes.
struct Lane {
    name: TopicName,
    partition: i32,
    next: i64,
    end: i64,
    until_ms: Option<i64>,
}

/// How far the log was read.
pub(super) struct Reading {
    lanes: Vec<Lane>,
    pub(super) book: Book,
    /// Views that were appended from this time on are in it. Milliseconds since 1970.
    pub(super) begins_ms: i64,
}

impl Reading {
    /// Takes note of where to begin: with the hour that `since_ms` is in, or where outcomes are still kept.
    pub(super) async fn begin<S: Sight>(sight: &S, since_ms: i64) -> Result<Self> {
        let mut begins_ms = since_ms.max(0).div_euclid(HOUR_MS) * HOUR_MS;
        let mut lanes = Vec::new();
        for name in TopicName::VERDICTS {
            let bounds = bounds(sight, name.topic()).await?;
            let starts = offsets_at(sight, name.topic(), begins_ms - SKEW_MS).await?;
            for (partition, (bounds, start)) in (0..).zip(bounds.into_iter().zip(starts)) {
                let next = start.max(bounds.earliest);
                if bounds.earliest > 0 && next == bounds.earliest {
                    // Outcomes from before are gone, and with them those of views that were appended before.
                    let first = first_ms(sight, name.topic(), partition, next..bounds.stable).await?;
                    begins_ms = begins_ms.max(first.map_or(0, |ms| ms + SKEW_MS));
                }
                lanes.push(Lane { name, partition, next, end: next, until_ms: None });
            }
        }
        let bounds = bounds(sight, Topic::Views).await?;
        let starts = offsets_at(sight, Topic::Views, begins_ms).await?;
        let first: Vec<i64> =
            starts.iter().zip(bounds).map(|(start, bounds)| (*start).max(bounds.earliest)).collect();
        Ok(Self { lanes, book: Book::new(&first), begins_ms })
    }

    /// Reads what is new: outcomes, and the views that the filter has passed. What is open in the book then has no
    /// outcome. May be called again after an error.
    pub(super) async fn catch_up<S: Sight>(&mut self, sight: &S) -> Result<()> {
        // In this order: what is committed now has all its outcomes below these ends.
        let group = sight.log().group(Topic::Views).await.context("the filter's group")?;
        let group = group.context("no group judges views")?;
        let judged: Vec<i64> = group
            .partitions
            .iter()
            .map(|(committed, _)| committed.as_ref().map_or(0, |c| c.offset))
            .collect();
        for name in TopicName::VERDICTS {
            let ends = visible_ends(sight, name.topic()).await?;
            for lane in self.lanes.iter_mut().filter(|lane| lane.name == name) {
                let end = usize::try_from(lane.partition).ok().and_then(|at| ends.get(at)).copied();
                lane.end = end.unwrap_or(lane.end).max(lane.next);
                lane.until_ms = None;
            }
        }
        let mut wanted: Vec<i64> = vec![0; judged.len()];
        while self.lanes.iter().any(|lane| lane.next < lane.end) {
            self.outcomes(sight, &mut wanted).await?;
            let to: Vec<i64> =
                wanted.iter().zip(&judged).map(|(wanted, judged)| *wanted.min(judged)).collect();
            self.views(sight, &to, true).await?;
        }
        self.views(sight, &judged, true).await
    }

    /// Reads the views that are not judged yet. The last thing to be read.
    pub(super) async fn pending<S: Sight>(&mut self, sight: &S) -> Result<()> {
        let ends: Vec<i64> = bounds(sight, Topic::Views).await?.iter().map(|bounds| bounds.stable).collect();
        self.views(sight, &ends, false).await
    }

    /// One step of the partitions that are behind the others. Notes behind which view of each partition it came.
    async fn outcomes<S: Sight>(&mut self, sight: &S, wanted: &mut [i64]) -> Result<()> {
        let Self { lanes, book, .. } = self;
        let behind =
            lanes.iter().filter(|lane| lane.next < lane.end).map(|lane| lane.until_ms).min().flatten();
        let views = sight.topic(Topic::Views);
        for name in TopicName::VERDICTS {
            let open = |lane: &&Lane| {
                let near = lane.until_ms.zip(behind).is_none_or(|(until, behind)| until <= behind + APART_MS);
                lane.name == name && lane.next < lane.end && near
            };
            let range = |lane: &Lane| (lane.partition, lane.next..lane.end.min(lane.next + STEP));
            let ranges: Vec<(i32, Range<i64>)> = lanes.iter().filter(open).map(range).collect();
            read(sight, name.topic(), &ranges, |batch| {
                let mut of = lanes.iter_mut().filter(|lane| lane.name == name);
                let Some(lane) = of.find(|lane| lane.partition == batch.partition) else { return Ok(true) };
                for record in batch.iter() {
                    if let Some((partition, offset)) = enter(book, name, &views, &record) {
                        let of = usize::try_from(partition).ok().and_then(|at| wanted.get_mut(at));
                        if let Some(wanted) = of {
                            *wanted = (*wanted).max(offset + 1);
                        }
                    }
                    lane.next = record.offset + 1;
                    lane.until_ms = lane.until_ms.max(Some(record.append_ms));
                }
                Ok(true)
            })
            .await?;
            for (partition, range) in ranges {
                let mut of = lanes.iter_mut().filter(|lane| lane.name == name);
                if let Some(lane) = of.find(|lane| lane.partition == partition) {
                    lane.next = range.end;
                }
            }
        }
        Ok(())
    }

    /// Views of each partition up to an offset.
    async fn views<S: Sight>(&mut self, sight: &S, to: &[i64], judged: bool) -> Result<()> {
        let book = &mut self.book;
        let ranges: Vec<(i32, Range<i64>)> =
            (0..).zip(to).map(|(partition, to)| (partition, book.next(partition)..*to)).collect();
        let ranges: Vec<_> = ranges.into_iter().filter(|(_, range)| !range.is_empty()).collect();
        read(sight, Topic::Views, &ranges, |batch| {
            for record in batch.iter() {
                let at = (batch.partition, record.offset);
                match record.payload.and_then(ViewRef::read) {
                    Some(view) => match minted_ms(view.view_id.0) {
                        Some(ms) => book.view(at, view.site, ms, judged),
                        None => {
                            let ms = decode_view(record.payload).map_or(record.append_ms, |v| v.received_ms);
                            book.view(at, view.site, ms, judged);
                        }
                    },
                    None => match decode_view(record.payload) {
                        Ok(view) => book.view(at, view.site.as_str(), view.received_ms, judged),
                        Err(_) => book.view(at, UNREADABLE, record.append_ms, judged),
                    },
                }
            }
            Ok(true)
        })
        .await?;
        for (partition, range) in ranges {
            book.passed(partition, range.end);
        }
        Ok(())
    }
}

/// When a collector minted the id, which is when it received the view. Milliseconds since 1970.
fn minted_ms(view_id: [u8; 16]) -> Option<i64> {
    let ms = view_id[..6].iter().fold(0, |ms, byte| ms << 8 | i64::from(*byte));
    (view_id[6] >> 4 == 7).then_some(ms)
}

/// Enters an outcome. The view that it is on; none if it is on none of this log.
fn enter(book: &mut Book, name: TopicName, views: &str, record: &RecordRef<'_>) -> Option<(i32, i64)> {
    let ms = |id, event_ms| minted_ms(id).unwrap_or(event_ms);
    match name {
        TopicName::Views => None,
        TopicName::Counted => {
            let claim = record.payload.and_then(ClaimRef::read);
            let (partition, offset) = match claim {
                Some(claim) => (claim.source_partition, claim.source_offset),
                None => decode_counted(record.payload).map(|c| (c.source_partition, c.source_offset)).ok()?,
            };
            // What was carried over from another log is an outcome there.
            if offset < 0 {
                return None;
            }
            book.outcome((partition, offset), Outcome::Counted, || match decode_counted(record.payload) {
                Ok(counted) => (counted.site.as_str().to_owned(), ms(counted.view_id.0, counted.event_ms)),
                Err(_) => (UNREADABLE.to_owned(), record.append_ms),
            });
            Some((partition, offset))
        }
        TopicName::Ignored => {
            let ignored = decode_ignored(record.payload).ok()?;
            let of = (ignored.source_partition, ignored.source_offset);
            book.outcome(of, Outcome::Ignored(ignored.reason), || {
                (ignored.site.as_str().to_owned(), ms(ignored.view_id.0, ignored.event_ms))
            });
            Some(of)
        }
        TopicName::Dead => {
            let Ok(DeadEntry::Letter(letter)) = decode_dead_entry(record.payload) else { return None };
            // Counters set records aside as well.
            if letter.source_topic != views {
                return None;
            }
            let of = (letter.source_partition, letter.source_offset);
            book.outcome(of, Outcome::Dead(letter.reason), || match decode_view(Some(&letter.payload)) {
                Ok(view) => (view.site.as_str().to_owned(), view.received_ms),
                Err(_) => (UNREADABLE.to_owned(), letter.source_append_ms),
            });
            Some(of)
        }
    }
}

async fn bounds<S: Sight>(sight: &S, topic: Topic) -> Result<Vec<Bounds>> {
    sight.log().bounds(topic).await.with_context(|| format!("bounds of {}", sight.topic(topic)))
}

async fn offsets_at<S: Sight>(sight: &S, topic: Topic, ms: i64) -> Result<Vec<i64>> {
    sight.log().offsets_at(topic, ms).await.with_context(|| format!("times of {}", sight.topic(topic)))
}

async fn first_ms<S: Sight>(
    sight: &S,
    topic: Topic,
    partition: i32,
    range: Range<i64>,
) -> Result<Option<i64>> {
    let mut first = None;
    read(sight, topic, &[(partition, range)], |batch| {
        first = batch.get(0).map(|record| record.append_ms);
        Ok(first.is_none())
    })
    .await?;
    Ok(first)
}

/// The ends of a topic, transactions under way included, once all of them can be read.
async fn visible_ends<S: Sight>(sight: &S, topic: Topic) -> Result<Vec<i64>> {
    let ends: Vec<i64> = bounds(sight, topic).await?.iter().map(|bounds| bounds.end).collect();
    let begun = Instant::now();
    loop {
        let stable = bounds(sight, topic).await?;
        if ends.iter().zip(&stable).all(|(end, bounds)| bounds.stable >= *end) {
            return Ok(ends);
        }
        if begun.elapsed() > VISIBLE {
            bail!("a transaction on {} is open for longer than {} s", sight.topic(topic), VISIBLE.as_secs());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
