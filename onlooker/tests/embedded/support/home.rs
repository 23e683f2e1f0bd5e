//! A folder, and the program run on it.

use super::{Client, LONG, TOKEN};
use onlooker_testkit::process::{Process, Program, tail};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// A place of its own for a test: the data folder, and a home for what the program keeps of its user.
pub(crate) struct Home {
    home: TempDir,
    folder: PathBuf,
    sets: Vec<String>,
    /// Variables for `onlooker run`, as `NAME=value`.
    environment: Vec<String>,
}

/// The note that a running process leaves in its folder.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Session {
    pub(crate) pid: u32,
    pub(crate) url: String,
    pub(crate) admin: String,
    pub(crate) tokens: BTreeMap<String, String>,
}

impl Home {
    /// `sets` as after `--set`; ports are free ones unless they say otherwise.
    pub(crate) fn new(sets: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("data");
        Self::at(home, folder, sets)
    }

    /// The data folder lies elsewhere.
    pub(crate) fn at(home: TempDir, folder: PathBuf, sets: &[&str]) -> Self {
        let ports = ["collector.listen=127.0.0.1:0", "admin.listen=127.0.0.1:0"];
        let sets = ports.iter().chain(sets).map(|set| (*set).to_owned()).collect();
        Self { home, folder, sets, environment: Vec::new() }
    }

    /// Names the token of the only site, so that it is the same after each start.
    pub(crate) fn with_token(sets: &[&str]) -> Self {
        let token = format!("sites.main.token={TOKEN}");
        Self::new(&[&[token.as_str()], sets].concat())
    }

    pub(crate) fn path(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sets one more key from the next start on.
    pub(crate) fn set(&mut self, set: &str) {
        self.sets.push(set.to_owned());
    }

    /// What `onlooker run` is started with from now on.
    #[allow(dead_code, reason = "wanted where faults are injected")]
    pub(crate) fn set_environment(&mut self, environment: Vec<String>) {
        self.environment = environment;
    }

    /// Runs a command to its end, in this home and with no configuration but `--set`.
    pub(crate) fn onlooker(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlooker"));
        command.args(args).current_dir(self.path()).env("HOME", self.path());
        for set in &self.sets {
            command.args(["--set", set]);
        }
        command.output().unwrap()
    }

    /// Runs a command on the folder.
    pub(crate) fn on_folder(&self, args: &[&str]) -> Output {
        let folder = self.folder.display().to_string();
        self.onlooker(&[args, &["--dir", &folder]].concat())
    }

    /// Asks something about the folder: the lines of the answer, and the exit code, which is 0 or 3.
    pub(crate) fn ask(&self, args: &[&str]) -> (Vec<Value>, i32) {
        let output = self.on_folder(&[args, &["--json"]].concat());
        let code = output.status.code().unwrap();
        assert!(code == 0 || code == 3, "{args:?}: {}", text(&output));
        let lines = String::from_utf8(output.stdout).unwrap();
        (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), code)
    }

    /// Runs a command on the folder that does not end by itself; its lines.
    pub(crate) fn follow(&self, args: &[&str]) -> Following {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlooker"));
        command.args(args).arg("--dir").arg(&self.folder).arg("--json").env("HOME", self.path());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Following { child, lines }
    }

    fn program(&self) -> Program {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("run-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        // `env` becomes what it starts: the process id is the same.
        let mut args: Vec<OsString> = self.environment.iter().map(Into::into).collect();
        args.push(env!("CARGO_BIN_EXE_onlooker").into());
        args.extend(["run".into(), "--dir".into(), self.folder.clone().into()]);
        for set in &self.sets {
            args.extend(["--set".into(), set.into()]);
        }
        Program {
            log: self.path().join(format!("{name}.log")),
            name,
            executable: "env".into(),
            args,
            folder: self.path().into(),
        }
    }

    /// Starts `onlooker run`, and does not wait for anything.
    pub(crate) fn launch(&self) -> Starting {
        let program = self.program();
        Starting {
            process: program.start().unwrap(),
            note: self.folder.join("session.json"),
            log: program.log.clone(),
        }
    }

    /// Starts `onlooker run` and waits until it is ready.
    pub(crate) fn start(&self) -> Running {
        self.launch().ready()
    }
}

/// A command that goes on until it is dropped.
pub(crate) struct Following {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Following {
    /// Waits for its next line.
    pub(crate) fn line(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that may not answer yet.
pub(crate) struct Starting {
    process: Process,
    note: PathBuf,
    log: PathBuf,
}

impl Starting {
    /// Waits until all rooms say that they are ready.
    pub(crate) fn ready(mut self) -> Running {
        let (pid, mut found) = (self.process.pid(), None);
        let ready = || {
            let session = session(&self.note).filter(|session| session.pid == pid);
            found = session.filter(|session| get(&format!("{}/readyz", session.admin)).is_some_and(ok));
            found.is_some()
        };
        self.process.wait_ready(LONG, ready).unwrap();
        Running { process: self.process, session: found.unwrap(), log: self.log }
    }

    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
    }
}

fn ok((status, _): (u16, String)) -> bool {
    status == 200
}

/// A process that was ready.
pub(crate) struct Running {
    process: Process,
    pub(crate) session: Session,
    log: PathBuf,
}

impl Running {
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.session.url, Some(TOKEN))
    }

    /// A client such as a browser is.
    pub(crate) fn browser(&self) -> Client {
        Client::new(&self.session.url, None)
    }

    /// A page of the admin listener: its status and text.
    pub(crate) fn admin(&self, page: &str) -> Option<(u16, String)> {
        get(&format!("{}/{page}", self.session.admin))
    }

    /// The sum of a metric over all its labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = self.admin("metrics").map(|(_, text)| text).unwrap_or_default();
        page.lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Waits until all that was taken in is judged, counted and archived.
    pub(crate) async fn settle(&self, client: &Client, expected: &BTreeMap<String, u64>) {
        let items: Vec<&str> = expected.keys().map(String::as_str).collect();
        let there = || async {
            let counts = client.counts(&items).await;
            items.iter().zip(&counts).all(|(item, count)| count["views"] == expected[*item])
        };
        let waited = onlooker_testkit::wait_until_async("all views to count", LONG, there).await;
        if let Err(error) = waited {
            let counts = client.counts(&items).await;
            let wrong = items.iter().zip(&counts).filter(|(item, c)| c["views"] != expected[**item]);
            let wrong: Vec<_> =
                wrong.map(|(item, c)| format!("{item}: {} expected, {c}", expected[*item])).collect();
            panic!("{error}; {} differ, as {:?}\n{}", wrong.len(), &wrong[..wrong.len().min(3)], self.log());
        }
    }

    /// A field of `/proc/PID/status`, in bytes.
    pub(crate) fn memory(&self, field: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.process.pid())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    }

    /// CPU time used so far.
    pub(crate) fn cpu(&self) -> Duration {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.process.pid())).unwrap();
        // The name in brackets may hold anything; utime and stime are the 12th and 13th field behind it.
        let (_, fields) = text.rsplit_once(") ").unwrap();
        let ticks: u64 = fields.split(' ').skip(11).take(2).map(|n| n.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 10)
    }

    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
    }

    #[allow(dead_code, reason = "wanted where faults are injected")]
    pub(crate) fn signal(&mut self, signal: i32) {
        self.process.signal(signal).unwrap();
    }

    /// SIGTERM; its exit status and all that it had printed.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let status = self.process.stop(LONG).unwrap();
        (status, self.log())
    }

    /// SIGTERM, and expects a good end.
    pub(crate) fn stop(self) {
        let (status, log) = self.end();
        assert!(status.success(), "{status}\n{log}");
    }

    /// All that it has printed.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("== end of the process's log\n{}", tail(&self.log));
            eprintln!("== its readiness: {:?}", self.admin("readyz"));
        }
    }
}

fn session(note: &Path) -> Option<Session> {
    serde_json::from_slice(&std::fs::read(note).ok()?).ok()
}

/// What a command printed.
pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A GET without keep-alive: status and body.
fn get(url: &str) -> Option<(u16, String)> {
    use std::io::{Read, Write};
    let (host, path) = url.strip_prefix("http://")?.split_once('/')?;
    let mut stream =
        std::net::TcpStream::connect_timeout(&host.parse().ok()?, Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    Some((status, body))
}
