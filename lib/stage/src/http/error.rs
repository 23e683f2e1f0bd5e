//! What a client is told when a request fails.

use std::borrow::Cow;
use std::time::Duration;

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// A failed request: `{"error": {"code", "message", "field"?, "limit"?, "got"?}}` with a status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {}", .detail.message)]
pub struct ApiError {
    status: StatusCode,
    /// Boxed, or every `Result` on the way of a good request would carry its 100 bytes.
    detail: Box<ErrorDetail>,
    retry_after: Option<Duration>,
}

/// The body's inside. One item of a batch that fails is described by the same words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorDetail {
    /// For programs: a word that does not change.
    pub code: &'static str,
    /// For people.
    pub message: Cow<'static, str>,
    /// The field at fault, as a path into what was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<Cow<'static, str>>,
    /// The limit that it broke, in the unit that the message names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Fact>,
    /// What came instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub got: Option<Fact>,
}

/// A number or a short text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Fact {
    /// A number.
    Number(u64),
    /// A text. From a `String` at most 64 characters are kept: it may be what the client sent.
    Text(Cow<'static, str>),
}

const MAX_TEXT_CHARS: usize = 64;

impl From<u64> for Fact {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<usize> for Fact {
    fn from(number: usize) -> Self {
        Self::Number(u64::try_from(number).unwrap_or(u64::MAX))
    }
}

impl From<&'static str> for Fact {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Fact {
    fn from(mut text: String) -> Self {
        if let Some((end, _)) = text.char_indices().nth(MAX_TEXT_CHARS) {
            text.truncate(end);
            text.push('…');
        }
        Self::Text(text.into())
    }
}

impl ErrorDetail {
    /// A code and a sentence.
    pub fn new(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), field: None, limit: None, got: None }
    }

    /// Names the field at fault.
    #[must_use]
    pub fn field(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Names the limit.
    #[must_use]
    pub fn limit(mut self, limit: impl Into<Fact>) -> Self {
        self.limit = Some(limit.into());
        self
    }

    /// Says what came.
    #[must_use]
    pub fn got(mut self, got: impl Into<Fact>) -> Self {
        self.got = Some(got.into());
        self
    }

    /// Makes it the answer to a whole request.
    pub fn with_status(self, status: StatusCode) -> ApiError {
        ApiError { status, detail: Box::new(self), retry_after: None }
    }
}

impl ApiError {
    /// Our fault. The client learns nothing more: the log has the cause.
    pub fn internal() -> Self {
        ErrorDetail::new("internal", "something went wrong on our side")
            .with_status(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// We cannot serve this now. `retry_after` is sent in whole seconds, rounded up; give each client
    /// another one, or they all come back at once.
    pub fn unavailable(
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
        retry_after: Duration,
    ) -> Self {
        let mut error = ErrorDetail::new(code, message).with_status(StatusCode::SERVICE_UNAVAILABLE);
        error.retry_after = Some(retry_after);
        error
    }

    /// The status line's number.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// What the body says.
    pub fn detail(&self) -> &ErrorDetail {
        &self.detail
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Envelope<'a> {
            error: &'a ErrorDetail,
        }
        // Strings and numbers always serialise.
        let body = serde_json::to_vec(&Envelope { error: &self.detail }).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// Answers unknown paths (404 `not_found`) and wrong methods (405 `method_not_allowed`, with `Allow`)
/// in the same form. Apply it after all routes are there; it replaces the router's fallbacks.
pub fn with_fallbacks<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    let not_found = async || {
        ErrorDetail::new("not_found", "there is nothing at this path").with_status(StatusCode::NOT_FOUND)
    };
    let method_not_allowed = async || {
        ErrorDetail::new("method_not_allowed", "this path takes other methods")
            .with_status(StatusCode::METHOD_NOT_ALLOWED)
    };
    router.fallback(not_found).method_not_allowed_fallback(method_not_allowed)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn text(response: Response) -> String {
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn the_body_names_field_limit_and_what_came() {
        let error = ErrorDetail::new("too_long", "the id is too long, in bytes")
            .field("views[3].item")
            .limit(256_u64)
            .got(300_usize)
            .with_status(StatusCode::BAD_REQUEST);
        assert_eq!(error.to_string(), "400 Bad Request: the id is too long, in bytes");
        let response = error.into_response();
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        assert!(!response.headers().contains_key(RETRY_AFTER));
        assert_eq!(
            text(response).await,
            r#"{"error":{"code":"too_long","message":"the id is too long, in bytes","field":"views[3].item","limit":256,"got":300}}"#
        );
    }

    #[tokio::test]
    async fn a_wait_is_rounded_up_to_seconds() {
        let response = ApiError::unavailable("log_away", "the log is away", Duration::from_millis(1_001))
            .into_response();
        assert_eq!(
            (response.status().as_u16(), &response.headers()[RETRY_AFTER]),
            (503, &HeaderValue::from(2))
        );
        assert_eq!(text(response).await, r#"{"error":{"code":"log_away","message":"the log is away"}}"#);
    }

    #[test]
    fn what_came_is_cut_between_characters() {
        let Fact::Text(cut) = Fact::from("é".repeat(1000)) else { panic!("a text stays a text") };
        assert_eq!(cut, "é".repeat(64) + "…");
        assert_eq!(Fact::from("é".repeat(64)), Fact::Text("é".repeat(64).into()));
    }
}
