//! What a client is told.

use axum::body::Body;
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use onlooker_event::ViewId;
use onlooker_stage::http::ErrorDetail;
use std::io::Write;

/// A GIF of one transparent pixel (GIF89a, 43 bytes).
pub(crate) const PIXEL: &[u8; 43] =
    b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00\x21\xf9\x04\x01\
    \x00\x00\x00\x00\x2c\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02\x44\x01\x00\x3b";

/// What became of a view. The error is boxed: nearly all are none, and a request may have a thousand.
pub(crate) type Outcome = Result<ViewId, Box<ErrorDetail>>;

/// The outcomes of a request's views, in their order.
pub(crate) type Outcomes = Vec<Outcome>;

/// `{"accepted":n,"rejected":m,"results":[…]}`, and for one view its `view_id` or `error` on top as well.
pub(crate) fn outcomes(outcomes: &Outcomes, single: bool) -> Response<Body> {
    let accepted = outcomes.iter().filter(|o| o.is_ok()).count();
    let mut body = Vec::with_capacity(128 + outcomes.len() * 80);
    match (accepted, outcomes.len()) {
        // Nearly every answer.
        (1, 1) => body.extend_from_slice(br#"{"accepted":1,"rejected":0"#),
        // Writing to memory cannot fail.
        (_, all) => _ = write!(body, "{{\"accepted\":{accepted},\"rejected\":{}", all - accepted),
    }
    if single && let Some(outcome) = outcomes.first() {
        body.push(b',');
        fields(&mut body, outcome);
    }
    body.extend_from_slice(b",\"results\":[");
    for (i, outcome) in outcomes.iter().enumerate() {
        if i > 0 {
            body.push(b',');
        }
        body.extend_from_slice(match outcome {
            Ok(_) => br#"{"status":"accepted","#,
            Err(_) => br#"{"status":"rejected","#,
        });
        fields(&mut body, outcome);
        body.push(b'}');
    }
    body.extend_from_slice(b"]}");
    json(if accepted > 0 { StatusCode::ACCEPTED } else { refused(outcomes) }, body)
}

/// The status of a request without a single accepted view: what all its errors have in common, or 400.
fn refused(outcomes: &Outcomes) -> StatusCode {
    let mut statuses = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).map(|e| status(e.code));
    let first = statuses.next().unwrap_or(StatusCode::BAD_REQUEST);
    if statuses.all(|status| status == first) { first } else { StatusCode::BAD_REQUEST }
}

/// The status of a request whose only view has this error.
pub(crate) fn status(code: &str) -> StatusCode {
    match code {
        "origin_not_allowed" | "trusted_only" | "wrong_site" => StatusCode::FORBIDDEN,
        "view_too_large" => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::BAD_REQUEST,
    }
}

fn fields(body: &mut Vec<u8>, outcome: &Outcome) {
    match outcome {
        Ok(id) => {
            let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
            body.extend_from_slice(b"\"view_id\":\"");
            let text = uuid::Uuid::from_bytes(id.0).hyphenated().encode_lower(&mut text);
            body.extend_from_slice(text.as_bytes());
            body.push(b'"');
        }
        Err(error) => {
            body.extend_from_slice(b"\"error\":");
            let _ = serde_json::to_writer(body, &**error);
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

/// A method that the path does not take.
pub(crate) fn method_not_allowed(allowed: &'static str) -> Response<Body> {
    let detail = ErrorDetail::new("method_not_allowed", "this path takes other methods");
    let mut response = detail.with_status(StatusCode::METHOD_NOT_ALLOWED).into_response();
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// A path that we do not have.
pub(crate) fn not_found() -> Response<Body> {
    let detail = ErrorDetail::new("not_found", "there is nothing at this path");
    detail.with_status(StatusCode::NOT_FOUND).into_response()
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
