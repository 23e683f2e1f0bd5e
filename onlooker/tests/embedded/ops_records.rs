//! What an operator is shown of single records, whether or not a process has the folder open.

use crate::support::{Home, Running, text, view};
use serde_json::{Value, json};

/// `a` is seen by `one`, who comes back at once, and `b` by `two`.
async fn used(home: &Home) -> Running {
    let running = home.start();
    let client = running.client();
    for (item, viewer) in [("a", "one"), ("a", "one"), ("b", "two")] {
        client.send(&view(item, viewer)).await;
    }
    running.settle(&client, &[("a".to_owned(), 1), ("b".to_owned(), 1)].into()).await;
    running
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
        assert_eq!((last.len(), field(&last, "item")), (1, vec!["b"]));
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
