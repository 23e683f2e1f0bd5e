//! What became of a count.

use super::compare::Wrong;
use super::item;
use crate::cli::say;
use crate::ops::exit;
use crate::ops::table::{maybe, row, table};
use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use std::process::ExitCode;

/// What was done.
pub(in super::super) struct Changes {
    pub(super) all: Vec<Change>,
    /// For so long at most nothing of a partition was counted.
    pub(super) longest_hold_ms: u64,
}

/// What became of a count.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Change {
    pub(super) site: String,
    pub(super) item: String,
    /// `*`, or the day as YYYYMMDD.
    pub(super) scope: String,
    /// Where it was wrong: `archive`, `counters`.
    pub(super) places: Vec<&'static str>,
    pub(super) views: u64,
    /// None: what stood there was no sketch.
    pub(super) uniques: Option<u64>,
    pub(super) views_now: u64,
    pub(super) uniques_now: u64,
    /// Why it is still wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left: Option<String>,
}

/// Why a count is still wrong.
pub(super) fn why(wrong: &Wrong, partition: i32, put_at: Option<i64>) -> String {
    let newest = wrong.stored.number.below.max(wrong.stored.members.below);
    if wrong.places.contains(&"counters") || put_at.is_none_or(|at| newest < at) {
        return format!("counts of partition {partition} were changed or lost meanwhile: run it again");
    }
    format!(
        "the archive's row is of the same offset as the new one and does not give way to it: run it again when partition \
         {partition} has counted one more view of anything"
    )
}

impl Change {
    pub(super) fn of(wrong: &Wrong) -> Result<Self> {
        let item = item(&wrong.key)?;
        let (site, item) = item.parts();
        // What readers see; where that is right, what they would see once it is evicted.
        let held = match &wrong.stored.counters {
            Some(counters) if wrong.places.contains(&"counters") => counters,
            _ => &wrong.stored.archive,
        };
        Ok(Self {
            site: site.to_owned(),
            item: item.to_owned(),
            scope: String::from_utf8_lossy(wrong.key.scope_bytes()).into_owned(),
            places: wrong.places.clone(),
            views: held.views.unwrap_or(0),
            uniques: held.count().ok().map(|count| count.sketch.count()),
            views_now: wrong.right.views,
            uniques_now: wrong.right.sketch.count(),
            left: None,
        })
    }
}

/// What a swap did.
pub(in super::super) fn show_changes(changes: &Changes, json: bool, done: &str) -> Result<ExitCode> {
    let Changes { all: changes, longest_hold_ms } = changes;
    let left = changes.iter().filter(|change| change.left.is_some()).count();
    if json {
        for change in changes {
            say(&format!("{}\n", serde_json::to_string(change)?))?;
        }
        say(&format!(
            "{}\n",
            json!({ "swapped": changes.len() - left, "left": left, "longest_hold_ms": longest_hold_ms })
        ))?;
        return Ok(exit(left > 0));
    }
    if !changes.is_empty() {
        let mut rows =
            vec![row!["item", "site", "scope", "wrong in", "views", "now", "uniques", "now", "left"]];
        for change in changes {
            rows.push(row![
                change.item,
                change.site,
                if change.scope == "*" { "all" } else { &change.scope },
                change.places.join(", "),
                change.views,
                change.views_now,
                maybe(change.uniques),
                change.uniques_now,
                change.left.as_deref().unwrap_or(""),
            ]);
        }
        say(&table(&rows))?;
    }
    say(&match (changes.len(), left) {
        (0, _) => "nothing was wrong\n".to_owned(),
        (all, left) => format!(
            "{} counts {done}, {left} left; counting stood still for {longest_hold_ms} ms at most\n",
            all - left
        ),
    })?;
    Ok(exit(left > 0))
}
