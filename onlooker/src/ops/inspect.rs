//! `onlooker inspect`: everything that the stores have about an item.

use super::at::{At, Told};
use super::look::{duration, place, time};
use super::{Out, Sight, exit};
use crate::cli::say;
use anyhow::{Context, Result, bail};
use onlooker_event::{CountKey, DayNumber, Scope};
use onlooker_ports::{Archive, Archived, CountObserver, KeyView, LogObserver, Topic};
use onlooker_sketch::{Encoding, Sketch, bounds};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::process::ExitCode;

/// Shows everything that the stores have about an item: sketch, number, whether and when archived, where it lives
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: onlooker inspect /a/post --site blog --day 2026-11-30")]
pub(crate) struct InspectArgs {
    /// The item
    item: String,
    /// The item's site; may be left out where there is only one
    #[arg(long)]
    site: Option<String>,
    /// Of this UTC day (YYYY-MM-DD; default: of all time)
    #[arg(long)]
    day: Option<String>,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ask {
    site: String,
    item: String,
    day: Option<i32>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    site: String,
    item: String,
    /// `*`, or the day as YYYYMMDD.
    scope: String,
    generation: String,
    /// The bucket: all that belongs to one partition of `views.counted` stands together.
    partition: i32,
    /// Redis Cluster's slot and the sketch's key, where there is such.
    slot: Option<u16>,
    key: Option<String>,
    /// Where the counters stand.
    applied: Option<i64>,
    /// Everything below it is archived.
    durable: Option<i64>,
    /// The end of the partition.
    end: i64,
    store: Option<Held>,
    archive: Option<Held>,
    /// True if the store's sketch and the archive's have the same registers.
    same_registers: Option<bool>,
}

/// What one of the stores holds.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Held {
    views: Option<u64>,
    /// They are those below this offset.
    views_below: Option<i64>,
    views_changed: bool,
    sketch: Option<SketchFacts>,
    /// The sketch holds the records below this offset; in the store only while it is not archived.
    sketch_below: Option<i64>,
    ttl_ms: Option<u64>,
    /// When the number last changed, by the log. Seconds since 1970.
    changed_s: Option<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SketchFacts {
    bytes: usize,
    /// Why the bytes are no sketch.
    invalid: Option<String>,
    encoding: Option<String>,
    uniques: Option<u64>,
    low: Option<u64>,
    high: Option<u64>,
    /// How many registers have the value that is the index.
    histogram: Vec<u32>,
}

impl SketchFacts {
    fn of(bytes: &[u8]) -> (Self, Option<Sketch>) {
        let mut facts = Self {
            bytes: bytes.len(),
            invalid: None,
            encoding: None,
            uniques: None,
            low: None,
            high: None,
            histogram: Vec::new(),
        };
        match Sketch::from_redis(bytes) {
            Err(error) => {
                facts.invalid = Some(error.to_string());
                (facts, None)
            }
            Ok(sketch) => {
                let encoding = if sketch.encoding() == Encoding::Dense { "dense" } else { "sparse" };
                let count = sketch.count();
                let (low, high) = bounds(count);
                let mut histogram = vec![0; 64];
                sketch.registers().iter().for_each(|value| histogram[usize::from(*value)] += 1);
                while histogram.last() == Some(&0) {
                    histogram.pop();
                }
                facts.encoding = Some(encoding.to_owned());
                (facts.uniques, facts.low, facts.high) = (Some(count), Some(low), Some(high));
                facts.histogram = histogram;
                (facts, Some(sketch))
            }
        }
    }
}

pub(super) async fn answer<S: Sight>(sight: &S, ask: Ask, out: Out) -> Result<()> {
    let (item, partition) = place(&ask.site, &ask.item, sight.partitions())?;
    let scope = ask.day.map_or(Scope::All, |day| Scope::Day(DayNumber(day)));
    let key = CountKey::new(scope, item.as_bytes());
    let keys = std::slice::from_ref(&key);
    let (applied, seen) = sight.counts().observe(partition, keys).await.context("the counters")?;
    let archived = sight.archive().read(keys).await.context("the archive")?;
    let durable = sight.archive().durable(partition).await.context("the archive")?;
    let bounds = sight.log().bounds(Topic::Counted).await.context("the log")?;
    let end = usize::try_from(partition).ok().and_then(|at| bounds.get(at)).map_or(0, |bounds| bounds.end);
    let (store, in_store) = seen.into_iter().next().map_or((None, None), in_store);
    let (archive, in_archive) = archived.into_iter().next().map_or((None, None), in_archive);
    let (slot, name) = sight.location(partition, &key).unzip();
    let line = Line {
        site: ask.site,
        item: ask.item,
        scope: String::from_utf8_lossy(key.scope_bytes()).into_owned(),
        generation: sight.generation().to_owned(),
        partition,
        slot,
        key: name,
        applied,
        durable,
        end,
        store,
        archive,
        same_registers: in_store.zip(in_archive).map(|(a, b)| a.register_eq(&b)),
    };
    out.line(&line).await
}

fn in_store(view: KeyView) -> (Option<Held>, Option<Sketch>) {
    if view == KeyView::default() {
        return (None, None);
    }
    let (facts, sketch) = view.sketch.as_deref().map(SketchFacts::of).unzip();
    let held = Held {
        views: view.number.map(|number| number.n),
        views_below: view.number.map(|number| number.u),
        views_changed: view.number_dirty,
        sketch: facts,
        sketch_below: view.sketch_dirty,
        ttl_ms: view.ttl.and_then(|ttl| u64::try_from(ttl.as_millis()).ok()),
        changed_s: view.number.map(|number| number.changed_s),
    };
    (Some(held), sketch.flatten())
}

fn in_archive(archived: Archived) -> (Option<Held>, Option<Sketch>) {
    if archived == Archived::default() {
        return (None, None);
    }
    let (facts, sketch) = archived.sketch.as_ref().map(|(bytes, _)| SketchFacts::of(bytes)).unzip();
    let held = Held {
        views: archived.number.map(|(n, _)| n),
        views_below: archived.number.map(|(_, u)| u),
        sketch: facts,
        sketch_below: archived.sketch.map(|(_, t)| t),
        ..Held::default()
    };
    (Some(held), sketch.flatten())
}

pub(crate) async fn run(args: InspectArgs, told: Told) -> Result<ExitCode> {
    let ask = Ask {
        site: told.site(args.site.as_deref())?,
        item: args.item.clone(),
        day: args.day.as_deref().map(day).transpose()?,
    };
    let mut lines = Vec::new();
    args.at
        .ask(told, super::Ask::Inspect(ask), |line| {
            lines.push(line);
            Ok(())
        })
        .await?;
    let mut invalid = false;
    for value in lines {
        let text = value.to_string();
        let line: Line = serde_json::from_value(value)?;
        say(&if args.at.json { text + "\n" } else { show(&line)? })?;
        let held = [&line.store, &line.archive].into_iter().flatten();
        invalid |= held.filter_map(|held| held.sketch.as_ref()).any(|sketch| sketch.invalid.is_some());
    }
    Ok(exit(invalid))
}

/// A day as people write it.
pub(super) fn day(text: &str) -> Result<i32> {
    let compact: String = text.split('-').collect();
    match DayNumber::parse_compact(compact.as_bytes()) {
        Some(day) if text.len() == 10 => Ok(day.0),
        _ => bail!("--day wants YYYY-MM-DD, got {text:?}"),
    }
}

fn show(line: &Line) -> Result<String> {
    let mut out = String::new();
    let scope = if line.scope == "*" { "all time".to_owned() } else { format!("day {}", line.scope) };
    writeln!(out, "{} of site {}, {scope}", line.item, line.site)?;
    write!(out, "  lives in      log {}, partition {}", line.generation, line.partition)?;
    if let Some(slot) = line.slot {
        write!(out, ", slot {slot}")?;
    }
    writeln!(out)?;
    if let Some(key) = &line.key {
        writeln!(out, "  key           {key}")?;
    }
    let offset =
        |offset: Option<i64>| offset.map_or_else(|| "nothing".to_owned(), |at| format!("below {at}"));
    writeln!(
        out,
        "  partition     counted {}, archived {}, end {}",
        offset(line.applied),
        offset(line.durable),
        line.end
    )?;
    for (name, held) in [("counters", &line.store), ("archive", &line.archive)] {
        match held {
            None => writeln!(out, "  {name:<12}  nothing about it")?,
            Some(held) => show_held(&mut out, name, held)?,
        }
    }
    if let Some(same) = line.same_registers {
        let told =
            if same { "the same registers" } else { "other registers (the newer one has been raised since)" };
        writeln!(out, "  compared      the counters' sketch and the archive's have {told}")?;
    }
    Ok(out)
}

fn show_held(out: &mut String, name: &str, held: &Held) -> Result<()> {
    let state = |dirty: bool| {
        if name == "archive" {
            ""
        } else if dirty {
            ", not archived yet"
        } else {
            ", archived"
        }
    };
    match held.views {
        Some(views) => {
            let below = held.views_below.map_or_else(String::new, |u| format!(" (those below {u})"));
            writeln!(out, "  {name:<12}  {views} views{below}{}", state(held.views_changed))?;
        }
        None => writeln!(out, "  {name:<12}  no number of views")?,
    }
    if let Some(changed_s) = held.changed_s.filter(|changed_s| *changed_s > 0) {
        writeln!(out, "                changed last at {}", time(i64::from(changed_s) * 1_000))?;
    }
    let Some(sketch) = &held.sketch else {
        writeln!(out, "                no sketch")?;
        return Ok(());
    };
    if let Some(invalid) = &sketch.invalid {
        writeln!(out, "                {} bytes that are NO SKETCH: {invalid}", sketch.bytes)?;
        return Ok(());
    }
    let below = held.sketch_below.map_or_else(String::new, |t| format!(" (of records below {t})"));
    writeln!(
        out,
        "                {} unique viewers, {} to {} with 95 %{below}{}",
        sketch.uniques.unwrap_or(0),
        sketch.low.unwrap_or(0),
        sketch.high.unwrap_or(0),
        state(held.sketch_below.is_some())
    )?;
    let encoding = sketch.encoding.as_deref().unwrap_or_default();
    writeln!(out, "                {encoding} sketch, {} bytes", sketch.bytes)?;
    if let Some(ttl_ms) = held.ttl_ms.and_then(|ttl| i64::try_from(ttl).ok()) {
        writeln!(out, "                may be evicted; expires in {}", duration(ttl_ms))?;
    }
    let histogram: Vec<String> =
        sketch.histogram.iter().enumerate().map(|(v, n)| format!("{v}:{n}")).collect();
    writeln!(out, "                registers by value {}", histogram.join(" "))?;
    Ok(())
}
