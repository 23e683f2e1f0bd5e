//! `onlooker tail`: records of the log, in the order in which it took them.

use super::at::{At, Told};
use super::look::{now_ms, read};
use super::record::{Record, TopicName};
use super::{Out, Sight, exit};
use crate::cli::say;
use anyhow::{Context, Result, bail};
use onlooker_event::{DeadReason, Reason, TraceId};
use onlooker_ports::{Batch, LogObserver, RecordRef};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

/// Shows records of the log, decoded, in the order in which they were appended
///
/// Without --topic: the outcomes, from views.counted, views.ignored and views.dead.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples: onlooker tail --site blog --reason recent_view --since 10m\n          onlooker tail --topic views --item /a/post --follow"
)]
pub(crate) struct TailArgs {
    /// Which topics; may be repeated
    #[arg(long = "topic", value_enum)]
    topics: Vec<TopicName>,
    /// Only of this item
    #[arg(long)]
    item: Option<String>,
    /// Only of this site
    #[arg(long)]
    site: Option<String>,
    /// Only of the viewer with this pseudonym: the hash, 32 hexadecimal digits
    #[arg(long)]
    viewer: Option<String>,
    /// Only of this trace: its id, 32 hexadecimal digits
    #[arg(long, value_name = "ID")]
    trace: Option<TraceId>,
    /// Only with this reason, e.g. recent_view, unknown_site
    #[arg(long)]
    reason: Option<String>,
    /// Everything that was appended in this time, e.g. 10m, 2h
    #[arg(long, value_parser = super::look::parse_duration, conflicts_with = "last")]
    since: Option<Duration>,
    /// The last so many
    #[arg(short = 'n', long = "last", default_value_t = 20)]
    last: usize,
    /// Go on with what comes, until interrupted
    #[arg(long, short)]
    follow: bool,
    /// With user agents and referrers
    #[arg(long)]
    with_headers: bool,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ask {
    topics: Vec<TopicName>,
    only: Only,
    /// Milliseconds since 1970. None: the last ones.
    since_ms: Option<i64>,
    last: usize,
    follow: bool,
    headers: bool,
}

/// What a record has to have.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Only {
    item: Option<String>,
    site: Option<String>,
    viewer: Option<String>,
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
}

impl Only {
    fn takes(&self, record: &Record) -> bool {
        let is = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        is(&self.item, &record.item)
            && is(&self.site, &record.site)
            && is(&self.viewer, &record.viewer)
            && is(&self.reason, &record.reason)
            && is(&self.trace_id, &record.trace_id)
    }
}

/// Offsets of a partition that are read at once. So many records of each are held while others are behind in time.
const STEP: i64 = 5_000;
/// Between two looks for what is new.
const POLL: Duration = Duration::from_millis(500);

/// A partition that is read forwards.
struct Lane {
    name: TopicName,
    partition: i32,
    next: i64,
    end: i64,
    /// All records until this time were seen; none: no record was.
    until_ms: Option<i64>,
    held: VecDeque<Record>,
}

pub(super) async fn answer<S: Sight>(sight: &S, ask: Ask, out: Out) -> Result<()> {
    let mut lanes = Vec::new();
    for name in &ask.topics {
        let topic = name.topic();
        let told = sight.topic(topic);
        let bounds = sight.log().bounds(topic).await.with_context(|| format!("bounds of {told}"))?;
        let starts = match ask.since_ms {
            Some(ms) => {
                sight.log().offsets_at(topic, ms).await.with_context(|| format!("times of {told}"))?
            }
            None => bounds.iter().map(|bounds| bounds.earliest).collect(),
        };
        for (partition, (bounds, start)) in (0..).zip(bounds.into_iter().zip(starts)) {
            let next = start.max(bounds.earliest);
            lanes.push(Lane {
                name: *name,
                partition,
                next,
                end: bounds.stable.max(next),
                until_ms: None,
                held: VecDeque::new(),
            });
        }
    }
    match ask.since_ms {
        Some(_) => forwards(sight, &ask, &mut lanes, &out).await?,
        None => newest(sight, &ask, &mut lanes, &out).await?,
    }
    while ask.follow && !out.is_closed() {
        tokio::time::sleep(POLL).await;
        let mut ends = BTreeMap::new();
        for name in &ask.topics {
            let bounds = sight.log().bounds(name.topic()).await;
            let bounds = bounds.with_context(|| format!("bounds of {}", sight.topic(name.topic())))?;
            ends.insert(*name, bounds);
        }
        for lane in &mut lanes {
            let of = usize::try_from(lane.partition).ok().and_then(|at| ends.get(&lane.name)?.get(at));
            if let Some(bounds) = of {
                (lane.next, lane.until_ms) = (lane.next.max(bounds.earliest), None);
                lane.end = bounds.stable.max(lane.next);
            }
        }
        forwards(sight, &ask, &mut lanes, &out).await?;
    }
    Ok(())
}

/// Reads all lanes to their ends, and tells in the order of time what is asked for. Holds some steps of each lane.
async fn forwards<S: Sight>(sight: &S, ask: &Ask, lanes: &mut [Lane], out: &Out) -> Result<()> {
    while lanes.iter().any(|lane| lane.next < lane.end || !lane.held.is_empty()) {
        for name in &ask.topics {
            // A lane that holds much waits for the others. The one that is behind all others holds nothing.
            let open = |lane: &Lane| {
                let some = i64::try_from(lane.held.len()).is_ok_and(|held| held < STEP);
                lane.name == *name && lane.next < lane.end && some
            };
            let range = |lane: &Lane| (lane.partition, lane.next..lane.end.min(lane.next + STEP));
            let ranges: Vec<(i32, Range<i64>)> = lanes.iter().filter(|lane| open(lane)).map(range).collect();
            take(sight, ask, *name, &ranges, |partition, record, shown| {
                let mut of = lanes.iter_mut().filter(|lane| lane.name == *name);
                if let Some(lane) = of.find(|lane| lane.partition == partition) {
                    lane.until_ms = lane.until_ms.max(Some(record.append_ms));
                    lane.held.extend(shown);
                }
            })
            .await?;
            for (partition, range) in ranges {
                let mut of = lanes.iter_mut().filter(|lane| lane.name == *name);
                if let Some(lane) = of.find(|lane| lane.partition == partition) {
                    lane.next = range.end;
                }
            }
        }
        let behind = lanes.iter().filter(|lane| lane.next < lane.end).map(|lane| lane.until_ms).min();
        let until_ms = behind.map_or(i64::MAX, |until| until.unwrap_or(i64::MIN));
        let mut ready: Vec<(TopicName, Record)> = Vec::new();
        for lane in lanes.iter_mut() {
            let count = lane.held.iter().take_while(|record| record.append_ms <= until_ms).count();
            ready.extend(lane.held.drain(..count).map(|record| (lane.name, record)));
        }
        ready.sort_by_key(|(name, record)| order(*name, record));
        for (_, record) in &ready {
            out.line(record).await?;
        }
    }
    Ok(())
}

fn order(name: TopicName, record: &Record) -> (i64, TopicName, i32, i64) {
    (record.append_ms, name, record.partition, record.offset)
}

/// Reads backwards until nothing that was not read can be among the last ones.
async fn newest<S: Sight>(sight: &S, ask: &Ask, lanes: &mut [Lane], out: &Out) -> Result<()> {
    let mut best: BTreeMap<(i64, TopicName, i32, i64), Record> = BTreeMap::new();
    // Where reading goes on, and the oldest time that was seen.
    let mut seen: Vec<(i64, Option<i64>)> = lanes.iter().map(|lane| (lane.end, None)).collect();
    let mut step = i64::try_from(ask.last).unwrap_or(STEP).clamp(100, STEP);
    loop {
        let oldest = best.first_key_value().filter(|_| best.len() == ask.last).map(|((ms, ..), _)| *ms);
        let wanted = |(low, at_ms): &(i64, Option<i64>), lane: &Lane| {
            let passed = oldest.zip(*at_ms).is_some_and(|(oldest, at)| at < oldest);
            *low > lane.next && !passed && ask.last > 0
        };
        let open: Vec<bool> = seen.iter().zip(&*lanes).map(|(seen, lane)| wanted(seen, lane)).collect();
        if !open.contains(&true) {
            break;
        }
        for name in &ask.topics {
            let mut ranges = Vec::new();
            for ((open, lane), (low, _)) in open.iter().zip(&*lanes).zip(&mut seen) {
                if *open && lane.name == *name {
                    let from = lane.next.max(*low - step);
                    ranges.push((lane.partition, from..*low));
                    *low = from;
                }
            }
            take(sight, ask, *name, &ranges, |partition, record, shown| {
                let mut of = lanes.iter().zip(&mut seen);
                let lane = of.find(|(lane, _)| lane.name == *name && lane.partition == partition);
                if let Some((_, (_, at_ms))) = lane {
                    *at_ms = Some(at_ms.map_or(record.append_ms, |at| at.min(record.append_ms)));
                }
                if let Some(shown) = shown {
                    best.insert(order(*name, &shown), shown);
                    if best.len() > ask.last {
                        best.pop_first();
                    }
                }
            })
            .await?;
        }
        step = STEP.min(step * 4);
    }
    for lane in lanes {
        lane.next = lane.end;
    }
    for record in best.values() {
        out.line(record).await?;
    }
    Ok(())
}

/// Reads ranges of a topic: each record, and as it is shown if it is asked for.
async fn take<S: Sight>(
    sight: &S,
    ask: &Ask,
    name: TopicName,
    ranges: &[(i32, Range<i64>)],
    mut each: impl FnMut(i32, &RecordRef<'_>, Option<Record>),
) -> Result<()> {
    read(sight, name.topic(), ranges, |batch: &Batch| {
        for record in batch.iter() {
            let shown = Record::read(name, batch.partition, &record, ask.headers);
            each(batch.partition, &record, ask.only.takes(&shown).then_some(shown));
        }
        Ok(true)
    })
    .await
}

pub(crate) async fn run(args: TailArgs, told: Told) -> Result<ExitCode> {
    if let Some(reason) = &args.reason {
        known_reason(reason)?;
    }
    let viewer = args.viewer.as_ref().map(|viewer| viewer.to_ascii_lowercase());
    if viewer.as_ref().is_some_and(|v| v.len() != 32 || !v.bytes().all(|b| b.is_ascii_hexdigit())) {
        bail!("--viewer wants the viewer's hash, 32 hexadecimal digits as `tail` shows it");
    }
    let mut topics = args.topics;
    if topics.is_empty() {
        topics = TopicName::VERDICTS.to_vec();
    }
    topics.sort_unstable();
    topics.dedup();
    let since = args.since.map(|since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    let trace_id = args.trace.map(|trace| trace.to_string());
    let ask = Ask {
        topics,
        only: Only { item: args.item, site: args.site, viewer, reason: args.reason, trace_id },
        since_ms: since.map(|since| now_ms().saturating_sub(since)),
        last: args.last,
        follow: args.follow,
        headers: args.with_headers,
    };
    args.at
        .ask(told, super::Ask::Tail(ask), |line| {
            let text = match args.at.json {
                true => line.to_string(),
                false => serde_json::from_value::<Record>(line)?.line(),
            };
            say(&(text + "\n"))
        })
        .await?;
    Ok(exit(false))
}

/// A reason of a verdict or of a dead letter.
pub(super) fn known_reason(reason: &str) -> Result<()> {
    let ignored = Reason::ALL.iter().map(|reason| reason.as_str());
    let known: Vec<&str> = ignored.chain(DeadReason::ALL.iter().map(|reason| reason.as_str())).collect();
    if !known.contains(&reason) {
        bail!("--reason {reason:?} is none; there are {}", known.join(", "));
    }
    Ok(())
}
