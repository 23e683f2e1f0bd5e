//! The counts API as its clients see it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use onlooker_counts_api::CountsApiConfig;
use onlooker_event::DayNumber;
use onlooker_ports::{PartitionState, PortError, ReadCount, SketchValue};
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::{Api, key, until};

async fn api() -> Api {
    Api::start(CountsApiConfig::default()).await
}

/// Day number and `YYYY-MM-DD` of today, plus so many days.
fn day(offset: i32) -> (i32, String) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let day = DayNumber(DayNumber::of_ms(now.as_millis() as i64).0 + offset);
    let compact = String::from_utf8(day.compact().to_vec()).unwrap();
    (day.0, format!("{}-{}-{}", &compact[..4], &compact[4..6], &compact[6..]))
}

#[tokio::test]
async fn counts_come_in_the_requests_order() {
    let api = api().await;
    api.counters.put(key("a", None), 12, 0..7);
    api.counters.put(key("b", None), 2_000, 0..1_000);
    let response = api.get("site=s&item=b&item=a&item=b").await;
    let headers = response.headers();
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["cache-control"], "public, max-age=1");
    assert_eq!(headers["access-control-allow-origin"], "*");
    assert!(headers["etag"].to_str().unwrap().starts_with("W/\""));
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["site"], "s");
    let counts = body["counts"].as_array().unwrap();
    let items: Vec<_> = counts.iter().map(|c| c["item"].as_str().unwrap()).collect();
    assert_eq!(items, ["b", "a", "b"]);
    assert_eq!(counts[0], counts[2]);
    let expected = json!({"item": "a", "views": 12, "uniques": 7, "low": 7, "high": 7, "status": "ok",
        "as_of": "2026-11-30T11:00:00.000Z"});
    assert_eq!(counts[1], expected);
    let uniques = counts[0]["uniques"].as_u64().unwrap();
    assert!(uniques.abs_diff(1_000) < 30, "{uniques}");
    assert!(counts[0]["low"].as_u64() < Some(uniques) && counts[0]["high"].as_u64() > Some(uniques));

    // The same as a body, with a number for an id.
    api.counters.put(key("7", None), 1, 0..1);
    let posted = api.post(r#"{"site":"s","items":["b","a","b",7]}"#).await;
    assert_eq!(posted.headers()["cache-control"], "no-store");
    let posted: Value = posted.json().await.unwrap();
    assert_eq!(posted["counts"].as_array().unwrap()[..3], counts[..]);
    assert_eq!(posted["counts"][3]["item"], "7", "an id is text on its way out");
    assert_eq!(posted["counts"][3]["views"], 1);
}

#[tokio::test]
async fn what_a_client_has_already_is_not_sent_again() {
    let api = api().await;
    api.counters.put(key("a", None), 1, 0..1);
    let tag = api.get("site=s&item=a").await.headers()["etag"].clone();
    let ask = || api.http.get(format!("{}?site=s&item=a", api.url)).header("if-none-match", &tag).send();
    // Time alone changes nothing.
    api.counters.state().state =
        Some(PartitionState { applied: 20, as_of_ms: 1_796_036_500_000, whole_at: 0 });
    let response = ask().await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["etag"]), (304, &tag));
    assert_eq!(response.bytes().await.unwrap().len(), 0);
    api.counters.put(key("a", None), 2, 0..1);
    let response = ask().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_ne!(response.headers()["etag"], tag);
}

#[tokio::test]
async fn what_was_evicted_is_wished_for_and_never_zero() {
    let api = api().await;
    api.counters.put(key("here", None), 3, 0..3);
    let evicted = ReadCount { views: Some(9), sketch: None, known_absent: false };
    api.counters.state().counts.insert(key("evicted", None), evicted);
    let query = "site=s&item=here&item=evicted&item=gone";
    let response = api.get(query).await;
    assert_eq!(response.headers()["cache-control"], "no-cache", "a cache must not keep it");
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["counts"][0]["status"], "ok");
    for at in [1, 2] {
        let count = &body["counts"][at];
        assert_eq!(count["status"], "warming");
        for field in ["views", "uniques", "low", "high"] {
            assert_eq!(count[field], Value::Null);
        }
    }
    until("the wishes", || api.counters.state().wanted.len() == 2).await;
    // Asking again at once leaves no further wishes; a second later it does.
    let start = Instant::now();
    for _ in 0..20 {
        api.get(query).await;
    }
    let seconds = start.elapsed().as_secs() as usize + 1;
    let wanted = std::mem::take(&mut api.counters.state().wanted);
    assert!(wanted.contains(&key("evicted", None)) && wanted.contains(&key("gone", None)));
    assert!(wanted.len() <= 2 + 2 * seconds, "{} wishes for two keys in {seconds} s", wanted.len());

    api.counters.put(key("evicted", None), 9, 0..4);
    api.counters.state().absent.insert(key("gone", None));
    let counts = api.counts(query).await;
    assert_eq!((&counts[1]["views"], &counts[1]["uniques"]), (&json!(9), &json!(4)));
    assert_eq!((&counts[2]["views"], &counts[2]["status"]), (&json!(0), &json!("ok")));
}

#[tokio::test]
async fn a_range_counts_each_viewer_once() {
    let api = api().await;
    for item in ["a", "b"] {
        for offset in 0..60 {
            // Ten viewers a day, nine of whom come again the next day.
            let first = offset as u32;
            api.counters.put(key(item, Some(day(-offset).0)), 11, first..first + 10);
        }
    }
    let (from, to) = (day(-29).1, day(0).1);
    let counts = api.counts(&format!("site=s&item=a&item=b&from={from}&to={to}")).await;
    for count in &counts {
        assert_eq!((&count["views"], &count["status"]), (&json!(330), &json!("ok")));
        assert!(count["uniques"].as_u64().unwrap().abs_diff(39) <= 1, "{count}");
    }
    // One day.
    let counts = api.counts(&format!("site=s&item=a&from={to}&to={to}")).await;
    assert_eq!((&counts[0]["views"], &counts[0]["uniques"]), (&json!(11), &json!(10)));
    // Days that have not begun hold nothing, and nobody is asked about them.
    api.counters.state().reads.clear();
    let (tomorrow, later) = (day(1).1, day(5).1);
    let counts = api.counts(&format!("site=s&item=a&from={to}&to={later}")).await;
    assert_eq!(counts[0]["views"], 11);
    let counts = api.counts(&format!("site=s&item=a&from={tomorrow}&to={later}")).await;
    assert_eq!((&counts[0]["views"], &counts[0]["uniques"]), (&json!(0), &json!(0)));
    let state = api.counters.state();
    assert!(state.reads.iter().flatten().all(|k| k == &key("a", None) || k == &key("a", Some(day(0).0))));
    assert_eq!(state.wanted, []);
}

#[tokio::test]
async fn a_range_with_a_hole_has_no_number() {
    let api = api().await;
    for offset in 0..10 {
        api.counters.put(key("a", Some(day(-offset).0)), 1, 0..1);
    }
    api.counters.state().counts.remove(&key("a", Some(day(-4).0)));
    let query = format!("site=s&item=a&from={}&to={}", day(-9).1, day(0).1);
    let counts = api.counts(&query).await;
    assert_eq!((&counts[0]["views"], &counts[0]["status"]), (&Value::Null, &json!("warming")));
    until("the wish", || api.counters.state().wanted == [key("a", Some(day(-4).0))]).await;
    // Nobody came that day.
    api.counters.state().absent.insert(key("a", Some(day(-4).0)));
    let counts = api.counts(&query).await;
    assert_eq!((&counts[0]["views"], &counts[0]["uniques"]), (&json!(9), &json!(1)));
}

#[tokio::test]
async fn what_a_count_is_worth_is_said() {
    let api = api().await;
    api.counters.put(key("a", None), 5, 0..5);
    let damaged = ReadCount { views: Some(8), sketch: Some(SketchValue::Corrupt), known_absent: false };
    api.counters.state().counts.insert(key("damaged", None), damaged);
    let counts = api.counts("site=s&item=damaged").await;
    assert_eq!((&counts[0]["views"], &counts[0]["uniques"]), (&json!(8), &Value::Null));
    assert_eq!(counts[0]["status"], "repairing");

    // After a loss, until the replay has passed it.
    api.counters.state().state = Some(PartitionState { applied: 10, as_of_ms: 0, whole_at: 11 });
    let counts = api.counts("site=s&item=a").await;
    assert_eq!((&counts[0]["views"], &counts[0]["status"]), (&json!(5), &json!("rebuilding")));
    assert_eq!(counts[0]["as_of"], Value::Null);
    api.counters.state().state = None;
    let counts = api.counts("site=s&item=a").await;
    assert_eq!((&counts[0]["views"], &counts[0]["status"]), (&Value::Null, &json!("rebuilding")));
    // Before the first counter has run.
    api.counters.state().partitions = None;
    let counts = api.counts("site=s&item=a").await;
    assert_eq!((&counts[0]["views"], &counts[0]["status"]), (&Value::Null, &json!("rebuilding")));
}

#[tokio::test]
async fn reading_changes_nothing() {
    let api = api().await;
    api.counters.put(key("42", None), 5, 0..5);
    let before = api.counters.state().counts.clone();
    for _ in 0..1_000 {
        assert_eq!(api.get("site=s&item=42").await.status(), 200);
    }
    let head = api.http.head(format!("{}?site=s&item=42", api.url)).send().await.unwrap();
    assert_eq!((head.status().as_u16(), head.headers().contains_key("etag")), (200, true));
    assert_eq!(head.bytes().await.unwrap().len(), 0);
    let state = api.counters.state();
    assert_eq!((&state.counts, state.wanted.len()), (&before, 0));
}

#[tokio::test]
async fn refusals_say_what_is_wrong() {
    let api = Api::start(CountsApiConfig { max_body_bytes: 1_000, ..CountsApiConfig::default() }).await;
    let error = async |response: reqwest::Response| {
        assert_eq!(response.headers()["access-control-allow-origin"], "*", "a page has to see it");
        let status = response.status().as_u16();
        (status, response.json::<Value>().await.unwrap()["error"].clone())
    };
    let many = ["item=a"; 1_001].join("&");
    let (status, body) = error(api.get(&format!("site=s&{many}")).await).await;
    assert_eq!((status, &body["code"], &body["field"]), (400, &json!("too_many_items"), &json!("item")));
    assert_eq!((&body["limit"], &body["got"]), (&json!(1_000), &json!(1_001)));
    let (status, body) = error(api.post(&" ".repeat(1_001)).await).await;
    assert_eq!((status, &body["code"], &body["limit"]), (413, &json!("body_too_large"), &json!(1_000)));
    let (status, body) = error(api.post("{").await).await;
    assert_eq!((status, &body["code"]), (400, &json!("malformed")));
    let elsewhere = api.url.replace("/counts", "/count");
    let (status, _) = error(api.http.get(elsewhere).send().await.unwrap()).await;
    assert_eq!(status, 404);
    let (status, _) = error(api.http.put(&api.url).send().await.unwrap()).await;
    assert_eq!(status, 405);

    let preflight =
        api.http.request(reqwest::Method::OPTIONS, &api.url).header("origin", "https://a.example");
    let preflight = preflight.header("access-control-request-method", "POST").send().await.unwrap();
    assert_eq!(preflight.status(), 204);
    assert_eq!(preflight.headers()["access-control-allow-methods"], "GET, POST");
    assert_eq!(preflight.headers()["access-control-allow-origin"], "*");
}

#[tokio::test]
async fn counters_that_are_away_make_a_503_and_it_goes_on_by_itself() {
    let api = api().await;
    api.counters.put(key("a", None), 5, 0..5);
    until("readiness", || api.health.report(false).ready).await;
    let detail = "connection refused".to_owned();
    api.counters.state().fault = Some(PortError::Unavailable { server: "counters redis", detail });
    let response = api.get("site=s&item=a").await;
    assert_eq!(response.status(), 503);
    let wait: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=3).contains(&wait), "{wait}");
    let body = response.text().await.unwrap();
    assert!(body.contains("counters_unavailable") && !body.contains("refused"), "{body}");
    until("unreadiness", || !api.health.report(false).ready).await;
    assert!(api.health.report(false).live, "waiting is no reason for a restart");
    api.counters.state().fault = None;
    assert_eq!(api.counts("site=s&item=a").await[0]["views"], 5);
    until("readiness", || api.health.report(false).ready).await;
}

#[tokio::test]
async fn silent_counters_cost_no_more_than_the_time_out() {
    let config = CountsApiConfig { answer_timeout: Duration::from_millis(200), ..CountsApiConfig::default() };
    let api = Api::start(config).await;
    api.counters.put(key("a", None), 5, 0..5);
    let held = api.counters.gate.acquire_many(1_000).await.unwrap();
    let start = Instant::now();
    assert_eq!(api.get("site=s&item=a").await.status(), 503);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    drop(held);
    assert_eq!(api.counts("site=s&item=a").await[0]["views"], 5);
}

#[tokio::test]
async fn requests_that_wait_together_share_a_read() {
    let api = api().await;
    for i in 0..50u32 {
        api.counters.put(key(&i.to_string(), None), u64::from(i), 0..i.min(9));
    }
    let held = api.counters.gate.acquire_many(1_000).await.unwrap();
    let asking: Vec<_> = (0..200)
        .map(|i| {
            let item = i % 50;
            let request = api.http.get(format!("{}?site=s&item={item}&item=49", api.url)).send();
            tokio::spawn(async move { (item, request.await.unwrap().json::<Value>().await.unwrap()) })
        })
        .collect();
    // So many reads are under way, and all others wait for each other.
    until("reads at the gate", || api.counters.reading() == 4).await;
    drop(held);
    for asked in asking {
        let (item, body) = asked.await.unwrap();
        assert_eq!(body["counts"][0]["views"], item, "everybody gets their own");
        assert_eq!(body["counts"][1]["views"], 49);
    }
    let state = api.counters.state();
    for read in &state.reads {
        let mut keys = read.clone();
        keys.sort();
        keys.dedup();
        assert!(read.len() <= 2 || keys.len() == read.len(), "a key is asked for once a read");
    }
}

#[tokio::test]
async fn a_stop_answers_what_was_asked() {
    let api = api().await;
    api.counters.put(key("a", None), 5, 0..5);
    let held = api.counters.gate.acquire_many(1_000).await.unwrap();
    let request = tokio::spawn(api.http.get(format!("{}?site=s&item=a", api.url)).send());
    // The request has come as far as the counters when nothing but it can wait there.
    until("the request at the gate", || api.counters.reading() == 1).await;
    api.stop.request();
    drop(held);
    assert_eq!(request.await.unwrap().unwrap().status(), 200);
    api.running.await.unwrap();
}
