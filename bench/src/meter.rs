//! What processes cost: CPU time and memory, as the kernel counts them.

use anyhow::{Context, Result};
use std::fs;
use std::time::{Duration, Instant};

/// A tick of `/proc/PID/stat`: `USER_HZ`, which is 100 on every Linux that we run on. The kernel splits a precise run
/// time into user and system, so that their sum is right to one tick.
const TICK: Duration = Duration::from_millis(10);

/// A process to be watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watched {
    /// What tables call it.
    pub(crate) name: &'static str,
    /// Its process id.
    pub(crate) pid: u32,
}

/// What a process took within a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cost {
    /// What tables call it.
    pub(crate) name: &'static str,
    /// User and system time of all its threads, ended ones included.
    pub(crate) cpu: Duration,
    /// The largest resident set within the window, in bytes.
    pub(crate) peak_bytes: u64,
}

/// A window over some processes.
#[derive(Debug)]
pub(crate) struct Meter {
    watched: Vec<(Watched, Duration)>,
    began: Instant,
}

impl Meter {
    /// Opens a window over processes that run already: what they took before does not count.
    pub(crate) fn open(watched: impl IntoIterator<Item = Watched>) -> Result<Self> {
        let mut meter = Self { watched: Vec::new(), began: Instant::now() };
        for one in watched {
            // 5: the peak of the resident set starts anew (proc(5), clear_refs).
            fs::write(format!("/proc/{}/clear_refs", one.pid), "5")
                .with_context(|| format!("{} does not run", one.name))?;
            let before = cpu(one.pid)?;
            meter.watched.push((one, before));
        }
        meter.began = Instant::now();
        Ok(meter)
    }

    /// Adds a process that was started within the window: all that it ever took counts.
    pub(crate) fn add_newborn(&mut self, watched: Watched) {
        self.watched.push((watched, Duration::ZERO));
    }

    /// Since when the window is open.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// What each process took so far. They still have to run.
    pub(crate) fn read(&self) -> Result<Vec<Cost>> {
        self.watched
            .iter()
            .map(|(one, before)| {
                let cpu = cpu(one.pid).with_context(|| format!("{} ended early", one.name))?;
                Ok(Cost { name: one.name, cpu: cpu.saturating_sub(*before), peak_bytes: peak(one.pid)? })
            })
            .collect()
    }
}

/// User and system time of a process since its start.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_cpu(&stat).context("/proc/PID/stat has another form")
}

/// Fields 14 and 15 of proc(5). The second field is the name in parentheses, and may have any character.
fn parse_cpu(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(TICK * user.checked_add(system)?)
}

fn peak(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    parse_peak(&status).context("/proc/PID/status has no VmHWM")
}

fn parse_peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 95 0 0 0 12 30 0 0 20 0 1 0 99 1 1";
        assert_eq!(parse_cpu(stat), Some(Duration::from_millis(420)));
        assert_eq!(parse_cpu("7 (a) S 1"), None);
        assert_eq!(parse_peak("VmPeak:\t 9 kB\nVmHWM:\t  2 kB\n"), Some(2048));
    }

    #[test]
    fn work_of_a_process_is_seen() {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let meter = Meter::open([Watched { name: "busy", pid: child.id() }]).unwrap();
        let worked = onlooker_testkit::wait_until("CPU time", Duration::from_secs(30), || {
            meter.read().unwrap()[0].cpu >= TICK * 5
        });
        child.kill().unwrap();
        child.wait().unwrap();
        worked.unwrap();
        assert!(meter.read().is_err(), "a process that ended has no cost");
    }
}
