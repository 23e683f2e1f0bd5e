//! `GET /v1/view.js`: what a page loads to be counted, built in `beacon/`.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::sync::LazyLock;

const SCRIPT: &str = include_str!("../../beacon/dist/view.js");
/// How long pages go without asking again: an hour, and on from there for a week while they ask behind the page's back.
const CACHED: &str = "public, max-age=3600, stale-while-revalidate=604800";

/// The script's own hash, quoted, so that it changes with the script and with nothing else.
static TAG: LazyLock<String> = LazyLock::new(|| {
    let hash = Sha256::digest(SCRIPT);
    let mut tag = String::from("\"");
    for byte in &hash[..16] {
        let _ = write!(tag, "{byte:02x}");
    }
    tag + "\""
});

/// The script, or that the page has it already.
pub(crate) fn answer(asked: &HeaderMap) -> Response<Body> {
    let known = asked.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).any(is_ours);
    let mut response = if known {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        Response::new(Body::from(SCRIPT))
    };
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&TAG) {
        headers.insert(ETAG, tag);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(CACHED));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Whether an `If-None-Match` names the script. Weakly compared (RFC 9110 §13.1.2): a proxy that compresses weakens tags.
fn is_ours(value: &str) -> bool {
    value.split(',').map(str::trim).any(|tag| tag == "*" || tag.trim_start_matches("W/") == *TAG)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(tag: &str) -> StatusCode {
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, HeaderValue::from_str(tag).unwrap());
        answer(&headers).status()
    }

    #[test]
    fn who_has_the_script_is_not_sent_it_again() {
        assert_eq!(answer(&HeaderMap::new()).status(), StatusCode::OK);
        assert_eq!(status(&TAG), StatusCode::NOT_MODIFIED);
        assert_eq!(status(&format!("\"other\", W/{}", *TAG)), StatusCode::NOT_MODIFIED);
        assert_eq!(status("\"other\""), StatusCode::OK);
    }
}
