//! Where a command asks.

use super::raw::{Remote, Source};
use super::{Ask, Out, Sight, answer};
use crate::config::Config;
use crate::run::{Session, System, judge_as, with_system};
use crate::target::running;
use crate::wiring::embedded::FolderSight;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;

/// Which system
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct At {
    /// The folder of `onlooker run`, running or not (default: embedded.dir, unless a cluster is configured)
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The cluster that the configuration names (default where it names one)
    #[cfg(feature = "cluster")]
    #[arg(long, conflicts_with = "dir")]
    cluster: bool,
    /// One JSON object a line, for scripts
    #[arg(long)]
    pub(super) json: bool,
}

/// What takes long answers in pieces, and waits for as long as they take.
const PATIENCE: Duration = Duration::from_secs(24 * 3_600);

/// A process that works on an answer says so more often than this.
const SILENCE: Duration = super::route::BEAT.saturating_mul(5);

/// A configuration and whether it names a cluster's servers.
pub(crate) struct Told {
    pub(crate) config: Config,
    #[cfg(feature = "cluster")]
    pub(crate) names_cluster: bool,
}

impl Told {
    /// The site that is meant: the named one, or the only one.
    pub(super) fn site(&self, named: Option<&str>) -> Result<String> {
        let mut known = self.config.sites.keys();
        match (named, known.next(), known.next()) {
            (Some(named), ..) => Ok(named.to_owned()),
            (None, None, _) => Ok(crate::run::DEFAULT_SITE.to_owned()),
            (None, Some(only), None) => Ok(only.clone()),
            (None, Some(_), Some(_)) => {
                let known: Vec<&str> = self.config.sites.keys().map(String::as_str).collect();
                bail!("--site is needed: the configuration has the sites {}", known.join(", "))
            }
        }
    }
}

impl At {
    /// Asks, and hands each line of the answer to `take`.
    pub(super) async fn ask(
        &self,
        mut told: Told,
        ask: Ask,
        mut take: impl FnMut(Value) -> Result<()>,
    ) -> Result<()> {
        let (sink, mut lines) = mpsc::channel(64);
        let asking = async {
            #[cfg(feature = "cluster")]
            if self.is_cluster(&told) {
                let sight = crate::wiring::cluster::ClusterSight::new(&told.config)?;
                return answer(&sight, ask, Out(sink)).await;
            }
            if let Some(dir) = &self.dir {
                told.config.embedded.dir.clone_from(dir);
            }
            if !told.config.embedded.dir.is_dir() {
                bail!(
                    "there is no folder {}, and the configuration names no cluster: --dir or --config says which system \
                     is meant",
                    told.config.embedded.dir.display()
                );
            }
            match running(&told.config.embedded.dir).await? {
                Some(session) => fetch(&session, &ask, Out(sink)).await,
                None => {
                    let act = async |system: &System, _: &Config| {
                        answer(&system.store.sight(), ask, Out(sink)).await
                    };
                    with_system(told.config, false, act).await
                }
            }
        };
        let taking = async {
            while let Some(line) = lines.recv().await {
                take(line)?;
            }
            Ok(())
        };
        tokio::try_join!(asking, taking)?;
        Ok(())
    }

    /// Works with the log and the archive as they are. The configuration that comes along is the system's own, with the
    /// rules that its views are judged by.
    pub(super) async fn with_source<T>(&self, told: Told, act: impl Work<T>) -> Result<T> {
        let mut config = told.config.clone();
        #[cfg(feature = "cluster")]
        if self.is_cluster(&told) {
            let sight = crate::wiring::cluster::ClusterSight::new(&config)?;
            return act.on(Source::Here(sight), config).await;
        }
        if let Some(dir) = &self.dir {
            config.embedded.dir.clone_from(dir);
        }
        match running(&config.embedded.dir).await? {
            Some(session) => {
                judge_as(&mut config)?;
                act.on(Source::<FolderSight>::There(Remote::open(session).await?), config).await
            }
            None => {
                let on = async |system: &System, config: &Config| {
                    act.on(Source::Here(system.store.sight()), config.clone()).await
                };
                with_system(config, false, on).await
            }
        }
    }

    /// The process that has the folder open; none for a cluster, or if no process has.
    pub(super) async fn session(&self, told: &Told) -> Result<Option<Session>> {
        let dir = self.dir.as_ref().unwrap_or(&told.config.embedded.dir);
        #[cfg(feature = "cluster")]
        if self.is_cluster(told) {
            return Ok(None);
        }
        if dir.is_dir() { running(dir).await } else { Ok(None) }
    }

    #[cfg(feature = "cluster")]
    fn is_cluster(&self, told: &Told) -> bool {
        self.cluster || (self.dir.is_none() && told.names_cluster)
    }
}

/// What is done with a system's log and archive, of whatever kind it is.
pub(super) trait Work<T> {
    fn on<S: Sight>(self, source: Source<S>, config: Config) -> impl Future<Output = Result<T>>;
}

/// From the process that has the folder open.
pub(super) async fn fetch(session: &Session, ask: &Ask, out: Out) -> Result<()> {
    let http = crate::http::client(PATIENCE)?;
    let url = format!("{}{}", session.admin, super::route::PATH);
    let asking = http.post(&url).bearer_auth(&session.admin_token).json(ask).send();
    let silent = || format!("the running process (pid {}) does not answer at {url}", session.pid);
    let answer = tokio::time::timeout(SILENCE, asking).await.with_context(silent)?;
    let mut answer = answer.with_context(|| format!("cannot reach {url}"))?;
    let status = answer.status();
    if !status.is_success() {
        bail!("the running process answered {status}: {}", answer.text().await.unwrap_or_default());
    }
    let mut rest = Vec::new();
    let mut whole = false;
    loop {
        let bytes = tokio::time::timeout(SILENCE, answer.chunk()).await.with_context(silent)?;
        let Some(bytes) = bytes.context("the answer broke off")? else { break };
        rest.extend_from_slice(&bytes);
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=at).collect();
            // A sign of life.
            if line == b"\n" {
                continue;
            }
            let mut line: Value = serde_json::from_slice(&line).context("the answer is no JSON")?;
            match line.get_mut("$end") {
                None => out.line(&line).await?,
                Some(Value::String(error)) => bail!("{error}"),
                Some(_) => whole = true,
            }
        }
    }
    if !whole {
        bail!("the answer broke off");
    }
    Ok(())
}
