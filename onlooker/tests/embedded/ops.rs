//! What an operator asks a folder, whether or not a process has it open.

use crate::support::{Home, Running, text, view};
use onlooker_embedded::log::{EmbeddedLog, LogConfig};
use onlooker_embedded::store::{Folder, RedbArchive};
use onlooker_event::{CountKey, ItemId, ItemKey, Scope, SiteId};
use onlooker_ports::{Archive, ArchiveCell};
use onlooker_sketch::Sketch;
use serde_json::Value;
use std::collections::BTreeMap;

/// The lines of a command's answer, and its exit code.
fn ask(home: &Home, args: &[&str]) -> (Vec<Value>, i32) {
    let output = home.on_folder(&[args, &["--json"]].concat());
    let code = output.status.code().unwrap();
    assert!(code == 0 || code == 3, "{}", text(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), code)
}

async fn fill(running: &Running, items: usize, viewers: usize) {
    let client = running.client();
    let mut expected = BTreeMap::new();
    for item in 0..items {
        for viewer in 0..viewers {
            client.send(&view(&format!("item {item}"), &format!("viewer {viewer}"))).await;
        }
        expected.insert(format!("item {item}"), viewers as u64);
    }
    running.settle(&client, &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_looked_at_while_a_process_has_it_and_while_none_has() {
    let home = Home::with_token(&[]);
    let mut running = Some(home.start());
    let (lines, code) = ask(&home, &["lag"]);
    assert_eq!((lines.len(), code), (4, 0), "an empty system is not behind: {lines:?}");
    fill(running.as_ref().unwrap(), 3, 20).await;
    for open in [true, false] {
        if !open {
            running.take().unwrap().stop();
        }
        let (lines, code) = ask(&home, &["lag"]);
        assert_eq!(code, 0);
        for (topic, records) in [("views", 60), ("views.counted", 60)] {
            let of: Vec<&Value> = lines.iter().filter(|line| line["topic"] == topic).collect();
            assert_eq!(of.len(), 2);
            assert_eq!(of.iter().map(|line| line["end"].as_i64().unwrap()).sum::<i64>(), records);
            for line in of {
                assert_eq!(line["applied"], line["end"], "{line}");
                assert_eq!(line["waiting"]["records"], 0, "{line}");
            }
        }
        let (lines, _) = ask(&home, &["topics"]);
        let of_counted = lines.iter().filter(|line| line["topic"] == "views.counted");
        assert_eq!(of_counted.map(|line| line["offsets"].as_i64().unwrap()).sum::<i64>(), 60);
        let (lines, code) = ask(&home, &["verify", "--all"]);
        assert_eq!((lines.len(), code), (1, 0), "{lines:?}");
        assert_eq!((&lines[0]["differences"], &lines[0]["counts"]), (&0.into(), &6.into()), "{lines:?}");
        let (lines, _) = ask(&home, &["inspect", "item 1"]);
        assert_eq!((lines.len(), &lines[0]["scope"]), (1, &"*".into()));
        let place = if open { &lines[0]["store"] } else { &lines[0]["archive"] };
        assert_eq!((&place["views"], &place["sketch"]["uniques"]), (&20.into(), &20.into()), "{lines:?}");
        let (lines, code) = ask(&home, &["inspect", "nobody saw it"]);
        assert_eq!((&lines[0]["archive"], code), (&Value::Null, 0), "{lines:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_says_how_it_is_and_what_should_be_looked_at() {
    let home = Home::with_token(&[]);
    let mut running = Some(home.start());
    fill(running.as_ref().unwrap(), 1, 3).await;
    for open in [true, false] {
        if !open {
            running.take().unwrap().stop();
        }
        let (lines, code) = home.ask(&["status"]);
        let subjects: Vec<&str> = lines.iter().map(|line| line["subject"].as_str().unwrap()).collect();
        let count = |what: &str| subjects.iter().filter(|subject| subject.starts_with(what)).count();
        let counts = ["folder", "disk", "topic", "group", "process"].map(count);
        assert_eq!((counts, code), ([1, 1, 4, 2, usize::from(open)], 0), "{lines:?}");
        let (lines, code) = home.ask(&["check"]);
        let of = |subject: &str| lines.iter().find(|line| line["subject"] == subject).unwrap();
        assert_eq!((&of("embedded.log.durability")["level"], code), (&"ok".into(), 0), "{lines:?}");
        assert_eq!(of("key of viewers")["level"], "ok", "{lines:?}");
    }
    let shown = text(&home.on_folder(&["check", "--set", "embedded.log.durability=process"]));
    assert!(shown.contains("warning  embedded.log.durability"), "{shown}");
}

/// Puts cells into a closed folder's archive, over those that are there.
async fn spoil(home: &Home, cells: impl Fn(&CountKey) -> Vec<ArchiveCell>) {
    let folder = Folder::open(home.folder()).unwrap();
    let (log, report) = EmbeddedLog::open(&folder.log().unwrap(), 2, LogConfig::default()).unwrap();
    let archive = RedbArchive::open(&folder.archive(), &format!("{:016x}", report.id), 1 << 20).unwrap();
    let item = ItemKey::new(&SiteId::new("main").unwrap(), &ItemId::new("item 0").unwrap());
    for outcome in archive.write(&cells(&CountKey::new(Scope::All, item.as_bytes()))).await {
        outcome.unwrap();
    }
    log.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_what_the_log_gives_is_found_and_named() {
    let home = Home::with_token(&[]);
    let running = home.start();
    fill(&running, 2, 10).await;
    running.stop();
    spoil(&home, |key| vec![ArchiveCell::Number { key: key.clone(), n: 11, u: 1_000 }]).await;
    let (lines, code) = ask(&home, &["verify", "item 0"]);
    assert_eq!((lines.len(), code), (2, 3), "{lines:?}");
    let (found, last) = (&lines[0], &lines[1]);
    assert_eq!((&found["key"], &found["place"]), (&"*:main:item 0".into(), &"archive".into()), "{found}");
    assert_eq!((&found["what"], &found["direction"]), (&"views".into(), &"too many".into()), "{found}");
    assert_eq!((&found["stored"], &found["from_log"]), (&11.into(), &10.into()), "{found}");
    assert_eq!((&last["differences"], &last["counts"]), (&1.into(), &2.into()), "{last}");

    // A sketch of somebody else altogether: some registers too high, some too low.
    let mut stranger = Sketch::new();
    stranger.add(b"a stranger to the log");
    let bytes = bytes::Bytes::from(stranger.to_redis());
    spoil(&home, |key| vec![ArchiveCell::Sketch { key: key.clone(), bytes: bytes.clone(), t: 1_000 }]).await;
    let (lines, code) = ask(&home, &["verify", "--all"]);
    let sketch = lines.iter().find(|line| line["what"] == "sketch").unwrap();
    assert_eq!((&sketch["direction"], code), (&"other members".into(), 3), "{sketch}");
    assert_eq!(
        (&sketch["registers_higher"], &sketch["registers_lower"]),
        (&1.into(), &10.into()),
        "{sketch}"
    );
    // Another item is as it should be.
    assert_eq!(ask(&home, &["verify", "item 1"]).1, 0);
}

#[test]
fn questions_that_cannot_be_answered_say_why() {
    let home = Home::with_token(&[]);
    home.start().stop();
    for (args, told) in [
        (vec!["verify"], "<ITEMS>"),
        (vec!["verify", "--sample", "0"], "at least 1"),
        (vec!["lag", "--max-age", "5"], "90s"),
        (vec!["inspect", "a", "--day", "yesterday"], "YYYY-MM-DD"),
        (vec!["inspect", ""], "item"),
    ] {
        let output = home.on_folder(&args);
        assert!(!output.status.success() && text(&output).contains(told), "{args:?}: {}", text(&output));
    }
    let nowhere = home.path().join("nowhere").display().to_string();
    let output = home.onlooker(&["lag", "--dir", &nowhere]);
    assert!(!output.status.success() && text(&output).contains("nowhere"), "{}", text(&output));
}

/// Nobody waits for a process that does not answer, and what it is asked is not done by somebody else meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_stands_still_is_named() {
    let home = Home::with_token(&[]);
    let mut running = home.start();
    running.signal(libc::SIGSTOP);
    let (lag, verify) = std::thread::scope(|scope| {
        let ask = |args: &'static [&'static str]| scope.spawn(|| home.on_folder(args));
        let (lag, verify) = (ask(&["lag"]), ask(&["verify", "--all"]));
        (lag.join().unwrap(), verify.join().unwrap())
    });
    running.signal(libc::SIGCONT);
    for output in [lag, verify] {
        let told = format!("the running process (pid {}) does not answer", running.session.pid);
        assert!(output.status.code() == Some(1) && text(&output).contains(&told), "{}", text(&output));
    }
    assert_eq!(ask(&home, &["lag"]).1, 0);
}
