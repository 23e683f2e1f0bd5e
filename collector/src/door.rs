//! The door itself: one request in, one answer out.

use crate::answer::{self, Outcomes};
use crate::append::Appender;
use crate::client::{client, is_trusted};
use crate::config::{AcceptTraces, CollectorConfig, ConfigError};
use crate::cors;
use crate::crowd::{Crowd, is_private};
use crate::fields::{Fields, shown};
use crate::head::{self, Head};
use crate::identity::Hasher;
use crate::input::{Views, as_text, unpack, views};
use crate::memory::{Memory, Share};
use crate::metrics::CollectorMetrics;
use crate::pixel;
use crate::quiet::{HINT_EVERY, Quiet, WARN_EVERY};
use crate::script;
use crate::sites::{Site, Sites};
use crate::view::{Maker, Origin};
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use hyper::body::Incoming;
use onlooker_event::{Facts, TraceParent};
use onlooker_ports::{LogWriter, OutgoingBatch};
use onlooker_stage::http::{ApiError, ErrorDetail, read_body_with};
use onlooker_stage::spans::{self, Span, SpanKind};
use std::borrow::Cow;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

const VIEWS: &str = "/v1/views";
const PIXEL: &str = "/v1/view.gif";
const SCRIPT: &str = "/v1/view.js";

/// Whether the path is one of the collector's.
pub(crate) fn serves(path: &str) -> bool {
    path == VIEWS || path == PIXEL || path == SCRIPT
}

/// Everything a request needs.
#[derive(Debug)]
pub(crate) struct Door<L> {
    config: CollectorConfig,
    sites: Sites,
    hasher: Hasher,
    pub(crate) log: Appender<L>,
    pub(crate) metrics: CollectorMetrics,
    pub(crate) memory: Memory,
    crowd: Crowd,
    large_views: Quiet,
    hidden_viewers: Quiet,
    untrusted_header: Quiet,
}

/// A request without its body.
struct Asked<'a> {
    head: Head<'a>,
    headers: &'a HeaderMap,
    peer: IpAddr,
    /// When it came, if anybody wants to know.
    begun: Option<SystemTime>,
}

impl Asked<'_> {
    /// A content coding that we do not take. Gzip is recognised by its first bytes, whatever the header says.
    fn foreign_coding(&self) -> Option<String> {
        let coding = head::text(self.head.content_encoding?);
        let ours = ["", "gzip", "x-gzip", "identity"];
        let foreign = !ours.iter().any(|known| coding.trim().eq_ignore_ascii_case(known));
        foreign.then(|| shown(&coding))
    }
}

/// What a request became before the log has seen it.
struct Checked {
    outcomes: Outcomes,
    single: bool,
    batch: OutgoingBatch,
    span: Option<Span>,
}

impl<L: LogWriter> Door<L> {
    pub(crate) fn new(config: CollectorConfig, log: L) -> Result<Self, ConfigError> {
        if let Some(fault) = config.faults().into_iter().next() {
            return Err(fault);
        }
        Ok(Self {
            sites: Sites::read(&config, &mut Vec::new()),
            hasher: Hasher::new(&config.identity)?,
            log: Appender::new(log, config.append_timeout),
            metrics: CollectorMetrics::register(),
            memory: Memory::new(config.max_inflight_bytes),
            crowd: Crowd::default(),
            large_views: Quiet::every(WARN_EVERY),
            hidden_viewers: Quiet::every(HINT_EVERY),
            untrusted_header: Quiet::every(HINT_EVERY),
            config,
        })
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request<Incoming>, peer: IpAddr) -> Response<Body> {
        let (Parts { method, uri, headers, .. }, body) = request.into_parts();
        let begun = spans::is_on().then(SystemTime::now);
        let asked = Asked { head: Head::read(&headers), headers: &headers, peer, begun };
        let answer = match (&method, uri.path()) {
            (&Method::POST, VIEWS) => self.post(&asked, body).await,
            (&Method::GET, PIXEL) if !asked.head.range => {
                self.pixel(&asked, uri.query().unwrap_or_default()).await
            }
            // Nobody looks at a picture by asking how large it is; and who asks for a part of it (a download that goes
            // on, a link checker) is no page that shows it.
            (&Method::GET | &Method::HEAD, PIXEL) => Ok(answer::pixel()),
            (&Method::GET | &Method::HEAD, SCRIPT) => Ok(script::answer(&headers)),
            (&Method::OPTIONS, VIEWS | PIXEL | SCRIPT) => Ok(cors::preflight()),
            (_, VIEWS) => Ok(answer::method_not_allowed("POST, OPTIONS")),
            (_, PIXEL | SCRIPT) => Ok(answer::method_not_allowed("GET, HEAD, OPTIONS")),
            _ => Ok(answer::not_found()),
        };
        let mut response = answer.unwrap_or_else(|error| {
            self.metrics.reject(error.detail().code);
            error.into_response()
        });
        cors::apply(&mut response, asked.head.origin, &self.sites);
        response
    }

    async fn post(&self, asked: &Asked<'_>, body: Incoming) -> Result<Response<Body>, ApiError> {
        let trusted = self.trusted(asked)?;
        let mut share = self.memory.share();
        let max = self.config.max_body_bytes;
        let body = read_body_with(body, max, self.config.body_timeout, |bytes| share.grow(bytes)).await?;
        // In a function of its own, so that body and text are gone before the wait for the log.
        let checked = self.check_body(asked, body, trusted, &mut share)?;
        share.shrink_to(checked.outcomes.len() * size_of::<answer::Outcome>());
        self.append(checked.batch, checked.span, &mut share).await?;
        Ok(answer::outcomes(&checked.outcomes, checked.single))
    }

    fn check_body(
        &self,
        asked: &Asked<'_>,
        body: Bytes,
        trusted: Option<&Site>,
        share: &mut Share<'_>,
    ) -> Result<Checked, ApiError> {
        let body = unpack(body, self.config.max_body_bytes, share)?;
        let text = as_text(&body);
        if let Cow::Owned(copy) = &text {
            share.grow(copy.len())?;
        }
        let views = views(&text, self.config.max_items).map_err(|detail| {
            match (detail.code, asked.foreign_coding()) {
                ("too_many_items", _) => detail.with_status(StatusCode::PAYLOAD_TOO_LARGE),
                ("malformed", Some(coding)) => {
                    ErrorDetail::new("unsupported_encoding", "a body is sent plain or as gzip")
                        .field("Content-Encoding")
                        .got(coding)
                        .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
                }
                _ => detail.with_status(StatusCode::BAD_REQUEST),
            }
        })?;
        let (single, views) = match views {
            Views::One(view) => (true, vec![view]),
            Views::Many(views) => (false, views),
        };
        let (maker, span) = self.maker(asked, trusted, ("POST", VIEWS));
        let mut batch = maker.batch_for(views.len(), text.len());
        let outcomes = views.into_iter().map(|view| self.check(&maker, view, &mut batch)).collect();
        Ok(Checked { outcomes, single, batch, span })
    }

    async fn pixel(&self, asked: &Asked<'_>, query: &str) -> Result<Response<Body>, ApiError> {
        let (maker, span) = self.maker(asked, None, ("GET", PIXEL));
        let mut batch = maker.batch_for(1, query.len());
        let made = maker.make(&pixel::fields(query), &mut batch);
        // Counted as refused by whoever turns the error into an answer.
        let (_, facts) = made.map_err(|detail| {
            let status = answer::status(detail.code);
            detail.with_status(status)
        })?;
        self.note_viewer(facts);
        self.append(batch, span, &mut self.memory.share()).await?;
        Ok(answer::pixel())
    }

    /// One view of a request: its record is in `batch`, or its error is told.
    fn check(&self, maker: &Maker<'_>, json: &str, batch: &mut OutgoingBatch) -> answer::Outcome {
        let made = if json.len() > self.config.max_view_bytes {
            if let Some(held_back) = self.large_views.due() {
                let (bytes, limit_bytes) = (json.len(), self.config.max_view_bytes);
                let trace_id = maker.origin.trace.map(|trace| tracing::field::display(trace.trace_id()));
                tracing::warn!(bytes, limit_bytes, held_back, trace_id, "a view was refused for its size");
            }
            let detail = ErrorDetail::new("view_too_large", "the view is too large, in bytes");
            Err(detail.limit(self.config.max_view_bytes).got(json.len()))
        } else {
            Fields::read(json).and_then(|fields| maker.make(&fields, batch))
        };
        match made {
            Ok((view_id, facts)) => {
                self.note_viewer(facts);
                Ok(view_id)
            }
            Err(detail) => {
                self.metrics.reject(detail.code);
                Err(Box::new(detail))
            }
        }
    }

    /// The request's span, if there is one, ends with this.
    async fn append(
        &self,
        batch: OutgoingBatch,
        span: Option<Span>,
        share: &mut Share<'_>,
    ) -> Result<(), ApiError> {
        let views = batch.len();
        if !batch.is_empty() {
            share.grow(batch.bytes())?;
            self.log.append(batch, &self.metrics).await?;
        }
        if let Some(mut span) = span {
            span.number("onlooker.views", i64::try_from(views).unwrap_or(i64::MAX));
            span.done();
        }
        Ok(())
    }

    fn maker<'a>(
        &'a self,
        asked: &Asked<'a>,
        trusted: Option<&'a Site>,
        route: (&'static str, &'static str),
    ) -> (Maker<'a>, Option<Span>) {
        let (proxies, head) = (&self.config.trusted_proxies, &asked.head);
        if head.forwarded_for && !is_trusted(asked.peer, proxies) {
            self.note_untrusted_header();
        }
        let address = client(asked.peer, asked.headers, proxies);
        if trusted.is_none() {
            self.note_address(address);
        }
        let parent = self.trace(asked, trusted);
        let span = request_span(asked, parent.as_ref(), route);
        let origin = Origin {
            trusted,
            address,
            agent: head.user_agent.map(head::text),
            referrer: head.referrer.map(head::text),
            page_origin: head.origin.map(head::text).filter(|origin| origin != "null"),
            facts: head.facts,
            trace: span.as_ref().and_then(Span::place).or(parent),
            now_ms: now_ms(),
        };
        (Maker { sites: &self.sites, hasher: &self.hasher, origin }, span)
    }

    /// The trace that the request is part of, if its sender's word counts.
    fn trace(&self, asked: &Asked<'_>, trusted: Option<&Site>) -> Option<TraceParent> {
        let believed = match self.config.accept_traces {
            AcceptTraces::None => false,
            AcceptTraces::Trusted => trusted.is_some(),
            AcceptTraces::All => true,
        };
        if believed { asked.head.trace() } else { None }
    }

    fn note_untrusted_header(&self) {
        self.metrics.untrusted_forwarded.increment(1);
        if self.untrusted_header.due().is_some() {
            tracing::warn!(
                "x-forwarded-for comes from a peer that is not in collector.trusted_proxies, so all viewers behind it count as one"
            );
        }
    }

    fn note_viewer(&self, facts: Facts) {
        if facts.has(Facts::BAD_VIEWER) {
            self.metrics.bad_viewer.increment(1);
        }
    }

    fn note_address(&self, address: IpAddr) {
        if is_private(address) {
            self.metrics.private_address.increment(1);
        }
        if self.crowd.note(address) {
            self.metrics.crowded_address.increment(1);
            if self.hidden_viewers.due().is_some() {
                tracing::warn!(
                    "nearly all anonymous views come from one private address: a proxy or gateway hides the viewers, who all count as one"
                );
            }
        }
    }

    /// The site whose token the request carries. Another scheme than Bearer is not meant for us: a browser behind a
    /// site's own password sends it along.
    fn trusted(&self, asked: &Asked<'_>) -> Result<Option<&Site>, ApiError> {
        let Some(value) = asked.head.authorization else { return Ok(None) };
        let mut parts = value.as_bytes().splitn(2, |byte| *byte == b' ');
        let (scheme, token) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if !scheme.eq_ignore_ascii_case(b"Bearer") {
            return Ok(None);
        }
        let found = self.sites.by_token(token.trim_ascii());
        found.map(Some).ok_or_else(|| {
            ErrorDetail::new("unknown_token", "no site has this server token")
                .field("Authorization")
                .with_status(StatusCode::UNAUTHORIZED)
        })
    }
}

/// The span of a request whose views are looked at, since it came. What is refused as a whole before that has none.
fn request_span(
    asked: &Asked<'_>,
    parent: Option<&TraceParent>,
    (method, route): (&'static str, &'static str),
) -> Option<Span> {
    let mut span = spans::begin(SpanKind::Server, "collector.request", parent, asked.begun)?;
    span.text("http.request.method", method);
    span.text("http.route", route);
    Some(span)
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
