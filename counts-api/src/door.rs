//! One request in, one answer out.

use crate::answer;
use crate::config::CountsApiConfig;
use crate::heart::{Count, Sum};
use crate::metrics::CountsApiMetrics;
use crate::query::{self, Query};
use crate::reads::{ReadError, Reads};
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use onlooker_event::{CountKey, DayNumber, Scope};
use onlooker_ports::CountReader;
use onlooker_stage::http::{ApiError, ErrorDetail, read_body};
use rand::Rng;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;

pub(crate) const PATH: &str = "/v1/counts";

/// Day sketches that a request fetches at once: at most 3 MB.
const DAYS_AT_ONCE: usize = 256;
/// Day sketches that are merged before others get their turn: at most about 1 ms.
const MERGES_A_TURN: usize = 16;

/// Everything a request needs.
pub(crate) struct Door<R> {
    config: CountsApiConfig,
    pub(crate) reads: Arc<Reads<R>>,
    metrics: CountsApiMetrics,
    ranges: Semaphore,
}

impl<R: CountReader> Door<R> {
    /// Starts the task that reads.
    pub(crate) fn new(config: CountsApiConfig, reader: R) -> Self {
        let metrics = CountsApiMetrics::register();
        Self {
            reads: Arc::new(Reads::start(reader, metrics.clone())),
            ranges: Semaphore::new(config.max_ranges),
            metrics,
            config,
        }
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let mut response = match self.dispatch(&head, body).await {
            Ok(response) => response,
            Err(error) => {
                self.metrics.refuse(error.detail().code);
                error.into_response()
            }
        };
        answer::allow_any_origin(&mut response);
        response
    }

    async fn dispatch(&self, head: &Parts, body: Incoming) -> Result<Response<Body>, ApiError> {
        if head.uri.path() != PATH {
            let detail = ErrorDetail::new("not_found", "there is nothing at this path");
            return Err(detail.with_status(StatusCode::NOT_FOUND));
        }
        match head.method {
            Method::GET | Method::HEAD => {
                let query = query::from_url(head.uri.query().unwrap_or_default(), &self.config)?;
                self.counts(&query, Some(&head.headers)).await
            }
            Method::POST => {
                let body = read_body(body, self.config.max_body_bytes, self.config.body_timeout).await?;
                let query = query::from_json(&body, &self.config)?;
                // A page that asks for many items sends them in a body; such answers are for it alone.
                self.counts(&query, None).await
            }
            Method::OPTIONS => Ok(answer::preflight()),
            _ => {
                let detail = ErrorDetail::new("method_not_allowed", "this path takes GET and POST");
                Err(detail.with_status(StatusCode::METHOD_NOT_ALLOWED))
            }
        }
    }

    async fn counts(&self, query: &Query, cacheable: Option<&HeaderMap>) -> Result<Response<Body>, ApiError> {
        let mut wishes = Vec::new();
        let counted = tokio::time::timeout(self.config.answer_timeout, self.count(query, &mut wishes)).await;
        if !wishes.is_empty() {
            // The client need not wait for it.
            let reads = Arc::clone(&self.reads);
            tokio::spawn(async move { reads.wish(wishes).await });
        }
        let counts = match counted {
            Ok(Ok(counts)) => counts,
            Ok(Err(ReadError::Overloaded)) => {
                return Err(away("overloaded", "too many requests wait already"));
            }
            Ok(Err(ReadError::Port(error))) => {
                tracing::debug!(%error, "counters could not be read");
                return Err(away("counters_unavailable", "the counters cannot be read at the moment"));
            }
            Err(_) => return Err(away("counters_unavailable", "the counters took too long to answer")),
        };
        for count in &counts {
            self.metrics.counts.get(count.status).increment(1);
        }
        let response = answer::response(query, &counts, cacheable, self.config.max_age_s);
        if response.status() == StatusCode::NOT_MODIFIED {
            self.metrics.unchanged.increment(1);
        }
        Ok(response)
    }

    async fn count(&self, query: &Query, wishes: &mut Vec<CountKey>) -> Result<Vec<Count>, ReadError> {
        match query.days {
            None => self.single(query, Scope::All, wishes).await,
            // Nothing is counted for a day that has not begun: asking for it would only wake the archive.
            Some((from, to)) => match (from, to.min(today())) {
                (from, to) if from > to => Ok(self.nothing(query).await?),
                (from, to) if from == to => self.single(query, Scope::Day(from), wishes).await,
                (from, to) => self.range(query, from, to, wishes).await,
            },
        }
    }

    /// One scope of each item: the counters estimate.
    async fn single(
        &self,
        query: &Query,
        scope: Scope,
        wishes: &mut Vec<CountKey>,
    ) -> Result<Vec<Count>, ReadError> {
        let keys: Vec<CountKey> = query.items.iter().map(|asked| asked.key(scope)).collect();
        let found = self.reads.estimates(keys).await?;
        let counts = query.items.iter().zip(found).map(|(asked, (read, state))| {
            let mut sum = Sum::default();
            if sum.add(&read, state) {
                wishes.push(asked.key(scope));
            }
            sum.finish()
        });
        Ok(counts.collect())
    }

    /// Days that lie ahead: 0, as of when the counters stood.
    async fn nothing(&self, query: &Query) -> Result<Vec<Count>, ReadError> {
        let keys = query.items.iter().map(|asked| asked.key(Scope::All)).collect();
        let found = self.reads.estimates(keys).await?;
        let zero = onlooker_ports::ReadCount { views: None, sketch: None, known_absent: true };
        let counts = found.into_iter().map(|(_, state)| {
            let mut sum = Sum::default();
            sum.add(&zero, state);
            sum.finish()
        });
        Ok(counts.collect())
    }

    /// Several days of each item: sketches come as bytes and are merged here, where nobody else waits for it.
    async fn range(
        &self,
        query: &Query,
        from: DayNumber,
        to: DayNumber,
        wishes: &mut Vec<CountKey>,
    ) -> Result<Vec<Count>, ReadError> {
        let _turn = self.ranges.acquire().await.map_err(|_| ReadError::Overloaded)?;
        let days = move || (from.0..=to.0).map(|day| Scope::Day(DayNumber(day)));
        // Item by item, so that few sums are open at a time.
        let mut keys =
            query.items.iter().enumerate().flat_map(|(at, asked)| days().map(move |s| (at, asked.key(s))));
        let mut counts: Vec<Count> = Vec::with_capacity(query.items.len());
        let mut sum = Sum::default();
        loop {
            let (places, part): (Vec<usize>, Vec<CountKey>) = keys.by_ref().take(DAYS_AT_ONCE).unzip();
            if part.is_empty() {
                break;
            }
            let found = self.reads.sketches(part.clone()).await?;
            for (n, ((at, key), (read, state))) in places.into_iter().zip(part).zip(found).enumerate() {
                if at > counts.len() {
                    counts.push(std::mem::take(&mut sum).finish());
                }
                if sum.add(&read, state) {
                    wishes.push(key);
                }
                if n % MERGES_A_TURN == MERGES_A_TURN - 1 {
                    tokio::task::yield_now().await;
                }
            }
        }
        counts.push(sum.finish());
        Ok(counts)
    }
}

fn today() -> DayNumber {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    DayNumber::of_ms(i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
}

/// 503, with another wait for each client.
fn away(code: &'static str, message: &'static str) -> ApiError {
    let wait = Duration::from_millis(rand::rng().random_range(500..3_000));
    ApiError::unavailable(code, message, wait)
}
