//! What a server tells about itself, labelled `server`.

use std::time::Duration;

use axum::http::StatusCode;

use super::connection::End;
use crate::telemetry::{Counter, Gauge, Histogram, series};

pub(super) struct HttpMetrics {
    pub(super) connections: Gauge,
    pub(super) accepted: Counter,
    pub(super) shed: Counter,
    pub(super) panics: Counter,
    requests: Histogram,
    responses: Vec<(u16, Counter)>,
    other_responses: Counter,
    cut: [Counter; 4],
}

/// Statuses with a series of their own; what else there may be is counted together.
const STATUSES: &[(u16, &str)] = &[
    (202, "202"),
    (200, "200"),
    (204, "204"),
    (304, "304"),
    (400, "400"),
    (401, "401"),
    (403, "403"),
    (404, "404"),
    (405, "405"),
    (408, "408"),
    (413, "413"),
    (429, "429"),
    (500, "500"),
    (503, "503"),
];

impl HttpMetrics {
    pub(super) fn register(server: &'static str) -> Self {
        let by_server = &[("server", server)];
        let response = |status| {
            series(
                "onlooker_http_responses_total",
                "Responses by status",
                &[("server", server), ("status", status)],
            )
        };
        let cut = |reason| {
            series(
                "onlooker_http_cut_connections_total",
                "Connections closed on a client that was too slow, or at the end of the drain",
                &[("server", server), ("reason", reason)],
            )
        };
        Self {
            connections: series("onlooker_http_connections", "Open connections", by_server),
            accepted: series("onlooker_http_accepted_connections_total", "Accepted connections", by_server),
            shed: series(
                "onlooker_http_shed_connections_total",
                "Connections asked to close because the limit of open ones was reached",
                by_server,
            ),
            panics: series("onlooker_http_panics_total", "Handlers that panicked, answered 500", by_server),
            requests: series(
                "onlooker_http_request_seconds",
                "Time from a request's headers to its response's headers, in seconds",
                by_server,
            ),
            responses: STATUSES.iter().map(|(status, text)| (*status, response(text))).collect(),
            other_responses: response("other"),
            cut: [cut("idle"), cut("slow_request"), cut("slow_reader"), cut("drain")],
        }
    }

    pub(super) fn answered(&self, status: StatusCode, duration: Duration) {
        self.requests.record(duration.as_secs_f64());
        let counter = self.responses.iter().find(|(other, _)| *other == status.as_u16());
        counter.map_or(&self.other_responses, |(_, counter)| counter).increment(1);
    }

    pub(super) fn ended(&self, end: End) {
        match end {
            End::Done => {}
            End::Idle => self.cut[0].increment(1),
            End::SlowRequest => self.cut[1].increment(1),
            End::SlowReader => self.cut[2].increment(1),
        }
    }

    pub(super) fn cut_by_drain(&self, connections: u64) {
        self.cut[3].increment(connections);
    }
}
