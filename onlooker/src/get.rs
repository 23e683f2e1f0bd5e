//! `onlooker get`: reads counts from the counts API.

use crate::cli::say;
use crate::config::Config;
use crate::target::{Target, at_folder};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Reads counts
#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// What to count
    #[arg(required = true)]
    items: Vec<String>,
    /// The site; may be left out where there is only one
    #[arg(long)]
    site: Option<String>,
    /// The counts API (default: the folder if there is one, else http://127.0.0.1:8081)
    #[arg(long, env = "ONLOOKER_COUNTS_URL")]
    counts: Option<String>,
    /// The folder of `onlooker run`, running or not (default: embedded.dir, if it is there)
    #[arg(long, conflicts_with = "counts")]
    dir: Option<PathBuf>,
    /// First UTC day, YYYY-MM-DD (default: all time)
    #[arg(long, requires = "to")]
    from: Option<String>,
    /// Last UTC day, included
    #[arg(long, requires = "from")]
    to: Option<String>,
    /// The API's answer as it is
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Deserialize)]
struct Answer {
    counts: Vec<Count>,
}

#[derive(Debug, Deserialize)]
struct Count {
    item: String,
    views: Option<u64>,
    uniques: Option<u64>,
    low: Option<u64>,
    high: Option<u64>,
    status: String,
    as_of: Option<String>,
}

/// Items a request, as the API limits them.
const BATCH: usize = 1000;

/// How long to wait for what is being brought back from the archive: a thousand items, on a busy machine.
const WARM: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_millis(50);
const NO_ANSWER: &str = "not an answer of the counts API";

const DEFAULT_URL: &str = "http://127.0.0.1:8081";

pub(crate) async fn run(args: GetArgs, config: Config) -> Result<()> {
    match Target::choose(args.counts.as_deref(), args.dir.as_deref(), &config, DEFAULT_URL) {
        Target::Url(url) => read(&args, &url).await,
        Target::Folder(folder) => {
            at_folder(&folder, config, async |session| read(&args, &session.url).await).await
        }
    }
}

async fn read(args: &GetArgs, url: &str) -> Result<()> {
    let http = crate::http::client(Duration::from_secs(30))?;
    let url = format!("{url}/v1/counts");
    let mut rows = Vec::new();
    for items in args.items.chunks(BATCH) {
        let mut body = json!({ "items": items });
        if let Some(site) = &args.site {
            body["site"] = json!(site);
        }
        if let (Some(from), Some(to)) = (&args.from, &args.to) {
            body["from"] = json!(from);
            body["to"] = json!(to);
        }
        let text = warm(&http, &url, &body).await?;
        if args.json {
            say(&(text + "\n"))?;
        } else {
            rows.extend(serde_json::from_str::<Answer>(&text).context(NO_ANSWER)?.counts);
        }
    }
    if !args.json {
        say(&table(&rows))?;
    }
    Ok(())
}

/// Asks, and asks again for a while what was being brought back from the archive.
async fn warm(http: &reqwest::Client, url: &str, body: &Value) -> Result<String> {
    let begun = Instant::now();
    loop {
        let response =
            http.post(url).json(body).send().await.with_context(|| format!("cannot reach {url}"))?;
        let status = response.status();
        let text = response.text().await?;
        if !status.is_success() {
            let message = refusal(&text).unwrap_or(text);
            bail!("the counts API answered {status}: {message}");
        }
        let answer: Answer = serde_json::from_str(&text).context(NO_ANSWER)?;
        if answer.counts.iter().all(|count| count.status != "warming") || begun.elapsed() > WARM {
            return Ok(text);
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// What an answer that is no count says, with the field that it is about.
fn refusal(text: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(text).ok()?;
    let message = answer["error"]["message"].as_str()?;
    let field = answer["error"]["field"].as_str().map(|field| format!("{field}: ")).unwrap_or_default();
    Some(field + message)
}

fn table(rows: &[Count]) -> String {
    let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let range = |c: &Count| c.low.zip(c.high).map_or_else(|| "-".to_owned(), |(l, h)| format!("{l}..{h}"));
    let mut cells = vec![["item", "views", "uniques", "95 %", "status", "as of"].map(str::to_owned)];
    cells.extend(rows.iter().map(|c| {
        [
            c.item.clone(),
            number(c.views),
            number(c.uniques),
            range(c),
            c.status.clone(),
            c.as_of.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    }));
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    let mut out = String::new();
    for row in &cells {
        let line: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(
                |(i, (cell, w))| {
                    if (1..=3).contains(&i) { format!("{cell:>w$}") } else { format!("{cell:<w$}") }
                },
            )
            .collect();
        out.push_str(line.join("  ").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lines_up() {
        let row = |item: &str, views| Count {
            item: item.into(),
            views,
            uniques: Some(7),
            low: Some(7),
            high: Some(7),
            status: "ok".into(),
            as_of: None,
        };
        let text = table(&[row("a", Some(12)), row("longer", None)]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "item    views  uniques  95 %  status  as of");
        assert_eq!(lines[1], "a          12        7  7..7  ok      -");
        assert_eq!(lines[2], "longer      -        7  7..7  ok      -");
    }
}
