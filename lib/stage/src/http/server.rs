//! The accept loop and the drain.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, Response};
use axum::response::IntoResponse;
use futures::FutureExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tower::Service;

use super::HttpConfig;
use super::connection::{End, Shared, run};
use super::error::ApiError;
use super::metrics::HttpMetrics;
use crate::Shutdown;
use crate::shutdown::channel;

/// While a connection waits for a place: how often one more of the open ones is asked to make room.
const SHED_INTERVAL: Duration = Duration::from_millis(100);

/// After an accept that failed for want of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// How a server's drain went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were cut with a request in flight, because the drain's deadline was over.
    pub aborted: usize,
}

/// Serves a router until shutdown is requested, then drains: `config.lame_duck` as usual, then no new
/// connections, idle ones closed, requests in flight answered with `Connection: close`, and after
/// `config.drain_deadline` the rest cut. Dropping the future cuts everything at once.
///
/// A handler that panics is answered for with 500. Handlers find the peer's address in
/// [`ConnectInfo<SocketAddr>`].
///
/// The server's metrics are registered with the recorder that is current at the call.
pub fn serve(
    listener: TcpListener,
    router: Router,
    config: HttpConfig,
    shutdown: Shutdown,
) -> impl Future<Output = Drained> + Send {
    let handler = move |mut request: Request<Incoming>, peer| {
        request.extensions_mut().insert(ConnectInfo::<SocketAddr>(peer));
        router.clone().call(request)
    };
    serve_with(listener, handler, config, shutdown)
}

/// The same for a function of request and peer address instead of a router, for a path on which even
/// the router's cost counts: a fifth of the instructions of a small request.
pub fn serve_with<H, F>(
    listener: TcpListener,
    handler: H,
    config: HttpConfig,
    shutdown: Shutdown,
) -> impl Future<Output = Drained> + Send
where
    H: Fn(Request<Incoming>, SocketAddr) -> F + Clone + Send + Unpin + 'static,
    F: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
{
    let (drain, stop) = channel();
    let (lame_duck, drain_deadline) = (config.lame_duck, config.drain_deadline);
    let mut connections = Connections {
        metrics: Arc::new(HttpMetrics::register(config.name)),
        shared: Arc::new(Shared::new(config, stop)),
        tasks: JoinSet::new(),
        handler,
    };
    async move {
        let leave = async {
            shutdown.requested().await;
            tokio::time::sleep(lame_duck).await;
        };
        tokio::select! {
            () = connections.accept(&listener) => {}
            () = leave => {}
        }
        connections.take_backlog(listener);
        drain.request();
        connections.drain(drain_deadline).await
    }
}

struct Connections<H> {
    shared: Arc<Shared>,
    metrics: Arc<HttpMetrics>,
    tasks: JoinSet<End>,
    handler: H,
}

impl<H, F> Connections<H>
where
    H: Fn(Request<Incoming>, SocketAddr) -> F + Clone + Send + Unpin + 'static,
    F: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
{
    /// Accepts for ever. Dropping the future between two connections loses none.
    async fn accept(&mut self, listener: &TcpListener) {
        let server = self.shared.config.name;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(ended) = self.tasks.join_next() => {
                    self.reap(ended);
                    continue;
                }
            };
            match accepted {
                Ok((stream, peer)) => self.admit(stream, peer).await,
                // The client was gone before we looked.
                Err(error) if is_connection_error(&error) => {}
                Err(error) => {
                    tracing::warn!(server, %error, "cannot accept connections");
                    self.shared.shed_one();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Starts a connection, at the limit after another has made room.
    async fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        // Started first and counted after, so that no wait here can lose an accepted connection:
        // there is at most one above the limit.
        self.start(stream, peer);
        while self.tasks.len() > self.shared.config.max_connections {
            self.metrics.shed.increment(1);
            self.shared.shed_one();
            if let Ok(Some(ended)) = tokio::time::timeout(SHED_INTERVAL, self.tasks.join_next()).await {
                self.reap(ended);
            }
        }
    }

    fn start(&mut self, stream: TcpStream, peer: SocketAddr) {
        // Responses are written whole; Nagle's algorithm could only delay them.
        let _ = stream.set_nodelay(true);
        let handler = self.handler.clone();
        let metrics = Arc::clone(&self.metrics);
        let stop = self.shared.stop.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let start = Instant::now();
            let response = handler(request, peer);
            let (metrics, stop) = (Arc::clone(&metrics), stop.clone());
            async move {
                let mut response = match AssertUnwindSafe(response).catch_unwind().await {
                    Ok(Ok(response)) => response,
                    Ok(Err(impossible)) => match impossible {},
                    // The panic hook has logged it.
                    Err(_) => {
                        metrics.panics.increment(1);
                        ApiError::internal().into_response()
                    }
                };
                // hyper says so by itself for what it knows to be the last response; one that is
                // ready at once is written before the connection's task has looked at `stop`.
                if stop.is_requested() {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                metrics.answered(response.status(), start.elapsed());
                Ok::<_, Infallible>(response)
            }
        });
        self.tasks.spawn(run(stream, service, Arc::clone(&self.shared)));
        self.metrics.accepted.increment(1);
        self.metrics.connections.set(self.tasks.len() as f64);
    }

    fn reap(&self, ended: Result<End, JoinError>) {
        match ended {
            Ok(end) => self.metrics.ended(end),
            Err(error) => tracing::error!(server = self.shared.config.name, %error, "connection task died"),
        }
        self.metrics.connections.set(self.tasks.len() as f64);
    }

    /// Starts what the kernel has accepted for us already: closing the listener would reset those,
    /// though their clients may have sent a request.
    fn take_backlog(&mut self, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else { return };
        while let Some((stream, peer)) = accept_now(&listener) {
            self.start(stream, peer);
        }
    }

    async fn drain(mut self, deadline: Duration) -> Drained {
        let server = self.shared.config.name;
        let start = Instant::now();
        let all = async {
            while let Some(ended) = self.tasks.join_next().await {
                self.reap(ended);
            }
        };
        let in_time = tokio::time::timeout(deadline, all).await.is_ok();
        let aborted = self.tasks.len();
        let duration_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        if in_time {
            tracing::info!(server, duration_ms, "http server drained");
        } else {
            tracing::warn!(
                server,
                duration_ms,
                aborted,
                "http server cut connections at the end of the drain"
            );
            self.metrics.cut_by_drain(u64::try_from(aborted).unwrap_or(u64::MAX));
        }
        self.metrics.connections.set(0.0);
        Drained { aborted }
    }
}

fn accept_now(listener: &StdListener) -> Option<(TcpStream, SocketAddr)> {
    let (stream, peer) = listener.accept().ok()?;
    stream.set_nonblocking(true).ok()?;
    Some((TcpStream::from_std(stream).ok()?, peer))
}

fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
