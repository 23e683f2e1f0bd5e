//! Live counts that are wrong are replaced by what the log gives, and put back.

use crate::support::load::Load;
use crate::support::{Books, Client, Home, LONG, Running, text, view};
use onlooker_embedded::log::{EmbeddedLog, LogConfig};
use onlooker_embedded::store::{Folder, RedbArchive};
use onlooker_event::{CountKey, ItemId, ItemKey, Scope, SiteId, partition_of};
use onlooker_ports::{Archive, ArchiveCell};
use onlooker_sketch::Sketch;
use onlooker_testkit::wait_until;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What is damaged: a number that is too high, a sketch of other viewers, a row that is lost.
const ITEMS: [&str; 3] = ["number", "sketch", "lost"];
const FLUSHED_OFTEN: &str = "flusher.interval_ms=500";

fn key(item: &str) -> CountKey {
    let item = ItemKey::new(&SiteId::new("main").unwrap(), &ItemId::new(item).unwrap());
    CountKey::new(Scope::All, item.as_bytes())
}

/// Writes what is not true into a folder at rest, each as of where its partition is durable.
async fn damage(home: &Home) {
    let folder = Folder::open(home.folder()).unwrap();
    let (log, report) = EmbeddedLog::open(&folder.log().unwrap(), 2, LogConfig::default()).unwrap();
    let archive = RedbArchive::open(&folder.archive(), &format!("{:016x}", report.id), 1 << 20).unwrap();
    let mut strangers = Sketch::new();
    (0..20u8).for_each(|n| _ = strangers.add(&[n; 16]));
    for (item, n, sketch) in [
        ("number", Some(1_000), None),
        ("sketch", None, Some(strangers)),
        ("lost", Some(0), Some(Sketch::new())),
    ] {
        let key = key(item);
        let at = archive.durable(partition_of(key.item_bytes(), 2)).await.unwrap().unwrap();
        let n = n.map(|n| ArchiveCell::Number { key: key.clone(), n, u: at });
        let sketch =
            sketch.map(|s| ArchiveCell::Sketch { key: key.clone(), bytes: s.to_redis().into(), t: at });
        for outcome in archive.write(&n.into_iter().chain(sketch).collect::<Vec<_>>()).await {
            outcome.unwrap();
        }
    }
    log.close().await;
}

async fn look_at(client: &Client, viewers: std::ops::Range<u64>) {
    for item in ITEMS {
        let views = viewers.clone().map(|viewer| view(item, &format!("viewer {viewer}")));
        client.send(&views.collect()).await;
    }
}

async fn settled(running: &Running, client: &Client, views: [u64; 3]) {
    let expected = ITEMS.iter().map(|item| (*item).to_owned()).zip(views).collect();
    running.settle(client, &expected).await;
}

/// A folder whose archive is damaged, at rest, and the views of each item.
async fn damaged(sets: &[&str]) -> (Home, u64) {
    let home = Home::with_token(sets);
    let running = home.start();
    let client = running.client();
    look_at(&client, 0..50).await;
    settled(&running, &client, [50; 3]).await;
    running.stop();
    damage(&home).await;
    (home, 50)
}

/// How many were swapped, and left.
fn done(lines: &[Value]) -> [u64; 2] {
    let last = lines.last().unwrap();
    println!("{last}");
    [&last["swapped"], &last["left"]].map(|n| n.as_u64().unwrap())
}

/// Items, from the lines of an answer.
fn items(lines: &[Value]) -> Vec<&str> {
    let mut items: Vec<&str> = lines.iter().filter_map(|line| line["item"].as_str()).collect();
    items.sort_unstable();
    items
}

/// Looks at counts all the time, as a page does.
struct Watch {
    stop: Arc<AtomicBool>,
    looks: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Watch {
    fn start(client: Client) -> Self {
        let (stop, looks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, seen) = (Arc::clone(&stop), Arc::clone(&looks));
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                for count in client.counts(&ITEMS).await {
                    assert!(count["status"] == "ok" && count["views"].as_u64() > Some(0), "{count}");
                }
                seen.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { stop, looks, task }
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
        assert!(self.looks.load(Ordering::Relaxed) > 10);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_counts_are_replaced_while_views_come_in_and_no_reader_sees_a_loss() {
    let (home, views) = damaged(&[FLUSHED_OFTEN]).await;
    let running = home.start();
    let client = running.client();
    let load = Load::start(3, 60, 2, || running.client());
    wait_until("some views", LONG, || load.len() > 1_000).unwrap();
    // What is counted now is counted on top of what is wrong.
    look_at(&client, views..views + 10).await;
    settled(&running, &client, [1_010, 60, 10]).await;
    let into = home.path().join("shadow").display().to_string();
    home.ask(&["rebuild", "--into", &into]);
    let (lines, code) = home.ask(&["diff", &into]);
    let differ: Vec<_> = lines.iter().filter(|line| line["scope"] == "*").cloned().collect();
    assert_eq!((items(&differ), code), (vec!["lost", "number", "sketch"], 3), "{lines:?}");
    assert_eq!(items(&lines).len(), 3, "{lines:?}");

    let watch = Watch::start(running.client());
    let (lines, code) = home.ask(&["rebuild", "--into", &into, "--swap"]);
    assert_eq!((items(&lines), code), (vec!["lost", "number", "sketch"], 0), "{lines:?}");
    assert_eq!(done(&lines), [3, 0]);
    let number = lines.iter().find(|line| line["item"] == "number").unwrap();
    assert_eq!((&number["views"], &number["views_now"]), (&1_010.into(), &60.into()), "{number}");
    assert_eq!(number["places"], json!(["archive", "counters"]), "{number}");
    settled(&running, &client, [60; 3]).await;
    watch.end().await;
    let (lines, code) = home.ask(&["verify", "--all"]);
    assert_eq!((lines.len(), code), (1, 0), "{lines:?}");
    let (lines, code) = home.ask(&["diff", &into]);
    assert_eq!((lines.len(), code), (1, 0), "{lines:?}");

    // The old is kept until somebody says what is to become of it.
    let again = home.on_folder(&["rebuild", "--into", &into, "--swap"]);
    assert!(!again.status.success() && text(&again).contains("--confirm"), "{}", text(&again));
    look_at(&client, views + 10..views + 11).await;
    settled(&running, &client, [61; 3]).await;
    let (lines, code) = home.ask(&["rebuild", "--into", &into, "--back"]);
    assert_eq!((items(&lines), code), (vec!["lost", "number", "sketch"], 0), "{lines:?}");
    settled(&running, &client, [1_011, 61, 11]).await;
    assert_eq!(home.ask(&["verify", "--all"]).1, 3);
    let (lines, code) = home.ask(&["rebuild", "--into", &into, "--swap"]);
    assert_eq!((done(&lines), code), ([3, 0], 0), "{lines:?}");
    settled(&running, &client, [61; 3]).await;
    assert_eq!(home.ask(&["rebuild", "--into", &into, "--confirm"]), (vec![json!({ "confirmed": 3 })], 0));
    let again = home.on_folder(&["rebuild", "--into", &into, "--confirm"]);
    assert!(!again.status.success() && text(&again).contains("keeps nothing"), "{}", text(&again));
    let (lines, code) = home.ask(&["rebuild", "--into", &into, "--swap"]);
    assert_eq!((done(&lines), code), ([0, 0], 0), "{lines:?}");

    load.end().await;
    let log = running.log();
    assert!(!log.contains(" WARN ") && !log.contains(" ERROR "), "nothing alarming happened: {log}");
    running.stop();
    Books::of(home.folder()).await.check_counts();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_that_was_killed_is_run_again_and_goes_back_to_the_very_first() {
    let (home, _) = damaged(&[FLUSHED_OFTEN]).await;
    let running = home.start();
    let client = running.client();
    let load = Load::start(2, 40, 2, || running.client());
    let shadow = home.path().join("shadow");
    let (dir, into) = (home.folder().display().to_string(), shadow.display().to_string());
    let mut swap = Command::new(env!("CARGO_BIN_EXE_onlooker"))
        .args(["rebuild", "--swap", "--into", &into, "--dir", &dir])
        .current_dir(home.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the old to be kept", LONG, || shadow.join("swapped.json").exists()).unwrap();
    swap.kill().unwrap();
    swap.wait().unwrap();
    let refused = home.on_folder(&["rebuild", "--into", &into, "--confirm"]);
    assert!(!refused.status.success() && text(&refused).contains("interrupted"), "{}", text(&refused));
    assert_eq!(home.ask(&["rebuild", "--into", &into, "--swap"]).1, 0);
    let (lines, code) = home.ask(&["verify", "--all"]);
    assert_eq!((lines.len(), code), (1, 0), "{lines:?}");
    settled(&running, &client, [50; 3]).await;
    let (lines, code) = home.ask(&["rebuild", "--into", &into, "--back"]);
    assert_eq!((items(&lines), code), (vec!["lost", "number", "sketch"], 0), "{lines:?}");
    settled(&running, &client, [1_000, 50, 0]).await;
    load.end().await;
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_at_rest_is_put_right_too() {
    let (home, _) = damaged(&[FLUSHED_OFTEN]).await;
    let into = home.path().join("shadow").display().to_string();
    let (lines, code) = home.ask(&["rebuild", "--into", &into, "--swap"]);
    assert_eq!((items(&lines), code), (vec!["lost", "number", "sketch"], 0), "{lines:?}");
    let (lines, code) = home.ask(&["verify", "--all"]);
    assert_eq!((lines.len(), code), (1, 0), "{lines:?}");
    Books::of(home.folder()).await.check_counts();
    let running = home.start();
    settled(&running, &running.client(), [50; 3]).await;
    // Verdicts that were judged again are not those of the log.
    let replayed = home.path().join("replayed").display().to_string();
    home.ask(&["replay", "--into", &replayed]);
    let refused = home.on_folder(&["rebuild", "--into", &replayed, "--swap"]);
    assert!(!refused.status.success() && text(&refused).contains("onlooker restore"), "{}", text(&refused));
    running.stop();
}
