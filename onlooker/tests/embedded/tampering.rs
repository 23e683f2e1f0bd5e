//! Folders that somebody changed while no process had them open.

use crate::support::{Books, Home, text, view};
use onlooker_embedded::log::{EmbeddedLog, LogConfig};
use onlooker_embedded::store::Folder;
use onlooker_ports::{LogWriter, OutgoingBatch, Topic};
use serde_json::json;
use std::collections::HashSet;

/// A folder in which `a` was seen by two, closed.
async fn used() -> Home {
    let home = Home::with_token(&[]);
    let running = home.start();
    let client = running.client();
    client.send(&json!([view("a", "one"), view("a", "two")])).await;
    running.settle(&client, &[("a".to_owned(), 2)].into()).await;
    running.stop();
    home
}

/// Does something to the folder's log.
async fn with_log(home: &Home, act: impl AsyncFnOnce(&EmbeddedLog)) {
    let folder = Folder::open(home.folder()).unwrap();
    let (log, _) = EmbeddedLog::open(&folder.log().unwrap(), 2, LogConfig::default()).unwrap();
    act(&log).await;
    log.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_records_are_set_aside_and_stop_nothing() {
    let home = used().await;
    // A newer version's, and what is no message at all.
    let bad: [&[u8]; 3] = [b"\x08\x63\x12\x03abc", b"garbage", b""];
    with_log(&home, async |log| {
        for topic in [Topic::Views, Topic::Counted] {
            let mut batch = OutgoingBatch::default();
            bad.iter().for_each(|payload| batch.push(topic, b"key", payload));
            log.writer().append(batch).await.unwrap();
        }
    })
    .await;
    let running = home.start();
    let client = running.client();
    client.send(&json!([view("a", "three"), view("b", "one")])).await;
    running.settle(&client, &[("a".to_owned(), 3), ("b".to_owned(), 1)].into()).await;
    running.stop();
    let dead = Books::dead(home.folder()).await;
    assert_eq!(dead.len(), 6, "{dead:?}");
    for topic in ["views", "views.counted"] {
        let mut reasons: Vec<_> =
            dead.iter().filter(|dead| dead.source_topic == topic).map(|dead| dead.reason.as_str()).collect();
        reasons.sort_unstable();
        assert_eq!(reasons, ["empty", "malformed", "newer_version"], "{topic}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_does_not_say_what_was_judged_is_refused() {
    let home = used().await;
    with_log(&home, async |log| log.forget_group("filter", Topic::Views).await.unwrap()).await;
    let output = home.on_folder(&["run"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("does not say which views they are on"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_without_its_log_is_refused_and_kept() {
    let home = used().await;
    let log = home.folder().join("log");
    let aside = home.path().join("aside");
    std::fs::rename(&log, &aside).unwrap();
    for command in [vec!["run"], vec!["get", "a"]] {
        let output = home.on_folder(&command);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert!(said.contains("has an archive and no log"), "{command:?}: {said}");
    }
    // Nothing stands in the way of its coming back.
    let _ = std::fs::remove_dir(&log);
    std::fs::rename(&aside, &log).unwrap();
    let running = home.start();
    running.settle(&running.client(), &[("a".to_owned(), 2)].into()).await;
    running.stop();
    let books = Books::of(home.folder()).await;
    books.check_outcomes(&HashSet::new());
    books.check_counts();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_is_gone_is_made_again_from_the_log() {
    let home = used().await;
    std::fs::remove_file(home.folder().join("archive.redb")).unwrap();
    let running = home.start();
    running.settle(&running.client(), &[("a".to_owned(), 2)].into()).await;
    running.stop();
    let books = Books::of(home.folder()).await;
    books.check_outcomes(&HashSet::new());
    books.check_counts();
}
