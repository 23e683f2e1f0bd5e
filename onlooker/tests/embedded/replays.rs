//! The log read again, beside live traffic: into a shadow, and by other rules.

use crate::support::load::Load;
use crate::support::{Books, Client, Home, LONG, TOKEN, Truth, log_file, text};
use onlooker_testkit::wait_until;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The lines of a command's answer, and its exit code.
fn ask(home: &Home, args: &[&str]) -> (Vec<Value>, i32) {
    let output = home.on_folder(&[args, &["--json"]].concat());
    let code = output.status.code().unwrap();
    assert!(code == 0 || code == 3, "{}", text(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), code)
}

/// A shadow is what the live counts are.
fn same(home: &Home, shadow: &Path) -> Value {
    let (lines, code) = ask(home, &["diff", &shadow.display().to_string()]);
    assert_eq!((lines.len(), code), (1, 0), "{lines:?}");
    lines[0]["compared"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_is_what_live_counts_are_while_views_come_in() {
    let home = Home::with_token(&[]);
    let running = home.start();
    let load = Load::start(3, 60, 2, || running.client());
    wait_until("some views", LONG, || load.len() > 3_000).unwrap();
    let at = |name: &str| home.path().join(name);
    for (command, name) in [("rebuild", "rebuilt"), ("replay", "replayed")] {
        let into = at(name).display().to_string();
        let (lines, code) = ask(&home, &[command, "--into", &into]);
        assert_eq!((&lines.last().unwrap()["done"], code), (&lines.last().unwrap()["of"], 0), "{lines:?}");
        let before = same(&home, &at(name));
        assert!(before["live_views"].as_u64() > Some(1_000), "{before}");
        // It goes on with what has come since.
        let len = load.len();
        wait_until("more views", LONG, || load.len() > len + 1_000).unwrap();
        ask(&home, &[command, "--into", &into]);
        let after = same(&home, &at(name));
        assert!(after["live_views"].as_u64() > before["live_views"].as_u64(), "{before} {after}");
    }
    load.end().await;
    running.stop();
    // And once more from the closed folder, whose books are balanced.
    Books::of(home.folder()).await.check_counts();
    for name in ["rebuilt", "replayed"] {
        same(&home, &at(name));
    }
    // A shadow takes no views, and is no other's shadow.
    let shadow = at("replayed").display().to_string();
    let refused = home.onlooker(&["run", "--dir", &shadow]);
    assert!(!refused.status.success() && text(&refused).contains("shadow"), "{}", text(&refused));
    let other = home.on_folder(&["rebuild", "--into", &shadow]);
    assert!(!other.status.success() && text(&other).contains("another folder"), "{}", text(&other));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_was_killed_goes_on_where_it_was() {
    let home = Home::with_token(&[]);
    let running = home.start();
    let load = Load::start(3, 40, 1, || running.client());
    wait_until("some views", LONG, || load.len() > 4_000).unwrap();
    load.end().await;
    let shadow = home.path().join("shadow");
    let (dir, into) = (home.folder().display().to_string(), shadow.display().to_string());
    // Slow enough to be met in the middle.
    let mut replay = Command::new(env!("CARGO_BIN_EXE_onlooker"))
        .args(["replay", "--into", &into, "--rate", "1000", "--dir", &dir])
        .current_dir(home.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let verdicts = shadow.join("log/verdicts");
    let written = || -> u64 {
        let Ok(files) = verdicts.read_dir() else { return 0 };
        files.filter_map(|file| Some(file.ok()?.metadata().ok()?.blocks_or_len())).sum()
    };
    wait_until("some verdicts", LONG, || written() > 20_000).unwrap();
    replay.kill().unwrap();
    replay.wait().unwrap();
    // What it lacks is nobody's difference.
    let refused = home.on_folder(&["diff", &into]);
    assert!(refused.status.code() == Some(1) && text(&refused).contains("not whole"), "{}", text(&refused));
    let (lines, _) = ask(&home, &["replay", "--into", &into]);
    let first = lines.first().unwrap();
    assert!(first["done"].as_i64() > Some(0), "it began in the middle: {first}");
    same(&home, &shadow);
    running.stop();
}

/// A file's size on the disk: logs make room ahead.
trait Blocks {
    fn blocks_or_len(&self) -> u64;
}

impl Blocks for std::fs::Metadata {
    fn blocks_or_len(&self) -> u64 {
        std::os::unix::fs::MetadataExt::blocks(self) * 512
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_the_time_and_of_the_items_is_judged_as_it_was() {
    let home = Home::with_token(&[]);
    let running = home.start();
    let client = running.client();
    let send = async |item: &str, viewer: &str| {
        client.send(&serde_json::json!({ "item": item, "viewer": viewer })).await;
    };
    for viewer in ["one", "two"] {
        send("a", viewer).await;
        send("b", viewer).await;
    }
    running.settle(&client, &[("a".to_owned(), 2), ("b".to_owned(), 2)].into()).await;
    let from = jiff::Timestamp::now();
    wait_until("the clock to go on", Duration::from_secs(5), || {
        jiff::Timestamp::now().as_millisecond() > from.as_millisecond() + 5
    })
    .unwrap();
    // The first is a repeat of one that lies before the range, and has to be judged so.
    for viewer in ["one", "three"] {
        send("a", viewer).await;
        send("b", viewer).await;
    }
    running.settle(&client, &[("a".to_owned(), 3), ("b".to_owned(), 3)].into()).await;
    let (from, into) = (from.to_string(), home.path().join("shadow").display().to_string());
    ask(&home, &["replay", "--from", &from, "--item", "a", "--into", &into]);
    let compared = same(&home, &home.path().join("shadow"));
    assert_eq!((&compared["live_views"], &compared["shadow_views"]), (&1.into(), &1.into()), "{compared}");
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_goes_on_only_where_the_log_still_has_what_comes_next() {
    let small = ["segment_bytes=65536", "views_retention_bytes=100000", "verdicts_retention_bytes=100000"];
    let sets: Vec<String> = small.iter().map(|set| format!("embedded.log.{set}")).collect();
    let home = Home::with_token(&sets.iter().map(String::as_str).collect::<Vec<_>>());
    let running = home.start();
    let client = running.client();
    client.send(&serde_json::json!({ "item": "first", "viewer": "one" })).await;
    running.settle(&client, &[("first".to_owned(), 1)].into()).await;
    let into = home.path().join("shadow").display().to_string();
    ask(&home, &["replay", "--into", &into]);
    let load = Load::start(3, 40, 1, || running.client());
    let earliest = || -> i64 {
        let (lines, _) = ask(&home, &["topics"]);
        let of_views = lines.iter().filter(|line| line["topic"] == "views");
        of_views.map(|line| line["earliest"].as_i64().unwrap()).min().unwrap()
    };
    wait_until("retention", LONG, || earliest() > 1).unwrap();
    load.end().await;
    let refused = home.on_folder(&["replay", "--into", &into]);
    assert!(!refused.status.success() && text(&refused).contains("not read yet"), "{}", text(&refused));
    let (lines, _) = ask(&home, &["replay", "--into", &into, "--partial"]);
    assert_eq!(lines.last().unwrap()["done"], lines.last().unwrap()["of"], "{lines:?}");
    // What is read is read, whether or not the log still has it.
    ask(&home, &["replay", "--into", &into]);
    running.stop();
}

fn nx(name: &str) -> BTreeMap<String, u64> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let (path, nx) = line.rsplit_once(',').unwrap();
        (path.to_owned(), nx.parse().unwrap())
    };
    text.lines().skip(1).map(line).collect()
}

/// By a window of five minutes exactly those paths change whose truth does.
#[tokio::test(flavor = "multi_thread")]
async fn a_recount_by_another_window_shows_what_the_truth_is_then() {
    for name in ["attackers", "blog"] {
        let home = Home::new(&[]);
        let running = home.start();
        let file = log_file(name).display().to_string();
        let imported = home.on_folder(&["import", &file]);
        assert!(imported.status.success(), "{}", text(&imported));
        let truth = Truth::of(name).paths;
        let live: BTreeMap<String, u64> = truth.into_iter().map(|(path, (_, nx))| (path, nx)).collect();
        running.settle(&running.browser(), &live).await;
        let rules = home.path().join("rules.toml");
        std::fs::write(&rules, "[sites.main]\nwindow_s = 300\n").unwrap();
        let (lines, code) = ask(&home, &["recount", "--rules", &rules.display().to_string(), "--dry-run"]);
        let mut shown = BTreeMap::new();
        for line in lines.iter().filter(|line| line["scope"] == "*") {
            let item = line["item"].as_str().unwrap().to_owned();
            shown
                .insert(item, (line["live_views"].as_u64().unwrap(), line["shadow_views"].as_u64().unwrap()));
        }
        let then = if name == "blog" { live.clone() } else { nx("attackers_truth_300.csv") };
        let differ = live.iter().filter(|(path, nx)| then[*path] != **nx);
        let expected: BTreeMap<_, _> = differ.map(|(path, nx)| (path.clone(), (*nx, then[path]))).collect();
        assert_eq!(shown, expected);
        assert_eq!(code, if expected.is_empty() { 0 } else { 3 });
        assert_eq!(expected.len(), if name == "blog" { 0 } else { 10 });
        running.stop();
    }
}

/// What is counted by other rules goes live as a system that moves: it is exported, restored, and counted on.
#[tokio::test(flavor = "multi_thread")]
async fn a_recount_is_kept_and_goes_live_in_a_new_folder() {
    let home = Home::with_token(&[]);
    let running = home.start();
    let client = running.client();
    let now = jiff::Timestamp::now().as_millisecond();
    let look = async |client: &Client, viewer: &str, ago_s: i64| {
        let at = now - ago_s * 1_000;
        client.send(&serde_json::json!({ "item": "page", "viewer": viewer, "at": at })).await;
    };
    // By the half hour that holds where nothing else is said, the second is a repeat.
    look(&client, "one", 1_000).await;
    look(&client, "one", 500).await;
    look(&client, "two", 100).await;
    running.settle(&client, &[("page".to_owned(), 2)].into()).await;
    let file = |name: &str| home.path().join(name).display().to_string();
    let (into, rules, export) = (file("recounted"), file("rules.toml"), file("recount.onlooker"));
    std::fs::write(&rules, "[sites.main]\nwindow_s = 300\n").unwrap();
    let recount = ["recount", "--rules", &rules, "--into", &into];
    let (lines, code) = ask(&home, &recount);
    assert_eq!((&lines[0]["live_views"], &lines[0]["shadow_views"], code), (&2.into(), &3.into(), 3));
    // It goes on with what has come since, by the same rules.
    look(&client, "two", 90).await;
    look(&client, "three", 80).await;
    running.settle(&client, &[("page".to_owned(), 3)].into()).await;
    let (lines, code) = ask(&home, &recount);
    assert_eq!((&lines[0]["live_views"], &lines[0]["shadow_views"], code), (&3.into(), &4.into(), 3));
    std::fs::write(&rules, "[sites.main]\nwindow_s = 200\n").unwrap();
    for args in [&recount[..], &["replay", "--into", &into]] {
        let refused = home.on_folder(args);
        assert!(!refused.status.success() && text(&refused).contains("other rules"), "{}", text(&refused));
    }
    let told = home.on_folder(&["recount", "--rules", &rules, "--into", &file("told")]);
    assert!(text(&told).contains("onlooker restore"), "{}", text(&told));
    running.stop();

    let exported = home.onlooker(&["export", &export, "--dir", &into]);
    assert!(exported.status.success(), "{}", text(&exported));
    let rebuilt = file("rebuilt");
    ask(&home, &["rebuild", "--into", &rebuilt]);
    let refused = home.onlooker(&["export", &file("none"), "--dir", &rebuilt]);
    assert!(!refused.status.success() && text(&refused).contains("counted again"), "{}", text(&refused));
    let new = tempfile::tempdir().unwrap();
    let folder = new.path().join("data");
    let token = format!("sites.main.token={}", TOKEN);
    let next = Home::at(new, folder.clone(), &[&token, "sites.main.window_s=300"]);
    let (dir, identity) =
        (folder.display().to_string(), home.folder().join("identity.key").display().to_string());
    let restored = next.onlooker(&["restore", &export, "--dir", &dir]);
    assert!(!restored.status.success() && text(&restored).contains("another key"), "{}", text(&restored));
    let restored = next.onlooker(&["restore", &export, "--dir", &dir, "--identity-key", &identity]);
    assert!(restored.status.success(), "{}", text(&restored));
    let running = next.start();
    let client = running.client();
    running.settle(&client, &[("page".to_owned(), 4)].into()).await;
    assert_eq!(client.counts(&["page"]).await[0]["uniques"], 3);
    // Who was counted lately is remembered, and what is new is added.
    look(&client, "three", 10).await;
    look(&client, "four", 0).await;
    look(&client, "one", 0).await;
    running.settle(&client, &[("page".to_owned(), 6)].into()).await;
    assert_eq!(client.counts(&["page"]).await[0]["uniques"], 4);
    running.stop();
}

#[test]
fn what_cannot_be_replayed_is_refused_by_name() {
    let home = Home::new(&[]);
    home.start().stop();
    let file = |text: &str| {
        let path = home.path().join("rules.toml");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let taken = home.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    std::fs::write(taken.join("letter"), "mine").unwrap();
    let (taken, into) = (taken.display().to_string(), home.path().join("into").display().to_string());
    let log = file("[log]\nbrokers = [\"a:1\"]\n");
    let cases: [(&[&str], &str); 6] = [
        (&["replay", "--into", &taken], "is no shadow"),
        (&["replay", "--into", &into, "--from", "1h", "--to", "2h"], "--to is not after --from"),
        (&["replay", "--into", &into, "--from", "yesterday"], "24h"),
        (&["diff", &into], "there is no shadow"),
        (&["recount", "--rules", &log, "--dry-run"], "[log] is no rule"),
        (&["rebuild", "--into", &into, "--rate", "0"], "--rate"),
    ];
    for (args, told) in cases {
        let output = home.on_folder(args);
        assert!(!output.status.success() && text(&output).contains(told), "{args:?}: {}", text(&output));
    }
    let unsound = file("[sites.main]\nwindow_s = 86400\n");
    let output = home.on_folder(&["recount", "--rules", &unsound, "--dry-run"]);
    assert!(!output.status.success() && text(&output).contains("filter.slice_s"), "{}", text(&output));
}
