//! The door itself: one request in, one answer out.

use crate::answer::{self, Outcomes};
use crate::client::client;
use crate::config::{CollectorConfig, ConfigError, Site};
use crate::cors;
use crate::identity::Hasher;
use crate::input::{RawView, Views, as_text, unpack, views};
use crate::metrics::CollectorMetrics;
use crate::view::{Maker, Origin, header_facts};
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, ORIGIN, REFERER, USER_AGENT};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use hyper::body::Incoming;
use onlooker_event::Facts;
use onlooker_ports::{LogWriter, OutgoingBatch, PortError, Topic};
use onlooker_proto::encode_view;
use onlooker_stage::http::{ApiError, ErrorDetail, read_body};
use rand::Rng;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Everything a request needs.
#[derive(Debug)]
pub(crate) struct Door<L> {
    config: CollectorConfig,
    sites: Vec<Site>,
    hasher: Hasher,
    pub(crate) log: L,
    metrics: CollectorMetrics,
    /// In units of a kilobyte, rounded up.
    memory: Arc<Semaphore>,
    warned_forwarded: AtomicBool,
}

impl<L: LogWriter> Door<L> {
    pub(crate) fn new(config: CollectorConfig, log: L) -> Result<Self, ConfigError> {
        let sites = config.checked_sites()?;
        let hasher = Hasher::new(&config.identity)?;
        let kilobytes = config.max_inflight_bytes.div_ceil(1024).min(Semaphore::MAX_PERMITS);
        Ok(Self {
            sites,
            hasher,
            log,
            metrics: CollectorMetrics::register(),
            memory: Arc::new(Semaphore::new(kilobytes)),
            warned_forwarded: AtomicBool::new(false),
            config,
        })
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request<Incoming>, peer: IpAddr) -> Response<Body> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let mut response = match (&head.method, path) {
            (&Method::POST, "/v1/views") => {
                self.respond(self.post(&head.headers, Body::new(body), peer).await)
            }
            (&Method::GET, "/v1/view.gif") => {
                self.respond(self.pixel(head.uri.query().unwrap_or_default(), &head.headers, peer).await)
            }
            // Nobody looks at a picture by asking how large it is.
            (&Method::HEAD, "/v1/view.gif") => answer::pixel(),
            (&Method::OPTIONS, "/v1/views" | "/v1/view.gif") => cors::preflight(),
            (_, "/v1/views" | "/v1/view.gif") => {
                ErrorDetail::new("method_not_allowed", "this path takes other methods")
                    .with_status(StatusCode::METHOD_NOT_ALLOWED)
                    .into_response()
            }
            _ => ErrorDetail::new("not_found", "there is nothing at this path")
                .with_status(StatusCode::NOT_FOUND)
                .into_response(),
        };
        cors::apply(&mut response, head.headers.get(ORIGIN), &self.sites);
        response
    }

    fn respond(&self, result: Result<Response<Body>, ApiError>) -> Response<Body> {
        result.unwrap_or_else(|error| {
            self.metrics.reject(error.detail().code);
            error.into_response()
        })
    }

    async fn post(&self, headers: &HeaderMap, body: Body, peer: IpAddr) -> Result<Response<Body>, ApiError> {
        let trusted = self.token(headers)?;
        let announced = http_body_util::BodyExt::boxed_unsync(body);
        let size = hyper::body::Body::size_hint(&announced);
        // What a request may come to hold, before it is read: what it announces, or the limit.
        let expected =
            size.exact().map_or(self.config.max_body_bytes, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let mut held = self.hold(expected.min(self.config.max_body_bytes))?;
        let packed =
            read_body(Body::new(announced), self.config.max_body_bytes, self.config.body_timeout).await?;
        let was = packed.len();
        let body = unpack(packed, self.config.max_body_bytes)?;
        if body.len() > was {
            held.merge(self.hold(body.len() - was)?);
        }
        let (outcomes, single) = self.record(headers, &body, trusted, peer).await?;
        drop(held);
        Ok(answer::outcomes(&outcomes, single))
    }

    async fn pixel(
        &self,
        query: &str,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Result<Response<Body>, ApiError> {
        let _held = self.hold(query.len())?;
        let fields = Query::parse(query);
        let raw = fields.raw();
        let (outcomes, _) = self.append(headers, Views::One(raw), None, peer).await?;
        match outcomes.into_iter().next() {
            Some(Err(error)) => Err(error.with_status(StatusCode::BAD_REQUEST)),
            _ => Ok(answer::pixel()),
        }
    }

    async fn record(
        &self,
        headers: &HeaderMap,
        body: &Bytes,
        trusted: Option<&Site>,
        peer: IpAddr,
    ) -> Result<(Outcomes, bool), ApiError> {
        let text = as_text(body);
        let views = views(&text, self.config.max_items).map_err(|detail| {
            let status = match detail.code {
                "too_many_items" => StatusCode::PAYLOAD_TOO_LARGE,
                _ => StatusCode::BAD_REQUEST,
            };
            detail.with_status(status)
        })?;
        self.append(headers, views, trusted, peer).await
    }

    /// Checks all views, appends the good ones, and waits for the log.
    async fn append(
        &self,
        headers: &HeaderMap,
        views: Views<'_>,
        trusted: Option<&Site>,
        peer: IpAddr,
    ) -> Result<(Outcomes, bool), ApiError> {
        let (outcomes, single, batch) = self.check(headers, views, trusted, peer);
        if !batch.is_empty() {
            let accepted = u64::try_from(batch.len()).unwrap_or(u64::MAX);
            let _held = self.hold(batch.bytes())?;
            let start = Instant::now();
            let append = tokio::time::timeout(self.config.append_timeout, self.log.append(batch)).await;
            append
                .unwrap_or_else(|_| Err(too_slow(self.config.append_timeout)))
                .map_err(|e| unavailable(&e))?;
            self.metrics.append.record(start.elapsed().as_secs_f64());
            self.metrics.accepted.increment(accepted);
        }
        Ok((outcomes, single))
    }

    fn check(
        &self,
        headers: &HeaderMap,
        views: Views<'_>,
        trusted: Option<&Site>,
        peer: IpAddr,
    ) -> (Outcomes, bool, OutgoingBatch) {
        let client = client(peer, headers, &self.config.trusted_proxies);
        if client.untrusted_header {
            self.note_untrusted_header();
        }
        if trusted.is_none() && is_private(client.address) {
            self.metrics.private_address.increment(1);
        }
        let origin = Origin {
            trusted,
            address: client.address,
            agent: header_text(headers, &USER_AGENT),
            referrer: header_text(headers, &REFERER),
            page_origin: headers.get(ORIGIN).and_then(|v| v.to_str().ok()).filter(|o| *o != "null"),
            facts: header_facts(headers),
            now_ms: now_ms(),
        };
        let maker = Maker { sites: &self.sites, hasher: &self.hasher, origin };
        let mut batch = OutgoingBatch::default();
        let mut put = |raw: Result<RawView<'_>, ErrorDetail>| {
            let view = raw.and_then(|raw| maker.make(&raw)).inspect_err(|e| self.metrics.reject(e.code))?;
            if view.facts.has(Facts::BAD_VIEWER) {
                self.metrics.bad_viewer.increment(1);
            }
            batch.push_with(Topic::Views, &view.viewer.0, |out| encode_view(&view, out));
            Ok(view.view_id)
        };
        let (outcomes, single) = match views {
            Views::One(raw) => (vec![put(Ok(raw))], true),
            Views::Many(many) => (many.into_iter().map(&mut put).collect(), false),
        };
        (outcomes, single, batch)
    }

    /// The site whose token the request carries. Every token is compared, each in constant time.
    fn token(&self, headers: &HeaderMap) -> Result<Option<&Site>, ApiError> {
        let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
        let token = value.as_bytes().strip_prefix(b"Bearer ").unwrap_or_default();
        let mut found = None;
        for site in &self.sites {
            if let Some(expected) = &site.config.token
                && bool::from(expected.expose().as_bytes().ct_eq(token))
            {
                found = Some(site);
            }
        }
        found.map(Some).ok_or_else(|| {
            ErrorDetail::new(
                "unknown_token",
                "no site has this server token; send it as: Authorization: Bearer TOKEN",
            )
            .field("Authorization")
            .with_status(StatusCode::UNAUTHORIZED)
        })
    }

    /// Counts bytes against the limit of all requests.
    fn hold(&self, bytes: usize) -> Result<Held<'_>, ApiError> {
        let kilobytes = u32::try_from(bytes.div_ceil(1024).max(1)).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.memory).try_acquire_many_owned(kilobytes).map_err(|_| {
            ApiError::unavailable("overloaded", "too many views are on their way at the moment", jittered())
        })?;
        self.metrics.inflight.increment(f64::from(kilobytes) * 1024.0);
        Ok(Held { permit, metrics: &self.metrics })
    }

    fn note_untrusted_header(&self) {
        self.metrics.untrusted_forwarded.increment(1);
        if !self.warned_forwarded.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "x-forwarded-for comes from a peer that is not in collector.trusted_proxies, so all viewers behind it count as one"
            );
        }
    }
}

/// Bytes that a request holds, given back when it ends.
struct Held<'a> {
    permit: OwnedSemaphorePermit,
    metrics: &'a CollectorMetrics,
}

impl Held<'_> {
    fn merge(&mut self, mut other: Held<'_>) {
        if let Some(all) = other.permit.split(other.permit.num_permits()) {
            self.permit.merge(all);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let kilobytes = u32::try_from(self.permit.num_permits()).unwrap_or(u32::MAX);
        self.metrics.inflight.decrement(f64::from(kilobytes) * 1024.0);
    }
}

fn too_slow(waited: Duration) -> PortError {
    PortError::Unavailable {
        server: "log",
        detail: format!("no acknowledgement within {} ms", waited.as_millis()),
    }
}

fn unavailable(error: &PortError) -> ApiError {
    let (code, message) = match error {
        PortError::Full { .. } => ("log_full", "the log's queue is full; nothing is lost, send it again"),
        _ => ("log_unavailable", "the log did not acknowledge the views; send them again with the same ids"),
    };
    tracing::warn!(%error, code, "views were not acknowledged");
    ApiError::unavailable(code, message, jittered())
}

/// One to five seconds, so that clients do not come back all at once.
fn jittered() -> Duration {
    Duration::from_secs(rand::rng().random_range(1..=5))
}

/// A header as text. Bytes that are not UTF-8 are replaced: a site does not control what its visitors' browsers send.
fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, str>> {
    headers.get(name).map(HeaderValue::as_bytes).map(String::from_utf8_lossy)
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The pixel's query string, as the fields of a view.
#[derive(Debug, Default)]
struct Query {
    site: Option<Box<RawValue>>,
    key: Option<Box<RawValue>>,
    item: Option<Box<RawValue>>,
    id: Option<Box<RawValue>>,
    session: Option<Box<RawValue>>,
    referrer: Option<Box<RawValue>>,
    /// A field that only back ends may send.
    viewer: Option<Box<RawValue>>,
}

impl Query {
    fn parse(query: &str) -> Self {
        let mut fields = Query::default();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = value.replace('+', " ");
            let value = percent_encoding::percent_decode_str(&value).decode_utf8_lossy();
            let slot = match name {
                "site" => &mut fields.site,
                "key" => &mut fields.key,
                "item" => &mut fields.item,
                "id" => &mut fields.id,
                "session" => &mut fields.session,
                "referrer" => &mut fields.referrer,
                "viewer" | "ip" | "ua" | "at" | "owner" => &mut fields.viewer,
                _ => continue,
            };
            *slot = serde_json::to_string(&value).ok().and_then(|json| RawValue::from_string(json).ok());
        }
        fields
    }

    fn raw(&self) -> RawView<'_> {
        RawView {
            site: self.site.as_deref(),
            key: self.key.as_deref(),
            item: self.item.as_deref(),
            id: self.id.as_deref(),
            session: self.session.as_deref(),
            referrer: self.referrer.as_deref(),
            viewer: self.viewer.as_deref(),
            ..RawView::default()
        }
    }
}
