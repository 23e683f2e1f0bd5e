//! What a connection waits for, observed from below hyper.
//!
//! hyper has one time-out, for a request's head; it covers idle connections as well, and arms a
//! runtime timer for each request. Here hyper's timer and the socket only leave notes about what is
//! being waited for, a few relaxed stores, and the connection's task keeps one timer that it moves
//! rarely. All of it happens inside that one task: the atomics order nothing, they only make the
//! notes shareable.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Sleep, Timer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// A time that never comes, in milliseconds.
pub(super) const NEVER: u64 = u64::MAX;

/// Waits for a request's first byte.
const IDLE: u8 = 0;
/// Has seen the first byte; in most cases the whole head came with it.
const STARTED: u8 = 1;
/// Waits for the rest of the head.
const HEAD: u8 = 2;
/// Everything else: a request is read, handled or answered.
const BUSY: u8 = 3;

/// The notes on one connection.
pub(super) struct Watch {
    epoch: Instant,
    header_timeout: Duration,
    idle_timeout: Duration,
    write_timeout: Duration,
    phase: AtomicU8,
    begun: AtomicBool,
    eof: AtomicBool,
    head_deadline: AtomicU64,
    write_deadline: AtomicU64,
}

impl Watch {
    pub(super) fn new(header_timeout: Duration, idle_timeout: Duration, write_timeout: Duration) -> Self {
        Self {
            epoch: Instant::now(),
            header_timeout,
            idle_timeout,
            write_timeout,
            phase: AtomicU8::new(IDLE),
            begun: AtomicBool::new(false),
            eof: AtomicBool::new(false),
            head_deadline: AtomicU64::new(NEVER),
            write_deadline: AtomicU64::new(NEVER),
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        millis(self.epoch.elapsed())
    }

    pub(super) fn instant(&self, ms: u64) -> Instant {
        self.epoch + Duration::from_millis(ms)
    }

    /// The nearest time at which the client is too slow.
    pub(super) fn deadline_ms(&self) -> u64 {
        self.head_deadline.load(Relaxed).min(self.write_deadline.load(Relaxed))
    }

    pub(super) fn write_deadline_ms(&self) -> u64 {
        self.write_deadline.load(Relaxed)
    }

    /// The client has sent something.
    pub(super) fn begun(&self) -> bool {
        self.begun.load(Relaxed)
    }

    /// The client has sent nothing since the last response.
    pub(super) fn idle(&self) -> bool {
        self.phase.load(Relaxed) == IDLE
    }

    /// The client has closed its side.
    pub(super) fn eof(&self) -> bool {
        self.eof.load(Relaxed)
    }

    fn after(&self, timeout: Duration) -> u64 {
        millis(self.epoch.elapsed() + timeout)
    }

    fn await_head(&self) {
        let timeout = if self.begun() { self.idle_timeout } else { self.header_timeout };
        self.phase.store(IDLE, Relaxed);
        self.head_deadline.store(self.after(timeout), Relaxed);
    }

    fn head_is_incomplete(&self) {
        if self.phase.load(Relaxed) == STARTED {
            self.phase.store(HEAD, Relaxed);
            self.head_deadline.store(self.after(self.header_timeout), Relaxed);
        }
    }

    fn head_is_done(&self) {
        self.phase.store(BUSY, Relaxed);
        self.head_deadline.store(NEVER, Relaxed);
    }

    fn has_read(&self, bytes: usize) {
        if bytes == 0 {
            self.eof.store(true, Relaxed);
            return;
        }
        self.begun.store(true, Relaxed);
        if self.phase.load(Relaxed) == IDLE {
            self.phase.store(STARTED, Relaxed);
        }
    }

    /// Passes a write's outcome on. The clock is read only when a client starts to keep us waiting.
    fn wrote<T>(&self, outcome: Poll<T>) -> Poll<T> {
        if outcome.is_ready() {
            self.write_deadline.store(NEVER, Relaxed);
        } else if self.write_deadline.load(Relaxed) == NEVER {
            self.write_deadline.store(self.after(self.write_timeout), Relaxed);
        }
        outcome
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(NEVER)
}

/// hyper asks this timer for a sleep when it starts to wait for a head, polls it while the head is
/// incomplete, and drops it when the head is there.
pub(super) struct WatchTimer(pub(super) Arc<Watch>);

struct HeadWait(Arc<Watch>);

impl Timer for WatchTimer {
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Sleep>> {
        self.0.await_head();
        Box::pin(HeadWait(Arc::clone(&self.0)))
    }

    fn sleep_until(&self, _: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(Duration::ZERO)
    }

    /// The only use hyper makes of it is to compute the deadline that `sleep_until` ignores.
    fn now(&self) -> std::time::Instant {
        self.0.epoch.into_std()
    }

    fn reset(&self, _: &mut Pin<Box<dyn Sleep>>, _: std::time::Instant) {
        // Not by making a new one: dropping the old one afterwards would end the wait.
        self.0.await_head();
    }
}

impl Sleep for HeadWait {}

impl Future for HeadWait {
    type Output = ();

    /// Never ready: the connection's task ends a wait that is too long.
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.0.head_is_incomplete();
        Poll::Pending
    }
}

impl Drop for HeadWait {
    fn drop(&mut self) {
        self.0.head_is_done();
    }
}

/// The socket, leaving notes.
pub(super) struct WatchedStream {
    pub(super) stream: TcpStream,
    pub(super) watch: Arc<Watch>,
}

impl AsyncRead for WatchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.watch.has_read(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch.wrote(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch.wrote(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Left to the connection's task, which may have something to read first; dropping the socket
    /// closes it as well.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
