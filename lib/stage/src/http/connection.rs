//! One connection, from accept to close.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::HttpConfig;
use super::watch::{NEVER, Watch, WatchTimer, WatchedStream};
use crate::Shutdown;

/// How long a connection that was accepted just before the drain may take to send its first request.
const FRESH: Duration = Duration::from_millis(500);

/// How long, and how much, to read of a request that was answered before it was read.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_BYTES: usize = 16 << 20;

/// What the connections of one server share.
pub(super) struct Shared {
    pub(super) config: HttpConfig,
    /// Requested when the drain begins.
    pub(super) stop: Shutdown,
    shed: Notify,
    sheds: AtomicU64,
}

impl Shared {
    pub(super) fn new(config: HttpConfig, stop: Shutdown) -> Self {
        Self { config, stop, shed: Notify::new(), sheds: AtomicU64::new(0) }
    }

    /// Asks the connection that has been open longest to close after its current response. Where all
    /// have been asked already, the next one to start a request is.
    pub(super) fn shed_one(&self) {
        self.sheds.fetch_add(1, Ordering::Relaxed);
        self.shed.notify_one();
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Closed by the client, after an error, or because it was asked to.
    Done,
    /// No request for too long.
    Idle,
    /// A request's head took too long.
    SlowRequest,
    /// The client did not take its response.
    SlowReader,
}

/// Serves one connection to its end.
pub(super) async fn run<S>(stream: TcpStream, service: S, shared: Arc<Shared>) -> End
where
    S: HttpService<Incoming, ResBody = Body> + Unpin,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let config = &shared.config;
    let watch = Arc::new(Watch::new(config.header_timeout, config.idle_timeout, config.write_timeout));
    let io = TokioIo::new(WatchedStream { stream, watch: Arc::clone(&watch) });
    let mut conn = http1::Builder::new()
        .timer(WatchTimer(Arc::clone(&watch)))
        // The value is of no account, that there is one makes hyper call the timer.
        .header_read_timeout(config.header_timeout)
        .max_header_size(config.max_header_bytes)
        .serve_connection(io, service);

    let outcome = drive(&mut conn, &watch, &shared).await;
    let (end, parse_error) = match outcome {
        Ok(end) => (end, false),
        Err(error) => (End::Done, error.is_parse()),
    };
    // Closing a socket with unread bytes in it resets the connection, and the reset can overtake the
    // response: a client in the middle of a large body would never see its 413.
    let answered = end == End::Done && !watch.idle() && !watch.eof();
    if answered || parse_error {
        linger(conn.into_parts().io.into_inner().stream).await;
    }
    end
}

/// Polls the connection, tells it to stop when the server does, and ends waits that are too long.
///
/// This future is a task of its own, so every wait is registered once: `Shutdown`, `Notify` and the
/// timer take locks when they are polled, and a request should not pay for them.
async fn drive<I, S>(
    conn: &mut http1::Connection<I, S>,
    watch: &Watch,
    shared: &Shared,
) -> Result<End, hyper::Error>
where
    I: Read + Write + Unpin,
    S: HttpService<Incoming, ResBody = Body> + Unpin,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut stop = pin!(shared.stop.requested());
    let mut stop_registered = false;
    let mut shed = pin!(shared.shed.notified());
    let mut sheds_seen = None;
    let mut alarm = pin!(tokio::time::sleep_until(watch.instant(0)));
    let mut armed_ms = NEVER;
    let mut fresh_until_ms = NEVER;
    let mut closing = false;

    poll_fn(|cx| {
        loop {
            if let Poll::Ready(outcome) = Pin::new(&mut *conn).poll(cx) {
                return Poll::Ready(outcome.map(|()| End::Done));
            }

            if !closing {
                let sheds = shared.sheds.load(Ordering::Relaxed);
                if watch.begun() && sheds_seen != Some(sheds) {
                    sheds_seen = Some(sheds);
                    closing = shed.as_mut().poll(cx).is_ready();
                }
                if (!stop_registered || shared.stop.is_requested()) && fresh_until_ms == NEVER {
                    stop_registered = true;
                    if stop.as_mut().poll(cx).is_ready() {
                        fresh_until_ms = watch.now_ms() + FRESH.as_millis() as u64;
                    }
                }
                // A connection without a request yet may have one on its way: closing it now would
                // lose it without an answer.
                if fresh_until_ms != NEVER && (watch.begun() || watch.now_ms() >= fresh_until_ms) {
                    closing = true;
                }
                if closing {
                    Pin::new(&mut *conn).graceful_shutdown();
                    continue;
                }
            }

            let next_ms = watch.deadline_ms().min(if closing { NEVER } else { fresh_until_ms });
            if armed_ms != NEVER && alarm.is_elapsed() {
                armed_ms = NEVER;
                let now_ms = watch.now_ms();
                if now_ms >= watch.deadline_ms() {
                    return Poll::Ready(Ok(too_slow(watch, now_ms)));
                }
                if now_ms >= next_ms {
                    continue;
                }
            }
            // An alarm that is too early is left alone; it moves on when it goes off.
            if next_ms < armed_ms {
                armed_ms = next_ms;
                alarm.as_mut().reset(watch.instant(next_ms));
                if alarm.as_mut().poll(cx).is_ready() {
                    continue;
                }
            }
            return Poll::Pending;
        }
    })
    .await
}

fn too_slow(watch: &Watch, now_ms: u64) -> End {
    if now_ms >= watch.write_deadline_ms() {
        End::SlowReader
    } else if watch.idle() {
        End::Idle
    } else {
        End::SlowRequest
    }
}

/// Says that nothing more will come, then reads what the client still sends until it has seen that.
async fn linger(mut stream: TcpStream) {
    let drained = async {
        stream.shutdown().await?;
        let mut scratch = vec![0; 16 << 10];
        let mut left = LINGER_BYTES;
        while left > 0 {
            match stream.read(&mut scratch).await? {
                0 => break,
                read => left = left.saturating_sub(read),
            }
        }
        std::io::Result::Ok(())
    };
    // Whatever goes wrong, the connection is over.
    let _ = tokio::time::timeout_at(Instant::now() + LINGER, drained).await;
}
