//! All rooms in one process, over one folder.

use super::front::Front;
use super::rules::Rules;
use super::secrets::{Secrets, Session, has_identity};
use crate::config::Config;
use crate::process::bind;
use crate::wiring::embedded::Store;
#[cfg(feature = "cluster")]
use crate::wiring::moving::CollectorLog;
use anyhow::{Context, Result, bail};
use onlooker_counts_api::Window;
use onlooker_stage::{Health, Supervisor};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The site of a process that was told of none.
pub(crate) const DEFAULT_SITE: &str = "main";

/// What one process consists of, besides its rooms.
pub(crate) struct System {
    pub(crate) store: Store,
    /// How to reach it.
    pub(crate) session: Session,
    /// Where its collector appends.
    #[cfg(feature = "cluster")]
    pub(crate) log: CollectorLog,
    /// Who answers with counts.
    #[cfg(feature = "cluster")]
    pub(crate) front: Front,
}

/// Opens the folder and adds all rooms, in the order in which they stop: first nothing new is taken in, then what was
/// begun is judged, counted and archived; what was not begun waits in the log.
pub(super) async fn add(config: &mut Config, health: &Health, supervisor: &mut Supervisor) -> Result<System> {
    let mut store = Store::open(&config.embedded).await?;
    if !store.created() && !has_identity(store.path(), config) {
        tracing::warn!(
            "identity.key is missing and is made anew: every viewer is somebody new. Put the old one back if there is one"
        );
    }
    let secrets = Secrets::open(store.path())?;
    secrets.complete(config);
    Rules::of(config).write(store.path())?;
    let listener = bind("collector.listen", config.collector.listen).await?;
    let address = listener.local_addr()?;

    let window = Window::open(config.counts_api(), store.counts_reader(), health)?;
    let log = store.collector_log();
    #[cfg(feature = "cluster")]
    let log = CollectorLog::new(log);
    let (collector, room_health) = (config.collector(), health.clone());
    let front = Front::new(window);
    let (neighbour, appends_to) = (front.neighbour(), log.clone());
    supervisor.room("collector", |stop| {
        onlooker_collector::run_beside(collector, appends_to, listener, room_health, stop, Some(neighbour))
    });

    (config.filter.volatile, config.counter.volatile) = (true, true);
    let (settings, sites, ports) = (config.filter.clone(), config.filter_sites(), store.filter_ports()?);
    let room_health = health.clone();
    supervisor.room("filter", |stop| onlooker_filter::run(settings, sites, ports, room_health, stop));

    let (settings, ports, room_health) = (config.counter.clone(), store.counter_ports(), health.clone());
    supervisor.room("counter", |stop| onlooker_counter::run(settings, ports, room_health, stop));

    let (settings, ports, room_health) = (config.flusher.clone(), store.flusher_ports(), health.clone());
    supervisor.room("flusher", |stop| onlooker_flusher::run(settings, ports, room_health, stop));

    let session = secrets.session(reachable(address), config);
    Ok(System {
        store,
        session,
        #[cfg(feature = "cluster")]
        log,
        #[cfg(feature = "cluster")]
        front,
    })
}

/// An address that listens on all of a machine's is not one that can be asked.
fn reachable(address: SocketAddr) -> SocketAddr {
    let mut address = address;
    if address.ip().is_unspecified() {
        let ip = if address.is_ipv4() { "127.0.0.1" } else { "::1" };
        address.set_ip(ip.parse().unwrap_or(address.ip()));
    }
    address
}

/// How long nothing may move until waiting is given up.
const STANDSTILL: Duration = Duration::from_secs(30);

/// Waits until everything that the log has is counted.
pub(super) async fn counted(store: &Store, health: &Health) -> Result<()> {
    let (mut last, mut moved) = (None, Instant::now());
    loop {
        let waits = store.behind().await.context("asking how much waits")?;
        if waits.0 <= 0 && waits.1 <= 0 {
            return Ok(());
        }
        if last != Some(waits) {
            (last, moved) = (Some(waits), Instant::now());
        }
        if moved.elapsed() > STANDSTILL {
            let reasons: Vec<String> = health
                .report(false)
                .components
                .into_iter()
                .filter_map(|component| Some(format!("{}: {}", component.name, component.reason?)))
                .collect();
            bail!(
                "{} views and {} verdicts wait in {} and are not counted: {}",
                waits.0,
                waits.1,
                store.path().display(),
                if reasons.is_empty() { "no room says why".to_owned() } else { reasons.join("; ") }
            );
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
