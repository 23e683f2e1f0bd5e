//! Serving HTTP/1.1: a bounded server with a graceful drain, bodies with limits, errors in JSON.
//!
//! `axum::serve` bounds neither connections nor the time that a client may take for a request, so
//! this serves an axum router through hyper itself, at the same cost a request.

mod body;
mod connection;
mod error;
mod metrics;
mod server;
mod watch;

use std::time::Duration;

pub use body::{read_body, read_body_with};
pub use error::{ApiError, ErrorDetail, Fact, with_fallbacks};
pub(crate) use metrics::described;
pub use server::{Drained, serve, serve_with};

/// The bounds of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// The server's name in metrics and logs.
    pub name: &'static str,
    /// Open connections. At the limit, one that waits takes the place of the one that is open
    /// longest: that one closes after its current response, at once if it is idle. A connection
    /// that has not sent its first request is left alone.
    pub max_connections: usize,
    /// From a request's first byte to the end of its headers, and from accept to the first byte.
    pub header_timeout: Duration,
    /// From a response to the next request's first byte. Keep it longer than the same time-out of a
    /// load balancer in front, or it sends requests into connections that are just being closed.
    pub idle_timeout: Duration,
    /// How long a client may leave a response untaken, without any progress.
    pub write_timeout: Duration,
    /// Bytes of request line and headers together; more is answered 431.
    pub max_header_bytes: usize,
    /// How long to serve as usual after shutdown was requested, so that load balancers see that
    /// readiness fails before connections are refused.
    pub lame_duck: Duration,
    /// From then on, how long requests in flight may take before they are cut.
    pub drain_deadline: Duration,
}

impl HttpConfig {
    /// The defaults, for a server of this name.
    pub fn named(name: &'static str) -> Self {
        Self {
            name,
            max_connections: 10_000,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            max_header_bytes: 16 * 1024,
            lame_duck: Duration::ZERO,
            drain_deadline: Duration::from_secs(10),
        }
    }
}
