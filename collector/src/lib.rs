#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod answer;
mod client;
mod config;
mod cors;
mod door;
mod identity;
mod input;
mod metrics;
mod text;
mod view;

pub use config::{CollectorConfig, ConfigError, IdentityConfig, ItemMode, SiteConfig};

use door::Door;
use onlooker_ports::LogWriter;
use onlooker_stage::http::{HttpConfig, serve_with};
use onlooker_stage::{Health, Shutdown};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Serves until shutdown is requested, then drains: no new connections, requests in flight answered, the log flushed.
///
/// # Errors
/// [`ConfigError`] before anything is served.
pub async fn run<L: LogWriter>(
    config: CollectorConfig,
    log: L,
    listener: TcpListener,
    health: Health,
    shutdown: Shutdown,
) -> Result<(), ConfigError> {
    let drain = config.drain;
    let http = HttpConfig {
        max_connections: config.max_connections,
        lame_duck: config.lame_duck,
        drain_deadline: drain,
        ..HttpConfig::named("collector")
    };
    let door = Arc::new(Door::new(config, log)?);
    let watch = tokio::spawn(watch_log(Arc::clone(&door), health.component("collector.log")));
    let handler = {
        let door = Arc::clone(&door);
        move |request, peer: std::net::SocketAddr| {
            let door = Arc::clone(&door);
            async move { Ok(door.answer(request, peer.ip()).await) }
        }
    };
    let drained = serve_with(listener, handler, http, shutdown).await;
    watch.abort();
    if drained.aborted > 0 {
        tracing::warn!(requests = drained.aborted, "requests were cut at the end of the drain");
    }
    if let Err(error) = door.log.flush(drain).await {
        tracing::error!(%error, "the log did not take everything before the deadline");
    }
    Ok(())
}

/// Readiness follows the log: a collector that cannot append should get no traffic.
async fn watch_log<L: LogWriter>(door: Arc<Door<L>>, component: onlooker_stage::Component) {
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    loop {
        tick.tick().await;
        if door.log.is_reachable() {
            component.ready();
        } else {
            component.unready("the log cannot be reached");
        }
    }
}
