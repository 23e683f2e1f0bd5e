//! The services as a Compose file.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use onlooker_testkit::java::workspace;

use super::{Kind, Service, list};

const HEAD: &str = "\
# The servers that Onlooker runs on, for Docker: docker compose -f compose/compose.yaml up --wait
# Written by `cargo x compose --write` from the list in xtask/src/services/mod.rs; change it there.
# Ports are open on this machine only. Containers reach each other by name: kafka:9092, cassandra:9042,
# redis-dedup:6379, redis-counters:6379.
name: onlooker

services:
";

/// Those who watch are on the host's network, for that is where the rooms are; both listen on loopback alone.
const WATCHERS: &str = r#"  # the rooms' metrics and alarms: http://127.0.0.1:29090
  prometheus:
    image: prom/prometheus:v2.53.4
    network_mode: host
    command:
      - --config.file=/etc/prometheus/prometheus.yaml
      - --storage.tsdb.path=/prometheus
      - --web.listen-address=127.0.0.1:29090
    volumes: ["./prometheus:/etc/prometheus:ro", "prometheus:/prometheus"]
    healthcheck:
      test: ["CMD", "wget", "-q", "-O", "-", "http://127.0.0.1:29090/-/ready"]
      interval: 10s
      timeout: 10s
      retries: 30
      start_period: 60s
    restart: unless-stopped

  # the dashboard, without a login: http://127.0.0.1:23000/d/onlooker
  grafana:
    image: grafana/grafana:11.6.1
    network_mode: host
    environment:
      GF_SERVER_HTTP_ADDR: "127.0.0.1"
      GF_SERVER_HTTP_PORT: "23000"
      GF_AUTH_ANONYMOUS_ENABLED: "true"
      GF_AUTH_DISABLE_LOGIN_FORM: "true"
      GF_ANALYTICS_REPORTING_ENABLED: "false"
      GF_ANALYTICS_CHECK_FOR_UPDATES: "false"
    volumes: ["./grafana/provisioning:/etc/grafana/provisioning:ro", "./grafana/dashboards:/etc/grafana/dashboards:ro"]
    healthcheck:
      test: ["CMD", "wget", "-q", "-O", "-", "http://127.0.0.1:23000/api/health"]
      interval: 10s
      timeout: 10s
      retries: 30
      start_period: 60s
    restart: unless-stopped

"#;

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Compose {
    /// Fails when compose/compose.yaml is not what would be written
    #[arg(long)]
    check: bool,
    /// Writes compose/compose.yaml
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(compose: &Compose) -> Result<()> {
    if compose.check {
        return check();
    }
    fs::write(path(), text(&list())).with_context(|| format!("cannot write {}", path().display()))
}

pub(crate) fn check() -> Result<()> {
    let committed =
        fs::read_to_string(path()).with_context(|| format!("cannot read {}", path().display()))?;
    if committed != text(&list()) {
        bail!("compose/compose.yaml is not what the list of services says: run cargo x compose --write");
    }
    println!("compose/compose.yaml is up to date");
    Ok(())
}

fn path() -> PathBuf {
    workspace().join("compose/compose.yaml")
}

fn text(services: &[Service]) -> String {
    let mut out = HEAD.to_owned();
    let mut volumes = "  prometheus:\n".to_owned();
    for service in services {
        let (name, port) = (service.name, service.port);
        let container = container(&service.kind, port);
        let _ = write!(out, "  # {}\n  {name}:\n    image: {}\n", service.purpose, service.image);
        let _ = writeln!(out, "    ports: [\"127.0.0.1:{port}:{}\"]", container.port);
        out += &container.settings;
        if let Some(folder) = container.data {
            let _ = writeln!(out, "    volumes: [\"{name}:{folder}\"]");
            let _ = writeln!(volumes, "  {name}:");
        }
        let _ = write!(out, "    healthcheck:\n      test: {}\n", quoted(&container.health));
        out += "      interval: 10s\n      timeout: 10s\n      retries: 30\n      start_period: 60s\n";
        out += "    restart: unless-stopped\n\n";
    }
    out += WATCHERS;
    out + "volumes:\n" + &volumes
}

/// The image's own setting acknowledges a write before it is on the disk, and with one copy a node that is killed then
/// loses what it had acknowledged. The image has no variable for it.
const SYNCED_COMMIT_LOG: &str = r#"    entrypoint:
      - bash
      - -c
      - |
        sed -i 's/^commitlog_sync: .*/commitlog_sync: batch/; /^commitlog_sync_period/d' /etc/cassandra/cassandra.yaml
        exec docker-entrypoint.sh cassandra -f
"#;

/// What differs between the images.
struct Container {
    /// The port inside that the host's port leads to.
    port: u16,
    settings: String,
    /// The folder of the data, if any is kept.
    data: Option<&'static str>,
    health: Vec<String>,
}

fn container(kind: &Kind, host_port: u16) -> Container {
    match kind {
        Kind::Kafka { properties, heap_mb } => kafka(properties, *heap_mb, host_port),
        Kind::Cassandra { cluster_name, heap_mb } => Container {
            port: 9042,
            settings: environment(&[
                ("CASSANDRA_CLUSTER_NAME", (*cluster_name).to_owned()),
                ("CASSANDRA_NUM_TOKENS", "1".to_owned()),
                ("MAX_HEAP_SIZE", format!("{heap_mb}M")),
                ("HEAP_NEWSIZE", format!("{}M", heap_mb / 4)),
            ]) + SYNCED_COMMIT_LOG,
            data: Some("/var/lib/cassandra"),
            health: words(&["CMD", "cqlsh", "-e", "DESCRIBE CLUSTER"]),
        },
        Kind::Redis { directives } => {
            let mut command = words(&["redis-server"]);
            command.extend(
                directives.iter().flat_map(|(name, value)| [format!("--{name}"), (*value).to_owned()]),
            );
            Container {
                port: 6379,
                settings: format!("    command: {}\n", quoted(&command)),
                data: None,
                health: words(&["CMD", "redis-cli", "ping"]),
            }
        }
    }
}

/// A client is sent on to the address that its listener advertises, so containers and the host need one each.
fn kafka(properties: &[(&str, String)], heap_mb: u32, host_port: u16) -> Container {
    let own = [
        ("node.id", "1".to_owned()),
        ("controller.quorum.voters", "1@kafka:9093".to_owned()),
        ("listeners", format!("PLAINTEXT://:9092,HOST://:{host_port},CONTROLLER://:9093")),
        ("advertised.listeners", format!("PLAINTEXT://kafka:9092,HOST://127.0.0.1:{host_port}")),
        (
            "listener.security.protocol.map",
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,HOST:PLAINTEXT".to_owned(),
        ),
        ("log.dirs", "/var/lib/kafka/data".to_owned()),
    ];
    // The image reads a property `a.b.c` from the variable KAFKA_A_B_C.
    let variable = |name: &str| format!("KAFKA_{}", name.to_uppercase().replace('.', "_"));
    let mut variables: Vec<(String, String)> =
        properties.iter().chain(&own).map(|(name, value)| (variable(name), value.clone())).collect();
    variables.push(("KAFKA_HEAP_OPTS".to_owned(), format!("-Xmx{heap_mb}m")));
    let borrowed: Vec<(&str, String)> =
        variables.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let script = "/opt/kafka/bin/kafka-broker-api-versions.sh";
    Container {
        port: host_port,
        settings: environment(&borrowed),
        data: Some("/var/lib/kafka/data"),
        health: words(&["CMD", script, "--bootstrap-server", "127.0.0.1:9092"]),
    }
}

fn environment(variables: &[(&str, String)]) -> String {
    variables.iter().fold("    environment:\n".to_owned(), |out, (name, value)| {
        out + &format!("      {name}: \"{value}\"\n")
    })
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A YAML flow sequence; no word of ours holds a quote or a backslash.
fn quoted(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    format!("[{}]", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_file_is_the_generated_one() {
        check().expect("compose/compose.yaml drifted from the list of services");
    }

    #[test]
    fn cassandra_acknowledges_what_is_on_the_disk() {
        let text = text(&list());
        assert!(text.contains("commitlog_sync: batch"), "as the test servers have it");
    }

    #[test]
    fn every_service_has_a_pinned_image_a_health_check_and_a_loopback_port() {
        let services = list();
        let text = text(&services);
        let watchers = text.matches("network_mode: host").count();
        assert_eq!(watchers, 2);
        assert_eq!(text.matches("healthcheck:").count(), services.len() + watchers);
        assert_eq!(text.matches("ports: [\"127.0.0.1:").count(), services.len());
        let images: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("    image: ")).collect();
        assert_eq!(images.len(), services.len() + watchers);
        for image in images {
            let (_, tag) = image.split_once(':').expect("a tag");
            assert_eq!(tag.split('.').count(), 3, "{image} is not pinned to a patch release");
        }
    }
}
