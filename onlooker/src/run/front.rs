//! What else the one address answers: counts, and a page to begin with.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderValue, Method, Request, Response};
use futures::FutureExt;
use hyper::body::Incoming;
use onlooker_collector::Neighbour;
use onlooker_counts_api::Window;
use onlooker_ports::CountReader;
use std::sync::Arc;

const PAGE: &str = include_str!("page.html");
/// The page loads nothing from anywhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Answers what is not the collector's.
pub(super) fn neighbour<R: CountReader>(window: Window<R>) -> Neighbour {
    Arc::new(move |request: Request<Incoming>, _peer| {
        let window = window.clone();
        async move {
            match (request.method(), request.uri().path()) {
                (&Method::GET | &Method::HEAD, "/") => page(),
                // Anything else that is not there is told as the counts are.
                _ => window.answer(request).await,
            }
        }
        .boxed()
    })
}

fn page() -> Response<Body> {
    let mut response = Response::new(Body::from(PAGE));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}
