//! The machine, and how quiet it is: figures without both would be worth little.

use crate::stats::Spread;
use anyhow::{Context, Result};
use std::fs;
use std::hint::black_box;
use std::thread::available_parallelism;

/// 16 MiB: more than a core's own caches, so that neighbours are felt.
const WORDS: usize = 1 << 21;
const STEPS: usize = 1 << 20;

/// How often a yardstick is read.
const READINGS: usize = 5;

/// Prints what the figures were measured on.
pub(crate) fn describe() {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<&str> = load.split(' ').take(3).collect();
    let cores = available_parallelism().map_or(0, usize::from);
    println!("{cores} cores, {}; load average {}", model.unwrap_or("unknown"), load.join(" "));
}

/// Prints the CPU time of one fixed piece of work. On a quiet machine all readings are the same; neighbours on the same
/// core or cache raise it, and every CPU figure of the run with it.
pub(crate) fn print_yardstick(when: &str) -> Result<()> {
    let mut memory = vec![0u64; WORDS];
    let readings = (0..READINGS).map(|_| work(&mut memory)).collect::<Result<Vec<_>>>()?;
    println!("a fixed piece of work {when}: {} ms of CPU\n", Spread::of(readings));
    Ok(())
}

/// Milliseconds of CPU for some arithmetic and as many loads and stores all over a memory.
fn work(memory: &mut [u64]) -> Result<f64> {
    let before = own_cpu_ns()?;
    let mut at = 1u64;
    for _ in 0..STEPS {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let slot = (at >> 33) as usize % memory.len();
        memory[slot] = memory[slot].wrapping_add(at);
    }
    black_box(&memory);
    Ok(own_cpu_ns()?.saturating_sub(before) as f64 / 1e6)
}

/// Time that this thread was on a CPU (`/proc/thread-self/schedstat`, first field).
fn own_cpu_ns() -> Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").context("no schedstat on this kernel")?;
    Ok(text.split(' ').next().context("schedstat is empty")?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time() {
        assert!(work(&mut vec![0; 1024]).unwrap() > 0.0);
    }
}
