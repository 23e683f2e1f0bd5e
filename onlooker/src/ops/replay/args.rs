//! The commands.

use super::super::at::{At, Told, Work};
use super::super::look::{duration, parse_time, place};
use super::super::raw::Source;
use super::super::table::{row, table};
use super::super::{Sight, exit};
use super::diff::{Compared, Difference, ShadowRows, compare};
use super::plan::{Kind, Shadow, Wish};
use super::rooms::{self, Step};
use super::swap::{Swapping, confirm, refuse_replay, show_changes};
use crate::cli::say;
use crate::config::Config;
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Judges views again, by the rules that they were judged by, into a shadow beside the live counts
///
/// Reads `views` with its own offsets and times, so that every verdict is the one of the first time, at any speed. An
/// interrupted replay goes on where it was when it is run again.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: onlooker replay --from 2026-11-29T00:00Z --into /tmp/shadow && onlooker diff /tmp/shadow"
)]
pub(crate) struct ReplayArgs {
    /// Views from then on: a time (2026-11-29T00:00Z), or how long ago (24h). Default: all
    #[arg(long, value_parser = parse_time)]
    from: Option<i64>,
    /// Views before then. Default: all that are judged by now
    #[arg(long, value_parser = parse_time)]
    to: Option<i64>,
    #[command(flatten)]
    into: Into,
    #[command(flatten)]
    at: At,
}

/// Counts verdicts again into a shadow beside the live counts, and replaces live counts that are wrong
///
/// With --swap each live count that is not what the log gives, in the counters or in the archive, is replaced by what it
/// gives, while views come in. The old ones are kept in the shadow until --confirm. Exit code 3 if any is still wrong.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples: onlooker rebuild --into /tmp/shadow && onlooker diff /tmp/shadow\n          \
                        onlooker rebuild --into /tmp/shadow --swap && onlooker verify --all\n          \
                        onlooker rebuild --into /tmp/shadow --confirm"
)]
pub(crate) struct RebuildArgs {
    /// Also replace live counts that are wrong by what the log gives
    #[arg(long, conflicts_with_all = ["confirm", "back", "partial"])]
    swap: bool,
    /// Forget what a swap replaced
    #[arg(long, conflicts_with = "back")]
    confirm: bool,
    /// Put back what a swap replaced, with the views that came since
    #[arg(long)]
    back: bool,
    #[command(flatten)]
    into: Into,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Clone, clap::Args)]
struct Into {
    /// The shadow: a folder, made if it is not there, or an earlier shadow to go on with
    #[arg(long)]
    into: PathBuf,
    /// Of this item alone; may be repeated
    #[arg(long = "item", value_name = "ITEM")]
    items: Vec<String>,
    /// The items' site; may be left out where there is only one
    #[arg(long, requires = "items")]
    site: Option<String>,
    /// Records a second (default: as fast as it goes)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Also where retention has removed the beginning of what is to be read
    #[arg(long)]
    partial: bool,
}

/// Shows each count that is not the same in a shadow
///
/// Exit code 3 if any differs.
#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// The shadow
    shadow: PathBuf,
    #[command(flatten)]
    at: At,
}

pub(crate) async fn replay(args: ReplayArgs, told: Told) -> Result<ExitCode> {
    let wish = args.into.wish(&told, args.from, args.to)?;
    let work = Reading { kind: Kind::Replay, wish, into: args.into, json: args.at.json, swap: None };
    args.at.with_source(told, work).await
}

pub(crate) async fn rebuild(args: RebuildArgs, told: Told) -> Result<ExitCode> {
    let folder = &args.into.into;
    if args.swap || args.back || args.confirm {
        refuse_replay(folder)?;
    }
    if args.confirm {
        let counts = confirm(folder)?;
        let line = json!({ "confirmed": counts });
        say(&if args.at.json { format!("{line}\n") } else { format!("{counts} old counts are gone\n") })?;
        return Ok(exit(false));
    }
    let wish = args.into.wish(&told, None, None)?;
    let swap = (args.swap || args.back).then_some(args.back);
    let work = Reading { kind: Kind::Rebuild, wish, into: args.into, json: args.at.json, swap };
    args.at.with_source(told, work).await
}

impl Into {
    fn wish(&self, told: &Told, from_ms: Option<i64>, to_ms: Option<i64>) -> Result<Wish> {
        let mut items = None;
        if !self.items.is_empty() {
            let site = told.site(self.site.as_deref())?;
            let key = |item: &String| {
                let (key, _) = place(&site, item, 1)?;
                anyhow::Ok(String::from_utf8_lossy(key.as_bytes()).into_owned())
            };
            let mut keys = self.items.iter().map(key).collect::<Result<Vec<_>>>()?;
            keys.sort_unstable();
            keys.dedup();
            items = Some(keys);
        }
        if from_ms.zip(to_ms).is_some_and(|(from, to)| from >= to) {
            bail!("--to is not after --from");
        }
        Ok(Wish { from_ms, to_ms, items, partial: self.partial, rules: None })
    }
}

struct Reading {
    kind: Kind,
    wish: Wish,
    into: Into,
    json: bool,
    /// What is wrong is swapped; true: back.
    swap: Option<bool>,
}

impl Work<ExitCode> for Reading {
    async fn on<S: Sight>(self, source: Source<S>, config: Config) -> Result<ExitCode> {
        let Self { kind, wish, into, json, swap } = self;
        if swap == Some(true) {
            let shadow = Shadow::read(&into.into)?;
            let shadow = shadow.with_context(|| format!("there is no shadow {}", into.into.display()))?;
            if shadow.generation != source.generation() {
                bail!("the shadow is of log {}, and this is log {}", shadow.generation, source.generation());
            }
            let swapping = Swapping { source: &source, shadow: &shadow, folder: &into.into };
            return show_changes(&swapping.back().await?, json, "put back");
        }
        let mut shadow = Shadow::plan(&source, &into.into, kind, &wish, &config).await?;
        let mut teller = Teller::new(json);
        let tell = |step| teller.tell(step);
        let source = Arc::new(source);
        let reading = (Arc::clone(&source), config.clone());
        read(reading.0, &mut shadow, &into.into, reading.1, into.rate, into.partial, tell).await?;
        if swap.is_some() {
            let swapping = Swapping { source: &source, shadow: &shadow, folder: &into.into };
            return show_changes(&swapping.swap(&config).await?, json, "replaced");
        }
        let name = into.into.display();
        if !json {
            say(&format!("{} offsets are in {name}; `onlooker diff {name}` compares\n", shadow.offsets()))?;
        }
        Ok(exit(false))
    }
}

pub(super) async fn read<S: Sight>(
    source: Arc<Source<S>>,
    shadow: &mut Shadow,
    folder: &Path,
    mut config: Config,
    rate: Option<u32>,
    partial: bool,
    tell: impl FnMut(Step) -> Result<()>,
) -> Result<()> {
    config.embedded.dir = folder.to_owned();
    rooms::run(source, shadow, config, rate, partial, tell).await
}

/// Progress: a line for each step on standard error, or as JSON on standard output.
pub(super) struct Teller {
    json: bool,
    told: Option<Instant>,
    /// What was done already when it began, or went on.
    before: Option<i64>,
}

impl Teller {
    pub(super) fn new(json: bool) -> Self {
        Self { json, told: None, before: None }
    }

    pub(super) fn tell(&mut self, step: Step) -> Result<()> {
        let before = *self.before.get_or_insert(step.done);
        let every = if std::io::stderr().is_terminal() { 1 } else { 10 };
        if !step.whole && self.told.is_some_and(|told| told.elapsed() < Duration::from_secs(every)) {
            return Ok(());
        }
        self.told = Some(Instant::now());
        let seconds = step.elapsed.as_secs_f64();
        let per_s = (step.done - before) as f64 / seconds.max(0.001);
        let left_ms = (step.of - step.done) as f64 / per_s.max(0.001) * 1_000.0;
        if self.json {
            let line = json!({ "done": step.done, "of": step.of, "per_s": per_s.round(), "left_ms": left_ms.round() });
            return say(&format!("{line}\n"));
        }
        let eta = match step {
            Step { whole: true, .. } => "nothing".to_owned(),
            Step { done, .. } if done == before => "?".to_owned(),
            _ => duration(left_ms as i64),
        };
        // Nobody may be reading, and the reading goes on.
        let _ = writeln!(
            std::io::stderr(),
            "{} of {} offsets, {per_s:.0} a second, {eta} left",
            step.done,
            step.of
        );
        Ok(())
    }
}

pub(crate) async fn diff(args: DiffArgs, told: Told) -> Result<ExitCode> {
    let shadow = Shadow::read(&args.shadow)?;
    let shadow = shadow.with_context(|| format!("there is no shadow {}", args.shadow.display()))?;
    let rows = shadow.rows(&args.shadow, &told.config).await?;
    let lacks = shadow.kind == Kind::Rebuild && shadow.begin.iter().any(|begin| *begin > 0);
    let (differences, compared) = args.at.with_source(told, Comparing { shadow, rows }).await?;
    let code = show(&differences, &compared, args.at.json, true)?;
    if lacks && !args.at.json {
        say(
            "the shadow does not have what retention had removed before it was begun: there counts are lower\n",
        )?;
    }
    Ok(code)
}

struct Comparing {
    shadow: Shadow,
    rows: ShadowRows,
}

impl Work<(Vec<Difference>, Compared)> for Comparing {
    async fn on<S: Sight>(self, source: Source<S>, _: Config) -> Result<(Vec<Difference>, Compared)> {
        compare(&source, &self.shadow, self.rows).await
    }
}

pub(super) fn show(
    differences: &[Difference],
    compared: &Compared,
    json: bool,
    days: bool,
) -> Result<ExitCode> {
    let shown: Vec<&Difference> = differences.iter().filter(|d| days || d.scope == "*").collect();
    if json {
        for difference in &shown {
            say(&format!("{}\n", serde_json::to_string(difference)?))?;
        }
        say(&format!("{}\n", json!({ "compared": compared })))?;
        return Ok(exit(compared.differences > 0));
    }
    if !shown.is_empty() {
        let mut rows = vec![row!["item", "site", "scope", "views", "then", "change", "uniques", "then"]];
        for d in &shown {
            rows.push(row![
                d.item,
                d.site,
                if d.scope == "*" { "all" } else { &d.scope },
                d.live_views,
                d.shadow_views,
                format!("{:+}", i128::from(d.shadow_views) - i128::from(d.live_views)),
                d.live_uniques,
                d.shadow_uniques,
            ]);
        }
        say(&table(&rows))?;
    }
    say(&format!(
        "{} counts compared, {} differ; {} views here, {} there\n",
        compared.counts, compared.differences, compared.live_views, compared.shadow_views
    ))?;
    Ok(exit(compared.differences > 0))
}
