//! The one address, as its clients use it.

use reqwest::header::HeaderMap;
use serde_json::{Value, json};

pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    token: Option<String>,
}

/// A view of the only site, as a back end sends it.
pub(crate) fn view(item: &str, viewer: &str) -> Value {
    json!({ "item": item, "viewer": viewer })
}

impl Client {
    pub(crate) fn new(url: &str, token: Option<&str>) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { http: reqwest::Client::new(), url: url.to_owned(), token: token.map(str::to_owned) }
    }

    /// Sends one view or many; status, headers and answer, or none if nobody answered.
    pub(crate) async fn try_send(&self, views: &Value) -> Option<(u16, HeaderMap, Value)> {
        let mut request = self.http.post(format!("{}/v1/views", self.url));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let response = request.body(views.to_string()).send().await.ok()?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Some((status, headers, response.json().await.ok()?))
    }

    /// Sends views and expects that all are accepted.
    pub(crate) async fn send(&self, views: &Value) {
        let (status, _, answer) = self.try_send(views).await.expect("the collector answers");
        assert_eq!(status, 202, "{answer}");
        let n = views.as_array().map_or(1, Vec::len);
        assert_eq!(answer["accepted"], n, "{answer}");
    }

    /// Counts of items of the only site, in order.
    pub(crate) async fn counts(&self, items: &[&str]) -> Vec<Value> {
        let mut counts = Vec::new();
        for items in items.chunks(1000) {
            let body = json!({ "items": items }).to_string();
            let response = self.http.post(format!("{}/v1/counts", self.url)).body(body).send().await;
            let response = response.expect("the counts API answers");
            let status = response.status();
            let mut answer: Value = response.json().await.unwrap();
            assert!(status.is_success(), "{status} {answer}");
            counts.extend(serde_json::from_value::<Vec<Value>>(answer["counts"].take()).unwrap());
        }
        counts
    }

    /// The same of a few, or none if nobody answered.
    #[allow(dead_code, reason = "wanted where faults are injected")]
    pub(crate) async fn try_counts(&self, items: &[String]) -> Option<Vec<Value>> {
        let body = json!({ "items": items }).to_string();
        let response = self.http.post(format!("{}/v1/counts", self.url)).body(body).send().await.ok()?;
        let mut answer: Value = response.json().await.ok()?;
        serde_json::from_value(answer["counts"].take()).ok()
    }

    /// A page: status, headers and text.
    pub(crate) async fn page(&self, path: &str) -> (u16, HeaderMap, String) {
        let response = self.http.get(format!("{}{path}", self.url)).send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        (status, headers, response.text().await.unwrap())
    }
}
