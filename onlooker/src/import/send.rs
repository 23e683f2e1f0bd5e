//! One request at a time to the collector, repeated until it is answered.

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use onlooker_stage::Backoff;
use reqwest::StatusCode;
use reqwest::header::RETRY_AFTER;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// What became of the views of one request.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) accepted: u64,
    pub(super) rejected: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(default)]
    results: Vec<ItemAnswer>,
    error: Option<ErrorAnswer>,
}

#[derive(Debug, Deserialize)]
struct ItemAnswer {
    status: String,
    error: Option<ErrorAnswer>,
}

#[derive(Debug, Deserialize)]
struct ErrorAnswer {
    code: String,
    message: String,
}

pub(super) struct Sender {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Sender {
    pub(super) fn new(collector: &str, token: &str) -> Result<Self> {
        let http = crate::http::client(Duration::from_secs(60))?;
        let url = format!("{}/v1/views", collector.trim_end_matches('/'));
        Ok(Self { http, url, token: token.to_owned() })
    }

    /// Sends NDJSON and waits for the answer; a collector that is away or full is asked again until it takes it.
    /// `problem` is told why it takes long.
    pub(super) async fn send(&mut self, body: &[u8], problem: impl Fn(String)) -> Result<Outcome> {
        let mut gzip = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
        gzip.write_all(body)?;
        let packed = gzip.finish()?;
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
        loop {
            let request = self
                .http
                .post(&self.url)
                .bearer_auth(&self.token)
                .header("content-encoding", "gzip")
                .body(packed.clone());
            let response = match request.send().await {
                Ok(response) => response,
                Err(error) => {
                    problem(format!("waiting: {}", root(&error)));
                    tokio::time::sleep(backoff.next_delay()).await;
                    continue;
                }
            };
            let status = response.status();
            if status == StatusCode::SERVICE_UNAVAILABLE || status == StatusCode::TOO_MANY_REQUESTS {
                let wait = response.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok());
                problem(format!("waiting: the collector answers {status}"));
                tokio::time::sleep(wait.map_or_else(|| backoff.next_delay(), Duration::from_secs)).await;
                continue;
            }
            let text = response.text().await.context("the collector's answer broke off")?;
            problem(String::new());
            return outcome(status, &text);
        }
    }
}

fn outcome(status: StatusCode, text: &str) -> Result<Outcome> {
    let answer: Answer = serde_json::from_str(text)
        .with_context(|| format!("the collector answered {status} with what is not JSON"))?;
    if let Some(error) = answer.error
        && answer.results.is_empty()
    {
        bail!("the collector refused the request ({status}, {}): {}", error.code, error.message);
    }
    let mut outcome = Outcome::default();
    for item in answer.results {
        match item.error {
            None if item.status == "accepted" => outcome.accepted += 1,
            error => {
                let code = error.map_or(item.status, |e| e.code);
                *outcome.rejected.entry(code).or_default() += 1;
            }
        }
    }
    Ok(outcome)
}

fn root(error: &reqwest::Error) -> String {
    let mut source: &dyn std::error::Error = error;
    while let Some(next) = source.source() {
        source = next;
    }
    source.to_string()
}
