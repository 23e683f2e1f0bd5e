//! `cargo x services` as a developer meets it: twice the same, and after a machine that lost its processes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use onlooker_testkit::ports::free_port;

const NAMES: [&str; 4] = ["kafka", "cassandra", "redis-dedup", "redis-counters"];

/// A folder with daemons, which are stopped when the test ends, however it ends.
struct Place(tempfile::TempDir);

impl Place {
    fn x(&self, arguments: &[&str]) -> Output {
        let mut x = Command::new(env!("CARGO_BIN_EXE_xtask"));
        x.arg("services").args(arguments).env("ONLOOKER_SERVICES_DIR", self.0.path()).output().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.x(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{arguments:?}: {text}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.x(arguments);
        assert!(!output.status.success(), "{arguments:?} succeeded");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn pid(&self, name: &str) -> u32 {
        let text = fs::read_to_string(self.0.path().join(name).join("pid.json")).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        value["pid"].as_u64().unwrap().try_into().unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.x(&["down"]);
    }
}

/// Two free ports, one after the other: Kafka and Cassandra take both.
fn free_pair() -> u16 {
    let mut first = free_port().unwrap();
    loop {
        let second = free_port().unwrap();
        if second == first + 1 {
            return first;
        }
        first = second;
    }
}

fn ports() -> Vec<String> {
    let port = |name: &str, port: u16| [format!("--{name}-port"), port.to_string()];
    let pairs = [free_pair(), free_pair(), free_port().unwrap(), free_port().unwrap()];
    NAMES.iter().zip(pairs).flat_map(|(name, number)| port(name, number)).collect()
}

fn is_running(pid: u32) -> bool {
    // One that has ended and was not reaped has an empty command line.
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|cmdline| !cmdline.is_empty())
}

/// A process that is not a service, at work in a service's folder.
struct Bystander(Child);

impl Bystander {
    fn start(folder: &Path) -> Self {
        let mut sleep = Command::new("sleep");
        // It must not hold the test's output open.
        sleep.arg("600").current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
        Self(sleep.spawn().unwrap())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn up_down_and_status_are_idempotent_and_survive_lost_processes() {
    let place = Place(tempfile::tempdir().unwrap());
    let ports = ports();
    let up: Vec<&str> = std::iter::once("up").chain(ports.iter().map(String::as_str)).collect();

    let error = place.fails(&["status"]);
    assert!(error.contains("not up: kafka, cassandra, redis-dedup, redis-counters"), "{error}");
    assert_eq!(place.ok(&["down"]).trim(), "nothing runs");

    let shown = place.ok(&up);
    for port in ports.iter().skip(1).step_by(2) {
        assert!(shown.contains(&format!("127.0.0.1:{port}")), "{shown}");
    }
    let pids = NAMES.map(|name| place.pid(name));
    assert!(pids.iter().all(|pid| is_running(*pid)));
    place.ok(&up);
    place.ok(&["up"]);
    place.ok(&["status"]);
    assert_eq!(NAMES.map(|name| place.pid(name)), pids, "what runs is left running");
    let error = place.fails(&["up", "--kafka-port", "9"]);
    assert!(error.contains("kafka runs on port"), "{error}");

    // The machine loses its processes; their ids go to others, or to nobody.
    for pid in pids {
        onlooker_testkit::process::kill(pid).unwrap();
    }
    let folder = place.0.path().join("redis-dedup");
    let other = Bystander::start(&folder);
    fs::write(folder.join("pid.json"), format!(r#"{{"pid":{},"port":1}}"#, other.0.id())).unwrap();
    place.fails(&["status"]);
    let data = |name: &str| place.0.path().join(name).join("data");
    let meta = data("kafka").join("meta.properties");
    let written = fs::metadata(&meta).unwrap().modified().unwrap();
    place.ok(&up);
    assert_eq!(fs::metadata(&meta).unwrap().modified().unwrap(), written, "Kafka's data was made anew");
    assert!(is_running(other.0.id()), "a process that is no service was ended");

    let pids = NAMES.map(|name| place.pid(name));
    place.ok(&["down"]);
    assert!(pids.iter().all(|pid| !is_running(*pid)));
    place.fails(&["status"]);
    place.ok(&["down"]);
    assert!(data("kafka").exists() && data("cassandra").exists());
    place.ok(&["down", "--wipe"]);
    assert!(!data("kafka").exists());
    assert!(is_running(other.0.id()));
}

#[test]
fn port_of_somebody_else_is_named() {
    let place = Place(tempfile::tempdir().unwrap());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    // The others are free, whatever runs on this machine where services are by default.
    let mut ports = ports();
    let at = ports.iter().position(|word| word == "--redis-dedup-port").unwrap();
    ports[at + 1].clone_from(&port);
    let error =
        place.fails(&std::iter::once("up").chain(ports.iter().map(String::as_str)).collect::<Vec<_>>());
    assert!(
        error.contains(&format!("port {port} is taken")) && error.contains("--redis-dedup-port"),
        "{error}"
    );
}
