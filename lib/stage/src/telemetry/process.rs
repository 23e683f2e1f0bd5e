//! What the kernel knows about this process, under the names that every Prometheus client uses.

use std::fmt::Write;
use std::fs;

use super::{Described, Kind};

/// The kernel reports CPU time to user space in hundredths of a second, on every architecture that
/// we build for.
const TICKS_PER_SECOND: f64 = 100.0;

const CPU: Described =
    plain("process_cpu_seconds_total", Kind::Counter, "User and system CPU time, in seconds");
const START: Described =
    plain("process_start_time_seconds", Kind::Gauge, "When the process started, in seconds since 1970");
const RESIDENT: Described = plain("process_resident_memory_bytes", Kind::Gauge, "Resident memory");
const PEAK: Described = plain("process_resident_memory_peak_bytes", Kind::Gauge, "Highest resident memory");
const OPEN_FDS: Described = plain("process_open_fds", Kind::Gauge, "Open file descriptors");
const MAX_FDS: Described = plain("process_max_fds", Kind::Gauge, "Limit of open file descriptors");

const fn plain(name: &'static str, kind: Kind, help: &'static str) -> Described {
    Described { name, kind, labels: Vec::new(), help }
}

pub(super) fn described() -> Vec<Described> {
    vec![CPU, START, RESIDENT, PEAK, OPEN_FDS, MAX_FDS]
}

/// Appends the process's metrics. A value that cannot be read is left out.
pub(super) fn render(page: &mut String) {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (stat, status, limits) =
        (read("/proc/self/stat"), read("/proc/self/status"), read("/proc/self/limits"));
    let open_fds = fs::read_dir("/proc/self/fd").map(|entries| entries.count() as f64).ok();
    let metrics = [
        (CPU, cpu_seconds(&stat)),
        (START, start_seconds(&stat, &read("/proc/stat"))),
        (RESIDENT, status_bytes(&status, "VmRSS:")),
        (PEAK, status_bytes(&status, "VmHWM:")),
        (OPEN_FDS, open_fds),
        (MAX_FDS, max_fds(&limits)),
    ];
    for (Described { name, kind, help, .. }, value) in metrics {
        if let Some(value) = value {
            let kind = kind.as_str();
            // Writing to a string cannot fail.
            let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        }
    }
}

/// Field 22 of `stat`, in ticks since the machine started; when that was stands in the machine's own `stat`.
fn start_seconds(stat: &str, machine: &str) -> Option<f64> {
    let ticks: f64 = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let booted: f64 = machine.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(booted + ticks / TICKS_PER_SECOND)
}

/// Fields 14 and 15 of `stat`, counted from behind the command, which may hold spaces and brackets.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

fn status_bytes(status: &str, field: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: f64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024.0)
}

fn max_fds(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_formats() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 9 0 0 0 250 50 0 0 20 0 4 0 99 1000 20";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("7 (cut off"), None);
        assert_eq!(start_seconds(stat, "cpu 1 2\nbtime 5000\n"), Some(5000.99));
        assert_eq!(status_bytes("VmHWM:\t  12 kB\nVmRSS:\t   8 kB\n", "VmRSS:"), Some(8192.0));
        assert_eq!(
            max_fds("Max open files            1024                 4096                 files"),
            Some(1024.0)
        );
        assert_eq!(
            max_fds("Max open files            unlimited            unlimited            files"),
            None
        );
    }

    #[test]
    fn this_process_has_all_of_them() {
        let mut page = String::new();
        render(&mut page);
        for name in [
            "cpu_seconds_total",
            "resident_memory_bytes",
            "resident_memory_peak_bytes",
            "open_fds",
            "start_time_seconds",
        ] {
            assert!(page.contains(&format!("\nprocess_{name} ")), "{name} is missing in\n{page}");
        }
    }
}
