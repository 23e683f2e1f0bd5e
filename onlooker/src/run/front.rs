//! What else the one address answers: counts, and a page to begin with.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderValue, Method, Request, Response};
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use onlooker_collector::Neighbour;
use onlooker_counts_api::Window;
use onlooker_ports::CountReader;
use std::sync::{Arc, OnceLock};

const PAGE: &str = include_str!("page.html");
/// The page loads nothing from anywhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

type Answer = Box<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// Who answers with counts: one window, or from some moment on another. Each request is answered by one of them, for an
/// item has other places in the other. Clones are one.
#[derive(Clone)]
pub(crate) struct Front {
    first: Arc<Answer>,
    second: Arc<OnceLock<Answer>>,
}

impl Front {
    pub(super) fn new<R: CountReader>(window: Window<R>) -> Self {
        Self { first: Arc::new(by(window)), second: Arc::default() }
    }

    /// Lets another window answer from here on.
    #[cfg(feature = "cluster")]
    pub(crate) fn switch<R: CountReader>(&self, window: Window<R>) {
        // Whoever was first is right.
        let _ = self.second.set(by(window));
    }

    /// Answers what is not the collector's.
    pub(super) fn neighbour(&self) -> Neighbour {
        let front = self.clone();
        Arc::new(move |request: Request<Incoming>, _peer| match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/") => async { page() }.boxed(),
            // Anything else that is not there is told as the counts are.
            _ => front.second.get().unwrap_or(&front.first)(request),
        })
    }
}

fn by<R: CountReader>(window: Window<R>) -> Answer {
    Box::new(move |request| {
        let window = window.clone();
        async move { window.answer(request).await }.boxed()
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
