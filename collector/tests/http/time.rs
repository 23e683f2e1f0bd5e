//! When a view was: the time of its receipt, or an earlier one that a back end names. Never a later one.

use crate::support::{config, post, start, trusted};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::time::{SystemTime, UNIX_EPOCH};

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()
}

#[tokio::test]
async fn a_page_has_no_clock() {
    let server = start(config()).await;
    let before = now_ms();
    // Other clients' names for their own time are fields that are ignored.
    let view = r#"{"site":"blog","item":"/a","ts":0,"timestamp":"2001-01-01","sent_at":99999999999999}"#;
    server.send(post(view).header("Date", "Thu, 01 Jan 1970 00:00:00 GMT")).await.expect(202);
    let view = server.log.one();
    assert!((before..=now_ms()).contains(&view.event_ms));
    assert_eq!(view.event_ms, view.received_ms);
}

#[tokio::test]
async fn a_past_time_is_kept_to_the_millisecond() {
    let server = start(config()).await;
    for (at, ms) in [
        ("\"2024-05-01T12:00:00.250Z\"", 1_714_564_800_250),
        ("\"2024-05-01T14:00:00.250+02:00\"", 1_714_564_800_250),
        ("\"2024-05-01 12:00:00Z\"", 1_714_564_800_000),
        ("1714564800250", 1_714_564_800_250),
        ("\"1714564800250\"", 1_714_564_800_250),
        ("631152000000", 631_152_000_000),
    ] {
        server.send(trusted(format!(r#"{{"item":"/a","viewer":"v","at":{at}}}"#))).await.expect(202);
        let view = server.log.one();
        assert_eq!(view.event_ms, ms, "{at}");
        assert!(view.received_ms > ms);
    }
}

#[tokio::test]
async fn a_time_that_cannot_be_meant_is_named() {
    let server = start(config()).await;
    for at in [
        "0",
        "1714564800",
        "-1",
        "\"1970-01-01T01:30:00Z\"",
        "\"yesterday\"",
        "\"2024-05-01\"",
        "\"2024-05-01T12:00:00\"",
        "\"\"",
        "1714564800250.5",
        "true",
        "[]",
    ] {
        let answer =
            server.send(trusted(format!(r#"{{"item":"/a","viewer":"v","at":{at}}}"#))).await.expect(400);
        assert_eq!(
            (answer.code().as_str(), answer.json()["error"]["field"].as_str()),
            ("invalid_at", Some("at"))
        );
    }
    assert_eq!(server.log.take(), []);
}

#[tokio::test]
async fn clocks_that_are_ahead_cost_no_view() {
    let server = start(config()).await;
    for ahead_s in [29, 80, 300, 301, 14 * 86_400] {
        let at = now_ms() + ahead_s * 1000;
        server.send(trusted(format!(r#"{{"item":"/a","viewer":"v","at":{at}}}"#))).await.expect(202);
        let view = server.log.one();
        assert_eq!(view.event_ms, view.received_ms, "{ahead_s} s ahead is now");
    }
    let three_days_ago = now_ms() - 3 * 86_400_000;
    server.send(trusted(format!(r#"{{"item":"/a","viewer":"v","at":{three_days_ago}}}"#))).await.expect(202);
    assert_eq!(server.log.one().event_ms, three_days_ago, "an offline queue keeps its times");
}

#[test]
fn no_time_lies_in_the_future() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(start(config()));
    // Around now, around the limits of every format, and anywhere.
    let now = now_ms();
    let times = prop_oneof![
        (-100_000_i64..100_000).prop_map(move |d| (now + d).to_string()),
        any::<i64>().prop_map(|ms| ms.to_string()),
        (0u32..9999, 1u32..13, 1u32..29, 0u32..24)
            .prop_map(|(y, m, d, h)| format!("\"{y:04}-{m:02}-{d:02}T{h:02}:00:00Z\"")),
        (-12i32..12).prop_map(|h| format!("\"2026-11-30T12:00:00{h:+03}:00\"")),
    ];
    TestRunner::new(ProptestConfig::with_cases(300))
        .run(&times, |at| {
            let before = now_ms();
            let body = format!(r#"{{"item":"/a","viewer":"v","at":{at}}}"#);
            let status = runtime.block_on(server.send(trusted(body))).status;
            let views = server.log.take();
            prop_assert_eq!(views.len(), usize::from(status == 202));
            for view in views {
                prop_assert!(view.event_ms <= view.received_ms && view.event_ms >= 631_152_000_000);
                prop_assert!(view.received_ms >= before && view.received_ms <= now_ms());
            }
            Ok(())
        })
        .unwrap();
}
