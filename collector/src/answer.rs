//! What a client is told.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, Response, StatusCode};
use onlooker_event::ViewId;
use onlooker_stage::http::ErrorDetail;
use std::io::Write;

/// A GIF of one transparent pixel (GIF89a, 43 bytes).
pub(crate) const PIXEL: &[u8; 43] =
    b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00\x21\xf9\x04\x01\
    \x00\x00\x00\x00\x2c\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02\x44\x01\x00\x3b";

/// The outcomes of a request's views, in their order.
pub(crate) type Outcomes = Vec<Result<ViewId, ErrorDetail>>;

/// `{"accepted":n,"rejected":m,"results":[…]}`, and for one view its `view_id` or `error` on top as well.
pub(crate) fn outcomes(outcomes: &Outcomes, single: bool) -> Response<Body> {
    let accepted = outcomes.iter().filter(|o| o.is_ok()).count();
    let mut body = Vec::with_capacity(64 + outcomes.len() * 80);
    // Writing to memory cannot fail.
    let _ = write!(body, "{{\"accepted\":{accepted},\"rejected\":{}", outcomes.len() - accepted);
    if single && let Some(outcome) = outcomes.first() {
        body.push(b',');
        fields(&mut body, outcome);
    }
    body.extend_from_slice(b",\"results\":[");
    for (i, outcome) in outcomes.iter().enumerate() {
        if i > 0 {
            body.push(b',');
        }
        let status = if outcome.is_ok() { "accepted" } else { "rejected" };
        let _ = write!(body, "{{\"status\":\"{status}\",");
        fields(&mut body, outcome);
        body.push(b'}');
    }
    body.extend_from_slice(b"]}");
    let status = match (accepted, outcomes.first()) {
        (0, Some(Err(error))) if single => single_status(error),
        (0, _) => StatusCode::BAD_REQUEST,
        _ => StatusCode::ACCEPTED,
    };
    json(status, body)
}

fn single_status(error: &ErrorDetail) -> StatusCode {
    match error.code {
        "origin_not_allowed" | "trusted_only" | "wrong_site" => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_REQUEST,
    }
}

fn fields(body: &mut Vec<u8>, outcome: &Result<ViewId, ErrorDetail>) {
    match outcome {
        Ok(id) => {
            let _ = write!(body, "\"view_id\":\"{}\"", uuid::Uuid::from_bytes(id.0).hyphenated());
        }
        Err(error) => {
            body.extend_from_slice(b"\"error\":");
            let _ = serde_json::to_writer(body, error);
        }
    }
}

fn json(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The pixel. Never cached: a cached pixel is a view that nobody hears of.
pub(crate) fn pixel() -> Response<Body> {
    let mut response = Response::new(Body::from(&PIXEL[..]));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("image/gif"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from_static("43"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
