//! One room as a process: listeners, health, metrics, signals, and the order of the drain.
//!
//! On the first SIGTERM or SIGINT readiness fails; then the room drains (no new connections or records, what was begun
//! is finished and flushed), then the admin listener closes. A second signal ends the process at once. A room that
//! returns or panics without being asked takes the process down, non-zero, with its name.

use crate::config::Config;
use crate::wiring;
use anyhow::{Context, Result};
use axum::Router;
use onlooker_stage::admin::{self, AdminState};
use onlooker_stage::telemetry::{MetricsHandle, init_logs, init_metrics};
use onlooker_stage::{Health, ShutdownTrigger, Supervisor, signals};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;

/// The rooms that run as processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Collector,
    Filter,
    Counter,
    Flusher,
    CountsApi,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Collector => "collector",
            Role::Filter => "filter",
            Role::Counter => "counter",
            Role::Flusher => "flusher",
            Role::CountsApi => "counts-api",
        }
    }
}

/// Runs one room until it is told to stop.
pub(crate) async fn run(role: Role, config: Config) -> Result<()> {
    init_logs(&config.logging)?;
    // Before any room registers its metrics.
    let metrics = init_metrics()?;
    let trigger = ShutdownTrigger::default();
    signals(trigger.clone())?;
    let health = Health::new();
    let drain = Duration::from_millis(config.process.drain_ms);
    let mut supervisor = Supervisor::new(trigger.clone(), drain);
    add(role, &config, &health, &mut supervisor).await?;
    let admin = bind("admin.listen", config.admin.listen).await?;
    add_admin(admin, metrics, &health, &trigger, &mut supervisor);
    tracing::info!(role = role.name(), version = env!("CARGO_PKG_VERSION"), "started");
    supervisor.run().await.with_context(|| format!("{} did not end well", role.name()))
}

async fn add(role: Role, config: &Config, health: &Health, supervisor: &mut Supervisor) -> Result<()> {
    let name = role.name();
    let room_health = health.clone();
    match role {
        Role::Collector => {
            let log = wiring::collector_log(config).await?;
            let listener = bind("collector.listen", config.collector.listen).await?;
            let settings = config.collector();
            supervisor.room(name, |stop| onlooker_collector::run(settings, log, listener, room_health, stop));
        }
        Role::Filter => {
            let ports = wiring::filter_ports(config).await?;
            let (mut settings, sites) = (config.filter.clone(), config.filter_sites());
            settings.source_topic.clone_from(&config.kafka.topics.views);
            let other_partitions = wiring::watch_partitions(config.clone());
            supervisor.room(name, |stop| async move {
                tokio::select! {
                    ended = onlooker_filter::run(settings, sites, ports, room_health, stop) => ended.map_err(Into::into),
                    wrong = other_partitions => Err(wrong),
                }
            });
        }
        Role::Counter => {
            let ports = wiring::counter_ports(config).await?;
            let mut settings = config.counter.clone();
            settings.source_topic.clone_from(&config.kafka.topics.counted);
            let log = wiring::watch_log(config.clone());
            let other_partitions = wiring::watch_partitions(config.clone());
            supervisor.room(name, |stop| async move {
                tokio::select! {
                    ended = onlooker_counter::run(settings, ports, room_health, stop) => ended.map_err(Into::into),
                    other_log = log => Err(other_log),
                    wrong = other_partitions => Err(wrong),
                }
            });
        }
        Role::Flusher => {
            let ports = wiring::flusher_ports(config).await?;
            let settings = config.flusher.clone();
            supervisor.room(name, |stop| onlooker_flusher::run(settings, ports, room_health, stop));
        }
        Role::CountsApi => {
            let reader = wiring::counts_reader(config).await?;
            let listener = bind("counts_api.listen", config.counts_api.listen).await?;
            let settings = config.counts_api();
            supervisor
                .room(name, |stop| onlooker_counts_api::run(settings, reader, listener, room_health, stop));
        }
    }
    Ok(())
}

/// Added last, so that probes are answered until everything else has drained.
fn add_admin(
    listener: TcpListener,
    metrics: MetricsHandle,
    health: &Health,
    trigger: &ShutdownTrigger,
    supervisor: &mut Supervisor,
) {
    let state = AdminState { health: health.clone(), metrics, shutdown: trigger.shutdown() };
    supervisor.room("admin", |stop| async move {
        admin::serve(listener, state, Router::new(), stop).await;
        Ok::<_, std::convert::Infallible>(())
    });
}

async fn bind(key: &'static str, address: SocketAddr) -> Result<TcpListener> {
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("{key}: cannot listen on {address}"))?;
    let address = listener.local_addr()?;
    tracing::info!(%address, key, "listening");
    Ok(listener)
}
