//! Load over HTTP: connections that each send one request at a time, as fast as they are answered or by a timetable.

use crate::http::Connection;
use crate::latency::Latency;
use anyhow::{Result, anyhow};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Enough for what is a deep call of ours; a thousand threads must not reserve gigabytes.
const STACK_BYTES: usize = 256 * 1024;

const PATIENCE: Duration = Duration::from_secs(30);

/// When requests are sent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pace {
    /// Each connection sends again as soon as it is answered.
    Closed,
    /// Request i is due at i / rate, whether earlier ones were answered or not. A request that finds all connections
    /// busy is sent late, and its latency counts from when it was due: waiting is not left out (coordinated omission).
    Open {
        /// Requests a second, of all connections together.
        rate: f64,
    },
}

/// What to send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// To whom.
    pub(crate) address: SocketAddr,
    /// Connections, each a thread.
    pub(crate) connections: usize,
    /// Requests of all connections together.
    pub(crate) requests: u64,
    /// When.
    pub(crate) pace: Pace,
    /// The status of a good answer.
    pub(crate) status: u16,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Good answers.
    pub(crate) answered: u64,
    /// Other answers, broken connections, time-outs.
    pub(crate) failed: u64,
    /// From the first request's time to the last answer.
    pub(crate) elapsed: Duration,
    /// Of all requests, failed ones included.
    pub(crate) latency: Latency,
}

impl Outcome {
    /// Good answers a second.
    pub(crate) fn rate(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64()
    }
}

/// Sends a plan's requests; `make` gives the bytes of request i.
pub(crate) fn drive(plan: Plan, make: impl Fn(u64) -> Vec<u8> + Sync) -> Result<Outcome> {
    let next = AtomicU64::new(0);
    // Connections are made first, so that the timetable begins with all of them ready.
    let connections: Vec<Connection> =
        (0..plan.connections).map(|_| Connection::open(plan.address, PATIENCE)).collect::<Result<_>>()?;
    let start = Instant::now();
    let parts: Vec<Result<Outcome>> = thread::scope(|scope| {
        let worker = |connection| {
            let (next, make) = (&next, &make);
            thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, move || one(plan, connection, next, start, make))
        };
        let threads: Vec<_> = connections.into_iter().map(worker).collect();
        let join = |thread: std::io::Result<thread::ScopedJoinHandle<'_, _>>| {
            thread?.join().map_err(|_| anyhow!("a connection's thread panicked"))?
        };
        threads.into_iter().map(join).collect()
    });
    let mut whole = Outcome { answered: 0, failed: 0, elapsed: start.elapsed(), latency: Latency::new()? };
    for part in parts {
        let part = part?;
        whole.answered += part.answered;
        whole.failed += part.failed;
        whole.latency.merge(&part.latency)?;
    }
    Ok(whole)
}

fn one(
    plan: Plan,
    mut connection: Connection,
    next: &AtomicU64,
    start: Instant,
    make: impl Fn(u64) -> Vec<u8>,
) -> Result<Outcome> {
    let mut out = Outcome { answered: 0, failed: 0, elapsed: Duration::ZERO, latency: Latency::new()? };
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= plan.requests {
            return Ok(out);
        }
        let request = make(number);
        let due = match plan.pace {
            Pace::Closed => Instant::now(),
            Pace::Open { rate } => start + Duration::from_secs_f64(number as f64 / rate),
        };
        thread::sleep(due.saturating_duration_since(Instant::now()));
        match connection.send(&request) {
            Ok(answer) if answer.status == plan.status => out.answered += 1,
            Ok(_) => out.failed += 1,
            Err(_) => {
                out.failed += 1;
                connection = Connection::open(plan.address, PATIENCE)?;
            }
        }
        out.latency.record(due.elapsed());
    }
}
