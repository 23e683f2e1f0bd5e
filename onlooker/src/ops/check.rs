//! `onlooker check`: whether servers and settings are what counting rests on.

use super::at::{At, Told};
use super::finding::{Finding, Level, in_time};
use super::look::{duration, read};
use super::{Out, Sight, exit};
use crate::cli::say;
use anyhow::{Context, Result};
use onlooker_ports::{Bounds, LogObserver, Topic};
use onlooker_proto::decode_view;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Range;
use std::process::ExitCode;

/// Checks that servers and settings are what counting rests on; changes nothing
///
/// Eviction policies, memory, copies and retention of topics, tables, clocks, the version of the viewers' key; of a folder
/// its disk and durability. Exit code 3 if something contradicts the protocols or does not answer; warnings alone are 0.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: onlooker check --config cluster.toml && systemctl start onlooker-filter")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ask {}

/// The newest views of each partition that are looked at.
const NEWEST: i64 = 20;
/// A view that the log took so long before it was received says that clocks differ. Milliseconds.
const EARLY_MS: i64 = 1_000;

pub(super) async fn answer<S: Sight>(sight: &S, _: Ask, out: Out) -> Result<()> {
    let findings = sight.settings().await;
    let log_answers =
        !findings.iter().any(|finding| finding.level == Level::Down && finding.subject == "kafka");
    for finding in &findings {
        out.line(finding).await?;
    }
    if log_answers {
        // A topic that is missing was said above; the rest of the answer stands.
        let views = in_time(of_views(sight)).await;
        for finding in views.unwrap_or_else(|why| vec![Finding::new(Level::Down, "the newest views", why)]) {
            out.line(&finding).await?;
        }
    }
    Ok(())
}

/// What the newest views say of those who made them.
async fn of_views<S: Sight>(sight: &S) -> Result<Vec<Finding>> {
    let bounds = sight.log().bounds(Topic::Views).await;
    let bounds = bounds.with_context(|| format!("bounds of {}", sight.topic(Topic::Views)))?;
    let newest = |bounds: Bounds| bounds.earliest.max(bounds.stable - NEWEST)..bounds.stable;
    let ranges: Vec<(i32, Range<i64>)> = (0..).zip(bounds.into_iter().map(newest)).collect();
    let (mut versions, mut early_ms) = (BTreeSet::new(), 0);
    read(sight, Topic::Views, &ranges, |batch| {
        for record in batch.iter() {
            if let Ok(view) = decode_view(record.payload) {
                versions.insert(view.key_version);
                early_ms = early_ms.max(view.received_ms - record.append_ms);
            }
        }
        Ok(true)
    })
    .await?;
    Ok(vec![key(&versions, sight.judged_by()?.key_version), clocks(early_ms)])
}

fn key(seen: &BTreeSet<u32>, configured: Option<u32>) -> Finding {
    let listed: Vec<String> = seen.iter().map(ToString::to_string).collect();
    let listed = listed.join(", ");
    let (level, detail) = match (seen.len(), configured) {
        (0, _) => (Level::Ok, "there are no views".to_owned()),
        (1, Some(version)) if !seen.contains(&version) => (
            Level::Warning,
            format!("the newest views carry version {listed}, and this configuration says {version}"),
        ),
        (1, _) => (Level::Ok, format!("the newest views carry version {listed}")),
        _ => (
            Level::Warning,
            format!(
                "the newest views carry versions {listed}: collectors with different keys count a viewer twice"
            ),
        ),
    };
    Finding::new(level, "key of viewers", detail)
}

fn clocks(early_ms: i64) -> Finding {
    if early_ms > EARLY_MS {
        let detail = format!("a collector's is {} ahead of the log's", duration(early_ms));
        return Finding::new(Level::Warning, "clocks of collectors", detail);
    }
    Finding::new(
        Level::Ok,
        "clocks of collectors",
        "none of the newest views was received after the log took it",
    )
}

pub(crate) async fn run(args: CheckArgs, told: Told) -> Result<ExitCode> {
    let mut worst = Level::Ok;
    args.at
        .ask(told, super::Ask::Check(Ask {}), |value| {
            let text = value.to_string();
            let finding: Finding = serde_json::from_value(value)?;
            worst = worst.max(finding.level);
            say(&if args.at.json { text + "\n" } else { super::status::show(&finding) })
        })
        .await?;
    Ok(exit(worst > Level::Warning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_are_told() {
        let level = |seen: &[u32], configured| key(&seen.iter().copied().collect(), configured).level;
        assert_eq!(level(&[], Some(1)), Level::Ok);
        assert_eq!(level(&[2], Some(2)), Level::Ok);
        assert_eq!(level(&[2], None), Level::Ok);
        assert_eq!(level(&[2], Some(1)), Level::Warning);
        assert_eq!(level(&[1, 2], Some(1)), Level::Warning);
        assert_eq!((clocks(999).level, clocks(1_001).level), (Level::Ok, Level::Warning));
    }
}
