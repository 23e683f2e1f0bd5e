//! What a client is told.

use crate::heart::{Count, Status};
use crate::query::Query;
use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, CACHE_CONTROL, CONTENT_TYPE, ETAG,
};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use jiff::Timestamp;
use onlooker_event::DayNumber;
use serde::Serialize;
use std::fmt::Write;
use xxhash_rust::xxh3::Xxh3;

#[derive(Serialize)]
struct AnswerBody<'a> {
    site: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    counts: Vec<CountBody<'a>>,
}

#[derive(Serialize)]
struct CountBody<'a> {
    item: &'a str,
    views: Option<u64>,
    uniques: Option<u64>,
    low: Option<u64>,
    high: Option<u64>,
    status: &'static str,
    as_of: Option<&'a str>,
}

/// The answer to a request: one count for each of its items, in its order.
pub(crate) fn body(query: &Query, counts: &[Count]) -> Vec<u8> {
    // Items of a partition share their time: it is written once.
    let mut times: Vec<(i64, String)> = Vec::new();
    for ms in counts.iter().filter_map(|count| count.as_of_ms) {
        if !times.iter().any(|(known, _)| *known == ms) {
            times.push((ms, rfc3339(ms)));
        }
    }
    let counts = query.items.iter().zip(counts).map(|(asked, count)| CountBody {
        item: &asked.label,
        views: count.views,
        uniques: count.uniques.map(|u| u.estimate),
        low: count.uniques.map(|u| u.low),
        high: count.uniques.map(|u| u.high),
        status: count.status.as_str(),
        as_of: count
            .as_of_ms
            .and_then(|ms| times.iter().find(|(t, _)| *t == ms))
            .map(|(_, text)| text.as_str()),
    });
    let body = AnswerBody {
        site: query.site.as_str(),
        from: query.days.map(|(from, _)| iso(from)),
        to: query.days.map(|(_, to)| iso(to)),
        counts: counts.collect(),
    };
    // Texts and numbers always serialise.
    serde_json::to_vec(&body).unwrap_or_default()
}

fn rfc3339(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map(|t| format!("{t:.3}")).unwrap_or_default()
}

fn iso(day: DayNumber) -> String {
    let compact = day.compact();
    let text = std::str::from_utf8(&compact).unwrap_or("00000000");
    format!("{}-{}-{}", &text[..4], &text[4..6], &text[6..])
}

/// A validator that changes with the counts and not with their time: while nobody looks, a client has what it has. Weak
/// for that reason (RFC 9110 §8.8.1).
pub(crate) fn etag(query: &Query, counts: &[Count]) -> String {
    let mut hash = Xxh3::new();
    let mut add = |number: u64| hash.update(&number.to_le_bytes());
    let (from, to) = query.days.map_or((i32::MIN, i32::MIN), |(from, to)| (from.0, to.0));
    add(u64::from(from.cast_unsigned()) << 32 | u64::from(to.cast_unsigned()));
    for count in counts {
        // No number of views comes near this one.
        add(count.views.unwrap_or(u64::MAX));
        add(count.uniques.map_or(u64::MAX, |u| u.estimate));
        add(count.uniques.map_or(u64::MAX, |u| u.high));
        add(count.status as u64);
    }
    for asked in &query.items {
        hash.update(&asked.label.len().to_le_bytes());
        hash.update(asked.label.as_bytes());
    }
    hash.update(query.site.as_str().as_bytes());
    format!("W/\"{:032x}\"", hash.digest128())
}

/// Whether `If-None-Match` names this validator (weak comparison, RFC 9110 §13.1.2).
pub(crate) fn has_already(headers: &HeaderMap, etag: &str) -> bool {
    let opaque = etag.trim_start_matches("W/");
    let lines = headers.get_all(axum::http::header::IF_NONE_MATCH).iter();
    let mut tags = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    tags.any(|tag| tag.trim() == "*" || tag.trim().trim_start_matches("W/") == opaque)
}

/// The whole response, or 304 where the client has it already.
pub(crate) fn response(
    query: &Query,
    counts: &[Count],
    if_none_match: Option<&HeaderMap>,
    max_age_s: u32,
) -> Response<Body> {
    let etag = etag(query, counts);
    let unchanged = if_none_match.is_some_and(|headers| has_already(headers, &etag));
    let body = if unchanged { Body::empty() } else { Body::from(body(query, counts)) };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    if if_none_match.is_some() {
        if let Ok(value) = HeaderValue::from_str(&etag) {
            headers.insert(ETAG, value);
        }
        let whole = counts.iter().all(|count| count.status == Status::Ok);
        let mut cache = String::from("no-cache");
        if whole && max_age_s > 0 {
            cache.clear();
            // Writing to a string cannot fail.
            let _ = write!(cache, "public, max-age={max_age_s}");
        }
        if let Ok(value) = HeaderValue::from_str(&cache) {
            headers.insert(CACHE_CONTROL, value);
        }
    } else {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    response
}

/// Counts are public: any page may read them, without credentials.
pub(crate) fn allow_any_origin(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("etag, retry-after"));
}

/// The answer to `OPTIONS`.
pub(crate) fn preflight() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("content-type, if-none-match"));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CountsApiConfig;
    use crate::heart::Uniques;
    use crate::query::from_url;

    fn count(views: u64, as_of_ms: i64) -> Count {
        let uniques = Some(Uniques { estimate: views, low: views, high: views });
        Count { views: Some(views), uniques, status: Status::Ok, as_of_ms: Some(as_of_ms) }
    }

    #[test]
    fn the_body_says_what_each_count_is() {
        let query = "site=s&item=b&item=%22a%22&from=2026-11-01&to=2026-11-30";
        let query = from_url(query, &CountsApiConfig::default()).unwrap();
        let warming = Count { views: None, uniques: None, status: Status::Warming, as_of_ms: None };
        let text = String::from_utf8(body(&query, &[count(3, 1_796_036_400_123), warming])).unwrap();
        assert_eq!(
            text,
            r#"{"site":"s","from":"2026-11-01","to":"2026-11-30","counts":[{"item":"b","views":3,"uniques":3,"low":3,"high":3,"status":"ok","as_of":"2026-11-30T11:00:00.123Z"},{"item":"\"a\"","views":null,"uniques":null,"low":null,"high":null,"status":"warming","as_of":null}]}"#
        );
    }

    #[test]
    fn the_validator_changes_with_the_counts_and_not_with_time() {
        let config = CountsApiConfig::default();
        let query = from_url("site=s&item=a", &config).unwrap();
        let tag = etag(&query, &[count(3, 1_000)]);
        assert_eq!(tag, etag(&query, &[count(3, 2_000)]));
        assert_ne!(tag, etag(&query, &[count(4, 1_000)]));
        let day = from_url("site=s&item=a&from=2026-11-01&to=2026-11-01", &config).unwrap();
        assert_ne!(tag, etag(&day, &[count(3, 1_000)]));
        let mut headers = HeaderMap::new();
        assert!(!has_already(&headers, &tag));
        headers.insert("if-none-match", HeaderValue::from_str(&format!("\"x\", {tag}")).unwrap());
        assert!(has_already(&headers, &tag));
        let response = response(&query, &[count(3, 9)], Some(&headers), 1);
        assert_eq!(
            (response.status(), &response.headers()["cache-control"]),
            (StatusCode::NOT_MODIFIED, &HeaderValue::from_static("public, max-age=1"))
        );
    }
}
