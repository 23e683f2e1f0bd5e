//! Questions to a running process, by its admin listener.

use super::{Ask, Out, Sight, answer};
use crate::carry::is_bearer;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Takes an `Ask` as JSON; answers with one JSON object a line, the last of which is `{"$end": null}`, or `{"$end": "why it
/// ended early"}`. A line without anything in it says that the answer is still worked on.
pub(super) const PATH: &str = "/v1/ops";

/// How often an answer that has nothing to say yet gives a sign of life.
pub(super) const BEAT: Duration = Duration::from_secs(2);

struct Asked<S> {
    sight: S,
    token: String,
}

/// The route, for whoever bears the folder's admin token.
pub(crate) fn route<S: Sight>(sight: S, token: String) -> Router {
    Router::new().route(PATH, post(ask::<S>)).with_state(Arc::new(Asked { sight, token }))
}

async fn ask<S: Sight>(State(state): State<Arc<Asked<S>>>, headers: HeaderMap, body: Bytes) -> Response {
    if !is_bearer(&headers, &state.token) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let ask: Ask = match serde_json::from_slice(&body) {
        Ok(ask) => ask,
        Err(error) => {
            let told =
                format!("not a question that this version ({}) answers: {error}", env!("CARGO_PKG_VERSION"));
            return (StatusCode::BAD_REQUEST, told).into_response();
        }
    };
    let (sink, lines) = mpsc::channel::<Value>(64);
    tokio::spawn(async move {
        let out = Out(sink.clone());
        let end = tokio::select! {
            answered = answer(&state.sight, ask, out) => match answered {
                Ok(()) => Value::Null,
                Err(error) => Value::String(format!("{error:#}")),
            },
            // A long answer may have no line for minutes, and would read the whole log for nobody.
            () = sink.closed() => return,
        };
        // Whoever asked may have gone.
        let _ = sink.send(json!({ "$end": end })).await;
    });
    let lines = futures::stream::unfold(lines, |mut lines| async move {
        let mut text = match tokio::time::timeout(BEAT, lines.recv()).await {
            Ok(line) => line?.to_string(),
            Err(_) => String::new(),
        };
        text.push('\n');
        Some((Ok::<_, Infallible>(Bytes::from(text)), lines))
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}
