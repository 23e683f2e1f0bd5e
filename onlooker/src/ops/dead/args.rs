//! The command line of `onlooker dead`.

use super::super::at::{At, Told};
use super::super::exit;
use super::super::look::{now_ms, time};
use super::super::table::{maybe, row, table};
use super::super::tail::known_reason;
use super::fields::{fields, hexdump};
use super::{Ask, Done, Line, Which, Whole};
use crate::cli::say;
use anyhow::{Context, Result};
use std::process::ExitCode;
use std::time::Duration;

/// Lists, shows, retries or discards what could not be judged
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: onlooker dead list --reason unknown_site\n         onlooker dead retry --reason unknown_site"
)]
pub(crate) struct DeadArgs {
    #[command(subcommand)]
    command: DeadCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DeadCommand {
    /// Lists letters that are open: reason, and where the original stood. Exit code 3 if there are any
    #[command(after_help = "Example: onlooker dead list --reason unknown_site --since 24h")]
    List {
        /// Only with this reason, e.g. unknown_site
        #[arg(long)]
        reason: Option<String>,
        /// Only those that were set aside in this time, e.g. 24h
        #[arg(long, value_parser = super::super::look::parse_duration)]
        since: Option<Duration>,
        /// Those too that were retried or discarded
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        at: At,
    },
    /// Shows a letter: what of it can be read, and its bytes, which may hold a user agent
    #[command(after_help = "Example: onlooker dead show 3:17")]
    Show {
        /// Where `list` says that it stands
        #[arg(value_name = "PARTITION:OFFSET", value_parser = place)]
        place: (i32, i64),
        /// With user agents and referrers among the fields
        #[arg(long)]
        with_headers: bool,
        #[command(flatten)]
        at: At,
    },
    /// Appends the originals to views again, so that they are judged. Exit code 3 if some were left
    #[command(after_help = "Example: onlooker dead retry --reason unknown_site")]
    Retry {
        #[command(flatten)]
        which: WhichArgs,
        #[command(flatten)]
        at: At,
    },
    /// Leaves letters as they are for good, so that `list` does not show them. Exit code 3 if some were left
    #[command(after_help = "Example: onlooker dead discard 3:17")]
    Discard {
        #[command(flatten)]
        which: WhichArgs,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, clap::Args)]
struct WhichArgs {
    /// Letters, as `list` names them
    #[arg(
        value_name = "PARTITION:OFFSET",
        value_parser = place,
        required_unless_present_any = ["reason", "all"],
        conflicts_with_all = ["reason", "all"]
    )]
    places: Vec<(i32, i64)>,
    /// All with this reason
    #[arg(long)]
    reason: Option<String>,
    /// All that are open
    #[arg(long, conflicts_with = "reason")]
    all: bool,
}

impl WhichArgs {
    fn which(self) -> Result<Which> {
        self.reason.as_deref().map(known_reason).transpose()?;
        Ok(Which { places: self.places, reason: self.reason, since_ms: None })
    }
}

fn place(text: &str) -> Result<(i32, i64), String> {
    let place = text.split_once(':').and_then(|(partition, offset)| {
        Some((partition.parse().ok()?, offset.parse().ok().filter(|offset: &i64| *offset >= 0)?))
    });
    place.ok_or_else(|| "wants PARTITION:OFFSET as `onlooker dead list` shows it, e.g. 3:17".to_owned())
}

pub(crate) async fn run(args: DeadArgs, told: Told) -> Result<ExitCode> {
    match args.command {
        DeadCommand::List { reason, since, all, at } => {
            reason.as_deref().map(known_reason).transpose()?;
            let since = since.map(|since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
            let since_ms = since.map(|since| now_ms().saturating_sub(since));
            list(&at, told, Ask::List { which: Which { reason, since_ms, places: Vec::new() }, settled: all })
                .await
        }
        DeadCommand::Show { place, with_headers, at } => show(&at, told, place, with_headers).await,
        DeadCommand::Retry { which, at } => work(&at, told, Ask::Retry(which.which()?)).await,
        DeadCommand::Discard { which, at } => work(&at, told, Ask::Discard(which.which()?)).await,
    }
}

async fn list(at: &At, told: Told, ask: Ask) -> Result<ExitCode> {
    let mut rows = vec![row!["letter", "set aside", "reason", "original", "site", "item", "state", "detail"]];
    let mut open = 0;
    at.ask(told, super::super::Ask::Dead(ask), |value| {
        let text = value.to_string();
        let line: Line = serde_json::from_value(value)?;
        open += usize::from(line.state == "open" || line.state == "begun");
        if at.json {
            return say(&(text + "\n"));
        }
        let Line { state, record } = line;
        let original = format!(
            "{} {}:{}",
            record.source_topic.unwrap_or_default(),
            maybe(record.source_partition),
            maybe(record.source_offset)
        );
        rows.push(row![
            format!("{}:{}", record.partition, record.offset),
            time(record.append_ms),
            maybe(record.reason),
            original,
            maybe(record.site),
            maybe(record.item),
            state,
            // What is wrong may quote what came.
            maybe(record.detail.map(|detail| detail.escape_debug().to_string())),
        ]);
        Ok(())
    })
    .await?;
    if !at.json {
        if rows.len() > 1 {
            say(&table(&rows))?;
        }
        say(&format!("{open} letters are open\n"))?;
    }
    Ok(exit(open > 0))
}

async fn show(at: &At, told: Told, place: (i32, i64), headers: bool) -> Result<ExitCode> {
    at.ask(told, super::super::Ask::Dead(Ask::Show { place, headers }), |value| {
        if at.json {
            return say(&format!("{value}\n"));
        }
        let whole: Whole = serde_json::from_value(value)?;
        let bytes = |text: &str| -> Result<Vec<u8>> {
            let digit = |at| u8::from_str_radix(text.get(at..at + 2).unwrap_or(""), 16);
            (0..text.len())
                .step_by(2)
                .map(|at| digit(at).context("the answer is no hexadecimal text"))
                .collect()
        };
        let (key, payload) = (bytes(&whole.key)?, bytes(&whole.payload)?);
        say(&format!("{}\n", whole.line.record.line()))?;
        say(&format!(
            "it is {}; the original was appended {}\n",
            whole.line.state,
            time(whole.source_append_ms)
        ))?;
        say(&format!("fields of a view:\n{}", fields(&payload, headers)))?;
        say(&format!("key, {} bytes:\n{}", key.len(), hexdump(&key)))?;
        say(&format!("value, {} bytes:\n{}", payload.len(), hexdump(&payload)))
    })
    .await?;
    Ok(exit(false))
}

async fn work(at: &At, told: Told, ask: Ask) -> Result<ExitCode> {
    let (mut done, mut left) = (0, 0);
    let word = if matches!(ask, Ask::Retry(_)) { "sent again" } else { "discarded" };
    at.ask(told, super::super::Ask::Dead(ask), |value| {
        let text = value.to_string();
        let line: Done = serde_json::from_value(value)?;
        let is_left = line.outcome == "left";
        left += usize::from(is_left);
        done += usize::from(!is_left);
        if at.json {
            return say(&(text + "\n"));
        }
        let detail = if line.detail.is_empty() { String::new() } else { format!(": {}", line.detail) };
        say(&format!("{}:{} {}{detail}\n", line.partition, line.offset, line.outcome))
    })
    .await?;
    if !at.json {
        say(&format!("{done} letters were {word}, {left} were left\n"))?;
    }
    Ok(exit(left > 0))
}
