//! What a Kafka broker is told, and its storage.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::certificates::Certificates;
use crate::folder::copy_tree;
use crate::java::{Jvm, Library, pom_version};
use crate::ports::{free_port, is_open};
use crate::process::Program;

const POM: &str = include_str!("../servers/kafka.xml");

/// The version of Kafka that is run.
pub const VERSION: &str = pom_version(POM);

const CLUSTER_ID: &str = "onlookerTestClusterAAA";

const LOG4J: &str = "
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
";

/// The ports of one broker on 127.0.0.1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) id: usize,
    pub(crate) port: u16,
    pub(crate) controller_port: u16,
    pub(crate) secure_port: Option<u16>,
    pub(crate) door: Option<Door>,
}

/// A listener that tells its clients another port than its own: something stands there and passes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Door {
    /// Where the broker listens; that of the secure listener, where there is one.
    pub(crate) port: u16,
    pub(crate) told: u16,
}

/// The one user of the secure listener, and the listener's certificate.
#[derive(Debug, Clone)]
pub(crate) struct Login {
    user: String,
    password: String,
    keystore: PathBuf,
}

impl Login {
    pub(crate) fn new(user: &str, password: &str, certificates: &Certificates) -> Self {
        Self { user: user.to_owned(), password: password.to_owned(), keystore: certificates.keystore() }
    }
}

/// What every broker is told, wherever it runs, for a cluster of that many brokers.
pub fn broker_settings(brokers: usize) -> Vec<(&'static str, String)> {
    let in_sync = brokers.div_ceil(2).to_string();
    let brokers = brokers.to_string();
    vec![
        ("process.roles", "broker,controller".to_owned()),
        ("controller.listener.names", "CONTROLLER".to_owned()),
        ("inter.broker.listener.name", "PLAINTEXT".to_owned()),
        ("default.replication.factor", brokers.clone()),
        ("offsets.topic.replication.factor", brokers.clone()),
        ("transaction.state.log.replication.factor", brokers),
        ("min.insync.replicas", in_sync.clone()),
        ("transaction.state.log.min.isr", in_sync),
        ("unclean.leader.election.enable", "false".to_owned()),
        // Topics have their settings from `onlooker topics apply`; one that appears by itself has none.
        ("auto.create.topics.enable", "false".to_owned()),
        ("group.initial.rebalance.delay.ms", "0".to_owned()),
    ]
}

/// Short time-outs and small tables: a broker that was killed comes back, or is replaced, within seconds.
fn local_settings() -> Vec<(&'static str, String)> {
    [
        ("offsets.topic.num.partitions", "3"),
        ("transaction.state.log.num.partitions", "3"),
        // With the default of 9 s a broker's restart after a kill is refused for longer than that.
        ("broker.session.timeout.ms", "1000"),
        ("broker.heartbeat.interval.ms", "200"),
        ("controller.quorum.election.timeout.ms", "500"),
        ("controller.quorum.fetch.timeout.ms", "1000"),
        ("controlled.shutdown.enable", "false"),
        ("log.cleaner.dedupe.buffer.size", "4194304"),
        ("log.index.size.max.bytes", "1048576"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .to_vec()
}

/// Writes a broker's files into `folder`, unless its data is there already, and says what to run.
pub(crate) fn program(
    node: &Node,
    all: &[Node],
    jvm: Jvm,
    extra: &[(String, String)],
    login: Option<&Login>,
    folder: &Path,
) -> Result<Program> {
    let library = library()?;
    let mut lines = lines(node, all, login, &folder.join("data"));
    lines.extend(extra.iter().map(|(name, value)| format!("{name}={value}")));
    fs::write(folder.join("server.properties"), lines.join("\n") + "\n")?;
    fs::write(folder.join("log4j2.properties"), LOG4J)?;
    let ready = folder.join("formatted");
    if !ready.exists() {
        match login {
            None => copy_storage(library, node, folder)?,
            Some(login) => format(library, folder, Some(login))?,
        }
        // Last, so that a storage that was cut short is made again.
        fs::write(ready, "")?;
    }
    Ok(broker(library, node, jvm, folder))
}

fn broker(library: &Library, node: &Node, jvm: Jvm, folder: &Path) -> Program {
    let log = format!("-Dlog4j2.configurationFile=file:{}", folder.join("log4j2.properties").display());
    let name = format!("kafka broker {} on port {}", node.id, node.port);
    library.program(&name, jvm, &[log], &["kafka.Kafka", "server.properties"], folder)
}

fn lines(node: &Node, all: &[Node], login: Option<&Login>, data: &Path) -> Vec<String> {
    let plain = format!("PLAINTEXT://127.0.0.1:{}", node.port);
    let (mut listeners, mut advertised) = (plain.clone(), plain);
    let mut listener = |name: &str, port: u16, told: u16| {
        listeners += &format!(",{name}://127.0.0.1:{port}");
        advertised += &format!(",{name}://127.0.0.1:{told}");
    };
    let mut protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT".to_owned();
    if let Some(port) = node.secure_port {
        listener("SASL_SSL", port, node.door.map_or(port, |door| door.told));
        protocols += ",SASL_SSL:SASL_SSL";
    } else if let Some(door) = node.door {
        listener("DOOR", door.port, door.told);
        protocols += ",DOOR:PLAINTEXT";
    }
    let voters: Vec<String> =
        all.iter().map(|peer| format!("{}@127.0.0.1:{}", peer.id, peer.controller_port)).collect();
    let settings = broker_settings(all.len()).into_iter().chain(local_settings());
    let mut lines: Vec<String> = settings.map(|(name, value)| format!("{name}={value}")).collect();
    lines.extend([
        format!("node.id={}", node.id),
        format!("controller.quorum.voters={}", voters.join(",")),
        format!("listeners={listeners},CONTROLLER://127.0.0.1:{}", node.controller_port),
        format!("advertised.listeners={advertised}"),
        format!("listener.security.protocol.map={protocols}"),
        format!("log.dirs={}", data.display()),
    ]);
    lines.extend(login.into_iter().flat_map(login_lines));
    lines
}

fn login_lines(Login { user, password, keystore }: &Login) -> [String; 5] {
    let modules = "org.apache.kafka.common.security";
    [
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256".to_owned(),
        format!(
            "listener.name.sasl_ssl.plain.sasl.jaas.config={modules}.plain.PlainLoginModule required \
             username=\"{user}\" password=\"{password}\" user_{user}=\"{password}\";"
        ),
        format!(
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={modules}.scram.ScramLoginModule required;"
        ),
        "ssl.keystore.type=PEM".to_owned(),
        format!("ssl.keystore.location={}", keystore.display()),
    ]
}

/// Kafka's archives, with an empty storage and the archive of classes beside them.
pub(crate) fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    let library = Library::fetch("kafka", POM, rehearse).context("cannot provide Kafka")?;
    Ok(LIBRARY.get_or_init(|| library))
}

/// Formats a storage to copy later, which saves a JVM's start each time, and runs one broker to its end for the
/// archive of classes.
fn rehearse(library: &Library) -> Result<()> {
    let folder = library.folder().join("rehearsal");
    fs::create_dir_all(&folder)?;
    let node =
        Node { id: 1, port: free_port()?, controller_port: free_port()?, secure_port: None, door: None };
    let lines = lines(&node, &[node], None, &folder.join("data"));
    fs::write(folder.join("server.properties"), lines.join("\n") + "\n")?;
    fs::write(folder.join("log4j2.properties"), LOG4J)?;
    format(library, &folder, None)?;
    copy_tree(&folder.join("data"), &library.folder().join("storage"))?;
    let program = library.archiving(broker(library, &node, Jvm::for_test(128), &folder));
    let mut process = program.start()?;
    process.wait_ready(Duration::from_secs(90), || is_open(node.port))?;
    process.stop(Duration::from_secs(90))?;
    fs::remove_dir_all(folder)?;
    Ok(())
}

fn format(library: &Library, folder: &Path, login: Option<&Login>) -> Result<()> {
    let scram = login.map(|l| format!("SCRAM-SHA-256=[name={},password={}]", l.user, l.password));
    let mut main = vec!["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", "server.properties"];
    if let Some(scram) = &scram {
        main.extend(["--add-scram", scram]);
    }
    let log = format!("-Dlog4j2.configurationFile=file:{}", folder.join("log4j2.properties").display());
    library.program("kafka storage tool", Jvm::for_test(64), &[log], &main, folder).run()
}

/// A fresh storage for `node`: the formatted one under the node's own ids.
fn copy_storage(library: &Library, node: &Node, folder: &Path) -> Result<()> {
    let to = folder.join("data");
    copy_tree(&library.folder().join("storage"), &to)?;
    let id = node.id;
    let directory = format!("onlookerTestNode0{id}AAAA");
    let meta = format!("version=1\ncluster.id={CLUSTER_ID}\nnode.id={id}\ndirectory.id={directory}\n");
    fs::write(to.join("meta.properties"), meta)?;
    Ok(())
}
