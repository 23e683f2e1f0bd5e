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

/// Reads until it is told to stop.
#[derive(Debug)]
pub(crate) struct Prober {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Latency>>,
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
        let mut resp = Resp::connect(port)?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = thread::Builder::new().spawn(move || {
            let mut latency = Latency::new()?;
            let start = Instant::now();
            // By a timetable: a read that had to wait for the one before counts from when it was due.
            for number in 0.. {
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
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends it, and gives what it saw.
    pub(crate) fn stop(self) -> Result<Latency> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the prober panicked"))?
    }
}

fn key(sketch: usize) -> Vec<u8> {
    format!("probe:{sketch}").into_bytes()
}
