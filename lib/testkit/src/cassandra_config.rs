//! What a Cassandra node is told.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::java::{Jvm, Library, pom_version};
use crate::ports::{free_port, is_open_at};
use crate::process::Program;

const POM: &str = include_str!("../servers/cassandra.xml");

/// The version of Cassandra that is run.
pub const VERSION: &str = pom_version(POM);

/// What the cluster calls itself; a node refuses data that another name has written.
pub const CLUSTER_NAME: &str = "onlooker";

/// The data centre of every node.
pub const DATA_CENTRE: &str = "datacenter1";

/// A third of the ring each. Fixed, so that the nodes of a new cluster need not agree on anything.
const TOKENS: [i64; 3] = [i64::MIN, -3074457345618258603, 3074457345618258602];

const LOGBACK: &str = r#"<configuration>
  <appender name="STDOUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%date %level %logger{1} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="STDOUT"/></root>
</configuration>
"#;

/// What Cassandra takes from inside of Java 17.
const EXPORTS: &str = "java.base/jdk.internal.misc java.management.rmi/com.sun.jmx.remote.internal.rmi \
    java.rmi/sun.rmi.registry java.rmi/sun.rmi.server java.rmi/sun.rmi.transport.tcp java.sql/java.sql \
    java.base/java.lang.ref java.base/java.lang.reflect jdk.unsupported/sun.misc";
const OPENS: &str = "java.base/java.lang.module java.base/jdk.internal.loader java.base/jdk.internal.ref \
    java.base/jdk.internal.reflect java.base/jdk.internal.math java.base/jdk.internal.module \
    java.base/jdk.internal.util.jar java.base/sun.nio.ch java.base/java.io java.base/java.lang \
    java.base/java.util java.base/java.nio java.base/java.util.concurrent \
    java.base/java.util.concurrent.atomic java.base/java.lang.reflect java.base/java.net \
    java.base/jdk.internal.misc jdk.management/com.sun.management.internal";

/// One of `of` nodes: the addresses 127.0.0.1 and up, the ports the same for all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) number: u8,
    pub(crate) of: u8,
    pub(crate) port: u16,
    pub(crate) storage_port: u16,
}

impl Node {
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((host(self.number), self.port))
    }
}

fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, number + 1)
}

/// The lines that ask for a password.
pub(crate) fn authentication() -> [String; 3] {
    [
        "authenticator: PasswordAuthenticator".to_owned(),
        "authorizer: CassandraAuthorizer".to_owned(),
        "role_manager: CassandraRoleManager".to_owned(),
    ]
}

/// Writes a node's files into `folder`, where its data may be already, and says what to run.
pub(crate) fn program(node: &Node, jvm: Jvm, extra: &[String], folder: &Path) -> Result<Program> {
    let library = library()?;
    fs::create_dir_all(folder)?;
    write_files(node, extra, folder)?;
    Ok(daemon(library, node, jvm, folder))
}

fn write_files(node: &Node, extra: &[String], folder: &Path) -> Result<()> {
    let mut yaml = yaml(node);
    yaml.extend(extra.iter().cloned());
    fs::write(folder.join("cassandra.yaml"), yaml.join("\n") + "\n")?;
    fs::write(folder.join("logback.xml"), LOGBACK)?;
    Ok(())
}

fn yaml(node: &Node) -> Vec<String> {
    let Node { number, of, port, storage_port } = *node;
    // Every node is a seed: with a token of its own it then joins without fetching data from others.
    let seeds: Vec<String> = (0..of).map(|n| format!("{}:{storage_port}", host(n))).collect();
    let host = host(number);
    vec![
        format!("cluster_name: {CLUSTER_NAME}"),
        "num_tokens: 1".to_owned(),
        format!("initial_token: \"{}\"", TOKENS[usize::from(number)]),
        "partitioner: org.apache.cassandra.dht.Murmur3Partitioner".to_owned(),
        // A write is acknowledged when it is on disk. With the default (periodic) a kill of the only node loses
        // acknowledged writes of the last 100 ms: a replay stops at the last marker, and they are written so often.
        "commitlog_sync: batch".to_owned(),
        format!("listen_address: {host}"),
        format!("rpc_address: {host}"),
        format!("native_transport_port: {port}"),
        format!("storage_port: {storage_port}"),
        // Has to differ from storage_port, and is not opened without encryption between nodes.
        format!("ssl_storage_port: {}", storage_port + 1),
        "endpoint_snitch: SimpleSnitch".to_owned(),
        format!(
            "seed_provider: [{{class_name: org.apache.cassandra.locator.SimpleSeedProvider, \
             parameters: [{{seeds: \"{}\"}}]}}]",
            seeds.join(",")
        ),
        "memtable_heap_space: 48MiB".to_owned(),
        "memtable_offheap_space: 48MiB".to_owned(),
        "file_cache_size: 32MiB".to_owned(),
        "concurrent_compactors: 1".to_owned(),
    ]
}

fn daemon(library: &Library, node: &Node, jvm: Jvm, folder: &Path) -> Program {
    let folder_text = folder.display();
    let mut flags = vec![
        format!("-Xms{}m", jvm.heap_mb),
        format!("-Dcassandra.config=file://{folder_text}/cassandra.yaml"),
        format!("-Dcassandra.storagedir={folder_text}/data"),
        format!("-Dcassandra.logdir={folder_text}"),
        format!("-Dlogback.configurationFile=file://{folder_text}/logback.xml"),
    ];
    // A loopback cluster need not wait for gossip to settle, nor for a default user until the ring is stable.
    flags.extend(
        [
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            "-Dcassandra.ring_delay_ms=1",
            // A node that missed a new table while the cluster came up would ask for it only after a minute.
            "-Dcassandra.migration_delay_ms=500",
            "-Dcassandra.schema_pull_interval_ms=500",
            "-Dcassandra.superuser_setup_delay_ms=0",
            "-Dcassandra.consistent.rangemovement=false",
            "-Dcassandra.auth_bcrypt_gensalt_log2_rounds=4",
            "-Djdk.attach.allowAttachSelf=true",
        ]
        .map(str::to_owned),
    );
    flags.extend(EXPORTS.split_whitespace().map(|package| format!("--add-exports={package}=ALL-UNNAMED")));
    flags.extend(OPENS.split_whitespace().map(|package| format!("--add-opens={package}=ALL-UNNAMED")));
    let name = format!("cassandra at {}", node.address());
    library.program(&name, jvm, &flags, &["org.apache.cassandra.service.CassandraDaemon"], folder)
}

/// Cassandra's archives, with the archive of classes beside them.
pub(crate) fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    let library = Library::fetch("cassandra", POM, rehearse).context("cannot provide Cassandra")?;
    Ok(LIBRARY.get_or_init(|| library))
}

/// Runs one node to its end for the archive of classes.
fn rehearse(library: &Library) -> Result<()> {
    let folder = library.folder().join("rehearsal");
    fs::create_dir_all(&folder)?;
    let node = Node { number: 0, of: 1, port: free_port()?, storage_port: free_port()? };
    write_files(&node, &[], &folder)?;
    let mut process = library.archiving(daemon(library, &node, Jvm::for_test(256), &folder)).start()?;
    process.wait_ready(Duration::from_secs(180), || is_open_at(node.address()))?;
    process.stop(Duration::from_secs(120))?;
    fs::remove_dir_all(folder)?;
    Ok(())
}
