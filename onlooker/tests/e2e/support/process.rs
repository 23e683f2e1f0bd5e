//! One of our own processes.

use super::{LONG, System};
use onlooker_testkit::process::{Process, Program};
use onlooker_testkit::{ports, wait_until};
use std::ffi::OsString;
use std::process::ExitStatus;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) struct Role {
    name: String,
    admin: u16,
    program: Program,
    process: Mutex<Process>,
}

impl Role {
    /// Starts a role; `args` come after the role's name.
    pub(crate) fn launch(system: &System, role: &str, args: &[&str]) -> Self {
        Self::launch_under(system, role, args, |_| Vec::new())
    }

    /// The same with variables of the environment, `NAME=value`, that may depend on the role's name and number.
    pub(crate) fn launch_under(
        system: &System,
        role: &str,
        args: &[&str],
        environment: impl FnOnce(&str) -> Vec<String>,
    ) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{role}-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let admin = ports::free_port().unwrap();
        let listen = format!("admin.listen=127.0.0.1:{admin}");
        let config = system.config_path();
        // `env` becomes what it starts: the process id is the same.
        let mut all: Vec<OsString> = environment(&name).into_iter().map(Into::into).collect();
        all.push(env!("CARGO_BIN_EXE_onlooker").into());
        all.extend([role.into(), "--config".into(), config.into(), "--set".into(), listen.into()]);
        all.extend(args.iter().map(Into::into));
        let program = Program {
            name: name.clone(),
            executable: "env".into(),
            args: all,
            folder: system.folder.path().into(),
            log: system.folder.path().join(format!("{name}.log")),
        };
        let process = Mutex::new(program.start().unwrap());
        Self { name, admin, program, process }
    }

    pub(crate) fn wait_ready(&self) {
        let ready = || self.admin_status("readyz") == Some(200);
        let outcome = self.process.lock().unwrap().wait_ready(LONG, ready);
        outcome.unwrap_or_else(|e| panic!("{e:#}\nreadyz: {:?}", self.admin_text("readyz")));
    }

    /// The role and a number.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where its admin listener is.
    pub(crate) fn admin(&self) -> String {
        format!("127.0.0.1:{}", self.admin)
    }

    /// The status of a page of the admin listener; none while nobody listens.
    pub(crate) fn admin_status(&self, page: &str) -> Option<u16> {
        let url = format!("http://127.0.0.1:{}/{page}", self.admin);
        ureq(&url).map(|(status, _)| status)
    }

    pub(crate) fn admin_text(&self, page: &str) -> Option<String> {
        let url = format!("http://127.0.0.1:{}/{page}", self.admin);
        ureq(&url).map(|(_, text)| text)
    }

    /// The sum of a metric over all its labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = self.admin_text("metrics").unwrap_or_default();
        page.lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    pub(crate) fn kill(&self) {
        self.process.lock().unwrap().kill().unwrap();
    }

    pub(crate) fn restart(&self) {
        let mut process = self.process.lock().unwrap();
        process.kill().unwrap();
        *process = self.program.start().unwrap();
    }

    pub(crate) fn signal(&self, signal: i32) {
        self.process.lock().unwrap().signal(signal).unwrap();
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.process.lock().unwrap().is_alive()
    }

    pub(crate) fn stop(&self, timeout: Duration) -> ExitStatus {
        self.process.lock().unwrap().stop(timeout).unwrap()
    }

    /// Waits for the process to end by itself.
    pub(crate) fn wait_end(&self) {
        wait_until(&format!("{} to end", self.name), LONG, || !self.is_alive()).unwrap();
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.program.log).unwrap_or_default()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!(
                "== end of {}'s log\n{}",
                self.name,
                lines[lines.len().saturating_sub(25)..].join("\n")
            );
            eprintln!("== its readiness: {:?}", self.admin_text("readyz"));
            let metrics = self.admin_text("metrics").unwrap_or_default();
            let told = |l: &&str| l.starts_with("onlooker_") && !l.contains("_bucket") && !l.ends_with(" 0");
            eprintln!("== its metrics\n{}", metrics.lines().filter(told).collect::<Vec<_>>().join("\n"));
        }
    }
}

/// A GET without keep-alive: status and body.
fn ureq(url: &str) -> Option<(u16, String)> {
    use std::io::{Read, Write};
    let rest = url.strip_prefix("http://")?;
    let (host, path) = rest.split_once('/')?;
    let address = host.parse().ok()?;
    let mut stream = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    let body = text.split_once("\r\n\r\n").map(|(_, b)| b.to_owned()).unwrap_or_default();
    Some((status, body))
}
