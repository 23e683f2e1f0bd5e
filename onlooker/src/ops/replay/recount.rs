//! The command: what counts would be by other rules.

use super::super::Sight;
use super::super::at::{At, Told, Work};
use super::super::look::parse_time;
use super::super::raw::Source;
use super::args::{Teller, read, show};
use super::diff::{Compared, Difference, compare};
use super::plan::{Kind, Shadow, Wish};
use crate::cli::say;
use crate::config::Config;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Shows what counts would be under other rules
///
/// Judges views again by the rules of another configuration file ([filter], [sites]) and shows each count that differs.
/// Exit code 3 if any does. With --into the result is kept, and can be made live: `onlooker export` of that folder, and
/// `onlooker restore` into a new folder or a new log generation of a cluster.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples: onlooker recount --rules stricter.toml --since 24h --dry-run\n          \
                        onlooker recount --rules stricter.toml --into /tmp/stricter")]
pub(crate) struct RecountArgs {
    /// A configuration file with the other rules; what it does not set stays
    #[arg(long)]
    rules: PathBuf,
    /// Views from then on: a time, or how long ago. Default: all
    #[arg(long, value_parser = parse_time)]
    since: Option<i64>,
    /// Keep nothing
    #[arg(long, required_unless_present = "into")]
    dry_run: bool,
    /// Keep the recount in this folder, made if it is not there, or go on with an earlier one by the same rules
    #[arg(long, value_name = "SHADOW", conflicts_with_all = ["dry_run", "since"])]
    into: Option<PathBuf>,
    /// Also counts of single days
    #[arg(long)]
    days: bool,
    /// Also where retention has removed the beginning of what is to be read
    #[arg(long)]
    partial: bool,
    #[command(flatten)]
    at: At,
}

pub(crate) async fn recount(args: RecountArgs, told: Told) -> Result<ExitCode> {
    let text = std::fs::read_to_string(&args.rules);
    let text = text.with_context(|| format!("cannot read {}", args.rules.display()))?;
    let rules: toml::Table = text.parse().with_context(|| args.rules.display().to_string())?;
    if let Some(section) = rules.keys().find(|key| !["filter", "sites"].contains(&key.as_str())) {
        bail!("{}: [{section}] is no rule; rules are [filter] and [sites]", args.rules.display());
    }
    let (json, days) = (args.at.json, args.days);
    let wish = Wish {
        from_ms: args.since,
        partial: args.partial,
        rules: Some(rules.to_string()),
        ..Wish::default()
    };
    let work = Recounting { wish, rules, json, into: args.into.clone() };
    let (differences, compared) = args.at.with_source(told, work).await?;
    let code = show(&differences, &compared, json, days)?;
    if let Some(into) = args.into.filter(|_| !json) {
        let name = into.display();
        say(&format!(
            "{name} keeps this. To make it live: let no more views come in, run this again, then `onlooker export FILE --dir \
             {name}` and `onlooker restore FILE` into a new folder (--dir, --identity-key) or a new generation of a cluster \
             (--cluster), and go on there by these rules\n"
        ))?;
    }
    Ok(code)
}

struct Recounting {
    wish: Wish,
    rules: toml::Table,
    json: bool,
    into: Option<PathBuf>,
}

impl Work<(Vec<Difference>, Compared)> for Recounting {
    async fn on<S: Sight>(self, source: Source<S>, config: Config) -> Result<(Vec<Difference>, Compared)> {
        let temporary = tempfile::tempdir().context("making a temporary folder")?;
        let folder = self.into.as_deref().unwrap_or(temporary.path());
        let config = config.with_rules(&self.rules)?;
        let mut shadow = Shadow::plan(&source, folder, Kind::Replay, &self.wish, &config).await?;
        let source = Arc::new(source);
        let mut teller = Teller::new(false);
        let tell = |step| if self.json { Ok(()) } else { teller.tell(step) };
        read(Arc::clone(&source), &mut shadow, folder, config.clone(), None, self.wish.partial, tell).await?;
        compare(&source, &shadow, shadow.rows(folder, &config).await?).await
    }
}
