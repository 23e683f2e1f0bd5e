//! Starting and stopping, on a folder that is not there yet and on one that is.

use crate::support::{Books, Home, LONG, text, view};
use onlooker_testkit::wait_until;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn expected(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(item, n)| ((*item).to_owned(), *n)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_folder_counts_without_any_configuration() {
    let home = Home::new(&[]);
    let running = home.start();
    let browser = running.browser();
    browser.send(&json!({ "item": "hello" })).await;
    running.settle(&browser, &expected(&[("hello", 1)])).await;
    let count = &browser.counts(&["hello"]).await[0];
    assert_eq!((&count["uniques"], &count["status"]), (&json!(1), &json!("ok")), "{count}");

    let note = home.folder().join("session.json");
    let key = home.folder().join("identity.key");
    assert_eq!((mode(&note), mode(&key), mode(home.folder())), (0o600, 0o600, 0o700));
    let secret = std::fs::read_to_string(&key).unwrap();
    let token = running.session.tokens["main"].clone();
    let url = running.session.url.clone();
    let (status, printed) = running.end();
    assert_eq!(status.code(), Some(0), "{printed}");
    assert!(!note.exists(), "the note stays behind");

    for hint in [
        format!("curl -d '{{\"item\":\"hello\"}}' {url}/v1/views"),
        format!("curl '{url}/v1/counts?item=hello'"),
        format!("open           {url}/\n"),
    ] {
        assert!(printed.contains(&hint), "{hint} is not in\n{printed}");
    }
    assert!(!printed.contains(secret.trim()) && !printed.contains(&token), "a secret is printed");
    // Not on a terminal: each line that is logged is JSON.
    let logged: Vec<_> = printed.lines().filter(|line| line.starts_with('{')).collect();
    assert!(logged.len() > 3, "{printed}");
    for line in logged {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["level"] == "INFO", "a warning in an ordinary run: {line}");
    }

    let again = home.start();
    again.settle(&again.browser(), &expected(&[("hello", 1)])).await;
    assert_ne!(again.session.tokens["main"], token, "the token is another one after each start");
    again.stop();
    assert_eq!(std::fs::read_to_string(&key).unwrap(), secret, "the viewers' key stays");
    let books = Books::of(home.folder()).await;
    books.check_outcomes(&HashSet::new());
    assert_eq!(books.check_counts().len(), 2, "all time, and the day");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_and_health_are_served() {
    let home = Home::new(&[]);
    let running = home.start();
    let browser = running.browser();
    let (status, headers, page) = browser.page("/").await;
    assert_eq!(status, 200);
    assert!(page.starts_with("<!doctype html>"), "{page}");
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    let policy = headers["content-security-policy"].to_str().unwrap();
    for rule in ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "form-action 'none'"] {
        assert!(policy.contains(rule), "{rule} is not in {policy}");
    }
    assert!(!page.contains("src=\"http") && !page.contains("href=\"http"), "loads from elsewhere");
    assert_eq!(browser.page("/nothing").await.0, 404);
    assert_eq!(running.admin("readyz").unwrap().0, 200);
    assert_eq!(running.admin("livez").unwrap().0, 200);
    // The log's size as it is now, not as it was when a file was begun.
    let size = || running.metric("onlooker_embedded_log_size_bytes");
    let before = size();
    browser.send(&json!({ "item": "hello" })).await;
    wait_until("the view and its verdict to show", LONG, || size() > before + 200.0).unwrap();
    let metrics = running.admin("metrics").unwrap().1;
    for name in ["onlooker_collector_", "onlooker_filter_", "onlooker_counter_", "onlooker_flusher_"] {
        assert!(metrics.contains(name), "{name} is in no metric");
    }
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_right_behind_views_loses_none() {
    let home = Home::with_token(&[]);
    let running = home.start();
    let views: Vec<_> = (0..900).map(|n| view(&format!("item {}", n % 90), &format!("viewer {n}"))).collect();
    running.client().send(&json!(views)).await;
    // At once: nothing waits for the counts.
    running.stop();
    Books::of(home.folder()).await.check_part(&HashSet::new());
    let running = home.start();
    let all: BTreeMap<_, _> = (0..90).map(|n| (format!("item {n}"), 10)).collect();
    running.settle(&running.client(), &all).await;
    running.stop();
    let books = Books::of(home.folder()).await;
    books.check_outcomes(&HashSet::new());
    assert_eq!(books.check_counts().len(), 180, "all time, and the day");
}

#[tokio::test(flavor = "multi_thread")]
async fn less_durable_is_a_choice_and_counts_alike() {
    let home = Home::with_token(&["embedded.log.durability=process"]);
    let running = home.start();
    running.client().send(&json!([view("a", "one"), view("a", "two")])).await;
    // What the operating system has survives the process.
    running.kill();
    let running = home.start();
    running.settle(&running.client(), &expected(&[("a", 2)])).await;
    running.stop();
    let books = Books::of(home.folder()).await;
    books.check_outcomes(&HashSet::new());
    books.check_counts();
}

#[test]
fn a_bad_setting_is_named_and_nothing_is_begun() {
    for (set, key) in [
        ("embedded.log.durability=maybe", "embedded.log.durability"),
        ("embedded.log.segment_bytes=1", "embedded.log.segment_bytes"),
        ("embedded.partitions=0", "embedded.partitions"),
        ("embedded.counts_bytes=5", "embedded.counts_bytes"),
        ("embedded.dedup_bytes=5", "embedded.dedup_bytes"),
        ("embedded.oops=1", "embedded.oops"),
        ("counts_api.max_days=0", "counts_api.max_days"),
        ("counts_api.max_ranges=9223372036854775807", "counts_api.max_ranges"),
        // Shorter than the window of the site that there is without any.
        ("filter.slice_s=1000", "filter.slice_s"),
    ] {
        let home = Home::new(&[set]);
        let output = home.on_folder(&["run"]);
        assert_eq!(output.status.code(), Some(1), "{set}");
        let said = text(&output);
        assert!(said.contains(key), "{key} is not in: {said}");
        assert!(!home.folder().exists(), "{set}: a folder was made");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_process_does_not_spin() {
    let home = Home::new(&[]);
    let running = home.start();
    let browser = running.browser();
    browser.send(&json!({ "item": "hello" })).await;
    running.settle(&browser, &expected(&[("hello", 1)])).await;
    let (begun, before) = (Instant::now(), running.cpu());
    wait_until("three seconds to pass", LONG, || begun.elapsed() > Duration::from_secs(3)).unwrap();
    let share = (running.cpu() - before).as_secs_f64() / begun.elapsed().as_secs_f64();
    // A thread that polls in a busy loop takes a core.
    assert!(share < 0.05, "an idle process takes {:.1} % of a core", share * 100.0);
    running.stop();
}
