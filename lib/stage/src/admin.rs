//! The listener for operators and orchestrators: `/livez`, `/readyz`, `/metrics`.

use std::fmt::Write;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;

use crate::health::{Health, Report, Status};
use crate::http::{self, HttpConfig, with_fallbacks};
use crate::shutdown::Shutdown;
use crate::telemetry::{Described, Kind, MetricsHandle};

/// What the listener shows.
#[derive(Clone)]
pub struct AdminState {
    /// Behind `/livez` and `/readyz`.
    pub health: Health,
    /// Behind `/metrics`.
    pub metrics: MetricsHandle,
    /// The process's shutdown: readiness fails from its request on.
    pub shutdown: Shutdown,
}

/// Serves the three routes and `extra` until `stop` is requested, and keeps the metrics' histograms
/// small meanwhile.
///
/// `stop` should come last, when every room has drained: until then probes are answered and the
/// last numbers can be fetched. [`Supervisor`](crate::Supervisor) does so for the room added last.
pub async fn serve(listener: TcpListener, state: AdminState, extra: Router, stop: Shutdown) {
    let metrics = state.metrics.clone();
    let config = HttpConfig {
        max_connections: 256,
        // Nothing here is worth waiting for once the rooms have gone.
        drain_deadline: Duration::from_secs(1),
        ..HttpConfig::named("admin")
    };
    tokio::select! {
        _ = http::serve(listener, with_fallbacks(router(state).merge(extra)), config, stop) => {}
        () = metrics.upkeep() => {}
    }
}

/// The three routes, for a process that serves them on a listener of its own making.
pub fn router(state: AdminState) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(state)
}

async fn livez(State(state): State<AdminState>) -> Response {
    let report = state.report();
    probe(report.live, report)
}

async fn readyz(State(state): State<AdminState>) -> Response {
    let report = state.report();
    probe(report.ready, report)
}

async fn metrics(State(state): State<AdminState>) -> Response {
    let mut page = state.metrics.render();
    render_health(&mut page, &state.report());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page).into_response()
}

/// The whole report in both cases: who asks by hand wants to see everything.
fn probe(ok: bool, report: Report) -> Response {
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(CACHE_CONTROL, "no-store")], Json(report)).into_response()
}

const READY: (&str, &str) = ("onlooker_component_ready", "1 while the component does its work");
const LIVE: (&str, &str) = ("onlooker_component_live", "0 when only a restart helps the component");

pub(crate) fn described() -> Vec<Described> {
    let labels = vec![("component", Vec::new())];
    let gauge = |(name, help)| Described { name, kind: Kind::Gauge, labels: labels.clone(), help };
    [READY, LIVE].map(gauge).to_vec()
}

fn render_health(page: &mut String, report: &Report) {
    let mut gauge = |(name, help): (&str, &str), value: &dyn Fn(Status) -> bool| {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} gauge");
        for component in &report.components {
            let label = component.name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = writeln!(page, "{name}{{component=\"{label}\"}} {}", u8::from(value(component.status)));
        }
        page.push('\n');
    };
    gauge(READY, &|status| status == Status::Ready);
    gauge(LIVE, &|status| matches!(status, Status::Ready | Status::Unready));
}

impl AdminState {
    fn report(&self) -> Report {
        self.health.report(self.shutdown.is_requested())
    }
}
