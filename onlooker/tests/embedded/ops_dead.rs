//! Letters in `views.dead`: shown, sent again, left for good.

use crate::support::{Home, LONG, text, view};
use onlooker_embedded::log::{EmbeddedLog, LogConfig};
use onlooker_embedded::store::Folder;
use onlooker_event::{Facts, ItemId, SiteId, View, ViewId, ViewerHash, partition_of};
use onlooker_ports::{LogWriter, OutgoingBatch, Topic};
use onlooker_proto::{DeadMark, MarkStep, encode_dead_mark, encode_view};
use onlooker_testkit::wait_until;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Appends to a folder that no process has open.
async fn append(home: &Home, records: &[(Topic, &[u8], &[u8])]) {
    let folder = Folder::open(home.folder()).unwrap();
    let (log, _) = EmbeddedLog::open(&folder.log().unwrap(), 2, LogConfig::default()).unwrap();
    for (topic, key, payload) in records {
        let mut batch = OutgoingBatch::default();
        batch.push(*topic, key, payload);
        log.writer().append(batch).await.unwrap();
    }
    log.close().await;
}

fn of_other_site(item: &str) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let view = View {
        view_id: ViewId([7; 16]),
        site: SiteId::new("other").unwrap(),
        item: ItemId::new(item).unwrap(),
        viewer: ViewerHash([9; 16]),
        key_version: 1,
        event_ms: i64::try_from(now).unwrap(),
        received_ms: i64::try_from(now).unwrap(),
        client_id: None,
        user_agent: Some("a secret agent".into()),
        referrer: None,
        facts: Facts(0),
    };
    let mut bytes = Vec::new();
    encode_view(&view, &mut bytes);
    bytes
}

/// A folder with three letters: a view of a site that nobody knows, garbage in `views`, garbage in `views.counted`.
async fn with_letters() -> Home {
    let home = Home::with_token(&[]);
    home.start().stop();
    assert_eq!(home.ask(&["dead", "list"]), (vec![], 0), "of an empty system");
    assert_eq!(home.ask(&["dead", "retry", "--all"]), (vec![], 0), "of an empty system");
    let unknown = of_other_site("x");
    append(
        &home,
        &[
            (Topic::Views, &[9; 16], &unknown),
            (Topic::Views, b"", b"garbage"),
            (Topic::Counted, b"k", b"junk"),
        ],
    )
    .await;
    home
}

/// Letters by reason, as `PARTITION:OFFSET`.
fn places(lines: &[Value], reason: &str) -> Vec<String> {
    let of = lines.iter().filter(|line| line["reason"] == reason);
    of.map(|line| format!("{}:{}", line["partition"], line["offset"])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_sent_again_once_and_judged_as_new() {
    let mut home = with_letters().await;
    let running = home.start();
    wait_until("three letters", LONG, || home.ask(&["dead", "list"]).0.len() == 3).unwrap();
    let (lines, code) = home.ask(&["dead", "list"]);
    assert_eq!(code, 3, "{lines:?}");
    let [unknown] = &places(&lines, "unknown_site")[..] else { panic!("{lines:?}") };
    let (shown, _) = home.ask(&["dead", "show", unknown]);
    assert_eq!(
        (&shown[0]["site"], &shown[0]["source_topic"]),
        (&json!("other"), &json!("views")),
        "{shown:?}"
    );
    assert_eq!(shown[0].get("user_agent"), None, "{shown:?}");
    let told = text(&home.on_folder(&["dead", "show", unknown]));
    assert!(told.contains("not shown without --with-headers") && told.contains("|"), "{told}");

    // Nobody knows the site yet: it dies again, as a letter of its own.
    let (done, code) = home.ask(&["dead", "retry", "--reason", "unknown_site"]);
    assert_eq!((done.len(), &done[0]["outcome"], code), (1, &json!("retried"), 0), "{done:?}");
    wait_until("the new letter", LONG, || {
        let found = places(&home.ask(&["dead", "list"]).0, "unknown_site");
        found.len() == 1 && found[0] != *unknown
    })
    .unwrap();
    running.stop();

    home.set("sites.other.token=another-token-for-tests");
    let running = home.start();
    let (done, code) = home.ask(&["dead", "retry", "--all"]);
    let outcomes: Vec<_> = done.iter().map(|done| done["outcome"].as_str().unwrap()).collect();
    assert_eq!((outcomes.iter().filter(|o| **o == "retried").count(), code), (2, 3), "{done:?}");
    let left = done.iter().find(|done| done["outcome"] == "left").unwrap();
    assert!(left["detail"].as_str().unwrap().contains("it is from views.counted"), "{left}");
    let counted = || home.ask(&["tail", "--site", "other", "--topic", "views.counted"]).0.len();
    wait_until("the view to count", LONG, || counted() == 1).unwrap();
    let (done, code) = home.ask(&["dead", "retry", unknown]);
    assert_eq!((&done[0]["outcome"], code), (&json!("left"), 3), "{done:?}");
    assert!(done[0]["detail"].as_str().unwrap().contains("retried already"), "{done:?}");
    // The process counts on.
    let client = running.client();
    client.send(&json!({ "site": "main", "item": "a", "viewer": "one" })).await;
    running.stop();
    assert_eq!(counted(), 1);
    let (all, _) = home.ask(&["dead", "list", "--all"]);
    let mut states: Vec<_> = all.iter().map(|line| line["state"].as_str().unwrap()).collect();
    states.sort_unstable();
    // The garbage died twice, and the site's view, and what came to `views.counted`.
    assert_eq!(states, ["open", "open", "retried", "retried", "retried"], "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_left_for_good() {
    let home = with_letters().await;
    let (lines, _) = home.ask(&["dead", "list"]);
    assert_eq!(lines.len(), 3, "{lines:?}");
    let malformed = places(&lines, "malformed");
    let (done, code) = home.ask(&[&["dead", "discard"][..], &[&malformed[0], &malformed[1]]].concat());
    assert_eq!((done.len(), code), (2, 0), "{done:?}");
    assert!(done.iter().all(|done| done["outcome"] == "discarded"), "{done:?}");
    let (lines, code) = home.ask(&["dead", "list"]);
    assert_eq!((lines.len(), code), (1, 3), "{lines:?}");
    let (done, code) = home.ask(&["dead", "retry", &malformed[0]]);
    assert!(done[0]["detail"].as_str().unwrap().contains("discarded already") && code == 3, "{done:?}");
    assert_eq!(home.ask(&["dead", "discard", "--all"]).1, 0);
    assert_eq!(home.ask(&["dead", "list"]), (vec![], 0));
    assert_eq!(home.ask(&["dead", "retry", "--all"]), (vec![], 0));
    // A mark is no outcome, and no letter.
    let (mut marks, _) = home.ask(&["tail", "--topic", "views.dead"]);
    marks.retain(|line| line["kind"] == "mark");
    assert_eq!(marks.len(), 3, "{marks:?}");
    let place = format!("{}:{}", marks[0]["partition"], marks[0]["offset"]);
    let told = text(&home.on_folder(&["dead", "show", &place]));
    assert!(told.contains("is no letter"), "{told}");
    let running = home.start();
    running.client().send(&view("a", "one")).await;
    running.settle(&running.client(), &[("a".to_owned(), 1)].into()).await;
    running.stop();
    assert_eq!(home.ask(&["dead", "list"]), (vec![], 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_may_be_under_way_is_not_doubled() {
    let home = with_letters().await;
    let (lines, _) = home.ask(&["dead", "list", "--reason", "unknown_site"]);
    let [letter] = &places(&lines, "unknown_site")[..] else { panic!("{lines:?}") };
    let (partition, offset) = letter.split_once(':').unwrap();
    let mark = DeadMark {
        step: MarkStep::Begun,
        letter_partition: partition.parse().unwrap(),
        letter_offset: offset.parse().unwrap(),
        attempt: [1; 16],
        replaces: None,
    };
    let mut bytes = Vec::new();
    encode_dead_mark(&mark, &mut bytes);
    let key =
        (0..).map(|n| format!("{n}")).find(|key| partition_of(key.as_bytes(), 2) == mark.letter_partition);
    append(&home, &[(Topic::Dead, key.unwrap().as_bytes(), &bytes)]).await;
    for command in ["retry", "discard"] {
        let (done, code) = home.ask(&["dead", command, letter]);
        assert!(done[0]["detail"].as_str().unwrap().contains("may be under way"), "{done:?}");
        assert_eq!(code, 3);
    }
    let (lines, code) = home.ask(&["dead", "list", "--reason", "unknown_site"]);
    assert_eq!((&lines[0]["state"], code), (&json!("begun"), 3), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_with_letters_is_said() {
    let home = with_letters().await;
    for (args, told) in [
        (vec!["dead", "retry"], "PARTITION:OFFSET"),
        (vec!["dead", "retry", "3"], "e.g. 3:17"),
        (vec!["dead", "retry", "0:1", "--all"], "cannot be used with"),
        (vec!["dead", "discard", "7:0"], "has 2 partitions"),
        (vec!["dead", "show", "0:999"], "is not in the log"),
        (vec!["dead", "list", "--reason", "sorrow"], "unknown_site"),
    ] {
        let output = home.on_folder(&args);
        assert!(!output.status.success() && text(&output).contains(told), "{args:?}: {}", text(&output));
    }
}
