//! `onlooker ledger`: whether every accepted view has exactly one outcome.

mod book;
mod keep;
mod metrics;
mod reading;

pub(crate) use keep::{LedgerConfig, keep};
#[cfg(all(test, feature = "cluster"))]
pub(crate) use metrics::described_metrics;

use super::at::{At, Told};
use super::look::{now_ms, time};
use super::table::{row, table};
use super::{Out, Sight, exit};
use crate::cli::say;
use anyhow::{Context, Result};
use book::Sums;
use reading::Reading;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

/// Shows per site and hour of receive time: accepted = counted + ignored + dead + pending
///
/// Exit code 3 if it does not close: the filter has passed views that have no outcome, or views have more than one.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: onlooker ledger --site blog --since 24h || alert 'views are missing'")]
pub(crate) struct LedgerArgs {
    /// Only of this site
    #[arg(long)]
    site: Option<String>,
    /// Views that were appended in this time, from the beginning of its first hour
    #[arg(long, default_value = "24h", value_parser = super::look::parse_duration)]
    since: Duration,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ask {
    site: Option<String>,
    /// Milliseconds since 1970.
    since_ms: i64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum Line {
    Hour(Hour),
    Total(Total),
}

/// A site's hour.
#[derive(Debug, Serialize, Deserialize)]
struct Hour {
    site: String,
    /// Its begin, milliseconds since 1970.
    hour_ms: i64,
    accepted: u64,
    counted: u64,
    /// By reason.
    ignored: BTreeMap<String, u64>,
    dead: u64,
    /// Not judged yet.
    pending: u64,
    /// Passed by the filter without an outcome.
    missing: u64,
    /// Outcomes of views that had one already.
    extra: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Total {
    closes: bool,
    accepted: u64,
    pending: u64,
    missing: u64,
    extra: u64,
    /// Views that were appended from then on. Milliseconds since 1970.
    begins_ms: i64,
    /// Later than was asked for: outcomes from before are not kept any more.
    shortened: bool,
    /// Some of the views without an outcome: partition and offset in `views`.
    examples: Vec<(i32, i64)>,
}

/// Views that are named.
const EXAMPLES: usize = 10;
const HOUR_MS: i64 = 3_600_000;

pub(super) async fn answer<S: Sight>(sight: &S, ask: Ask, out: Out) -> Result<()> {
    let mut reading = Reading::begin(sight, ask.since_ms).await?;
    reading.catch_up(sight).await?;
    reading.pending(sight).await?;
    let mut total = Total {
        closes: true,
        accepted: 0,
        pending: 0,
        missing: 0,
        extra: 0,
        begins_ms: reading.begins_ms,
        shortened: reading.begins_ms > ask.since_ms,
        examples: Vec::new(),
    };
    for (site, hour_ms, sums) in reading.book.sheet() {
        if ask.site.as_deref().is_some_and(|only| only != site) {
            continue;
        }
        total.accepted += sums.accepted;
        total.pending += sums.pending;
        total.missing += sums.missing;
        total.extra += sums.extra;
        out.line(&Line::Hour(hour(site, hour_ms, sums))).await?;
    }
    total.closes = total.missing == 0 && total.extra == 0;
    if total.missing > 0 {
        total.examples = reading.book.examples(EXAMPLES);
    }
    out.line(&Line::Total(total)).await
}

fn hour(site: &str, hour_ms: i64, sums: Sums) -> Hour {
    let Sums { accepted, counted, ignored, dead, pending, missing, extra } = sums;
    let ignored = ignored.into_iter().map(|(reason, n)| (reason.as_str().to_owned(), n)).collect();
    Hour { site: site.to_owned(), hour_ms, accepted, counted, ignored, dead, pending, missing, extra }
}

pub(crate) async fn run(args: LedgerArgs, told: Told) -> Result<ExitCode> {
    let since = i64::try_from(args.since.as_millis()).unwrap_or(i64::MAX);
    let since_ms = now_ms().saturating_sub(since).max(0).div_euclid(HOUR_MS) * HOUR_MS;
    let ask = Ask { site: args.site, since_ms };
    let mut rows = vec![row![
        "hour",
        "site",
        "accepted",
        "counted",
        "ignored",
        "dead",
        "pending",
        "missing",
        "extra",
        "why ignored"
    ]];
    let mut total = None;
    args.at
        .ask(told, super::Ask::Ledger(ask), |line| {
            if args.at.json {
                say(&format!("{line}\n"))?;
            }
            match serde_json::from_value(line)? {
                Line::Hour(hour) => {
                    let why: Vec<String> =
                        hour.ignored.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
                    rows.push(row![
                        time(hour.hour_ms).get(..16).unwrap_or_default(),
                        hour.site,
                        hour.accepted,
                        hour.counted,
                        hour.ignored.values().sum::<u64>(),
                        hour.dead,
                        hour.pending,
                        hour.missing,
                        hour.extra,
                        why.join(", "),
                    ]);
                }
                Line::Total(found) => total = Some(found),
            }
            Ok(())
        })
        .await?;
    let total = total.context("the answer has no end")?;
    if !args.at.json {
        if rows.len() > 1 {
            say(&table(&rows))?;
        }
        say(&show(&total))?;
    }
    Ok(exit(!total.closes))
}

fn show(total: &Total) -> String {
    let Total { accepted, pending, missing, extra, begins_ms, .. } = total;
    let mut out = format!("{accepted} views since {}, {pending} of them not judged yet: ", time(*begins_ms));
    out.push_str(&match total.closes {
        true => "every other one has one outcome\n".to_owned(),
        false => format!("DOES NOT CLOSE: {missing} have no outcome, {extra} outcomes are too many\n"),
    });
    if total.shortened {
        out.push_str("what came before cannot be told: its outcomes are not kept any more\n");
    }
    if !total.examples.is_empty() {
        let places: Vec<String> =
            total.examples.iter().map(|(partition, offset)| format!("{partition}:{offset}")).collect();
        out.push_str(&format!("without an outcome in views: {}\n", places.join(" ")));
    }
    out
}
