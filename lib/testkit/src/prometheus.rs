//! A Prometheus of one's own, which scrapes what a test runs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::folder::server_folder;
use crate::install;
use crate::managed::Managed;
use crate::ports::free_port;
use crate::process::Program;

const READY: Duration = Duration::from_secs(30);

/// A running Prometheus on 127.0.0.1 that scrapes and evaluates every second; killed and its folder removed when the
/// value is dropped.
#[derive(Debug)]
pub struct PrometheusServer {
    port: u16,
    process: Managed,
    _folder: TempDir,
}

impl PrometheusServer {
    /// Starts one that scrapes `targets` (the label `room`, and `HOST:PORT`) as job `onlooker`, and evaluates the rules
    /// of a file.
    ///
    /// # Errors
    /// Prometheus cannot be installed, or does not come up; the message has the end of its log.
    pub fn start(targets: &[(&str, String)], rules: &Path) -> Result<Self> {
        install::ensure(&[install::PROMETHEUS])?;
        let port = free_port()?;
        let folder = server_folder("prometheus")?;
        let config = folder.path().join("prometheus.yaml");
        std::fs::write(&config, settings(targets, rules))
            .with_context(|| format!("cannot write {}", config.display()))?;
        let data = folder.path().join("data");
        let args = [
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", data.display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ];
        let program = Program {
            name: format!("prometheus on port {port}"),
            executable: install::PROMETHEUS.executable.into(),
            args: args.into_iter().map(Into::into).collect(),
            folder: folder.path().to_owned(),
            log: folder.path().join("prometheus.log"),
        };
        let ready = move || get(port, "/-/ready").is_ok_and(|(status, _)| status == 200);
        let process = Managed::new(program, READY, ready);
        process.restart()?;
        Ok(Self { port, process, _folder: folder })
    }

    /// Asks the HTTP API, with a path such as `/api/v1/rules`; its JSON.
    ///
    /// # Errors
    /// It cannot be reached, or answers with an error, which the message has.
    pub fn ask(&self, path: &str) -> Result<String> {
        match get(self.port, path)? {
            (200, body) => Ok(body),
            (status, body) => bail!("{path}: {status} {body}"),
        }
    }

    /// Evaluates an expression as of now; the JSON of its answer.
    ///
    /// # Errors
    /// As for [`ask`](Self::ask); the expression may be none.
    pub fn query(&self, expression: &str) -> Result<String> {
        self.ask(&format!("/api/v1/query?query={}", encoded(expression)))
            .with_context(|| expression.to_owned())
    }
}

impl Deref for PrometheusServer {
    type Target = Managed;

    fn deref(&self) -> &Managed {
        &self.process
    }
}

fn settings(targets: &[(&str, String)], rules: &Path) -> String {
    let head = format!(
        "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}\n\
         rule_files: [\"{}\"]\n\
         scrape_configs:\n  - job_name: onlooker\n    static_configs:\n",
        rules.display()
    );
    targets.iter().fold(head, |out, (room, address)| {
        out + &format!("      - {{ targets: [\"{address}\"], labels: {{ room: \"{room}\" }} }}\n")
    })
}

/// Everything but what stands for itself in a query.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |out, byte| match byte {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' | b'.' => out + &char::from(byte).to_string(),
        other => out + &format!("%{other:02X}"),
    })
}

/// HTTP/1.0, so that the body ends with the connection and comes in one piece.
fn get(port: u16, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").context("no HTTP answer")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.context("no HTTP status")?, body.to_owned()))
}
