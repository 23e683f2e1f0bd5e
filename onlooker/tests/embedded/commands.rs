//! `get` and `import` find the system wherever it is, and refuse what is no folder of theirs without touching it.

use crate::support::{Books, Client, Home, log_file, text, view};
use onlooker_embedded::store::Folder;
use onlooker_testkit::wait_until;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Everything below a folder: each file's content and when it was changed. Whoever tries the lock writes itself down in
/// its file; nothing rests on that.
fn picture(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let changed = std::fs::metadata(&path).unwrap().modified().unwrap();
        if path.is_dir() {
            all.extend(picture(&path));
            all.insert(path, (Vec::new(), changed));
        } else if !path.ends_with("LOCK") {
            all.insert(path.clone(), (std::fs::read(&path).unwrap(), changed));
        }
    }
    all
}

/// Every command that opens a folder, with what it needs.
fn commands() -> Vec<Vec<String>> {
    let log = log_file("attackers").display().to_string();
    vec![vec!["get".into(), "hello".into()], vec!["import".into(), log], vec!["run".into()]]
}

/// Each of the commands fails, says so, and leaves everything as it was.
fn refused(home: &Home, commands: &[Vec<String>], expected: &str) {
    let before = picture(home.path());
    for command in commands {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let output = home.on_folder(&words);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert!(said.contains(expected), "{command:?} says: {said}");
        assert!(!said.contains("panicked"), "{command:?} says: {said}");
        let after = picture(home.path());
        let changed: Vec<_> = after.keys().filter(|path| before.get(*path) != after.get(*path)).collect();
        assert!(changed.is_empty() && before.len() == after.len(), "{command:?} changed {changed:?}");
    }
}

#[test]
fn a_folder_that_is_not_there_is_not_made_by_reading() {
    let home = Home::new(&[]);
    refused(&home, &commands()[..2], &format!("there is no folder {}", home.folder().display()));
}

#[test]
fn somebody_elses_folder_is_left_alone() {
    let home = Home::new(&[]);
    std::fs::create_dir(home.folder()).unwrap();
    std::fs::write(home.folder().join("thesis.tex"), "hard work").unwrap();
    refused(&home, &commands(), "it is not a folder of Onlooker");
}

#[test]
fn a_newer_folder_is_left_to_the_newer_program() {
    let home = Home::new(&[]);
    home.start().stop();
    std::fs::write(home.folder().join("FORMAT"), "onlooker-folder 7\n").unwrap();
    refused(&home, &commands(), "format version 7");
    std::fs::write(home.folder().join("FORMAT"), "something else\n").unwrap();
    refused(&home, &commands(), "does not name a format version");
}

#[test]
fn a_folder_is_used_by_one_process_at_a_time() {
    let home = Home::new(&[]);
    let running = home.start();
    let output = home.on_folder(&["run"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let expected = format!("is in use by another process (pid {})", running.session.pid);
    assert!(said.contains(&expected), "{said}");
    running.stop();
}

#[test]
fn a_damaged_log_is_named_and_left_alone() {
    let home = Home::new(&[]);
    home.start().stop();
    let log = home.folder().join("log/views");
    let segment = std::fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[8] ^= 0xff;
    std::fs::write(&segment, bytes).unwrap();
    refused(&home, &commands(), &segment.display().to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_are_read_from_a_running_process_and_from_a_closed_folder() {
    let home = Home::with_token(&[]);
    let running = home.start();
    let client = running.client();
    client.send(&json!([view("a", "one"), view("a", "two"), view("b", "one")])).await;
    running.settle(&client, &[("a".to_owned(), 2), ("b".to_owned(), 1)].into()).await;
    let read = || {
        let output = home.on_folder(&["get", "b", "nobody", "a"]);
        assert!(output.status.success(), "{}", text(&output));
        let table = String::from_utf8(output.stdout).unwrap();
        let rows = table.lines().skip(1).map(|row| {
            let cells: Vec<&str> = row.split_whitespace().collect();
            cells[..3].join(" ")
        });
        rows.collect::<Vec<_>>()
    };
    let expected = ["b 1 1", "nobody 0 0", "a 2 2"];
    assert_eq!(read(), expected);
    running.stop();
    assert_eq!(read(), expected, "closed");
    // The note of a process that was killed leads nowhere, and nobody follows it.
    let running = home.start();
    running.kill();
    assert!(home.folder().join("session.json").exists());
    assert_eq!(read(), expected, "killed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_from_before_a_crash_is_not_believed() {
    let home = Home::with_token(&[]);
    let running = home.start();
    let client = running.client();
    client.send(&view("a", "one")).await;
    running.settle(&client, &[("a".to_owned(), 1)].into()).await;
    let other = Home::with_token(&[]);
    std::fs::create_dir(other.folder()).unwrap();
    // This process holds the folder now, like one that has just begun and has not written its note yet.
    let held = Folder::open(other.folder()).unwrap();
    let note = other.folder().join("session.json");
    let of = |pid: u32, url: &str| {
        json!({ "pid": pid, "url": url, "admin": running.session.admin, "tokens": {} }).to_string()
    };
    std::fs::write(&note, of(std::process::id() ^ 1, "http://127.0.0.1:9")).unwrap();
    let reading = std::thread::scope(|scope| {
        let reading = scope.spawn(|| other.on_folder(&["get", "a"]));
        wait_until("the command to be waiting", std::time::Duration::from_secs(1), || reading.is_finished())
            .unwrap_err();
        std::fs::write(&note, of(std::process::id(), &running.session.url)).unwrap();
        reading.join().unwrap()
    });
    assert!(reading.status.success(), "{}", text(&reading));
    assert!(text(&reading).contains("\na "), "{}", text(&reading));
    drop(held);
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn several_sites_are_told_apart_and_named() {
    let home = Home::new(&["sites.blog.window_s=60", "sites.shop.window_s=60"]);
    let running = home.start();
    for (site, n) in [("blog", 2), ("shop", 3)] {
        let client = Client::new(&running.session.url, Some(&running.session.tokens[site]));
        let views: Vec<_> =
            (0..n).map(|n| json!({ "site": site, "item": "a", "viewer": format!("v{n}") })).collect();
        client.send(&json!(views)).await;
    }
    let file = log_file("attackers").display().to_string();
    for command in [vec!["get", "a"], vec!["import", &file]] {
        let output = home.on_folder(&command);
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert!(text(&output).contains("site"), "{}", text(&output));
    }
    running.stop();
    for (site, n) in [("blog", 2), ("shop", 3)] {
        let output = home.on_folder(&["get", "a", "--site", site]);
        let row = text(&output).lines().nth(1).unwrap().split_whitespace().nth(1).map(str::to_owned);
        assert_eq!(row, Some(n.to_string()), "{}", text(&output));
    }
}

#[test]
fn a_key_that_is_gone_or_empty_does_not_go_unnoticed() {
    let home = Home::new(&[]);
    home.start().stop();
    let key = home.folder().join("identity.key");
    std::fs::write(&key, "").unwrap();
    for command in [["get", "hello"].as_slice(), &["run"]] {
        let output = home.on_folder(command);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains(&format!("{} is damaged", key.display())), "{}", text(&output));
    }
    std::fs::remove_file(&key).unwrap();
    let running = home.start();
    assert!(running.log().contains("identity.key is missing"), "{}", running.log());
    running.stop();
}

/// Views that wait to be judged when the process is killed: two of one viewer, two minutes apart, and one of a site.
async fn waiting_views() -> Home {
    let home = Home::with_token(&[
        "sites.main.window_s=60",
        "sites.blog.window_s=60",
        // The filter waits for company, longer than this process lives.
        "filter.linger_ms=600000",
        "filter.batch_records=100000",
    ]);
    let running = home.start();
    let seconds_ago = |ago: i64| jiff::Timestamp::now().as_millisecond() - ago * 1000;
    let look = |ago| json!({ "site": "main", "item": "m", "viewer": "one", "at": seconds_ago(ago) });
    running.client().send(&json!([look(200), look(80)])).await;
    running.browser().send(&json!({ "site": "blog", "item": "w" })).await;
    assert_eq!(running.metric("onlooker_counter_records_total"), 0.0);
    running.kill();
    home
}

/// The same folder, under a configuration that says nothing.
fn without_settings(home: &Home) -> Home {
    Home::at(tempfile::tempdir().unwrap(), home.folder().to_owned(), &[])
}

fn cells(home: &Home, args: &[&str]) -> String {
    let output = home.on_folder(args);
    assert!(output.status.success(), "{}", text(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    let row = table.lines().nth(1).unwrap_or_default();
    row.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_judges_what_waits_by_the_folders_own_rules() {
    let home = waiting_views().await;
    let reader = without_settings(&home);
    assert_eq!(cells(&reader, &["get", "m", "--site", "main"]), "m 2 1");
    assert_eq!(cells(&reader, &["get", "w", "--site", "blog"]), "w 1 1");
    assert!(Books::dead(home.folder()).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn other_rules_hold_for_what_comes_after_them() {
    let home = waiting_views().await;
    let other = without_settings(&home);
    let running = other.start();
    let client = Client::new(&running.session.url, running.session.tokens.get("main").map(String::as_str));
    running.settle(&client, &[("m".to_owned(), 2)].into()).await;
    // The default window is half an hour.
    let again = |ago: i64| {
        let at = jiff::Timestamp::now().as_millisecond() - ago * 1000;
        json!({ "item": "n", "viewer": "one", "at": at })
    };
    client.send(&json!([again(200), again(80)])).await;
    running.settle(&client, &[("n".to_owned(), 1)].into()).await;
    running.stop();
    assert!(Books::dead(home.folder()).await.is_empty());
    assert_eq!(cells(&home, &["get", "w", "--site", "blog"]), "w 1 1");
}
