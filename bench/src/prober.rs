//! A reader of the counters Redis beside whatever else is done to it: how long does it wait?

use crate::latency::Latency;
use crate::resp::{Pipeline, Resp};
use anyhow::{Result, anyhow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Sketches of the prober's own: what others write must not change how much a read of them costs.
const SKETCHES: usize = 256;
const MEMBERS: usize = 1_000;

/// Reads a second, half of them a PFCOUNT and half a GET of a sketch's bytes.
const RATE: u32 = 1_000;

/// Connections that take turns. A read that waits must not make the next one wait: on a single connection 1,000 reads a
/// second are no more than it carries as soon as each takes a millisecond, and then it is its own queue that is measured.
const CONNECTIONS: u32 = 32;

/// Reads until it is told to stop.
#[derive(Debug)]
pub(crate) struct Prober {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Latency>>>,
}

impl Prober {
    /// Writes the prober's sketches; again after each FLUSHALL.
    pub(crate) fn prepare(port: u16) -> Result<()> {
        let mut resp = Resp::connect(port)?;
        let mut pipeline = Pipeline::default();
        for sketch in 0..SKETCHES {
            let members: Vec<Vec<u8>> = (0..MEMBERS).map(|m| format!("{sketch}-{m}").into_bytes()).collect();
            let key = key(sketch);
            let words: Vec<&[u8]> =
                [&b"PFADD"[..], &key].into_iter().chain(members.iter().map(Vec::as_slice)).collect();
            pipeline.push(&words);
        }
        resp.run(&mut pipeline).map(drop)
    }

    /// Starts reading.
    pub(crate) fn start(port: u16) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let start = Instant::now();
        let reader = |first| {
            let (mut resp, told) = (Resp::connect(port)?, Arc::clone(&stop));
            let read = move || {
                let mut latency = Latency::new()?;
                // By a timetable: a read that had to wait for the one before counts from when it was due.
                for number in (first..).step_by(CONNECTIONS as usize) {
                    if told.load(Ordering::Relaxed) {
                        break;
                    }
                    let due = start + Duration::from_secs(1) * number / RATE;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    let command: &[u8] = if number % 2 == 0 { b"PFCOUNT" } else { b"GET" };
                    resp.call(&[command, &key(number as usize % SKETCHES)])?;
                    latency.record(due.elapsed());
                }
                Ok(latency)
            };
            Ok(thread::Builder::new().stack_size(256 << 10).spawn(read)?)
        };
        let threads = (0..CONNECTIONS).map(reader).collect::<Result<_>>()?;
        Ok(Self { stop, threads })
    }

    /// Ends it, and gives what it saw.
    pub(crate) fn stop(self) -> Result<Latency> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Latency::new()?;
        for thread in self.threads {
            all.merge(&thread.join().map_err(|_| anyhow!("the prober panicked"))??)?;
        }
        Ok(all)
    }
}

fn key(sketch: usize) -> Vec<u8> {
    format!("probe:{sketch}").into_bytes()
}
