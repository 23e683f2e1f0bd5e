//! What a server tells about itself, labelled `server`.

use std::time::Duration;

use axum::http::StatusCode;

use super::connection::End;
use crate::telemetry::{Counter, Described, Gauge, Histogram, Kind, series};

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

const CONNECTIONS: (&str, &str) = ("onlooker_http_connections", "Open connections");
const ACCEPTED: (&str, &str) = ("onlooker_http_accepted_connections_total", "Accepted connections");
const SHED: (&str, &str) = (
    "onlooker_http_shed_connections_total",
    "Connections asked to close because the limit of open ones was reached",
);
const PANICS: (&str, &str) = ("onlooker_http_panics_total", "Handlers that panicked, answered 500");
const REQUESTS: (&str, &str) =
    ("onlooker_http_request_seconds", "Time from a request's headers to its response's headers, in seconds");
const RESPONSES: (&str, &str) = ("onlooker_http_responses_total", "Responses by status");
const CUT: (&str, &str) = (
    "onlooker_http_cut_connections_total",
    "Connections closed on a client that was too slow, or at the end of the drain",
);
const CUT_REASONS: [&str; 4] = ["idle", "slow_request", "slow_reader", "drain"];
const OTHER: &str = "other";

pub(crate) fn described() -> Vec<Described> {
    let made = |(name, help), kind, more: Option<(&'static str, Vec<&'static str>)>| Described {
        name,
        kind,
        labels: [("server", Vec::new())].into_iter().chain(more).collect(),
        help,
    };
    let statuses = STATUSES.iter().map(|(_, text)| *text).chain([OTHER]).collect();
    vec![
        made(CONNECTIONS, Kind::Gauge, None),
        made(ACCEPTED, Kind::Counter, None),
        made(SHED, Kind::Counter, None),
        made(PANICS, Kind::Counter, None),
        made(REQUESTS, Kind::Histogram, None),
        made(RESPONSES, Kind::Counter, Some(("status", statuses))),
        made(CUT, Kind::Counter, Some(("reason", CUT_REASONS.to_vec()))),
    ]
}

impl HttpMetrics {
    pub(super) fn register(server: &'static str) -> Self {
        let by_server = &[("server", server)];
        let response = |status| series(RESPONSES.0, RESPONSES.1, &[("server", server), ("status", status)]);
        Self {
            connections: series(CONNECTIONS.0, CONNECTIONS.1, by_server),
            accepted: series(ACCEPTED.0, ACCEPTED.1, by_server),
            shed: series(SHED.0, SHED.1, by_server),
            panics: series(PANICS.0, PANICS.1, by_server),
            requests: series(REQUESTS.0, REQUESTS.1, by_server),
            responses: STATUSES.iter().map(|(status, text)| (*status, response(text))).collect(),
            other_responses: response(OTHER),
            cut: CUT_REASONS.map(|reason| series(CUT.0, CUT.1, &[("server", server), ("reason", reason)])),
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
