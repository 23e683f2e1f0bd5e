//! What only a process of its own can show: signals, exit codes, lines on standard error.
//!
//! Each test starts this test binary again, asking for one of the functions named `child_*`, which
//! do nothing in a normal run.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use onlooker_stage::telemetry::{LogConfig, LogFormat, init_logs};
use onlooker_stage::{ShutdownTrigger, signals};

const ROLE: &str = "ONLOOKER_STAGE_TEST_CHILD";

fn is_child() -> bool {
    std::env::var_os(ROLE).is_some()
}

fn child(name: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(ROLE, "1")
        .env_remove("NO_COLOR")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn kill(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

/// Drains for as long as it is let.
#[test]
fn child_that_drains() {
    if !is_child() {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        init_logs(&LogConfig { format: LogFormat::Json, level: "info".into() }).unwrap();
        let trigger = ShutdownTrigger::default();
        signals(trigger.clone()).unwrap();
        tracing::info!("started");
        trigger.shutdown().requested().await;
        tracing::info!("draining");
        tokio::time::sleep(Duration::from_secs(60)).await;
    });
}

#[test]
fn the_first_signal_drains_and_the_second_forces() {
    for (first, second, exit_code) in [("-TERM", "-INT", 130), ("-INT", "-TERM", 143)] {
        let mut child = child("child_that_drains");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut until = |text: &str| lines.by_ref().find(|line| line.contains(text));
        assert!(until("\"started\"").is_some());
        kill(&child, first);
        assert!(until("\"draining\"").is_some(), "{first} did not begin the drain");
        kill(&child, second);
        let line = until("forced to exit").unwrap();
        assert!(line.contains(&format!("\"exit_code\":{exit_code}")), "{line}");
        assert_eq!(child.wait().unwrap().code(), Some(exit_code));
    }
}

#[test]
fn child_that_logs() {
    if !is_child() {
        return;
    }
    let level = "warn,process=info".into();
    init_logs(&LogConfig { format: LogFormat::Auto, level }).unwrap();
    assert_eq!(init_logs(&LogConfig::default()).unwrap_err().to_string(), "logging was started before");
    tracing::info!(duration_ms = 12, "batch written");
    tracing::debug!("too fine");
    tracing::info!(target: "elsewhere", "too fine for a stranger");
    let died =
        std::thread::Builder::new().name("worker".into()).spawn(|| panic!("index {}", 7)).unwrap().join();
    assert!(died.is_err());
}

#[test]
fn logs_are_json_where_nobody_watches() {
    let mut child = child("child_that_logs");
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!((&lines[0]["level"], &lines[0]["duration_ms"]), (&"INFO".into(), &12.into()));
    assert_eq!(lines[0]["message"], "batch written");
    assert!(lines[0]["timestamp"].as_str().unwrap().ends_with('Z'), "{text}");
    assert_eq!((&lines[1]["message"], &lines[1]["thread"]), (&"index 7".into(), &"worker".into()));
    assert!(lines[1]["location"].as_str().unwrap().contains("process.rs"), "{text}");
}
