//! `onlooker topics`: what the log holds.

use super::at::{At, Told};
use super::look::{duration, now_ms, read, time};
use super::table::{maybe, row, table};
use super::{Out, Sight, exit};
use crate::cli::say;
use anyhow::{Context, Result};
use onlooker_ports::{Bounds, LogObserver, Topic};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;

/// Shows what the topics hold: offsets, records, the oldest and the newest
#[derive(Debug, clap::Args)]
pub(crate) struct TopicsViewArgs {
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ask {}

/// A partition of a topic. Times in milliseconds since 1970.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    topic: String,
    partition: i32,
    earliest: i64,
    end: i64,
    /// Offsets that the log has; transaction markers take some of them.
    offsets: i64,
    oldest_ms: Option<i64>,
    newest_ms: Option<i64>,
}

pub(super) const ALL: [Topic; 4] = [Topic::Views, Topic::Counted, Topic::Ignored, Topic::Dead];
/// Offsets that are looked through for the newest record: the last ones may be markers.
const TAIL: i64 = 100;

pub(super) async fn answer<S: Sight>(sight: &S, _: Ask, out: Out) -> Result<()> {
    for topic in ALL {
        let name = sight.topic(topic);
        let bounds = sight.log().bounds(topic).await.with_context(|| format!("bounds of {name}"))?;
        let heads = edges(sight, topic, &bounds, |bounds| bounds.earliest..bounds.stable, true).await?;
        let tail = |bounds: &Bounds| (bounds.stable - TAIL).max(bounds.earliest)..bounds.stable;
        let tails = edges(sight, topic, &bounds, tail, false).await?;
        for (partition, bounds) in (0..).zip(bounds) {
            let line = Line {
                topic: name.clone(),
                partition,
                earliest: bounds.earliest,
                end: bounds.end,
                offsets: bounds.end - bounds.earliest,
                oldest_ms: heads.get(&partition).copied(),
                newest_ms: tails.get(&partition).copied(),
            };
            out.line(&line).await?;
        }
    }
    Ok(())
}

/// Append times of the first or the last records of ranges.
async fn edges<S: Sight>(
    sight: &S,
    topic: Topic,
    bounds: &[Bounds],
    range: impl Fn(&Bounds) -> Range<i64>,
    first: bool,
) -> Result<BTreeMap<i32, i64>> {
    let mut ranges: Vec<(i32, Range<i64>)> = (0..).zip(bounds.iter().map(range)).collect();
    ranges.retain(|(_, range)| !range.is_empty());
    let mut found = BTreeMap::new();
    if first {
        // Each partition by itself: one is through after its first records.
        for range in &ranges {
            read(sight, topic, std::slice::from_ref(range), |batch| {
                if let Some(record) = batch.get(0) {
                    found.insert(batch.partition, record.append_ms);
                }
                Ok(false)
            })
            .await?;
        }
        return Ok(found);
    }
    read(sight, topic, &ranges, |batch| {
        if let Some(record) = batch.iter().last() {
            found.insert(batch.partition, record.append_ms);
        }
        Ok(true)
    })
    .await?;
    Ok(found)
}

pub(crate) async fn run(args: TopicsViewArgs, told: Told) -> Result<ExitCode> {
    let mut lines: Vec<Line> = Vec::new();
    args.at
        .ask(told, super::Ask::Topics(Ask {}), |line| {
            if args.at.json {
                say(&format!("{line}\n"))?;
            }
            lines.push(serde_json::from_value(line)?);
            Ok(())
        })
        .await?;
    if !args.at.json {
        let mut rows = vec![row!["topic", "partition", "earliest", "end", "offsets", "oldest", "newest"]];
        let now = now_ms();
        for line in &lines {
            rows.push(row![
                line.topic,
                line.partition,
                line.earliest,
                line.end,
                line.offsets,
                maybe(line.oldest_ms.map(|ms| format!("{} ago", duration(now - ms)))),
                maybe(line.newest_ms.map(time)),
            ]);
        }
        say(&table(&rows))?;
    }
    Ok(exit(false))
}
