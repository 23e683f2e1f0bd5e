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

use door::Door;
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
    if let Some(fault) = config.faults().into_iter().next() {
        return Err(fault);
    }
    let http = HttpConfig {
        max_connections: config.max_connections,
        lame_duck: config.lame_duck,
        drain_deadline: config.drain,
        ..HttpConfig::named("counts_api")
    };
    let door = Arc::new(Door::new(config, reader));
    let watch = tokio::spawn(watch(Arc::clone(&door), health.component("counts_api.counters")));
    let handler = move |request, _peer| {
        let door = Arc::clone(&door);
        async move { Ok(door.answer(request).await) }
    };
    let drained = serve_with(listener, handler, http, shutdown).await;
    watch.abort();
    if drained.aborted > 0 {
        tracing::warn!(requests = drained.aborted, "requests were cut at the end of the drain");
    }
    Ok(())
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
