//! `onlooker lag`: how far each group is behind, in records and in time.

use super::at::{At, Told};
use super::look::{duration, now_ms, read};
use super::table::{maybe, row, table};
use super::{Out, Sight, exit};
use crate::cli::say;
use anyhow::{Context, Result};
use onlooker_ports::{Archive, Bounds, CountObserver, GroupState, GroupView, LogObserver, Topic};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

/// Shows how far filter and counter are behind, per partition, in records and in time
///
/// "applied" is what a room has taken in: the filter's verdicts, the counter's counts. "durable" is what survives the loss
/// of everything but the log and the archive. Transaction markers do not count as lag.
///
/// Exit code 3 if a record waits for longer than --max-age, or a group stands still, never began, or lost records to
/// retention.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: onlooker lag --max-age 60s || alert 'counts are late'")]
pub(crate) struct LagArgs {
    #[command(flatten)]
    at: At,
    /// Ask again every two seconds until interrupted
    #[arg(long)]
    watch: bool,
    /// Alarm if the oldest record that is not applied, or not durable, is older than this, e.g. 90s, 10m
    #[arg(long, value_parser = super::look::parse_duration)]
    max_age: Option<Duration>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ask {}

/// A partition as its group has it. Offsets are the next ones; ages in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    group: String,
    topic: String,
    partition: i32,
    /// `stable`, `rebalancing`, `empty`, `unknown`.
    state: String,
    owner: Option<String>,
    earliest: i64,
    end: i64,
    committed: Option<i64>,
    /// None: the store lost everything, or the room never began.
    applied: Option<i64>,
    durable: Option<i64>,
    waiting: Waiting,
    /// Not in the archive. The filter's verdicts are durable as soon as they are applied.
    undurable: Waiting,
    /// Records that retention removed before the group committed them.
    gone: i64,
    /// By how much `applied` moved in the last look, per second.
    per_s: Option<i64>,
    /// What wants attention, in words.
    notes: Vec<String>,
}

/// Records behind an offset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Waiting {
    /// How many; markers left out as far as they were looked at.
    records: i64,
    /// False: at most so many.
    exact: bool,
    /// Since the oldest of them was appended.
    age_ms: Option<i64>,
}

/// Records that are counted one by one; beyond, offsets are.
const COUNTED: i64 = 20_000;
/// Between two looks at a group that is behind.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const WATCH: Duration = Duration::from_secs(2);

/// Where a partition's group stands, as its stores say.
#[derive(Debug, Clone, Copy, Default)]
struct Standing {
    applied: Option<i64>,
    durable: Option<i64>,
}

pub(super) async fn answer<S: Sight>(sight: &S, _: Ask, out: Out) -> Result<()> {
    for topic in [Topic::Views, Topic::Counted] {
        let first = look(sight, topic).await?;
        let behind = first.iter().any(|line| line.waiting.records > 0);
        let lines = if behind {
            tokio::time::sleep(LOOK_AGAIN).await;
            let mut second = look(sight, topic).await?;
            for (line, before) in second.iter_mut().zip(&first) {
                compare(line, before, LOOK_AGAIN);
            }
            second
        } else {
            first
        };
        for line in &lines {
            out.line(line).await?;
        }
    }
    Ok(())
}

async fn look<S: Sight>(sight: &S, topic: Topic) -> Result<Vec<Line>> {
    let name = sight.topic(topic);
    let group = sight.log().group(topic).await.with_context(|| format!("the group that works on {name}"))?;
    let group = group.with_context(|| format!("no group works on {name}"))?;
    // Asked before the ends, so that no group is ahead of them.
    let mut standings = Vec::new();
    for (partition, (committed, _)) in (0..).zip(&group.partitions) {
        let committed = committed.as_ref().map(|committed| committed.offset);
        standings.push(match topic {
            Topic::Counted => Standing {
                applied: sight.counts().observe(partition, &[]).await.context("the counters")?.0,
                durable: sight.archive().durable(partition).await.context("the archive")?,
            },
            // A verdict and its offset are one transaction.
            _ => Standing { applied: committed, durable: committed },
        });
    }
    let bounds = sight.log().bounds(topic).await.with_context(|| format!("bounds of {name}"))?;
    let waiting = waiting(sight, topic, &bounds, standings.iter().map(|standing| standing.applied)).await?;
    let undurable = match topic {
        Topic::Counted => {
            self::waiting(sight, topic, &bounds, standings.iter().map(|standing| standing.durable)).await?
        }
        _ => waiting.clone(),
    };
    let now = bounds.iter().zip(&standings).zip(waiting.into_iter().zip(undurable));
    Ok((0..)
        .zip(now)
        .map(|(partition, ((bounds, standing), waits))| {
            line(&group, &name, partition, *bounds, *standing, waits)
        })
        .collect())
}

/// What of each partition lies behind its offset.
async fn waiting<S: Sight>(
    sight: &S,
    topic: Topic,
    bounds: &[Bounds],
    from: impl Iterator<Item = Option<i64>>,
) -> Result<Vec<Waiting>> {
    let from: Vec<i64> =
        from.zip(bounds).map(|(from, bounds)| from.unwrap_or(0).max(bounds.earliest)).collect();
    let range = |(from, bounds): (&i64, &Bounds)| *from..bounds.stable.min(from.saturating_add(COUNTED));
    let ranges: Vec<(i32, Range<i64>)> = (0..).zip(from.iter().zip(bounds).map(range)).collect();
    // By partition: how many, and when the first was appended.
    let mut seen: BTreeMap<i32, (i64, i64)> = BTreeMap::new();
    read(sight, topic, &ranges, |batch| {
        if let Some(first) = batch.get(0) {
            let (count, _) = seen.entry(batch.partition).or_insert((0, first.append_ms));
            *count += i64::try_from(batch.len())?;
        }
        Ok(true)
    })
    .await?;
    let now = now_ms();
    let of = |(partition, range): &(i32, Range<i64>), bounds: &Bounds| {
        let (count, first) = seen.get(partition).map_or((0, None), |(count, first)| (*count, Some(*first)));
        let uncounted = (bounds.stable - range.end).max(0);
        Waiting {
            records: count + uncounted,
            exact: uncounted == 0,
            age_ms: first.map(|first| (now - first).max(0)),
        }
    };
    Ok(ranges.iter().zip(bounds).map(|(range, bounds)| of(range, bounds)).collect())
}

fn line(
    group: &GroupView,
    topic: &str,
    partition: i32,
    bounds: Bounds,
    standing: Standing,
    (waiting, undurable): (Waiting, Waiting),
) -> Line {
    let held = usize::try_from(partition).ok().and_then(|at| group.partitions.get(at));
    let committed = held.and_then(|(committed, _)| committed.as_ref()).map(|committed| committed.offset);
    // A counter commits what is durable, now and then; what it needs is from where it stands.
    let needed = [standing.applied.or(standing.durable), standing.durable].into_iter().flatten().min();
    let gone = (bounds.earliest - needed.or(committed).unwrap_or(bounds.earliest)).max(0);
    let mut notes = Vec::new();
    if gone > 0 {
        notes.push(format!("{gone} records are gone: retention removed them before they were taken in"));
    }
    let stands = [committed, standing.applied, standing.durable].into_iter().flatten().max();
    if let Some(at) = stands.filter(|at| *at > bounds.end) {
        notes.push(format!(
            "ahead: it stands at {at}, and the log ends at {}: what comes is not taken in",
            bounds.end
        ));
    }
    if committed.is_none() && standing.applied.is_none() && bounds.end > 0 {
        notes.push("never began".to_owned());
    }
    match group.state {
        GroupState::Empty if waiting.records > 0 => notes.push("the group has no member".to_owned()),
        GroupState::Rebalancing => notes.push("the group is rebalancing".to_owned()),
        _ => {}
    }
    if bounds.end > bounds.stable {
        notes.push("a transaction is under way".to_owned());
    }
    Line {
        group: group.name.clone(),
        topic: topic.to_owned(),
        partition,
        state: group.state.as_str().to_owned(),
        owner: held.and_then(|(_, owner)| owner.clone()),
        earliest: bounds.earliest,
        end: bounds.end,
        committed,
        applied: standing.applied,
        durable: standing.durable,
        waiting,
        undurable,
        gone,
        per_s: None,
        notes,
    }
}

/// A record that has waited for so long is not one that is just being worked on.
const STUCK_MS: i64 = 10_000;

fn compare(line: &mut Line, before: &Line, between: Duration) {
    let (now, then) = (line.applied.unwrap_or(0), before.applied.unwrap_or(0));
    let ms = i64::try_from(between.as_millis()).unwrap_or(i64::MAX).max(1);
    line.per_s = Some((now - then) * 1_000 / ms);
    if now == then && line.waiting.age_ms.is_some_and(|age| age > STUCK_MS) && line.owner.is_some() {
        line.notes.push("stuck: it has an owner and does not move".to_owned());
    }
}

impl Line {
    fn alarms(&self, max_age: Option<Duration>) -> bool {
        let oldest = self.waiting.age_ms.max(self.undurable.age_ms).and_then(|age| u64::try_from(age).ok());
        let late = max_age.zip(oldest).is_some_and(|(max, oldest)| Duration::from_millis(oldest) > max);
        let words = ["gone", "ahead", "never began", "no member", "stuck"];
        late || self.notes.iter().any(|note| words.iter().any(|word| note.contains(word)))
    }
}

pub(crate) async fn run(args: LagArgs, told: impl Fn() -> Result<Told>) -> Result<ExitCode> {
    loop {
        let mut lines: Vec<Line> = Vec::new();
        args.at
            .ask(told()?, super::Ask::Lag(Ask {}), |line: Value| {
                if args.at.json {
                    say(&format!("{line}\n"))?;
                }
                lines.push(serde_json::from_value(line)?);
                Ok(())
            })
            .await?;
        if !args.at.json {
            say(&show(&lines))?;
        }
        if !args.watch {
            return Ok(exit(lines.iter().any(|line| line.alarms(args.max_age))));
        }
        tokio::time::sleep(WATCH).await;
    }
}

fn show(lines: &[Line]) -> String {
    let mut out = String::new();
    let heading = row![
        "partition",
        "end",
        "committed",
        "applied",
        "durable",
        "waiting",
        "oldest",
        "not durable",
        "oldest",
        "moves",
        "owner"
    ];
    for of_group in lines.chunk_by(|a, b| a.group == b.group) {
        let first = &of_group[0];
        out.push_str(&format!("group {} on {}: {}\n", first.group, first.topic, first.state));
        let mut rows = vec![heading.clone()];
        let records = |waiting: &Waiting| match waiting.exact {
            true => waiting.records.to_string(),
            false => format!("≤{}", waiting.records),
        };
        for line in of_group {
            rows.push(row![
                line.partition,
                line.end,
                maybe(line.committed),
                maybe(line.applied),
                maybe(line.durable),
                records(&line.waiting),
                maybe(line.waiting.age_ms.map(duration)),
                records(&line.undurable),
                maybe(line.undurable.age_ms.map(duration)),
                maybe(line.per_s.map(|per_s| format!("{per_s:+}/s"))),
                maybe(line.owner.as_deref()),
            ]);
        }
        out.push_str(&table(&rows));
        for line in of_group {
            for note in &line.notes {
                out.push_str(&format!("partition {}: {note}\n", line.partition));
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(state: GroupState) -> GroupView {
        let owner = (state == GroupState::Stable).then(|| "one@host".to_owned());
        GroupView { name: "counter".into(), state, members: 1, partitions: vec![(None, owner)] }
    }

    fn bounds(earliest: i64, end: i64) -> Bounds {
        Bounds { earliest, stable: end, end }
    }

    fn waits(records: i64, age_ms: i64) -> Waiting {
        Waiting { records, exact: true, age_ms: Some(age_ms) }
    }

    #[test]
    fn alarms_are_for_what_a_person_has_to_look_at() {
        let both = |records, age| (waits(records, age), waits(records, age));
        let standing = Standing { applied: Some(10), durable: Some(10) };
        let fine = line(&group(GroupState::Stable), "t", 0, bounds(0, 12), standing, both(2, 500));
        assert!(!fine.alarms(None) && !fine.alarms(Some(Duration::from_secs(1))), "{fine:?}");
        assert!(fine.alarms(Some(Duration::from_millis(400))));

        let alone = line(&group(GroupState::Empty), "t", 0, bounds(0, 12), standing, both(2, 500));
        assert!(alone.alarms(None), "{alone:?}");

        let passed = line(&group(GroupState::Stable), "t", 0, bounds(15, 20), standing, both(5, 1));
        assert_eq!((passed.gone, passed.alarms(None)), (5, true));

        let standing = Standing { applied: Some(30), durable: Some(10) };
        let ahead = line(&group(GroupState::Stable), "t", 0, bounds(0, 20), standing, both(0, 0));
        assert!(ahead.alarms(None), "{ahead:?}");

        let never = line(&group(GroupState::Unknown), "t", 0, bounds(0, 4), Standing::default(), both(4, 9));
        assert!(never.alarms(None), "{never:?}");
        let empty = line(&group(GroupState::Unknown), "t", 0, bounds(0, 0), Standing::default(), both(0, 0));
        assert!(!empty.alarms(None), "{empty:?}");
    }

    #[test]
    fn who_does_not_move_with_old_records_is_stuck() {
        let standing = Standing { applied: Some(10), durable: Some(10) };
        let at = |age| {
            let waiting = (waits(2, age), waits(2, age));
            line(&group(GroupState::Stable), "t", 0, bounds(0, 12), standing, waiting)
        };
        let (mut young, mut old) = (at(900), at(STUCK_MS + 1));
        compare(&mut young, &at(1), LOOK_AGAIN);
        compare(&mut old, &at(1), LOOK_AGAIN);
        assert_eq!((young.alarms(None), old.alarms(None)), (false, true));
        let mut moved = at(STUCK_MS + 1);
        compare(&mut moved, &Line { applied: Some(4), ..at(1) }, LOOK_AGAIN);
        assert_eq!((moved.per_s, moved.alarms(None)), (Some(6), false));
    }
}
