//! Moving a process that runs, asked over its admin listener.

use super::export::is_bearer;
use super::promote::{Moving, PATH, Told};
use crate::config::{Config, Layers};
use crate::run::System;
use crate::wiring::moving;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc};

/// The route by which a running process is moved.
pub(crate) fn route(system: &System, config: &Config, token: String) -> Router {
    let state = Arc::new(Promoting {
        moving: Moving::new(system, config),
        front: system.front.clone(),
        token,
        under_way: Arc::default(),
    });
    Router::new().route(PATH, post(answer)).with_state(state)
}

struct Promoting {
    moving: Moving,
    front: crate::run::Front,
    token: String,
    under_way: Arc<Mutex<()>>,
}

async fn answer(State(state): State<Arc<Promoting>>, headers: HeaderMap, body: Bytes) -> Response {
    if !is_bearer(&headers, &state.token) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let bad = |text: String| (StatusCode::BAD_REQUEST, text).into_response();
    let Ok(text) = std::str::from_utf8(&body) else { return bad("not UTF-8".to_owned()) };
    let target = match Layers::parse(text).map_err(anyhow::Error::from) {
        Ok(layers) => Config::read(&layers).map_err(anyhow::Error::from),
        Err(error) => Err(error),
    };
    let target = match target {
        Ok(target) => target,
        Err(error) => return bad(format!("{error:#}")),
    };
    let Ok(alone) = Arc::clone(&state.under_way).try_lock_owned() else {
        return (StatusCode::CONFLICT, "it is being moved already").into_response();
    };
    let (say, told) = mpsc::unbounded_channel();
    // It goes on when whoever asked is gone.
    tokio::spawn(async move {
        let _alone = alone;
        let last = match state.moving.to(&target, &say).await {
            Ok(()) => {
                let (front, target) = (state.front.clone(), target);
                tokio::spawn(async move {
                    match moving::window(&target).await {
                        Ok(window) => front.switch(window),
                        Err(error) => {
                            tracing::warn!(error = format!("{error:#}"), "counts are still the folder's")
                        }
                    }
                });
                Told::Done
            }
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "promoting failed");
                Told::Failed(format!("{error:#}"))
            }
        };
        let _ = say.send(last);
    });
    let lines = futures::stream::unfold(told, |mut told| async move {
        let line = serde_json::to_vec(&told.recv().await?).map(|mut line| {
            line.push(b'\n');
            line
        });
        Some((line, told))
    });
    Body::from_stream(lines).into_response()
}
