//! Cross-origin answers (Fetch standard, §3.2). `sendBeacon` always carries credentials, so the origin is echoed and
//! never `*`.

use crate::sites::Sites;
use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, RETRY_AFTER, VARY,
};
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};

/// Else pages that isolate themselves (`Cross-Origin-Embedder-Policy`) could load nothing from here.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Lets a page of an allowed origin see the answer. Which site a request is for stands in its body, so an origin is
/// allowed here if any site allows it; each view is then held to its own site's list.
pub(crate) fn apply(response: &mut Response<Body>, origin: Option<&HeaderValue>, sites: &Sites) {
    let headers = response.headers_mut();
    headers.append(VARY, HeaderValue::from_static("Origin"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
    let Some(origin) = origin else { return };
    if origin.to_str().is_ok_and(|text| sites.anyone_allows(text)) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        if headers.contains_key(RETRY_AFTER) {
            // Else a page that was told to come back later cannot see when.
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("retry-after"));
        }
    }
}

/// The answer to `OPTIONS`.
pub(crate) fn preflight() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    headers.insert(
        ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static("authorization, content-encoding, content-type, traceparent, tracestate"),
    );
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    response
}
