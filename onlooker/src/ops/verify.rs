//! `onlooker verify`: builds counts again from the log and compares.
//!
//! What makes it exact beside live traffic: whatever is stored says below which offset its records lie. A cell of the
//! archive has its timestamp, and what the counters hold is of the offset at which they stood in the moment of the
//! reading. So the log's records below just that offset are added up, and must give just that.

mod stored;

use super::at::{At, Told};
use super::look::{place, read};
use super::table::{maybe, row, table};
use super::{Out, Sight, exit};
use crate::cli::say;
use anyhow::{Context, Result, bail};
use onlooker_event::{CountKey, DayNumber, ItemKey, Scope};
use onlooker_ports::{Archive, Bounds, CountObserver, LogObserver, Topic};
use onlooker_proto::decode_counted;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::process::ExitCode;
use stored::{Check, ahead, of_archive, of_counters};

/// Builds counts again from the log and compares them, register by register, with the counters and the archive
///
/// Works beside live traffic. Exit code 3 if anything differs. What the log no longer has cannot be built again: where
/// retention removed records, or history was restored into this log, stored counts must hold at least what the log gives.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples: onlooker verify /a/post --site blog\n          onlooker verify --sample 1000"
)]
pub(crate) struct VerifyArgs {
    /// Items
    #[arg(required_unless_present_any = ["all", "sample"])]
    items: Vec<String>,
    /// The items' site; may be left out where there is only one
    #[arg(long)]
    site: Option<String>,
    /// So many counts of the archive, at random
    #[arg(long, conflicts_with_all = ["items", "all"])]
    sample: Option<usize>,
    /// All counts
    #[arg(long, conflicts_with = "items")]
    all: bool,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ask {
    which: Which,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Which {
    Items { site: String, items: Vec<String> },
    Sample(usize),
    All,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum Line {
    Differs(Difference),
    Verified(Summary),
}

/// A stored count that is not what the log gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Difference {
    /// `*:site:item`, or `YYYYMMDD:site:item`; `(partition)` where the partition itself stands wrong.
    key: String,
    partition: i32,
    /// `counters` or `archive`.
    place: String,
    /// `views` or `sketch`; of a partition `offset`.
    what: String,
    /// `too many`, `too few`, `missing`, `damaged`, `ahead` (of records that the log does not have), or of a sketch also
    /// `other members`.
    direction: String,
    /// It is of the records below this offset.
    below: i64,
    /// Views, or unique viewers; of a partition the offset, and the log's end.
    stored: Option<u64>,
    from_log: u64,
    /// Registers that are higher, and lower, than the log gives.
    registers_higher: usize,
    registers_lower: usize,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Summary {
    counts: u64,
    /// Stored numbers and sketches that were compared.
    compared: u64,
    records: u64,
    differences: u64,
    /// Partitions whose log does not begin at the beginning, or holds restored history.
    partial: Vec<i32>,
}

/// Keys of one question to the stores.
const TOGETHER: usize = 100;

pub(super) async fn answer<S: Sight>(sight: &S, ask: Ask, out: Out) -> Result<()> {
    let wanted = wanted(sight, ask.which).await?;
    let mut summary = Summary::default();
    for (partition, wanted) in (0..).zip(wanted) {
        if !matches!(&wanted, Wanted::Keys(keys) if keys.is_empty()) {
            verify(sight, partition, wanted, &mut summary, &out).await?;
        }
    }
    out.line(&Line::Verified(summary)).await
}

/// What of a partition is asked for.
enum Wanted {
    Keys(BTreeSet<CountKey>),
    /// With all their days.
    Items(HashSet<ItemKey>),
    /// These, and all that the log has.
    All(BTreeSet<CountKey>),
}

async fn wanted<S: Sight>(sight: &S, which: Which) -> Result<Vec<Wanted>> {
    let partitions = sight.partitions();
    let count = usize::try_from(partitions)?;
    if let Which::Items { site, items } = which {
        let mut wanted = vec![HashSet::new(); count];
        for item in items {
            let (key, partition) = place(&site, &item, partitions)?;
            wanted[usize::try_from(partition)?].insert(key);
        }
        let some = |items: HashSet<ItemKey>| {
            if items.is_empty() { Wanted::Keys(BTreeSet::new()) } else { Wanted::Items(items) }
        };
        return Ok(wanted.into_iter().map(some).collect());
    }
    let mut keys = Vec::new();
    let (sink, mut rows) = tokio::sync::mpsc::channel::<crate::carry::Rows>(4);
    let collecting = async {
        while let Some(rows) = rows.recv().await {
            keys.extend(rows.into_iter().map(|(key, _)| key));
        }
        Ok(())
    };
    let scanning = async { sight.scan(sink).await.context("the archive") };
    tokio::try_join!(scanning, collecting)?;
    let sampled = match which {
        Which::Sample(count) => {
            // The beginning of a shuffle (Fisher and Yates).
            let count = count.min(keys.len());
            for at in 0..count {
                let other = rand::random_range(at..keys.len());
                keys.swap(at, other);
            }
            keys.truncate(count);
            keys
        }
        _ => keys,
    };
    let mut wanted = vec![BTreeSet::new(); count];
    for key in sampled {
        wanted[onlooker_event::partition_of(key.item_bytes(), partitions) as usize].insert(key);
    }
    let all = matches!(which, Which::All);
    Ok(wanted.into_iter().map(|keys| if all { Wanted::All(keys) } else { Wanted::Keys(keys) }).collect())
}

async fn verify<S: Sight>(
    sight: &S,
    partition: i32,
    wanted: Wanted,
    summary: &mut Summary,
    out: &Out,
) -> Result<()> {
    // In this order: what is durable when it is asked for is archived when that is read, and the log's end lies behind
    // everything that was stored.
    let durable = sight.archive().durable(partition).await.context("the archive")?.unwrap_or(0);
    let earliest = bounds(sight, partition).await?.earliest;
    let keys = keys(sight, partition, wanted, earliest).await?;
    let mut checks: HashMap<CountKey, Vec<Check>> = HashMap::with_capacity(keys.len());
    let mut counted = 0;
    for keys in keys.chunks(TOGETHER) {
        let archived = sight.archive().read(keys).await.context("the archive")?;
        let (applied, seen) = sight.counts().observe(partition, keys).await.context("the counters")?;
        for ((key, archived), seen) in keys.iter().zip(archived).zip(seen) {
            let in_counters = applied.into_iter().flat_map(|applied| of_counters(&seen, applied, &archived));
            let in_counters: Vec<Check> = in_counters.collect();
            let mut of_key = of_archive(archived, durable);
            of_key.extend(in_counters);
            checks.insert(key.clone(), of_key);
        }
        counted = counted.max(applied.unwrap_or(0));
    }
    let to = checks.values().flatten().map(|check| check.below).max().unwrap_or(0);
    let Bounds { stable, end, .. } = bounds(sight, partition).await?;
    let mut partial = earliest > 0;
    let range = (partition, earliest..to.min(stable));
    read(sight, Topic::Counted, &[range], |batch| {
        summary.records += u64::try_from(batch.len())?;
        for record in batch.iter() {
            // What the counter cannot read it sets aside; so it is in no count.
            let Ok(view) = decode_counted(record.payload) else { continue };
            let item = ItemKey::new(&view.site, &view.item);
            if record.key != Some(item.as_bytes()) {
                continue;
            }
            if view.source_offset < 0 {
                partial = true;
                continue;
            }
            for scope in [Scope::All, Scope::Day(DayNumber::of_ms(view.event_ms))] {
                let of_key = checks.get_mut(&CountKey::new(scope, item.as_bytes()));
                for check in of_key.into_iter().flatten().filter(|check| record.offset < check.below) {
                    check.add(&view.viewer.0);
                }
            }
        }
        Ok(true)
    })
    .await?;
    if partial {
        summary.partial.push(partition);
    }
    let mut found = Vec::new();
    for (key, of_key) in checks {
        summary.counts += 1;
        summary.compared += u64::try_from(of_key.len())?;
        found.extend(of_key.iter().filter_map(|check| check.differs(&key, partition, partial, end)));
    }
    let stands = [("counters", counted), ("archive", durable)];
    found.extend(stands.into_iter().filter_map(|(place, at)| ahead(place, partition, at, end)));
    found.sort_by(|a, b| (&a.key, &a.place, &a.what).cmp(&(&b.key, &b.place, &b.what)));
    summary.differences += u64::try_from(found.len())?;
    for difference in found {
        out.line(&Line::Differs(difference)).await?;
    }
    Ok(())
}

async fn bounds<S: Sight>(sight: &S, partition: i32) -> Result<Bounds> {
    let bounds = sight.log().bounds(Topic::Counted).await.context("the log")?;
    let of = usize::try_from(partition).ok().and_then(|at| bounds.get(at)).copied();
    of.with_context(|| format!("the log has no partition {partition}"))
}

/// The keys that are asked for, with those that only the log names.
async fn keys<S: Sight>(sight: &S, partition: i32, wanted: Wanted, earliest: i64) -> Result<Vec<CountKey>> {
    let (mut keys, items) = match wanted {
        Wanted::Keys(keys) => return Ok(keys.into_iter().collect()),
        Wanted::All(keys) => (keys, None),
        Wanted::Items(items) => {
            let all = items.iter().map(|item| CountKey::new(Scope::All, item.as_bytes()));
            (all.collect(), Some(items))
        }
    };
    let stable = bounds(sight, partition).await?.stable;
    read(sight, Topic::Counted, &[(partition, earliest..stable)], |batch| {
        for record in batch.iter() {
            let Ok(view) = decode_counted(record.payload) else { continue };
            let item = ItemKey::new(&view.site, &view.item);
            let named = items.as_ref().is_none_or(|items| items.contains(&item));
            if named && view.source_offset >= 0 && record.key == Some(item.as_bytes()) {
                keys.insert(CountKey::new(Scope::All, item.as_bytes()));
                keys.insert(CountKey::new(Scope::Day(DayNumber::of_ms(view.event_ms)), item.as_bytes()));
            }
        }
        Ok(true)
    })
    .await?;
    Ok(keys.into_iter().collect())
}

pub(crate) async fn run(args: VerifyArgs, told: Told) -> Result<ExitCode> {
    let which = match (args.sample, args.all) {
        (Some(0), _) => bail!("--sample wants at least 1"),
        (Some(count), _) => Which::Sample(count),
        (None, true) => Which::All,
        (None, false) => Which::Items { site: told.site(args.site.as_deref())?, items: args.items },
    };
    let mut rows =
        vec![row!["count", "in", "what", "differs", "stored", "from the log", "registers +/-", "below"]];
    let mut summary = None;
    args.at
        .ask(told, super::Ask::Verify(Ask { which }), |line| {
            if args.at.json {
                say(&format!("{line}\n"))?;
            }
            match serde_json::from_value(line)? {
                Line::Differs(d) => rows.push(row![
                    d.key,
                    d.place,
                    d.what,
                    d.direction,
                    maybe(d.stored),
                    d.from_log,
                    format!("{}/{}", d.registers_higher, d.registers_lower),
                    d.below,
                ]),
                Line::Verified(found) => summary = Some(found),
            }
            Ok(())
        })
        .await?;
    let summary = summary.context("the answer has no end")?;
    if !args.at.json {
        if summary.differences > 0 {
            say(&table(&rows))?;
        }
        let differ = match summary.differences {
            0 => "all are what the log gives".to_owned(),
            n => format!("{n} DIFFER"),
        };
        say(&format!(
            "{} counts, {} stored numbers and sketches compared with {} records: {differ}\n",
            summary.counts, summary.compared, summary.records
        ))?;
        if !summary.partial.is_empty() {
            say(&format!(
                "of partitions {:?} the log does not have the beginning, or history was restored into it: there counts \
                 hold at least what the log gives\n",
                summary.partial
            ))?;
        }
    }
    Ok(exit(summary.differences > 0))
}
