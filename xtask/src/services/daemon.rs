//! The services as daemons on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use onlooker_testkit::cassandra::CassandraServer;
use onlooker_testkit::java::{Jvm, workspace};
use onlooker_testkit::kafka::KafkaServer;
use onlooker_testkit::process::{Program, kill, tail, terminate};
use onlooker_testkit::redis::{RedisBuilder, RedisServer};
use onlooker_testkit::{install, ports, wait_for, wait_until};

use super::pid::Running;
use super::{Kind, Service, list};

const READY: Duration = Duration::from_secs(180);
const GRACE: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub(crate) enum Services {
    /// Installs and starts what does not run yet, waits until all answer, and says where
    Up(Ports),
    /// Stops just what `up` has started; the data of Kafka and Cassandra stays
    Down {
        /// Removes the data too
        #[arg(long)]
        wipe: bool,
    },
    /// Says what runs where; fails unless all do
    Status,
}

/// Where the services listen, on 127.0.0.1. Kafka and Cassandra also take the next port, for their own use.
#[derive(Debug, Default, Args)]
pub(crate) struct Ports {
    /// Kafka's port [default: 29092]
    #[arg(long, value_name = "PORT")]
    kafka_port: Option<u16>,
    /// Cassandra's port [default: 29042]
    #[arg(long, value_name = "PORT")]
    cassandra_port: Option<u16>,
    /// The port of the filter's Redis [default: 26379]
    #[arg(long, value_name = "PORT")]
    redis_dedup_port: Option<u16>,
    /// The port of the counters' Redis [default: 26380]
    #[arg(long, value_name = "PORT")]
    redis_counters_port: Option<u16>,
}

impl Ports {
    fn asked(&self, service: &Service) -> Option<u16> {
        match service.name {
            "kafka" => self.kafka_port,
            "cassandra" => self.cassandra_port,
            "redis-dedup" => self.redis_dedup_port,
            _ => self.redis_counters_port,
        }
    }
}

pub(crate) fn run(command: &Services) -> Result<()> {
    let root = root();
    fs::create_dir_all(&root).with_context(|| format!("cannot create {}", root.display()))?;
    if let Services::Status = command {
        return status(&root);
    }
    // Two at once would both find a service down and start it twice.
    let _only_one_changes = install::exclusive(&root.join("lock"))?;
    match command {
        Services::Up(ports) => up(&root, ports),
        Services::Down { wipe } => down(&root, *wipe),
        Services::Status => Ok(()),
    }
}

/// `$ONLOOKER_SERVICES_DIR`, else `.services` in the workspace.
pub(crate) fn root() -> PathBuf {
    let set = std::env::var_os("ONLOOKER_SERVICES_DIR").filter(|value| !value.is_empty());
    set.map_or_else(|| workspace().join(".services"), PathBuf::from)
}

fn up(root: &Path, ports: &Ports) -> Result<()> {
    install::for_servers()?;
    let mut missing = Vec::new();
    for service in list() {
        let asked = ports.asked(&service);
        match service.running(root) {
            Some(running) if asked.is_some_and(|port| port != running.port) => bail!(
                "{} runs on port {} already; to move it, run cargo x services down first",
                service.name,
                running.port
            ),
            Some(_) => {}
            None => {
                let port = asked.unwrap_or(service.port);
                service.wait_free(port)?;
                missing.push((service, port));
            }
        }
    }
    for (service, port) in &missing {
        service.start(root, *port)?;
    }
    for service in list() {
        service.wait_ready(root)?;
    }
    status(root)
}

fn down(root: &Path, wipe: bool) -> Result<()> {
    let running: Vec<(Service, Running)> =
        list().into_iter().filter_map(|service| Some((service.clone(), service.running(root)?))).collect();
    // All at once: Cassandra alone takes seconds to write what it has in memory.
    for (_, running) in &running {
        terminate(running.pid)?;
    }
    for (service, running) in &running {
        let ended = || !running.is_alive(&service.folder(root), service.kind.executable());
        if wait_until(service.name, GRACE, ended).is_err() {
            kill(running.pid)?;
            wait_until(service.name, GRACE, ended)?;
        }
        println!("{} stopped", service.name);
    }
    if running.is_empty() {
        println!("nothing runs");
    }
    for service in list() {
        let folder = service.folder(root);
        Running::forget(&folder)?;
        if wipe && folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
    }
    Ok(())
}

fn status(root: &Path) -> Result<()> {
    println!("{:16}{:10}{:18}{:>8}  purpose", "service", "state", "address", "pid");
    let mut down = Vec::new();
    for service in list() {
        let running = service.running(root);
        let state = match &running {
            Some(running) if service.answers(running.port) => "up",
            Some(_) => "silent",
            None => "down",
        };
        let address = running.as_ref().map_or("-".to_owned(), |r| format!("127.0.0.1:{}", r.port));
        let pid = running.as_ref().map_or("-".to_owned(), |r| r.pid.to_string());
        println!("{:16}{state:10}{address:18}{pid:>8}  {}", service.name, service.purpose);
        if state != "up" {
            down.push(service.name);
        }
    }
    if !down.is_empty() {
        bail!("not up: {}", down.join(", "));
    }
    Ok(())
}

impl Service {
    fn folder(&self, root: &Path) -> PathBuf {
        root.join(self.name)
    }

    fn running(&self, root: &Path) -> Option<Running> {
        Running::find(&self.folder(root), self.kind.executable())
    }

    /// A JVM that was just killed holds its ports for another second or two.
    fn wait_free(&self, port: u16) -> Result<()> {
        for port in self.kind.ports(port) {
            if wait_until("a free port", Duration::from_secs(5), || ports::is_free(port)).is_err() {
                bail!("{}: port {port} is taken by another program; choose one with --{0}-port", self.name);
            }
        }
        Ok(())
    }

    fn start(&self, root: &Path, port: u16) -> Result<()> {
        let folder = self.folder(root);
        fs::create_dir_all(&folder)?;
        let program = self.kind.program(&folder, port)?;
        // What it says concerns this start; an old log would grow for ever.
        fs::write(&program.log, "")?;
        println!("starting {} on 127.0.0.1:{port}", self.name);
        Running { pid: program.start_daemon()?, port }.save(&folder)
    }

    fn wait_ready(&self, root: &Path) -> Result<()> {
        let folder = self.folder(root);
        let outcome = wait_for(&format!("{} to answer", self.name), READY, || match self.running(root) {
            Some(running) => self.answers(running.port).then_some(Ok(())),
            None => Some(Err(anyhow!("{} ended at its start", self.name))),
        });
        outcome.and_then(|ready| ready).with_context(|| {
            let log = folder.join(self.kind.log());
            format!("end of {}:\n{}", log.display(), tail(&log))
        })
    }

    fn answers(&self, port: u16) -> bool {
        match &self.kind {
            Kind::Redis { .. } => RedisServer::builder().port(port).answers(),
            _ => ports::is_open(port),
        }
    }
}

impl Kind {
    fn executable(&self) -> &'static str {
        match self {
            Self::Redis { .. } => "redis-server",
            _ => "java",
        }
    }

    fn log(&self) -> &'static str {
        match self {
            Self::Redis { .. } => "redis.log",
            _ => "server.log",
        }
    }

    /// Every port that has to be free.
    fn ports(&self, port: u16) -> Vec<u16> {
        match self {
            Self::Redis { .. } => vec![port],
            _ => vec![port, port + 1],
        }
    }

    fn program(&self, folder: &Path, port: u16) -> Result<Program> {
        match self {
            Self::Kafka { properties, heap_mb } => {
                let builder = KafkaServer::builder().port(port).controller_port(port + 1);
                let builder = builder.jvm(Jvm::lasting(*heap_mb));
                let all = properties.iter().fold(builder, |b, (name, value)| b.property(name, value));
                all.prepare(folder)
            }
            Self::Cassandra { heap_mb, .. } => {
                let builder = CassandraServer::builder().port(port).storage_port(port + 1);
                builder.jvm(Jvm::lasting(*heap_mb)).prepare(folder)
            }
            Self::Redis { directives } => {
                let builder = RedisServer::builder().port(port);
                let all =
                    directives.iter().fold(builder, |b, (name, value)| b.arg(&format!("--{name}"), value));
                Ok(RedisBuilder::program(&all, folder))
            }
        }
    }
}
