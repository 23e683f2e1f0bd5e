//! What an operator asks a cluster: of single views, of letters, and whether all is accounted for.

use crate::support::{LONG, Role, System, Wishes, text, view};
use onlooker_testkit::{wait_for, wait_until};
use serde_json::{Value, json};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The lines of an answer, and the exit code, which is 0 or 3.
fn ask(system: &System, args: &[&str]) -> (Vec<Value>, i32) {
    let output = system.onlooker(&[args, &["--json"]].concat());
    let code = output.status.code().unwrap();
    assert!(code == 0 || code == 3, "{args:?}: {}", text(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), code)
}

fn sum(lines: &[Value], field: &str) -> u64 {
    lines.iter().filter_map(|line| line[field].as_u64()).sum()
}

fn total(lines: &[Value]) -> &Value {
    lines.iter().find(|line| line["line"] == "total").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn views_are_followed_through_a_cluster() {
    let system = System::start(Wishes { partitions: 3, ..Wishes::default() });
    // Nothing was sent, and no room runs.
    for args in [&["tail"][..], &["dead", "list"], &["dead", "retry", "--all"]] {
        assert_eq!(ask(&system, args), (vec![], 0), "{args:?}");
    }
    let (lines, code) = ask(&system, &["ledger"]);
    assert_eq!((total(&lines)["accepted"].as_u64(), code), (Some(0), 0), "{lines:?}");
    let (lines, code) = ask(&system, &["explain", "019aa0d5-4c00-7abc-8def-0123456789ab"]);
    assert_eq!((&lines[0]["state"], code), (&json!("not_found"), 3));
    let (lines, code) = ask(&system, &["status"]);
    assert_eq!((levels(&lines, "group").as_slice(), code), (&["down", "down"][..], 3), "{lines:?}");
    assert_eq!(levels(&lines, "topic"), ["ok"; 4], "{lines:?}");
    let (lines, code) = ask(&system, &["check"]);
    assert_eq!(code, 0, "{lines:?}");
    assert!(!levels(&lines, "").contains(&"refused"), "{lines:?}");

    let collector = system.role("collector");
    let http = system.http();
    http.send(&[view("a", "one"), view("a", "one")]).await;
    http.send_traced(&format!("00-{TRACE}-00f067aa0ba902b7-01"), &[view("b", "two")]).await;
    system.log().append_raw("views", 0, Some(b"k"), Some(b"garbage"));
    let (views, _) = ask(&system, &["tail", "--topic", "views", "--item", "a"]);
    assert_eq!(views.len(), 2, "{views:?}");
    let ids: Vec<&str> = views.iter().map(|view| view["view_id"].as_str().unwrap()).collect();
    let (lines, code) = ask(&system, &["explain", ids[1]]);
    assert_eq!((&lines[0]["state"], &lines[0]["before_it"], code), (&json!("not_judged"), &json!(1), 0));
    let (lines, code) = ask(&system, &["ledger"]);
    let all = total(&lines);
    assert_eq!((&all["accepted"], &all["pending"], code), (&json!(4), &json!(4), 0), "{lines:?}");

    let rooms: Vec<Role> = ["filter", "counter", "flusher"].map(|role| system.role(role)).into();
    wait_until("every view to be judged", LONG, || total(&ask(&system, &["ledger"]).0)["pending"] == 0)
        .unwrap();
    let (lines, code) = ask(&system, &["ledger"]);
    assert_eq!((&total(&lines)["closes"], code), (&json!(true), 0), "{lines:?}");
    let hours: Vec<Value> = lines.iter().filter(|line| line["line"] == "hour").cloned().collect();
    let sums = ["accepted", "counted", "dead", "missing"].map(|field| sum(&hours, field));
    assert_eq!(sums, [4, 2, 1, 0], "{hours:?}");

    by_trace(&system);

    // By time, over the partitions of three topics.
    let (outcomes, _) = ask(&system, &["tail", "--since", "1h"]);
    let times: Vec<i64> = outcomes.iter().map(|line| line["append_ms"].as_i64().unwrap()).collect();
    assert!(outcomes.len() == 4 && times.is_sorted(), "{outcomes:?}");
    let (lines, code) = ask(&system, &["explain", ids[1]]);
    assert_eq!((&lines[0]["state"], code), (&json!("ignored"), 0), "{lines:?}");
    assert_eq!(lines[0]["repeats"]["earlier"]["view_id"], ids[0], "{lines:?}");
    let durable = wait_for("the view to be archived", LONG, || {
        let (lines, _) = ask(&system, &["explain", ids[0]]);
        (lines[0]["counts"][0]["durable"] == true).then(|| lines[0].clone())
    })
    .unwrap();
    let counts = durable["counts"].as_array().unwrap();
    assert_eq!(
        (counts.len(), &counts[0]["applied"], &counts[0]["key"]),
        (2, &json!(true), &json!("*:blog:a"))
    );
    let key = counts[0]["stored_as"].as_str().unwrap();
    assert_eq!(system.counters_eyes().command(&["EXISTS", key]), redis::Value::Int(1), "{key}");

    let mut status: Vec<String> = vec!["status".into()];
    let all = rooms.iter().chain([&collector]);
    all.for_each(|room| status.extend(["--room".into(), room.admin()]));
    let status: Vec<&str> = status.iter().map(String::as_str).collect();
    let well = wait_until("all to be well", LONG, || ask(&system, &status).1 == 0);
    let (lines, _) = ask(&system, &status);
    well.unwrap_or_else(|error| panic!("{error:#}: {lines:?}"));
    assert_eq!(levels(&lines, "room"), ["ok"; 4], "{lines:?}");
    assert_eq!(levels(&lines, "").len(), 4 + 4 + 2 + 4, "servers, topics, groups, rooms: {lines:?}");
    letters(&system);
    wrong_settings(&system);
    let flusher = &rooms[2];
    wait_until("the ledger to be kept", LONG, || {
        flusher.metric("onlooker_ledger_checked_timestamp_seconds") > 0.0
    })
    .unwrap();
    assert_eq!(flusher.metric("onlooker_ledger_open_views"), 0.0);
    drop(collector);
}

/// One view is followed through the rooms, by the trace that its request was part of.
fn by_trace(system: &System) {
    let (views, _) = ask(system, &["tail", "--topic", "views", "--trace", TRACE]);
    let (outcomes, _) = ask(system, &["tail", "--trace", TRACE]);
    let told = |lines: &[Value]| -> Vec<(String, String)> {
        let told =
            |line: &Value| (line["kind"].as_str().unwrap().into(), line["item"].as_str().unwrap().into());
        lines.iter().map(told).collect()
    };
    assert_eq!(told(&views), [("view".to_owned(), "b".to_owned())], "{views:?}");
    assert_eq!(told(&outcomes), [("counted".to_owned(), "b".to_owned())], "{outcomes:?}");
    let (lines, _) = ask(system, &["explain", views[0]["view_id"].as_str().unwrap()]);
    let ids = (&lines[0]["view"]["trace_id"], &lines[0]["verdict"]["trace_id"]);
    assert_eq!(ids, (&json!(TRACE), &json!(TRACE)), "{lines:?}");
}

/// How everything is whose name begins so.
fn levels<'a>(lines: &'a [Value], subject: &str) -> Vec<&'a str> {
    let of = lines.iter().filter(|line| line["subject"].as_str().unwrap().starts_with(subject));
    of.map(|line| line["level"].as_str().unwrap()).collect()
}

/// A policy that forgets, and another key of viewers.
fn wrong_settings(system: &System) {
    system.dedup_eyes().command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let (lines, code) = ask(system, &["check", "--set", "identity.version=9"]);
    assert_eq!((levels(&lines, "dedup redis maxmemory-policy"), code), (vec!["refused"], 3), "{lines:?}");
    assert_eq!(levels(&lines, "key of viewers"), ["warning"], "{lines:?}");
    system.dedup_eyes().command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let (lines, code) = ask(system, &["check"]);
    assert_eq!((levels(&lines, "key of viewers"), code), (vec!["ok"], 0), "{lines:?}");
}

/// The one letter is sent again, dies again, and is left.
fn letters(system: &System) {
    let place = |line: &Value| format!("{}:{}", line["partition"], line["offset"]);
    let (lines, code) = ask(system, &["dead", "list"]);
    assert_eq!((lines.len(), code, &lines[0]["reason"]), (1, 3, &json!("malformed")), "{lines:?}");
    let first = place(&lines[0]);
    let told = text(&system.onlooker(&["dead", "show", &first]));
    assert!(told.contains("67 61 72 62 61 67 65") && told.contains("|garbage|"), "{told}");
    let (done, code) = ask(system, &["dead", "retry", &first]);
    assert_eq!((&done[0]["outcome"], code), (&json!("retried"), 0), "{done:?}");
    let (done, code) = ask(system, &["dead", "retry", &first]);
    assert_eq!((&done[0]["outcome"], code), (&json!("left"), 3), "{done:?}");
    let again = wait_for("the letter to die again", LONG, || {
        let (lines, _) = ask(system, &["dead", "list"]);
        (lines.len() == 1 && place(&lines[0]) != first).then(|| place(&lines[0]))
    })
    .unwrap();
    assert_eq!(ask(system, &["dead", "discard", &again]).1, 0);
    assert_eq!(ask(system, &["dead", "list"]), (vec![], 0));
    let (all, _) = ask(system, &["dead", "list", "--all"]);
    let mut states: Vec<&str> = all.iter().map(|line| line["state"].as_str().unwrap()).collect();
    states.sort_unstable();
    assert_eq!(states, ["discarded", "retried"], "{all:?}");
    let (lines, code) = ask(system, &["ledger"]);
    let all = total(&lines);
    assert_eq!((&all["accepted"], &all["closes"], code), (&json!(5), &json!(true), 0), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_is_named() {
    let system = System::start(Wishes { partitions: 2, ..Wishes::default() });
    let nowhere = [
        "log.brokers=[\"127.0.0.1:1\"]",
        "counters.nodes=[\"127.0.0.1:1\"]",
        "archive.nodes=[\"127.0.0.1:1\"]",
    ];
    let [kafka, redis, cassandra] = nowhere;
    let id = "019aa0d5-4c00-7abc-8def-0123456789ab";
    for (args, down, named) in [
        (&["tail"][..], kafka, "kafka is unavailable"),
        (&["explain", id], kafka, "kafka is unavailable"),
        (&["dead", "list"], kafka, "kafka is unavailable"),
        (&["dead", "retry", "--all"], kafka, "kafka is unavailable"),
        (&["ledger"], kafka, "kafka is unavailable"),
        (&["inspect", "a"], redis, "counters"),
        (&["inspect", "a"], cassandra, "archive"),
    ] {
        let output = system.onlooker(&[args, &["--set", down]].concat());
        assert_eq!(output.status.code(), Some(1), "{args:?} {}", text(&output));
        assert!(text(&output).contains(named), "{args:?}: {}", text(&output));
    }
    // What is down hides nothing else.
    let names = ["kafka", "dedup redis", "counters redis", "archive"];
    for (down, named) in [(kafka, "kafka"), (redis, "counters redis"), (cassandra, "archive")] {
        for command in ["status", "check"] {
            let (lines, code) = ask(&system, &[command, "--set", down]);
            assert_eq!(code, 3, "{lines:?}");
            for name in names {
                let levels = levels(&lines, name);
                assert_eq!(levels.contains(&"down"), name == named, "{command} {named} {name}: {lines:?}");
            }
        }
    }
}
