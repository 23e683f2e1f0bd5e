//! `onlooker promote`: moves a process that is everything at once, while it runs, to a cluster.
//!
//! 1. *Check.* Every server answers and lets us in, topics and tables are there and nothing was counted on them, viewers
//!    are hashed with the same key, sites have the same rules.
//! 2. *Hold.* The cluster's group of filters has no committed offset, so a filter that is started now refuses and waits.
//!    A note in the folder says what was begun.
//! 3. *Switch.* The collector appends to Kafka from here on, and nothing comes to the folder any more. So the folder's
//!    views of a viewer come before the cluster's, as the viewer's claims will.
//! 4. *Drain.* Everything that the folder has is judged, counted and archived.
//! 5. *Carry.* History and claims are written into the cluster, as a restore does.
//! 6. *Begin.* The filters' start is committed. What came meanwhile waits in Kafka for them.
//!
//! Before 3 a failure leaves all as it was. After it promote is run again, and goes on where it was, whether or not the
//! process still runs: views are in Kafka, and what is in the folder stays until it is in the cluster.

use super::export::{moment, slices, take};
use super::restore::{is_empty, note, put};
use super::source::Source;
use super::{Mark, Place};
use crate::config::{Config, Layers, SiteSettings};
use crate::run::{Session, System, with_system};
use crate::target::running;
use crate::wiring::cluster::{ClusterPlace, collector_log};
use crate::wiring::embedded::FolderPlace;
use crate::wiring::moving::CollectorLog;
use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

/// Moves a single machine, while it runs, to Kafka, Redis and Cassandra
#[derive(Debug, clap::Args)]
pub(crate) struct PromoteArgs {
    /// The configuration of the cluster
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// The folder of `onlooker run`, running or not (default: embedded.dir)
    #[arg(long)]
    dir: Option<PathBuf>,
}

pub(super) const PATH: &str = "/v1/promote";
/// What is on its way, in the folder.
const EXPORT: &str = "promote.olx";
const PATIENCE: Duration = Duration::from_secs(24 * 3_600);
/// How long what is under way may take to be in the folder's log.
const UNDER_WAY: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const SAY_AGAIN: Duration = Duration::from_secs(5);

/// Where a person is told how it goes.
pub(super) type Say = mpsc::UnboundedSender<Told>;

/// One line of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Told {
    Step(String),
    Failed(String),
    Done,
}

/// Runs the command.
pub(crate) async fn promote(args: PromoteArgs, mut config: Config, env: &[(String, String)]) -> Result<()> {
    let layers = Layers::load(Some(&args.to), env, &[])?;
    let tree = toml::to_string(&layers.tree)?;
    let target = Config::read(&layers).with_context(|| format!("{}", args.to.display()))?;
    if let Some(dir) = &args.dir {
        config.embedded.dir.clone_from(dir);
    }
    let mut tell = |told: Told| -> Result<()> {
        match told {
            Told::Step(text) => eprintln!("{text}"),
            Told::Failed(text) => bail!("{text}"),
            Told::Done => {}
        }
        Ok(())
    };
    match running(&config.embedded.dir).await? {
        Some(session) => ask(&session, tree, &mut tell).await?,
        None => {
            let (say, mut told) = mpsc::unbounded_channel();
            let target = &target;
            // The channel ends with it, and the printing with the channel.
            let act = async move |system: &System, config: &Config| {
                Moving::new(system, config).to(target, &say).await
            };
            let printing = async {
                while let Some(told) = told.recv().await {
                    tell(told)?;
                }
                anyhow::Ok(())
            };
            let (done, printed) = tokio::join!(with_system(config, true, act), printing);
            done.and(printed)?;
        }
    }
    let file = args.to.display();
    eprintln!(
        "moved. Start the cluster's rooms: onlooker --config {file} filter (and counter, flusher, counts-api, collector), \
         and send views and reads there; then stop the process that still passes views on, if one does"
    );
    Ok(())
}

/// Lets the process that has the folder open do it.
async fn ask(session: &Session, tree: String, tell: &mut impl FnMut(Told) -> Result<()>) -> Result<()> {
    let url = format!("{}{PATH}", session.admin);
    let http = crate::http::client(PATIENCE)?;
    let answer = http.post(&url).bearer_auth(&session.admin_token).body(tree).send().await;
    let mut answer = answer.with_context(|| format!("cannot reach {url}"))?;
    let status = answer.status();
    if !status.is_success() {
        bail!("the running process answered {status}: {}", answer.text().await.unwrap_or_default());
    }
    let mut line = Vec::new();
    while let Some(bytes) = answer.chunk().await.context("the process was lost; run the command again")? {
        line.extend_from_slice(&bytes);
        while let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            let told = serde_json::from_slice(&line[..end]).context("the process answers otherwise")?;
            line.drain(..=end);
            if told == Told::Done {
                return Ok(());
            }
            tell(told)?;
        }
    }
    bail!("the process ended before it was done: run the command again")
}

/// A process that can be moved.
pub(crate) struct Moving {
    place: FolderPlace,
    log: CollectorLog,
    folder: PathBuf,
    config: Config,
}

impl Moving {
    /// `config`: complete, as the process runs with it.
    pub(crate) fn new(system: &System, config: &Config) -> Self {
        Self {
            place: system.store.place(),
            log: system.log.clone(),
            folder: system.store.path().to_owned(),
            config: config.clone(),
        }
    }

    /// Does all of it, or goes on.
    pub(super) async fn to(&self, target: &Config, say: &Say) -> Result<()> {
        let step = |text: String| {
            tracing::info!(step = text, "promoting");
            // Whoever asked may have gone.
            let _ = say.send(Told::Step(text));
        };
        let cluster = ClusterPlace::open(target).await?;
        let to = cluster.name();
        let begun = match Mark::read(&self.folder)? {
            Some(Mark::Promoted { to }) => {
                step(format!("{} was moved to {to} before", self.folder.display()));
                return Ok(());
            }
            Some(Mark::Promoting { to: other, .. }) if other != to => {
                bail!("{} is on its way to {other} already", self.folder.display())
            }
            Some(Mark::Promoting { note, .. }) => Some(note),
            Some(Mark::Restoring | Mark::Shadow { .. }) => return Mark::refuse(&self.folder),
            None => None,
        };
        agree(&self.config, target, &self.folder)?;
        let log = collector_log(target).await?;
        let mark = |note| Mark::Promoting { to: to.clone(), note };
        let written = match begun {
            Some(note) => note,
            None => {
                cluster.untouched().await?;
                if !is_empty(&cluster).await? {
                    bail!(
                        "log {} has history already: promote to a new log generation",
                        cluster.generation()
                    );
                }
                step(format!("{to} is reachable, set up and empty"));
                None
            }
        };
        if written.is_none() {
            cluster.hold().await?;
            mark(None).write(&self.folder)?;
        }
        if !self.log.is_switched() {
            if let Err(error) = self.log.switch(log, self.at_rest()).await {
                Mark::remove(&self.folder)?;
                // As the set-up of the topics left it.
                cluster.begin("").await?;
                return Err(error).context("the folder's log does not come to rest; nothing was changed");
            }
            step(format!("views go to {to} from here on"));
        }
        let note = match written {
            Some(note) => note,
            None => {
                self.drain(&step).await?;
                let note = self.carry(&cluster, &step).await?;
                mark(Some(note.clone())).write(&self.folder)?;
                note
            }
        };
        cluster.begin(&note).await?;
        Mark::Promoted { to }.write(&self.folder)?;
        step("the cluster's filters may begin".to_owned());
        Ok(())
    }

    async fn at_rest(&self) -> Result<()> {
        timeout(UNDER_WAY, self.place.taken()).await.context("appends take too long")?
    }

    /// Waits until the archive has everything that the folder's log has.
    async fn drain(&self, step: &impl Fn(String)) -> Result<()> {
        let mut say_at = Instant::now();
        loop {
            let waits = self.place.waits().await?;
            if waits.views <= 0 && waits.verdicts <= 0 && waits.unarchived <= 0 {
                return Ok(());
            }
            if Instant::now() >= say_at {
                say_at += SAY_AGAIN;
                step(format!(
                    "waiting for {} views to be judged, {} to be counted, {} to be archived",
                    waits.views, waits.verdicts, waits.unarchived
                ));
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Writes history and claims; the note that the cluster's filters begin with.
    async fn carry(&self, cluster: &ClusterPlace, step: &impl Fn(String)) -> Result<String> {
        let path = self.folder.join(EXPORT);
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        let identity = self.config.identity.fingerprint();
        let summary = take(&self.place, slices(&self.config), identity, file).await?;
        let (source, about) = Source::open(&path)?.verify().await?;
        let done = put(cluster, &source).await?;
        step(format!(
            "{} rows and {} claims are in the cluster, counted up to {}",
            done.rows + done.rows_there,
            summary.verdicts,
            moment(&about)
        ));
        // A copy of what is in the cluster now; if it stays, the next attempt writes over it.
        let _ = std::fs::remove_file(&path);
        Ok(note(&about))
    }
}

/// Whether both count the same people on the same items.
fn agree(ours: &Config, theirs: &Config, folder: &Path) -> Result<()> {
    let mut wrong = Vec::new();
    if ours.identity.fingerprint() != theirs.identity.fingerprint()
        || ours.identity.version != theirs.identity.version
    {
        wrong.push(format!(
            "[identity] differs, and every viewer would count anew. Where the folder's key is its own, put this into it:\n    \
             [identity]\n    version = {}\n    secret = {{ file = \"{}\" }}",
            ours.identity.version,
            folder.join("identity.key").display()
        ));
    }
    let counts = |site: &SiteSettings| (site.key.clone(), site.items, site.sessions, site.window_s);
    for (name, site) in &ours.sites {
        match theirs.sites.get(name) {
            None => wrong.push(format!("[sites.{name}] is missing")),
            Some(other) if counts(other) != counts(site) => {
                wrong.push(format!(
                    "[sites.{name}]: key, items, sessions and window_s must be as they are here"
                ));
            }
            Some(_) => {}
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(anyhow!("the cluster's configuration: {}", wrong.join("\n  ")))
    }
}
