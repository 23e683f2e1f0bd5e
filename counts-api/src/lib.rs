#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod answer;
mod config;
mod door;
mod heart;
mod metrics;
mod query;
mod reads;

pub use config::{ConfigError, CountsApiConfig, SiteConfig};
pub use metrics::described_metrics;

use axum::body::Body;
use axum::http::{Request, Response};
use door::Door;
use hyper::body::Incoming;
use onlooker_ports::CountReader;
use onlooker_stage::http::{HttpConfig, serve_with};
use onlooker_stage::{Component, Health, Shutdown};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// How often the counters are asked whether they are there.
const PING: Duration = Duration::from_millis(500);

/// Serves until shutdown is requested, then drains: no new connections, requests in flight answered.
///
/// # Errors
/// [`ConfigError`] before anything is served.
pub async fn run<R: CountReader>(
    config: CountsApiConfig,
    reader: R,
    listener: TcpListener,
    health: Health,
    shutdown: Shutdown,
) -> Result<(), ConfigError> {
    let http = HttpConfig {
        max_connections: config.max_connections,
        lame_duck: config.lame_duck,
        drain_deadline: config.drain,
        ..HttpConfig::named("counts_api")
    };
    let window = Window::open(config, reader, &health)?;
    let handler = move |request, _peer| {
        let window = window.clone();
        async move { Ok(window.answer(request).await) }
    };
    let drained = serve_with(listener, handler, http, shutdown).await;
    if drained.aborted > 0 {
        tracing::warn!(requests = drained.aborted, "requests were cut at the end of the drain");
    }
    Ok(())
}

/// The room without a listener, for a server that has other paths besides.
pub struct Window<R: CountReader> {
    door: Arc<Door<R>>,
    _watch: Arc<AbortOnDrop>,
}

impl<R: CountReader> Clone for Window<R> {
    fn clone(&self) -> Self {
        Self { door: Arc::clone(&self.door), _watch: Arc::clone(&self._watch) }
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<R: CountReader> Window<R> {
    /// Starts to watch the counters. Metrics are registered with the recorder that is current.
    ///
    /// # Errors
    /// The first of [`CountsApiConfig::faults`].
    pub fn open(config: CountsApiConfig, reader: R, health: &Health) -> Result<Self, ConfigError> {
        if let Some(fault) = config.faults().into_iter().next() {
            return Err(fault);
        }
        let door = Arc::new(Door::new(config, reader));
        let watch = tokio::spawn(watch(Arc::clone(&door), health.component("counts_api.counters")));
        Ok(Self { door, _watch: Arc::new(AbortOnDrop(watch.abort_handle())) })
    }

    /// Whether the path is one of this room's.
    pub fn serves(path: &str) -> bool {
        path == door::PATH
    }

    /// Answers one request. Other paths are 404.
    pub async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        self.door.answer(request).await
    }
}

/// Readiness follows the counters: without them there is nothing to answer with.
async fn watch<R: CountReader>(door: Arc<Door<R>>, component: Component) {
    let mut tick = tokio::time::interval(PING);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        match door.reads.ping().await {
            Ok(()) => component.ready(),
            Err(error) => component.unready(error.to_string()),
        }
    }
}
