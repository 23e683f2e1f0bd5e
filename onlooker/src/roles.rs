//! The rooms as processes of a cluster, one each.

use crate::config::Config;
use crate::process::{Process, bind};
use crate::wiring::cluster as wiring;
use anyhow::{Context, Result};
use axum::Router;
use onlooker_stage::{Health, Supervisor};

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
    let mut process = Process::start(&config)?;
    add(role, &config, &process.health, &mut process.supervisor).await?;
    let listener = bind("admin.listen", config.admin.listen).await?;
    process.admin(listener, Router::new());
    tracing::info!(role = role.name(), version = env!("CARGO_PKG_VERSION"), "started");
    process.supervisor.run().await.with_context(|| format!("{} did not end well", role.name()))
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
            let (ports, wrong_store) = wiring::filter_ports(config).await?;
            let (mut settings, sites) = (config.filter.clone(), config.filter_sites());
            settings.source_topic.clone_from(&config.cluster.kafka.topics.views);
            let other_partitions = wiring::watch_partitions(config.clone());
            supervisor.room(name, |stop| async move {
                tokio::select! {
                    ended = onlooker_filter::run(settings, sites, ports, room_health, stop) => ended.map_err(Into::into),
                    wrong = other_partitions => Err(wrong),
                    wrong = wrong_store => Err(wrong),
                }
            });
        }
        Role::Counter => {
            let (ports, wrong_store) = wiring::counter_ports(config).await?;
            let mut settings = config.counter.clone();
            settings.source_topic.clone_from(&config.cluster.kafka.topics.counted);
            settings.partitions = config.layout.partitions;
            let log = wiring::watch_log(config.clone());
            let other_partitions = wiring::watch_partitions(config.clone());
            supervisor.room(name, |stop| async move {
                tokio::select! {
                    ended = onlooker_counter::run(settings, ports, room_health, stop) => ended.map_err(Into::into),
                    other_log = log => Err(other_log),
                    wrong = other_partitions => Err(wrong),
                    wrong = wrong_store => Err(wrong),
                }
            });
        }
        Role::Flusher => {
            // It runs with the flusher, of which one is enough: it says of the whole system whether its sums close.
            let (sight, ledger) = (wiring::ClusterSight::new(config)?, config.ledger.clone());
            let sites: Vec<String> = config.sites.keys().cloned().collect();
            supervisor.room("ledger", |stop| crate::ops::keep_ledger(sight, ledger, sites, stop));
            let (ports, wrong_store) = wiring::flusher_ports(config).await?;
            let settings = config.flusher.clone();
            supervisor.room(name, |stop| async move {
                tokio::select! {
                    ended = onlooker_flusher::run(settings, ports, room_health, stop) => ended.map_err(Into::into),
                    wrong = wrong_store => Err(wrong),
                }
            });
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
