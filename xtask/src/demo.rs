//! `cargo x demo`: the whole system on this machine, with a real log in it, until Ctrl-C.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use onlooker_testkit::java::workspace;
use onlooker_testkit::process::{Process, Program};
use onlooker_testkit::{install, ports, wait_until};

use crate::commands::{FEATURES, cargo, target_folder};
use crate::services::daemon::{self, Services};

const CONFIG: &str = "compose/local.toml";
const LOG: &str = "onlooker/tests/data/blog_access.log.gz";
const TOKEN: &str = "demo-token-not-secret";
/// The rooms, each with the port of its admin listener: where compose/prometheus/targets.yaml has it.
const ROLES: [(&str, u16); 5] =
    [("collector", 28080), ("filter", 28081), ("counter", 28082), ("flusher", 28083), ("counts-api", 28084)];
/// Its most viewed pages, by the log's own truth.
const PAGES: [&str; 5] = ["/favicon.ico", "/style2.css", "/", "/reset.css", "/images/jordan-80.png"];
const START: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Ends once the counts are shown, instead of waiting for Ctrl-C
    #[arg(long)]
    once: bool,
    /// Runs a debug build, which is made faster
    #[arg(long)]
    debug: bool,
}

pub(crate) fn run(demo: &Demo) -> Result<()> {
    install::for_builds()?;
    let profile: &[&str] = if demo.debug { &[] } else { &["--release"] };
    cargo(&[&["build", "--package", "onlooker", "--features", FEATURES], profile].concat())?;
    daemon::run(&Services::Up(daemon::Ports::default()))?;
    let onlooker = target_folder()?.join(if demo.debug { "debug/onlooker" } else { "release/onlooker" });
    command(&onlooker, &["topics", "apply"])?;
    command(&onlooker, &["schema", "apply"])?;
    let folder = daemon::root().join("demo");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let roles = ROLES.map(|(role, port)| start(&onlooker, &folder, role, port));
    let mut roles = roles.into_iter().collect::<Result<Vec<_>>>()?;
    for (process, admin) in &mut roles {
        process.wait_ready(START, || is_ready(*admin))?;
    }
    println!("\nimporting {LOG}");
    // What was sent is remembered beside the log that it was sent to, and forgotten with it.
    let state = daemon::root().join("kafka/imports").display().to_string();
    command(&onlooker, &["import", LOG, "--site", "demo", "--state", &state])?;
    let shown = || show(&onlooker).is_ok_and(|table| !table.contains("warming") && table.contains("769"));
    wait_until("the counts", START, shown)?;
    println!("\n{}", show(&onlooker)?);
    if demo.once {
        return stop(roles);
    }
    println!("Logs: {}. Try, in another terminal:\n", folder.display());
    println!("  curl -d '{{\"site\":\"demo\",\"item\":\"hello\"}}' http://127.0.0.1:8080/v1/views");
    println!("  curl 'http://127.0.0.1:8081/v1/counts?site=demo&item=hello'\n");
    println!("Their metrics: docker compose -f compose/compose.yaml up prometheus grafana, then");
    println!("  http://127.0.0.1:23000/d/onlooker\n");
    println!("Ctrl-C ends the rooms; `cargo x services down` then stops the servers.");
    // The rooms end with this process, whichever way it ends.
    loop {
        std::thread::park();
    }
}

fn start(onlooker: &Path, folder: &Path, role: &str, port: u16) -> Result<(Process, SocketAddr)> {
    let port = if ports::is_free(port) { port } else { ports::free_port()? };
    let admin = SocketAddr::from(([127, 0, 0, 1], port));
    let config = workspace().join(CONFIG);
    let args = [
        role.into(),
        "--config".into(),
        config.into(),
        "--set".into(),
        format!("admin.listen={admin}").into(),
    ];
    let program = Program {
        name: role.to_owned(),
        executable: onlooker.into(),
        args: args.into(),
        folder: workspace().into(),
        log: folder.join(format!("{role}.log")),
    };
    Ok((program.start()?, admin))
}

fn stop(roles: Vec<(Process, SocketAddr)>) -> Result<()> {
    for (mut process, _) in roles {
        let status = process.stop(START)?;
        if !status.success() {
            bail!("a room did not end well: {status}");
        }
    }
    Ok(())
}

fn is_ready(admin: SocketAddr) -> bool {
    let ask = || -> Result<bool> {
        let mut stream = TcpStream::connect(admin)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        write!(stream, "GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.1 200"))
    };
    ask().unwrap_or(false)
}

fn prepared(onlooker: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(onlooker);
    let config: PathBuf = workspace().join(CONFIG);
    command
        .args(arguments)
        .current_dir(workspace())
        .env("ONLOOKER_CONFIG", config)
        .env("ONLOOKER_TOKEN", TOKEN);
    command
}

fn command(onlooker: &Path, arguments: &[&str]) -> Result<()> {
    let status = prepared(onlooker, arguments).status().context("cannot run onlooker")?;
    if !status.success() {
        bail!("onlooker {} ended with {status}", arguments.join(" "));
    }
    Ok(())
}

fn show(onlooker: &Path) -> Result<String> {
    let arguments = [&["get", "--site", "demo"], &PAGES[..]].concat();
    let output = prepared(onlooker, &arguments).stderr(Stdio::inherit()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
