//! What every process of ours has: listeners, health, metrics, signals, and the order of the drain.
//!
//! On the first SIGTERM or SIGINT readiness fails; then the rooms drain in their order (no new connections or records,
//! what was begun is finished and flushed), then the admin listener closes. A second signal ends the process at once. A
//! room that returns or panics without being asked takes the process down, non-zero, with its name.

use crate::config::Config;
use anyhow::{Context, Result};
use axum::Router;
use onlooker_stage::admin::{self, AdminState};
use onlooker_stage::telemetry::{MetricsHandle, init_logs, init_metrics};
use onlooker_stage::{Health, ShutdownTrigger, Supervisor, signals};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;

/// A process to which rooms can be added.
pub(crate) struct Process {
    pub(crate) health: Health,
    pub(crate) supervisor: Supervisor,
    metrics: MetricsHandle,
    trigger: ShutdownTrigger,
    #[cfg(feature = "otel")]
    _spans: Option<crate::otel::Export>,
}

/// A driver's warnings of settings that are meant so. Whoever names the target in `logging.level` gets them.
const QUIET: &str = "scylla::client::session_builder=error";

impl Process {
    /// Starts logs, metrics and signals.
    pub(crate) fn start(config: &Config) -> Result<Self> {
        let mut logging = config.logging.clone();
        logging.level = format!("{QUIET},{}", logging.level);
        init_logs(&logging)?;
        // Before any room registers its metrics.
        let metrics = init_metrics()?;
        let trigger = ShutdownTrigger::default();
        signals(trigger.clone())?;
        let drain = Duration::from_millis(config.process.drain_ms);
        let supervisor = Supervisor::new(trigger.clone(), drain);
        Ok(Self {
            health: Health::new(),
            supervisor,
            metrics,
            trigger,
            #[cfg(feature = "otel")]
            _spans: crate::otel::start()?,
        })
    }

    /// Added last, so that probes are answered until everything else has drained.
    pub(crate) fn admin(&mut self, listener: TcpListener, extra: Router) {
        let state = AdminState {
            health: self.health.clone(),
            metrics: self.metrics.clone(),
            shutdown: self.trigger.shutdown(),
        };
        self.supervisor.room("admin", |stop| async move {
            admin::serve(listener, state, extra, stop).await;
            Ok::<_, std::convert::Infallible>(())
        });
    }
}

/// A listener, and a line that says where.
pub(crate) async fn bind(key: &'static str, address: SocketAddr) -> Result<TcpListener> {
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("{key}: cannot listen on {address}"))?;
    let address = listener.local_addr()?;
    tracing::info!(%address, key, "listening");
    Ok(listener)
}
