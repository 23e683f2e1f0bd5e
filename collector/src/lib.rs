#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod answer;
mod append;
mod client;
mod config;
mod cors;
mod crowd;
mod door;
mod fields;
mod head;
mod identity;
mod input;
mod memory;
mod metrics;
mod pixel;
mod quiet;
mod script;
mod sites;
mod text;
mod view;

pub use config::{AcceptTraces, CollectorConfig, ConfigError, IdentityConfig, SiteConfig};
pub use metrics::described_metrics;
pub use onlooker_event::ItemMode;

use axum::body::Body;
use axum::http::{Request, Response};
use door::Door;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use onlooker_ports::LogWriter;
use onlooker_stage::http::{HttpConfig, serve_with};
use onlooker_stage::{Component, Health, Shutdown};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

/// How often readiness and the gauges are brought up to date.
const WATCH: Duration = Duration::from_millis(500);
/// What the log gets to finish in, even if the requests took all the time that there was.
const LAST_FLUSH: Duration = Duration::from_secs(1);

/// Answers requests whose paths are not the collector's.
pub type Neighbour =
    Arc<dyn Fn(Request<Incoming>, SocketAddr) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// Serves until shutdown is requested, then drains: no new connections, requests in flight answered, the log flushed.
/// Its metrics are registered with the recorder that is current at the call.
///
/// # Errors
/// The first of [`CollectorConfig::faults`], before anything is served.
pub fn run<L: LogWriter>(
    config: CollectorConfig,
    log: L,
    listener: TcpListener,
    health: Health,
    shutdown: Shutdown,
) -> impl Future<Output = Result<(), ConfigError>> + Send {
    run_beside(config, log, listener, health, shutdown, None)
}

/// [`run`], with somebody else behind the same listener.
///
/// # Errors
/// The first of [`CollectorConfig::faults`], before anything is served.
pub fn run_beside<L: LogWriter>(
    config: CollectorConfig,
    log: L,
    listener: TcpListener,
    health: Health,
    shutdown: Shutdown,
    neighbour: Option<Neighbour>,
) -> impl Future<Output = Result<(), ConfigError>> + Send {
    let (drain, lame_duck) = (config.drain, config.lame_duck);
    let http = HttpConfig {
        max_connections: config.max_connections,
        lame_duck,
        drain_deadline: drain,
        ..HttpConfig::named("collector")
    };
    let served = Door::new(config, log).map(|door| {
        let door = Arc::new(door);
        let handler = {
            let door = Arc::clone(&door);
            move |request: Request<Incoming>, peer: SocketAddr| {
                let door = Arc::clone(&door);
                let other = neighbour.clone().filter(|_| !door::serves(request.uri().path()));
                async move {
                    Ok(match other {
                        Some(other) => other(request, peer).await,
                        None => door.answer(request, peer.ip()).await,
                    })
                }
            }
        };
        (door, serve_with(listener, handler, http, shutdown.clone()))
    });
    async move {
        let (door, server) = served?;
        let deadline = async {
            shutdown.requested().await;
            Instant::now() + lame_duck + drain
        };
        let served = async { tokio::join!(server, deadline) };
        let (drained, deadline) = tokio::select! {
            served = served => served,
            never = watch(&door, health.component("collector.log")) => match never {},
        };
        if drained.aborted > 0 {
            tracing::warn!(requests = drained.aborted, "requests were cut at the end of the drain");
        }
        let left = deadline.saturating_duration_since(Instant::now()).max(LAST_FLUSH);
        door.log.flush(left).await;
        Ok(())
    }
}

/// Readiness follows the log: a collector that cannot append should get no traffic.
async fn watch<L: LogWriter>(door: &Door<L>, component: Component) -> Infallible {
    let mut tick = tokio::time::interval(WATCH);
    loop {
        tick.tick().await;
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
        door.metrics.inflight.set(door.memory.used() as f64);
        match door.log.trouble() {
            None => component.ready(),
            Some(reason) => component.unready(reason),
        }
    }
}
