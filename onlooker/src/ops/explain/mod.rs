//! `onlooker explain`: what became of a view, and why.

mod find;
mod show;

use super::at::{At, Told};
use super::look::now_ms;
use super::record::{Record, TopicName, uuid};
use super::{Out, Sight, exit};
use crate::cli::say;
use anyhow::{Context, Result};
use find::{Found, SKEW_MS, Span, Wanted};
use onlooker_event::{CountKey, DayNumber, ItemKey, Scope, client_id_key, dedup_key, partition_of};
use onlooker_ports::{Archive, CountObserver, LogObserver, Topic};
use onlooker_proto::ClaimRef;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;
use std::time::Duration;

/// Shows what became of a view: where it is in the log, its outcome and why, which view it repeats, where it was counted
///
/// Exit code 3 if the view is not in the log, could not be judged, or was passed without an outcome.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: onlooker explain 019aa0d5-4c00-7abc-8def-0123456789ab")]
pub(crate) struct ExplainArgs {
    /// The view's id as the collector answered it, or the id that the client gave it
    view_id: String,
    /// Looks only at what was appended in this time, e.g. 2h. A client's id says no time, so that all of the log is read
    #[arg(long, value_parser = super::look::parse_duration)]
    since: Option<Duration>,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ask {
    view_id: String,
    /// Milliseconds since 1970.
    since_ms: Option<i64>,
}

/// What became of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Counted,
    Ignored,
    Dead,
    /// Accepted, and the filter has not come to it.
    NotJudged,
    /// The filter has passed it, and there is no outcome.
    NoOutcome,
    NotFound,
}

/// A view that is called so. Times in milliseconds since 1970.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    state: State,
    view: Option<Record>,
    verdict: Option<Record>,
    repeats: Option<Repeats>,
    /// Where it is counted.
    counts: Vec<Counts>,
    /// Records of its partition that are judged before it.
    before_it: Option<i64>,
    /// Where `views` begins, if the view is not there: partition, first offset, its append time.
    log_begins: Vec<(i32, i64, Option<i64>)>,
    /// When it was received, as its id says.
    received_ms: Option<i64>,
}

/// The counted view that made this one a repeat.
#[derive(Debug, Serialize, Deserialize)]
struct Repeats {
    earlier: Record,
    /// Between the two, by event time. Seconds.
    apart_s: i64,
    /// Of the site's window, if that was why.
    window_s: Option<i64>,
    left_s: Option<i64>,
}

/// A sketch and a number that the view is in.
#[derive(Debug, Serialize, Deserialize)]
struct Counts {
    /// `*:site:item`, or `YYYYMMDD:site:item`.
    key: String,
    partition: i32,
    /// The sketch's key in Redis.
    stored_as: Option<String>,
    /// In the counters store; none: the store does not say where it stands.
    applied: Option<bool>,
    /// In the archive.
    durable: bool,
}

pub(super) async fn answer<S: Sight>(sight: &S, ask: Ask, out: Out) -> Result<()> {
    let wanted = Wanted::new(&ask.view_id);
    let found = find::views(sight, &wanted, ask.since_ms).await?;
    if found.is_empty() {
        return out.line(&without_view(sight, &wanted, ask.since_ms).await?).await;
    }
    for found in found {
        out.line(&of_view(sight, found).await?).await?;
    }
    Ok(())
}

async fn of_view<S: Sight>(sight: &S, Found { record, view }: Found) -> Result<Line> {
    let judged = sight.log().group(Topic::Views).await.context("the filter's group")?;
    let held =
        judged.and_then(|group| group.partitions.into_iter().nth(usize::try_from(record.partition).ok()?));
    let committed = held.and_then(|(committed, _)| committed).map_or(0, |committed| committed.offset);
    let item = ItemKey::new(&view.site, &view.item);
    let of_item = partition_of(item.as_bytes(), sight.partitions());
    let mut line = Line {
        state: State::NotJudged,
        verdict: None,
        repeats: None,
        counts: Vec::new(),
        before_it: None,
        log_begins: Vec::new(),
        received_ms: None,
        view: None,
    };
    if committed <= record.offset {
        line.before_it = Some(record.offset - committed);
        line.view = Some(record);
        return Ok(line);
    }
    let views = sight.topic(Topic::Views);
    let verdict = find::verdict(sight, Some(record.append_ms), Some(of_item), |verdict| {
        // Counters set records aside as well.
        let of_views = verdict.source_topic.as_ref().is_none_or(|topic| *topic == views);
        let (partition, offset) = (Some(record.partition), Some(record.offset));
        of_views
            && verdict.kind != "mark"
            && (verdict.source_partition, verdict.source_offset) == (partition, offset)
    })
    .await?;
    line.state = State::NoOutcome;
    if let Some(verdict) = verdict {
        (line.state, line.counts) = outcome(sight, &verdict, &view.site, &view.item, view.event_ms).await?;
        if line.state == State::Ignored {
            line.repeats = repeats(sight, &record, &view, &verdict, of_item).await?;
        }
        line.verdict = Some(verdict);
    }
    line.view = Some(record);
    Ok(line)
}

/// What an outcome means, and where the view is counted.
async fn outcome<S: Sight>(
    sight: &S,
    verdict: &Record,
    site: &onlooker_event::SiteId,
    item: &onlooker_event::ItemId,
    event_ms: i64,
) -> Result<(State, Vec<Counts>)> {
    match verdict.kind.as_str() {
        "counted" => {}
        "ignored" => return Ok((State::Ignored, Vec::new())),
        _ => return Ok((State::Dead, Vec::new())),
    }
    let (item, partition) = (ItemKey::new(site, item), verdict.partition);
    let applied = sight.counts().observe(partition, &[]).await.context("the counters")?.0;
    let durable = sight.archive().durable(partition).await.context("the archive")?;
    let of = |scope| {
        let key = CountKey::new(scope, item.as_bytes());
        Counts {
            stored_as: sight.location(partition, &key).map(|(_, name)| name),
            key: String::from_utf8_lossy(key.as_bytes()).into_owned(),
            partition,
            applied: applied.map(|applied| applied > verdict.offset),
            durable: durable.is_some_and(|durable| durable > verdict.offset),
        }
    };
    Ok((State::Counted, vec![of(Scope::All), of(Scope::Day(DayNumber::of_ms(event_ms)))]))
}

/// The counted view that an ignored one repeats.
async fn repeats<S: Sight>(
    sight: &S,
    record: &Record,
    view: &onlooker_event::View,
    verdict: &Record,
    of_item: i32,
) -> Result<Option<Repeats>> {
    let rules = sight.judged_by()?;
    let item = ItemKey::new(&view.site, &view.item);
    let window_s = rules.windows_s.get(view.site.as_str()).map(|window| i64::from(*window));
    let apart_s = |event_ms: i64| (event_ms.div_euclid(1_000) - view.event_ms.div_euclid(1_000)).abs();
    // Nothing older is remembered, and nothing younger was there. What is a window away was usually appended so.
    let slices_ms = 2_000 * i64::from(rules.slice_s);
    let usual_ms = (window_s.unwrap_or(0) * 1_000).min(slices_ms);
    let span = |back_ms: i64| Span {
        name: TopicName::Counted,
        partition: Some(of_item),
        from_ms: Some(record.append_ms - back_ms - SKEW_MS),
        to_ms: Some(verdict.append_ms + SKEW_MS),
    };
    let is_earlier = |claim: &ClaimRef| {
        claim.source_offset < 0
            || (claim.source_partition == record.partition && claim.source_offset < record.offset)
    };
    let by_window = verdict.reason.as_deref() == Some("recent_view");
    let id = view.client_id.as_ref().map(|id| client_id_key(view.viewer, id.as_str(), item.as_bytes()));
    let key = dedup_key(view.viewer, item.as_bytes());
    let within = |ms| window_s.is_none_or(|window| apart_s(ms) < window);
    let is_it = |claim: &ClaimRef| match by_window {
        true => claim.claim == key && within(claim.event_ms) && is_earlier(claim),
        false => find::is_id(claim, id) && is_earlier(claim),
    };
    let mut found = Vec::new();
    if by_window || verdict.reason.as_deref() == Some("duplicate_id") {
        found = find::claims(sight, span(usual_ms), is_it).await?;
        if found.is_empty() && usual_ms < slices_ms {
            found = find::claims(sight, span(slices_ms), is_it).await?;
        }
    }
    let apart = |earlier: &Record| apart_s(earlier.event_ms.unwrap_or(view.event_ms));
    let nearest = found.into_iter().min_by_key(apart);
    Ok(nearest.map(|earlier| {
        let apart_s = apart(&earlier);
        let window_s = window_s.filter(|_| by_window);
        Repeats { earlier, apart_s, window_s, left_s: window_s.map(|window| window - apart_s) }
    }))
}

/// The view is not in `views`: perhaps its outcome still is in the log.
async fn without_view<S: Sight>(sight: &S, wanted: &Wanted, since_ms: Option<i64>) -> Result<Line> {
    let received_ms = wanted.received_ms();
    let from_ms = since_ms.or(received_ms);
    let verdict = match wanted.view_id.map(uuid) {
        Some(id) => {
            let is = |verdict: &Record| verdict.view_id.as_ref() == Some(&id);
            find::verdict(sight, from_ms, None, is).await?
        }
        None => None,
    };
    let mut line = Line {
        state: State::NotFound,
        view: None,
        verdict: None,
        repeats: None,
        counts: Vec::new(),
        before_it: None,
        log_begins: Vec::new(),
        received_ms,
    };
    if let Some(verdict) = verdict {
        line.state = State::Dead;
        let ids = verdict.site.as_deref().zip(verdict.item.as_deref()).zip(verdict.event_ms);
        if let Some(((site, item), event_ms)) = ids {
            let site = onlooker_event::SiteId::new(site)?;
            let item = onlooker_event::ItemId::new(item)?;
            (line.state, line.counts) = outcome(sight, &verdict, &site, &item, event_ms).await?;
        }
        line.verdict = Some(verdict);
    }
    let told = sight.topic(Topic::Views);
    let bounds = sight.log().bounds(Topic::Views).await.with_context(|| format!("bounds of {told}"))?;
    for (partition, bounds) in (0..).zip(bounds) {
        let range = (partition, bounds.earliest..bounds.stable);
        let mut first = None;
        super::look::read(sight, Topic::Views, &[range], |batch| {
            first = batch.get(0).map(|record| record.append_ms);
            Ok(false)
        })
        .await?;
        line.log_begins.push((partition, bounds.earliest, first));
    }
    Ok(line)
}

pub(crate) async fn run(args: ExplainArgs, told: Told) -> Result<ExitCode> {
    let since = args.since.map(|since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    let ask =
        Ask { view_id: args.view_id.clone(), since_ms: since.map(|since| now_ms().saturating_sub(since)) };
    let mut attention = false;
    args.at
        .ask(told, super::Ask::Explain(ask), |value| {
            let text = value.to_string();
            let line: Line = serde_json::from_value(value)?;
            attention |= matches!(line.state, State::NotFound | State::Dead | State::NoOutcome);
            say(&if args.at.json { text + "\n" } else { show::show(&args.view_id, &line)? })
        })
        .await?;
    Ok(exit(attention))
}
