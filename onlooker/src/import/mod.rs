//! `onlooker import`: sends an access log through the collector's own door, with the log's own times.
//!
//! Views of one viewer must arrive in the file's order, since each decides about the next, so one request is under way
//! at a time. Each view carries an id made of its line's bytes and position: a request that is repeated after a time-out
//! counts once. What was acknowledged is remembered on this machine (see `state`).

mod parse;
mod send;
mod state;

pub(crate) use state::hex;

use crate::cli::say;
use crate::config::Config;
use crate::target::{Target, at_folder};
use anyhow::{Context, Result, bail};
use flate2::read::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};
use parse::{Format, Host, Line, Unreadable};
use send::{Outcome, Sender};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Sends an access log through the collector, with the log's own times
#[derive(Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// The log: plain or gzip, `-` is not accepted (an import must be able to begin again)
    file: PathBuf,
    /// The log's format
    #[arg(long, value_enum, default_value = "combined")]
    format: Format,
    /// The site that the views belong to; may be left out where there is only one
    #[arg(long)]
    site: Option<String>,
    /// The collector (default: the folder if there is one, else http://127.0.0.1:8080)
    #[arg(long, env = "ONLOOKER_COLLECTOR_URL")]
    collector: Option<String>,
    /// The folder of `onlooker run`, running or not (default: embedded.dir, if it is there)
    #[arg(long, conflicts_with = "collector")]
    dir: Option<PathBuf>,
    /// A file that holds the site's server token; goes before --token and ONLOOKER_TOKEN
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// The site's server token; better given by the environment, where other users do not see it
    #[arg(long, env = "ONLOOKER_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Only requests with these methods, e.g. GET,HEAD (default: all)
    #[arg(long, value_delimiter = ',')]
    methods: Vec<String>,
    /// Only responses with these statuses, e.g. 200,304 (default: all)
    #[arg(long, value_delimiter = ',')]
    statuses: Vec<u16>,
    /// Views a request
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1000))]
    batch: u64,
    /// Where the record of what was sent is kept (default: the state folder of the user)
    #[arg(long)]
    state: Option<PathBuf>,
    /// Say what would be sent and send nothing
    #[arg(long)]
    dry_run: bool,
    /// The summary as JSON
    #[arg(long)]
    json: bool,
}

/// What came of an import.
#[derive(Debug, Default, Serialize)]
struct Summary {
    /// Lines read in this run.
    lines: u64,
    /// Lines that an earlier run had sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    already_sent_bytes: Option<u64>,
    /// Lines left out by --methods or --statuses.
    filtered: u64,
    /// Views that the collector took.
    accepted: u64,
    /// Views that the collector refused, by the error's code.
    rejected: BTreeMap<String, u64>,
    /// Lines that could not be read, by reason, each with its first line number.
    unreadable: BTreeMap<String, (u64, u64)>,
}

#[derive(Debug, Serialize)]
struct WireView<'a> {
    site: &'a str,
    item: &'a str,
    id: String,
    at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    viewer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ua: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    referrer: Option<&'a str>,
}

const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// Where the views go.
struct Door<'a> {
    url: &'a str,
    token: String,
    site: String,
    /// Names the door in the record of what was sent.
    name: &'a str,
    /// Where that record is.
    state: PathBuf,
}

pub(crate) async fn run(args: ImportArgs, config: Config, env: &[(String, String)]) -> Result<()> {
    let given = given_token(&args)?;
    match Target::choose(args.collector.as_deref(), args.dir.as_deref(), &config, DEFAULT_URL) {
        Target::Url(url) => {
            let Some(site) = args.site.clone() else {
                bail!("name the site that the views belong to: --site NAME")
            };
            let state = args.state.clone().unwrap_or_else(|| state::default_folder(env));
            let door = Door { url: &url, token: needed(given, args.dry_run)?, site, name: &url, state };
            import(&args, door).await
        }
        Target::Folder(folder) => {
            // It goes with the folder, wherever that is moved.
            let state = args.state.clone().unwrap_or_else(|| folder.join("imports"));
            at_folder(&folder, config, async |session| {
                let mut ours = session.tokens.keys();
                let site = match (&args.site, ours.next(), ours.next()) {
                    (Some(site), _, _) => site.clone(),
                    (None, Some(only), None) => only.clone(),
                    _ => bail!("name the site that the views belong to: --site NAME"),
                };
                let token = given.or_else(|| session.tokens.get(&site).cloned());
                let token = needed(token, args.dry_run)?;
                import(&args, Door { url: &session.url, token, site, name: "folder", state }).await
            })
            .await
        }
    }
}

fn given_token(args: &ImportArgs) -> Result<Option<String>> {
    Ok(match &args.token_file {
        Some(file) => {
            let read = std::fs::read_to_string(file);
            let text = read.with_context(|| format!("cannot read the token from {}", file.display()))?;
            Some(text.trim().to_owned())
        }
        None => args.token.clone(),
    })
}

fn needed(token: Option<String>, dry_run: bool) -> Result<String> {
    match token {
        Some(token) => Ok(token),
        None if dry_run => Ok(String::new()),
        None => bail!(
            "an import names viewers and past times, which only a server token may: give --token-file or ONLOOKER_TOKEN"
        ),
    }
}

async fn import(args: &ImportArgs, door: Door<'_>) -> Result<()> {
    let mut state = state::State::open(&door.state, door.name, &door.site)?;
    let (start, mut hash) = state.find(|| unpacked(&args.file))?;
    let mut sender = Sender::new(door.url, &door.token)?;

    let mut file = BufReader::with_capacity(1 << 18, unpacked(&args.file)?);
    let reading = || format!("reading {}", args.file.display());
    std::io::copy(&mut (&mut file).take(start), &mut std::io::sink()).with_context(reading)?;
    let bar = progress(&args.file, args.json)?;
    bar.set_position(start);

    let mut summary = Summary { already_sent_bytes: (start > 0).then_some(start), ..Summary::default() };
    let (mut offset, mut pending, mut body, mut line) = (start, 0u64, Vec::new(), Vec::new());
    loop {
        line.clear();
        let n = file.read_until(b'\n', &mut line).with_context(reading)?;
        // A last line without an end may still be growing. It is sent like the others if it can be read, and the record
        // then stands behind it; if not, it waits for the rest of it.
        if n > 0 {
            summary.lines += 1;
            if view(args, &door.site, &line, offset, &mut summary, &mut body) {
                pending += 1;
            }
            if line.ends_with(b"\n") || parse::line(&line, args.format).is_ok() {
                hash.update(&line);
                offset += n as u64;
            }
        }
        let full = pending >= args.batch || body.len() > 400_000;
        if n == 0 || full {
            if pending > 0 && !args.dry_run {
                let outcome = sender.send(&body, |problem| bar.set_message(problem)).await?;
                count(&mut summary, &outcome);
                state.save(offset, &hash)?;
            }
            body.clear();
            pending = 0;
            bar.set_position(offset);
        }
        if n == 0 {
            break;
        }
    }
    bar.finish_and_clear();
    report(args, &summary, &door.state)
}

/// Adds a line's view to the request's body; false if the line gives none.
fn view(
    args: &ImportArgs,
    site: &str,
    bytes: &[u8],
    offset: u64,
    summary: &mut Summary,
    body: &mut Vec<u8>,
) -> bool {
    let read = match parse::line(bytes, args.format) {
        Ok(read) => read,
        Err(why) => {
            note_unreadable(summary, why);
            return false;
        }
    };
    let method_ok =
        args.methods.is_empty() || args.methods.iter().any(|m| m.eq_ignore_ascii_case(read.method));
    let status_ok = args.statuses.is_empty() || args.statuses.contains(&read.status);
    if !method_ok || !status_ok {
        summary.filtered += 1;
        return false;
    }
    let view = wire(site, &read, line_id(bytes, offset));
    if serde_json::to_writer(&mut *body, &view).is_err() {
        return false;
    }
    body.push(b'\n');
    true
}

fn wire<'a>(site: &'a str, read: &Line<'a>, id: String) -> WireView<'a> {
    let (viewer, ip, ua) = match read.host {
        Host::Address(ip) => (None, Some(ip.to_string()), read.user_agent),
        // No address to derive an identity from: the name and user agent are the viewer.
        Host::Name(name) => (Some(format!("{name}|{}", read.user_agent.unwrap_or_default())), None, None),
    };
    WireView { site, item: read.path, id, at: read.at_ms, viewer, ip, ua, referrer: read.referrer }
}

/// The same line at the same place of the same file has the same id; two equal lines have two.
fn line_id(bytes: &[u8], offset: u64) -> String {
    let mut hash = Sha256::new();
    hash.update(offset.to_be_bytes());
    hash.update(bytes);
    format!("log-{}", &state::hex(&hash.finalize())[..24])
}

fn note_unreadable(summary: &mut Summary, why: Unreadable) {
    let first = summary.lines;
    summary.unreadable.entry(why.to_string()).or_insert((0, first)).0 += 1;
}

fn count(summary: &mut Summary, outcome: &Outcome) {
    summary.accepted += outcome.accepted;
    for (code, n) in &outcome.rejected {
        *summary.rejected.entry(code.clone()).or_default() += n;
    }
}

/// The file's content; gzip is recognised by its first two bytes.
fn unpacked(path: &Path) -> Result<Box<dyn Read>> {
    let open = || File::open(path).with_context(|| format!("cannot open {}", path.display()));
    let mut magic = [0; 2];
    let gzip = open()?.read_exact(&mut magic).is_ok() && magic == [0x1f, 0x8b];
    let file = open()?;
    Ok(if gzip { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) })
}

fn progress(path: &Path, quiet: bool) -> Result<ProgressBar> {
    if quiet {
        return Ok(ProgressBar::hidden());
    }
    let packed = path.extension().is_some_and(|e| e == "gz");
    let size = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len();
    let bar = if packed { ProgressBar::no_length() } else { ProgressBar::new(size) };
    let style = if packed {
        "{spinner} {bytes} read, {bytes_per_sec} {msg}"
    } else {
        "{bar:30} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left {msg}"
    };
    bar.set_style(ProgressStyle::with_template(style)?);
    Ok(bar)
}

fn report(args: &ImportArgs, summary: &Summary, state: &Path) -> Result<()> {
    if args.json {
        say(&(serde_json::to_string(summary)? + "\n"))?;
        return some_readable(args, summary);
    }
    let mut text = String::new();
    if let Some(bytes) = summary.already_sent_bytes {
        writeln!(
            text,
            "already sent: the first {bytes} bytes, as {} says; with another --state they are sent again",
            state.display()
        )?;
    }
    let verb = if args.dry_run { "would be sent" } else { "accepted" };
    let sent = if args.dry_run {
        summary.lines - summary.filtered - summary.unreadable.values().map(|(n, _)| n).sum::<u64>()
    } else {
        summary.accepted
    };
    writeln!(text, "{} lines read, {sent} views {verb}, {} filtered out", summary.lines, summary.filtered)?;
    for (code, n) in &summary.rejected {
        writeln!(text, "{n} views refused by the collector: {code}")?;
    }
    for (why, (n, first)) in &summary.unreadable {
        writeln!(text, "{n} lines not readable: {why} (first: line {first} of this run)")?;
    }
    say(&text)?;
    some_readable(args, summary)
}

/// Fails if the file is no log of the format: whoever imports by a script would not see it otherwise.
fn some_readable(args: &ImportArgs, summary: &Summary) -> Result<()> {
    let unreadable: u64 = summary.unreadable.values().map(|(n, _)| n).sum();
    let begun_here = summary.already_sent_bytes.is_none();
    if begun_here && unreadable > 0 && unreadable == summary.lines {
        bail!("no line of {} is a line of an access log", args.file.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn lines(name: &str) -> Vec<Vec<u8>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        BufReader::new(unpacked(&path).unwrap()).split(b'\n').map(|l| l.unwrap()).collect()
    }

    #[test]
    fn the_real_logs_are_read_whole() {
        for (name, rows, clients, paths) in
            [("blog_access.log.gz", 10_000, 1_862, 1_368), ("attackers_access.log.gz", 3_456, 654, 30)]
        {
            let lines = lines(name);
            let read: Vec<_> = lines.iter().map(|l| parse::line(l, Format::Combined).unwrap()).collect();
            assert_eq!(read.len(), rows, "{name}");
            let who: HashSet<_> = read.iter().map(|l| format!("{:?}|{:?}", l.host, l.user_agent)).collect();
            assert_eq!(who.len(), clients, "{name}");
            let items: HashSet<_> = read.iter().map(|l| l.path).collect();
            assert_eq!(items.len(), paths, "{name}");
        }
    }

    #[test]
    fn equal_lines_have_ids_of_their_own_and_the_same_ones_again() {
        let lines = lines("blog_access.log.gz");
        let ids = |()| {
            let mut at = 0;
            lines
                .iter()
                .map(|l| {
                    at += l.len() as u64 + 1;
                    line_id(l, at)
                })
                .collect::<Vec<_>>()
        };
        let (first, again) = (ids(()), ids(()));
        assert_eq!(first, again);
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), lines.len());
    }
}
