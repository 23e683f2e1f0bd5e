//! The two doors, as a client uses them.

use super::TOKEN;
use serde_json::{Value, json};

pub(crate) struct Http {
    client: reqwest::Client,
    collector: String,
    counts: String,
}

/// A view as a back end sends it.
pub(crate) fn view(item: &str, viewer: &str) -> Value {
    json!({ "site": "blog", "item": item, "viewer": viewer })
}

impl Http {
    pub(crate) fn new(collector: String, counts: String) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { client: reqwest::Client::new(), collector, counts }
    }

    /// Sends views with the token; status and answer, or none if nobody answered.
    pub(crate) async fn try_send(&self, views: &Value) -> Option<(u16, Value)> {
        let request = self.client.post(format!("{}/v1/views", self.collector)).bearer_auth(TOKEN).json(views);
        let response = request.send().await.ok()?;
        let status = response.status().as_u16();
        Some((status, response.json().await.ok()?))
    }

    /// Sends views and expects that all are accepted.
    pub(crate) async fn send(&self, views: &[Value]) {
        let (status, answer) = self.try_send(&json!(views)).await.expect("the collector answers");
        assert_eq!(status, 202, "{answer}");
        assert_eq!(answer["accepted"], views.len(), "{answer}");
    }

    /// Sends views as part of a trace, and expects that they are accepted.
    pub(crate) async fn send_traced(&self, traceparent: &str, views: &[Value]) {
        let request = self.client.post(format!("{}/v1/views", self.collector)).bearer_auth(TOKEN);
        let response = request.header("traceparent", traceparent).json(views).send().await;
        assert_eq!(response.expect("the collector answers").status(), 202);
    }

    /// Counts of items, in order.
    pub(crate) async fn counts(&self, items: &[&str]) -> Vec<Value> {
        self.counts_of(json!({ "site": "blog", "items": items })).await
    }

    pub(crate) async fn counts_of(&self, body: Value) -> Vec<Value> {
        let request = self.client.post(format!("{}/v1/counts", self.counts)).json(&body);
        let response = request.send().await.expect("the counts API answers");
        let status = response.status();
        let mut answer: Value = response.json().await.unwrap();
        assert!(status.is_success(), "{status} {answer}");
        serde_json::from_value(answer["counts"].take()).unwrap()
    }
}
