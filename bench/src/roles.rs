//! Our own rooms as processes of their own: the real executable, with a configuration for one round.

use crate::benchmarks::drain::Tags;
use crate::http::{Connection, get};
use crate::log::TopicView;
use crate::meter::Watched;
use crate::servers::Servers;
use crate::workload::SITE;
use anyhow::{Context, Result, bail};
use onlooker_testkit::cassandra::DATA_CENTRE;
use onlooker_testkit::ports::free_port;
use onlooker_testkit::process::{Process, Program, tail};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Partitions of `views` and `views.counted`.
pub(crate) const PARTITIONS: u32 = 8;

const PATIENCE: Duration = Duration::from_secs(60);

/// Topics, groups, keys and a keyspace that no other round has.
#[derive(Debug)]
pub(crate) struct Round {
    /// What the collector writes and the filter reads.
    pub(crate) views: TopicView,
    /// What the filter writes and the counter reads.
    pub(crate) counted: TopicView,
    /// The filters' group.
    pub(crate) filter_group: String,
    /// Parts of the names of its keys in Redis.
    pub(crate) tags: Tags,
    others: [TopicView; 2],
    base: String,
    executable: PathBuf,
    folder: TempDir,
}

impl Round {
    /// Empties both Redis and creates topics and tables under new names.
    pub(crate) fn prepare(servers: &Servers, executable: &Path, number: usize) -> Result<Self> {
        servers.flush()?;
        let bootstrap = servers.kafka.bootstrap();
        let topic = |name: &str| TopicView::new(&bootstrap, &format!("r{number}.{name}"), PARTITIONS);
        let round = Self {
            views: topic("views"),
            counted: topic("counted"),
            filter_group: format!("r{number}-filter"),
            tags: Tags::default(),
            others: [topic("ignored"), topic("dead")],
            base: base(servers, number),
            executable: executable.to_owned(),
            folder: tempfile::tempdir()?,
        };
        round.once(&["topics", "apply"])?;
        round.once(&["schema", "apply"])?;
        Ok(round)
    }

    /// Starts a room and waits until it is ready. `settings` are lines of TOML, tables of the room's own.
    pub(crate) fn start(&self, room: &'static str, settings: &str) -> Result<Role> {
        let role = self.launch(room, settings)?;
        role.wait_ready()
    }

    /// Starts a room without waiting.
    pub(crate) fn launch(&self, room: &'static str, settings: &str) -> Result<Role> {
        let admin = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let config = self.folder.path().join(format!("{room}.toml"));
        fs::write(&config, format!("{}\n[admin]\nlisten = \"{admin}\"\n{settings}", self.base))?;
        let program = self.program(&[room, "--config", &config.to_string_lossy()]);
        Ok(Role { name: room, process: program.start()?, admin, listen: None, log: program.log })
    }

    fn once(&self, command: &[&str]) -> Result<()> {
        let config = self.folder.path().join("base.toml");
        fs::write(&config, &self.base)?;
        let config = config.to_string_lossy();
        // A schema's change takes long on a machine that is busy otherwise.
        let patient = ["--set", "archive.request_timeout_ms=60000", "--config", &config];
        let args = [command, &patient].concat();
        self.program(&args).run().with_context(|| format!("onlooker {}", command.join(" ")))
    }

    fn program(&self, args: &[&str]) -> Program {
        let name = format!("onlooker {}", args.first().unwrap_or(&""));
        Program {
            executable: self.executable.clone().into(),
            args: args.iter().map(Into::into).collect(),
            folder: self.folder.path().to_owned(),
            log: self.folder.path().join(format!("{}.log", args.first().unwrap_or(&""))),
            name,
        }
    }

    /// Removes the topics.
    pub(crate) fn clean_up(self) -> Result<()> {
        [&self.views, &self.counted].into_iter().chain(&self.others).try_for_each(TopicView::delete)
    }
}

/// The configuration that all rooms of a round share. What a row says of a room is said of its defaults: nothing else
/// is set here but names and addresses, and the sketches' day and window are as they come.
fn base(servers: &Servers, number: usize) -> String {
    let (bootstrap, archive) = (servers.kafka.bootstrap(), servers.archive());
    let (dedup, counters) = (servers.dedup.port(), servers.counters.port());
    format!(
        r#"[logging]
level = "warn"
[layout]
generation = "r{number}"
partitions = {PARTITIONS}
[topics]
replication = 1
[log]
brokers = ["{bootstrap}"]
[log.topics]
views = "r{number}.views"
counted = "r{number}.counted"
ignored = "r{number}.ignored"
dead = "r{number}.dead"
[log.groups]
filter = "r{number}-filter"
counter = "r{number}-counter"
[dedup]
nodes = ["127.0.0.1:{dedup}"]
[counters]
nodes = ["127.0.0.1:{counters}"]
[archive]
nodes = ["{archive}"]
keyspace = "bench_r{number}"
local_dc = "{DATA_CENTRE}"
replication = {{ {DATA_CENTRE} = 1 }}
[identity]
version = 1
secret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
[sites.{SITE}]
sessions = true
"#
    )
}

/// A room that runs; it is killed when the value is dropped.
#[derive(Debug)]
pub(crate) struct Role {
    name: &'static str,
    process: Process,
    admin: SocketAddr,
    /// Of `onlooker run`.
    listen: Option<SocketAddr>,
    log: PathBuf,
}

impl Role {
    /// `onlooker run` on a folder, on ports of its own. `settings` are sections of TOML.
    pub(crate) fn solo(executable: &Path, folder: &Path, settings: &str) -> Result<Self> {
        let [admin, listen] =
            [free_port()?, free_port()?].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let config = folder.with_extension("toml");
        let own = format!("[admin]\nlisten = \"{admin}\"\n[collector]\nlisten = \"{listen}\"\n");
        fs::write(&config, format!("{own}{settings}"))?;
        let program = Program {
            executable: executable.into(),
            args: ["run", "--config", &config.to_string_lossy(), "--dir", &folder.to_string_lossy()]
                .map(Into::into)
                .into(),
            folder: folder.parent().context("a folder in a folder")?.to_owned(),
            log: folder.with_extension("log"),
            name: "onlooker run".into(),
        };
        Ok(Self { name: "run", process: program.start()?, admin, listen: Some(listen), log: program.log })
    }

    /// Where it takes views and gives counts.
    pub(crate) fn listen(&self) -> Result<SocketAddr> {
        self.listen.with_context(|| format!("{} has no such listener", self.name))
    }

    /// The sum of a metric's series.
    pub(crate) fn metric(&self, name: &str) -> Result<f64> {
        let answer = Connection::open(self.admin, Duration::from_secs(5))?.send(&get("/metrics"))?;
        let text = String::from_utf8(answer.body)?;
        let values = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let value =
                if rest.starts_with('{') { rest.rsplit_once(' ')?.1 } else { rest.strip_prefix(' ')? };
            value.parse::<f64>().ok()
        });
        Ok(values.sum())
    }

    /// Kills it, as a crash does.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.process.kill()
    }

    /// For a meter.
    pub(crate) fn watched(&self) -> Watched {
        Watched { name: self.name, pid: self.process.pid() }
    }

    /// Fails when the process has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        if self.process.is_alive() {
            return Ok(());
        }
        bail!("{} ended early\n{}", self.name, self.last_words())
    }

    /// The end of its log.
    pub(crate) fn last_words(&self) -> String {
        format!("end of {}'s log:\n{}", self.name, tail(&self.log))
    }

    /// Waits until its admin listener says that it is ready.
    pub(crate) fn wait_ready(mut self) -> Result<Self> {
        let admin = self.admin;
        let request = get("/readyz");
        self.process.wait_ready(PATIENCE, || {
            let answer = Connection::open(admin, Duration::from_secs(5)).and_then(|mut c| c.send(&request));
            answer.is_ok_and(|a| a.status == 200)
        })?;
        Ok(self)
    }

    /// Asks it to end and waits until it has.
    pub(crate) fn stop(mut self) -> Result<()> {
        let status = self.process.stop(PATIENCE)?;
        if !status.success() {
            bail!("{} ended with {status}", self.name);
        }
        Ok(())
    }
}

/// The executable beside this one, or where the caller says.
pub(crate) fn executable(given: Option<&Path>) -> Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()?.with_file_name("onlooker"),
    };
    path.canonicalize().with_context(|| {
        format!("there is no {}; `cargo x bench` builds it, or name it by --onlooker", path.display())
    })
}
