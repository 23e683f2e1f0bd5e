//! `onlooker export`: everything that a count needs, as one file.

use super::collect::{Summary, collect};
use super::format::About;
use super::source::Source;
use super::{Place, Slices};
use crate::config::Config;
use crate::run::{Session, System, with_system};
use crate::target::running;
use anyhow::{Context, Result, bail};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::TryStreamExt;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::NamedTempFile;
use tokio::io::AsyncReadExt;

/// Writes all counts, and what the filter remembers, into one portable file
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// The file; `-` for standard output
    file: PathBuf,
    /// The folder of `onlooker run`, running or not (default: embedded.dir)
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Of the cluster that the configuration names
    #[cfg(feature = "cluster")]
    #[arg(long, conflicts_with = "dir")]
    cluster: bool,
    /// Overwrite the file
    #[arg(long)]
    force: bool,
}

/// An export may take as long as it takes.
const PATIENCE: Duration = Duration::from_secs(24 * 3_600);
const PATH: &str = "/v1/export";

/// Runs the command.
pub(crate) async fn export(args: ExportArgs, config: Config) -> Result<()> {
    let to_stdout = args.file == Path::new("-");
    if !to_stdout && !args.force && args.file.exists() {
        bail!("{} is there already: another name, or --force", args.file.display());
    }
    if !to_stdout && args.file.exists() && !args.file.is_file() {
        bail!("{} is no file: the export would take its place", args.file.display());
    }
    // Beside the file, so that it can take its name when it is whole.
    let beside = args.file.parent().filter(|parent| !to_stdout && !parent.as_os_str().is_empty());
    let draft = match beside {
        Some(folder) => NamedTempFile::new_in(folder),
        None if to_stdout => NamedTempFile::new(),
        None => NamedTempFile::new_in("."),
    };
    let mut draft = draft.context("cannot make a file beside the one that is to be written")?;
    write(&args, config, &mut draft).await?;
    let (_, about) = Source::open(draft.path())?.verify().await?;
    if to_stdout {
        draft.rewind()?;
        std::io::copy(&mut draft, &mut std::io::stdout().lock()).context("writing to standard output")?;
    } else {
        draft.as_file().sync_all()?;
        let file = args.file.display();
        draft.persist(&args.file).with_context(|| format!("cannot write {file}"))?;
    }
    eprintln!("exported what was counted up to {}", moment(&about));
    Ok(())
}

async fn write(args: &ExportArgs, mut config: Config, draft: &mut NamedTempFile) -> Result<()> {
    let slices = slices(&config);
    #[cfg(feature = "cluster")]
    if args.cluster {
        let place = crate::wiring::cluster::ClusterPlace::open(&config).await?;
        take(&place, slices, config.identity.fingerprint(), draft.reopen()?).await?;
        return Ok(());
    }
    if let Some(dir) = &args.dir {
        config.embedded.dir.clone_from(dir);
    }
    let out = draft.reopen()?;
    if let Some(judged) = crate::ops::judged_again(&config.embedded.dir)? {
        return of_shadow(judged, config, out).await;
    }
    match running(&config.embedded.dir).await? {
        Some(session) => fetch(&session, out).await,
        None => {
            let act = async |system: &System, config: &Config| {
                take(&system.store.place(), slices, config.identity.fingerprint(), out).await.map(drop)
            };
            with_system(config, false, act).await
        }
    }
}

/// Of verdicts by other rules, which are nobody's counts yet. No room runs over them: what they would read is elsewhere.
async fn of_shadow(judged: crate::ops::Judged, mut config: Config, out: File) -> Result<()> {
    config.embedded.partitions = judged.partitions;
    let slices = Slices { length_s: judged.slice_s, ..slices(&config) };
    let store = crate::wiring::embedded::Store::open(&config.embedded).await?;
    let taken = take(&store.place(), slices, judged.identity, out).await;
    store.close().await;
    taken.map(drop)
}

pub(super) fn slices(config: &Config) -> Slices {
    Slices { length_s: config.filter.slice_s, skew_s: config.filter.clock_skew_s }
}

/// Collects and writes.
pub(super) async fn take<P: Place, W: Write + Send + 'static>(
    place: &P,
    slices: Slices,
    identity: Option<String>,
    out: W,
) -> Result<Summary> {
    let collected = collect(place, slices, identity).await?;
    let writing = tokio::task::spawn_blocking(move || {
        let (mut out, summary) = collected.write(std::io::BufWriter::with_capacity(1 << 20, out))?;
        out.flush()?;
        anyhow::Ok(summary)
    });
    writing.await.context("writing ended early")?
}

/// From the process that has the folder open.
async fn fetch(session: &Session, mut out: File) -> Result<()> {
    let http = crate::http::client(PATIENCE)?;
    let url = format!("{}{PATH}", session.admin);
    let answer = http.post(&url).bearer_auth(&session.admin_token).send().await;
    let mut answer = answer.with_context(|| format!("cannot reach {url}"))?;
    let status = answer.status();
    if !status.is_success() {
        bail!("the running process answered {status}: {}", answer.text().await.unwrap_or_default());
    }
    while let Some(bytes) = answer.chunk().await.context("the export broke off")? {
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// The route by which a running process hands out an export.
pub(crate) fn route<P: Place + 'static>(
    place: Arc<P>,
    config: &Config,
    identity: Option<String>,
    token: String,
) -> Router {
    let state = Arc::new(Exporting { place, slices: slices(config), identity, token });
    Router::new().route(PATH, post(answer::<P>)).with_state(state)
}

struct Exporting<P> {
    place: Arc<P>,
    slices: Slices,
    identity: Option<String>,
    token: String,
}

/// True for the bearer of the token that lies in the folder, for its owner alone.
pub(crate) fn is_bearer(headers: &HeaderMap, token: &str) -> bool {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    // In the same time for every wrong one.
    let differs = given.bytes().zip(token.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
    given.len() == token.len() && differs == 0
}

async fn answer<P: Place + 'static>(State(state): State<Arc<Exporting<P>>>, headers: HeaderMap) -> Response {
    if !is_bearer(&headers, &state.token) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    match hand_out(&state).await {
        Ok(body) => body.into_response(),
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "export failed");
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")).into_response()
        }
    }
}

async fn hand_out<P: Place>(state: &Exporting<P>) -> Result<Body> {
    let file = tempfile::tempfile().context("making a temporary file")?;
    let summary = take(&*state.place, state.slices, state.identity.clone(), file.try_clone()?).await?;
    tracing::info!(rows = summary.rows, verdicts = summary.verdicts, "exported");
    let mut file = tokio::fs::File::from_std(file);
    tokio::io::AsyncSeekExt::rewind(&mut file).await?;
    let pieces = futures::stream::try_unfold(file, |mut file| async move {
        let mut piece = Vec::with_capacity(64 << 10);
        let more = (&mut file).take(64 << 10).read_to_end(&mut piece).await?;
        Ok::<_, std::io::Error>((more > 0).then_some((piece, file)))
    });
    Ok(Body::from_stream(pieces.map_ok(bytes::Bytes::from)))
}

/// Of the newest record that is in.
pub(super) fn moment(about: &About) -> String {
    let ms = if about.newest_ms > 0 { about.newest_ms } else { about.made_ms };
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| format!("{ms} ms"), |time| time.to_string())
}
