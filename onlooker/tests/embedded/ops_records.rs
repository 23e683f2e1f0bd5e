//! What an operator is shown of single records, whether or not a process has the folder open.

use crate::support::{Home, LONG, Running, text, view};
use onlooker_testkit::wait_until;
use serde_json::{Value, json};

/// `a` is seen by `one`, who comes back at once, and `b` by `two`.
async fn used(home: &Home) -> Running {
    let running = home.start();
    let client = running.client();
    for (item, viewer, already) in [("a", "one", 0), ("a", "one", 1), ("b", "two", 2)] {
        // One after the other: verdicts of one moment are shown by topic.
        judged(home, already);
        client.send(&view(item, viewer)).await;
    }
    running.settle(&client, &[("a".to_owned(), 1), ("b".to_owned(), 1)].into()).await;
    judged(home, 3);
    running
}

/// Waits until so many views have an outcome: an ignored one is in no count.
fn judged(home: &Home, views: usize) {
    wait_until("every outcome", LONG, || home.ask(&["tail"]).0.len() == views).unwrap();
}

fn field<'a>(lines: &'a [Value], name: &str) -> Vec<&'a str> {
    lines.iter().map(|line| line[name].as_str().unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_shown_in_the_order_in_which_they_came() {
    let home = Home::with_token(&[]);
    let mut running = Some(home.start());
    assert_eq!(home.ask(&["tail"]), (vec![], 0), "of an empty system");
    running.take().unwrap().stop();
    running = Some(used(&home).await);
    for open in [true, false] {
        if !open {
            running.take().unwrap().stop();
        }
        for span in [&["--since", "1h"][..], &["-n", "5"], &[]] {
            let (lines, code) = home.ask(&[&["tail"], span].concat());
            assert_eq!(code, 0);
            let mut kinds = field(&lines, "kind");
            kinds.sort_unstable();
            assert_eq!(kinds, ["counted", "counted", "ignored"], "{lines:?}");
            let times: Vec<i64> = lines.iter().map(|line| line["append_ms"].as_i64().unwrap()).collect();
            assert!(times.is_sorted(), "{times:?}");
        }
        let (ignored, _) = home.ask(&["tail", "--reason", "recent_view"]);
        assert_eq!((ignored.len(), &ignored[0]["item"]), (1, &json!("a")));
        assert_eq!(ignored[0]["source_offset"], 1, "{ignored:?}");
        let viewer = ignored[0]["viewer"].as_str().unwrap().to_owned();
        let (of_one, _) = home.ask(&["tail", "--viewer", &viewer.to_uppercase(), "--topic", "views"]);
        assert_eq!(field(&of_one, "item"), ["a", "a"]);
        let (last, _) = home.ask(&["tail", "-n", "1"]);
        assert_eq!(last, home.ask(&["tail"]).0[2..]);
        let (views, _) = home.ask(&["tail", "--topic", "views", "--item", "b", "--site", "main"]);
        assert_eq!(views.len(), 1, "{views:?}");
        assert_eq!((&views[0]["kind"], views[0].get("user_agent")), (&json!("view"), None), "{views:?}");
        let shown = text(&home.on_folder(&["tail", "-n", "1"]));
        assert!(shown.contains("views.counted") && shown.contains("item b"), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_follows_sees_what_comes() {
    let home = Home::with_token(&[]);
    let running = home.start();
    let mut follow = home.follow(&["tail", "--follow", "--item", "b"]);
    let client = running.client();
    for (item, viewer) in [("a", "one"), ("b", "one"), ("b", "one"), ("b", "two")] {
        client.send(&view(item, viewer)).await;
    }
    let lines: Vec<Value> = (0..3).map(|_| follow.line()).collect();
    assert_eq!(field(&lines, "item"), ["b", "b", "b"]);
    let mut kinds = field(&lines, "kind");
    kinds.sort_unstable();
    assert_eq!(kinds, ["counted", "counted", "ignored"]);
    drop(follow);
    // The process does not go on asking for whoever left.
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_explained_from_request_to_sketch() {
    let home = Home::with_token(&[]);
    let mut running = Some(used(&home).await);
    let client = running.as_ref().unwrap().client();
    let order = json!({ "item": "c", "viewer": "one", "id": "order 12" });
    client.send(&json!([order, order])).await;
    judged(&home, 5);
    running.as_ref().unwrap().settle(&client, &[("c".to_owned(), 1)].into()).await;
    for open in [true, false] {
        if !open {
            running.take().unwrap().stop();
        }
        let (views, _) = home.ask(&["tail", "--topic", "views", "--item", "a"]);
        let [first, second] = field(&views, "view_id")[..] else { panic!("{views:?}") };

        let (lines, code) = home.ask(&["explain", first]);
        assert_eq!((lines.len(), code, &lines[0]["state"]), (1, 0, &json!("counted")), "{lines:?}");
        let (line, verdict) = (&lines[0], &lines[0]["verdict"]);
        assert_eq!((&line["view"]["offset"], &verdict["source_offset"]), (&json!(0), &json!(0)), "{line}");
        let keys = field(line["counts"].as_array().unwrap(), "key");
        assert!(keys[0] == "*:main:a" && keys[1].ends_with(":main:a") && keys.len() == 2, "{keys:?}");
        assert_eq!((&line["counts"][0]["applied"], &line["repeats"]), (&json!(true), &Value::Null), "{line}");

        let (lines, code) = home.ask(&["explain", &second.to_uppercase(), "--since", "1h"]);
        assert_eq!((lines.len(), code, &lines[0]["state"]), (1, 0, &json!("ignored")), "{lines:?}");
        let repeats = &lines[0]["repeats"];
        assert_eq!(repeats["earlier"]["view_id"], first, "{repeats}");
        let (apart, left) = (repeats["apart_s"].as_i64().unwrap(), repeats["left_s"].as_i64().unwrap());
        assert_eq!(
            (apart + left, &lines[0]["verdict"]["reason"]),
            (1_800, &json!("recent_view")),
            "{repeats}"
        );
        assert_eq!(lines[0]["counts"], json!([]));

        let (lines, code) = home.ask(&["explain", "order 12"]);
        assert_eq!((field(&lines, "state"), code), (vec!["counted", "ignored"], 0), "{lines:?}");
        let repeats = &lines[1]["repeats"];
        assert_eq!(repeats["earlier"]["view_id"], lines[0]["view"]["view_id"], "{repeats}");
        assert_eq!(
            (&repeats["window_s"], &lines[1]["verdict"]["reason"]),
            (&Value::Null, &json!("duplicate_id"))
        );

        for unknown in ["019aa0d5-4c00-7abc-8def-0123456789ab", "order 13"] {
            let (lines, code) = home.ask(&["explain", unknown]);
            assert_eq!((field(&lines, "state"), code), (vec!["not_found"], 3), "{lines:?}");
            assert_eq!(lines[0]["log_begins"].as_array().map(Vec::len), Some(2), "{lines:?}");
        }
        let shown = text(&home.on_folder(&["explain", second]));
        assert!(
            shown.contains("recent_view") && shown.contains("of the window of 30m 0s were left"),
            "{shown}"
        );
        let shown = text(&home.on_folder(&["explain", "order 13"]));
        assert!(shown.contains("not in views; views begins 20"), "{shown}");
    }
}

#[test]
fn what_cannot_be_asked_for_is_said() {
    let home = Home::with_token(&[]);
    home.start().stop();
    for (args, told) in [
        (vec!["tail", "--reason", "mood"], "recent_view"),
        (vec!["tail", "--viewer", "abc"], "32 hexadecimal digits"),
        (vec!["tail", "--topic", "likes"], "views.counted"),
        (vec!["tail", "--since", "5"], "90s"),
    ] {
        let output = home.on_folder(&args);
        assert!(!output.status.success() && text(&output).contains(told), "{args:?}: {}", text(&output));
    }
}
