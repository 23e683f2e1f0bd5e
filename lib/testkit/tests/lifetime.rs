//! Servers live as long as their process: neither shorter nor longer.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use onlooker_testkit::redis::RedisServer;
use onlooker_testkit::{shared, wait_until};

const SOON: Duration = Duration::from_secs(10);
const ROLE: &str = "ONLOOKER_TESTKIT_VICTIM";

#[test]
fn server_outlives_the_thread_that_started_it() {
    let pid = std::thread::spawn(|| shared::redis().pid().unwrap()).join().unwrap();
    assert_eq!(shared::redis().cli(&["PING"]).unwrap(), "PONG");
    assert_eq!(shared::redis().pid().unwrap(), pid);
}

/// The process that the test below kills: it has a server, says so, and waits for its end.
#[test]
fn victim() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let server = RedisServer::start().unwrap();
    let folder = server.cli(&["CONFIG", "GET", "dir"]).unwrap();
    println!("\nvictim {} {}", server.pid().unwrap(), folder.lines().last().unwrap());
    std::thread::park();
}

#[test]
fn killed_process_leaves_nothing() {
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "victim", "--nocapture"]).env(ROLE, "1").stdout(Stdio::piped());
    let mut victim = victim.spawn().unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.starts_with("victim ")).unwrap();
    let [_, pid, folder] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
    let process = PathBuf::from(format!("/proc/{pid}/cmdline"));
    assert!(process.exists() && Path::new(folder).exists());

    victim.kill().unwrap();
    victim.wait().unwrap();
    // Its new parent has reaped it, or will: a process that has ended has an empty command line.
    let gone = || std::fs::read(&process).map_or(true, |cmdline| cmdline.is_empty());
    wait_until("the orphaned server to die", SOON, gone).unwrap();

    // The folder is left to the next process that starts a server.
    let mut next = Command::new(std::env::current_exe().unwrap());
    next.args(["--exact", "server_outlives_the_thread_that_started_it"]);
    assert!(next.output().unwrap().status.success());
    assert!(!Path::new(folder).exists());
}
