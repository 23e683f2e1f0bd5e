//! What became of a view, for people.

use super::super::look::{duration, time};
use super::super::record::Record;
use super::{Counts, Line, Repeats, State};
use anyhow::Result;
use std::fmt::Write;

pub(super) fn show(called: &str, line: &Line) -> Result<String> {
    let mut out = String::new();
    let any = line.view.as_ref().or(line.verdict.as_ref());
    let text = |field: Option<&String>| field.cloned().unwrap_or_else(|| "-".into());
    match any {
        None => writeln!(out, "view {called}")?,
        Some(record) => writeln!(
            out,
            "view {}: {} of site {}",
            text(record.view_id.as_ref()),
            text(record.item.as_ref()),
            text(record.site.as_ref())
        )?,
    }
    match &line.view {
        Some(view) => of_view(&mut out, view)?,
        None => gone(&mut out, line)?,
    }
    write!(out, "  outcome  ")?;
    match (&line.verdict, line.state) {
        (Some(verdict), _) => of_verdict(&mut out, verdict)?,
        (None, State::NotJudged) => writeln!(
            out,
            "accepted, not judged yet: {} records of its partition come first (`onlooker lag`)",
            line.before_it.unwrap_or(0)
        )?,
        (None, State::NotFound) => writeln!(out, "none is in the log")?,
        (None, _) => writeln!(
            out,
            "NONE: the filter has passed it, and neither views.counted nor views.ignored nor views.dead has it. If those \
             begin after it (`onlooker topics`), retention removed the outcome; else run `onlooker ledger`"
        )?,
    }
    if let Some(repeats) = &line.repeats {
        of_repeats(&mut out, repeats)?;
    }
    if line.state == State::Ignored || line.state == State::Dead {
        writeln!(out, "  counts   it is in none")?;
    }
    for counts in &line.counts {
        of_counts(&mut out, counts)?;
    }
    Ok(out)
}

fn of_view(out: &mut String, view: &Record) -> Result<()> {
    let at = |ms: Option<i64>| ms.map_or_else(|| "-".into(), time);
    writeln!(
        out,
        "  in log   {} {}:{}, appended {}, received {}, event {}",
        view.topic,
        view.partition,
        view.offset,
        time(view.append_ms),
        at(view.received_ms),
        at(view.event_ms)
    )?;
    write!(out, "  viewer   {}", view.viewer.as_deref().unwrap_or("-"))?;
    if let Some(version) = view.key_version {
        write!(out, ", key version {version}")?;
    }
    if let Some(id) = &view.client_id {
        write!(out, ", id {id}")?;
    }
    if !view.facts.is_empty() {
        write!(out, ", {}", view.facts.join(", "))?;
    }
    writeln!(out)?;
    if let Some(trace) = &view.trace_id {
        writeln!(out, "  trace    {trace}")?;
    }
    Ok(())
}

fn gone(out: &mut String, line: &Line) -> Result<()> {
    let first = line.log_begins.iter().filter_map(|(.., ms)| *ms).min();
    write!(out, "  in log   not in views")?;
    if let Some(ms) = line.received_ms {
        write!(out, "; its id says that it was received {}", time(ms))?;
    }
    match first {
        Some(ms) => writeln!(out, "; views begins {}", time(ms))?,
        None => writeln!(out, "; views is empty")?,
    }
    for (partition, earliest, _) in line.log_begins.iter().filter(|(_, earliest, _)| *earliest > 0) {
        writeln!(
            out,
            "           retention removed what is below offset {earliest} of partition {partition}"
        )?;
    }
    Ok(())
}

fn of_verdict(out: &mut String, verdict: &Record) -> Result<()> {
    write!(out, "{}", verdict.kind)?;
    if let Some(reason) = &verdict.reason {
        write!(out, ": {reason}")?;
    }
    if let Some(detail) = &verdict.detail {
        write!(out, " ({detail})")?;
    }
    if let Some(version) = verdict.rule_version {
        write!(out, ", rule version {version}")?;
    }
    let Record { topic, partition, offset, append_ms, .. } = verdict;
    Ok(writeln!(out, ", {topic} {partition}:{offset}, appended {}", time(*append_ms))?)
}

fn of_repeats(out: &mut String, repeats: &Repeats) -> Result<()> {
    let Repeats { earlier, apart_s, window_s, left_s } = repeats;
    let seconds = |s: i64| if s == 0 { "0s".to_owned() } else { duration(s * 1_000) };
    write!(
        out,
        "  repeats  view {}, counted at {} {}:{}, event {}: {} apart",
        earlier.view_id.as_deref().unwrap_or("-"),
        earlier.topic,
        earlier.partition,
        earlier.offset,
        earlier.event_ms.map_or_else(|| "-".into(), time),
        seconds(*apart_s)
    )?;
    if let (Some(window), Some(left)) = (window_s, left_s) {
        write!(out, "; {} of the window of {} were left", seconds(*left), seconds(*window))?;
    }
    Ok(writeln!(out)?)
}

fn of_counts(out: &mut String, counts: &Counts) -> Result<()> {
    let Counts { key, partition, stored_as, applied, durable } = counts;
    write!(out, "  counts   {key}, partition {partition}")?;
    if let Some(name) = stored_as {
        write!(out, ", {name}")?;
    }
    let applied = match applied {
        Some(true) => "in the counters",
        Some(false) => "not in the counters yet",
        None => "the counters do not say where they stand",
    };
    let durable = if *durable { "in the archive" } else { "not in the archive yet" };
    Ok(writeln!(out, ": {applied}, {durable}")?)
}
