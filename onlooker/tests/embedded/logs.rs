//! Real access logs, imported into a folder, give the numbers that were computed from them independently.

use crate::support::{Books, Home, Truth, log_file, text};
use onlooker_testkit::sketch_tolerance;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};

fn import(home: &Home, name: &str, extra: &[&str]) -> Value {
    let file = log_file(name).display().to_string();
    let output = home.on_folder(&[&["import", &file, "--json"], extra].concat());
    assert!(output.status.success(), "{}", text(&output));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["rejected"], &summary["unreadable"]), (&json!({}), &json!({})), "{summary}");
    summary
}

/// Counts of all paths, as `onlooker get` reads them.
fn get(home: &Home, truth: &Truth) -> Vec<Value> {
    let paths: Vec<&str> = truth.paths.keys().map(String::as_str).collect();
    let output = home.on_folder(&[&["get", "--json"], &paths[..]].concat());
    assert!(output.status.success(), "{}", text(&output));
    let answers = String::from_utf8(output.stdout).unwrap();
    let answers = answers.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    answers.flat_map(|answer| answer["counts"].as_array().unwrap().clone()).collect()
}

fn compare(home: &Home, truth: &Truth) {
    let counts = get(home, truth);
    assert_eq!(counts.len(), truth.paths.len());
    for ((path, (uniq, nx)), count) in truth.paths.iter().zip(counts) {
        assert_eq!(count["item"], *path, "order of the answer");
        assert_eq!(count["status"], "ok", "{count}");
        assert_eq!(count["views"], *nx, "{count}");
        let got = count["uniques"].as_u64().unwrap() as f64;
        assert!(
            (got - *uniq as f64).abs() <= sketch_tolerance(*uniq),
            "{path}: {got} unique viewers, {uniq} in truth"
        );
    }
}

/// The closed folder holds what the log's records say, and the sum of the truth.
async fn check(home: &Home, truth: &Truth, lines: usize) {
    let books = Books::of(home.folder()).await;
    books.check_outcomes(&HashSet::new());
    let counts = books.check_counts();
    let of_all_time: Vec<_> = counts.iter().filter(|(key, _)| key.starts_with("*:")).collect();
    assert_eq!(of_all_time.iter().map(|(_, (_, n))| n).sum::<u64>(), truth.total_views());
    let counted = truth.paths.values().filter(|(_, nx)| *nx > 0).count();
    assert_eq!(of_all_time.len(), counted, "items");
    assert_eq!(books.ids().collect::<HashSet<_>>().len(), lines, "each line has an id of its own");
}

fn whole(truth: &Truth) -> BTreeMap<String, u64> {
    truth.paths.iter().map(|(path, (_, nx))| (path.clone(), *nx)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_imported_into_a_running_process_give_the_truth_once() {
    for (name, lines) in [("blog", 10_000), ("attackers", 3_456)] {
        let (home, truth) = (Home::new(&[]), Truth::of(name));
        let running = home.start();
        assert_eq!(import(&home, name, &[])["accepted"], lines);
        running.settle(&running.browser(), &whole(&truth)).await;
        compare(&home, &truth);
        // The folder remembers what was sent; from another machine, the filter knows the ids.
        assert_eq!(import(&home, name, &[])["accepted"], 0);
        let elsewhere = home.path().join("elsewhere").display().to_string();
        assert_eq!(import(&home, name, &["--state", &elsewhere])["accepted"], lines);
        running.stop();

        let running = home.start();
        assert_eq!(import(&home, name, &[])["accepted"], 0);
        // Its memory came back from the verdicts.
        let elsewhere = home.path().join("elsewhere too").display().to_string();
        assert_eq!(import(&home, name, &["--state", &elsewhere])["accepted"], lines);
        running.stop();
        compare(&home, &truth);
        check(&home, &truth, lines).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_imported_while_nobody_runs_give_the_truth_once() {
    for (name, lines) in [("blog", 10_000), ("attackers", 3_456)] {
        let (home, truth) = (Home::new(&[]), Truth::of(name));
        home.start().stop();
        assert_eq!(import(&home, name, &[])["accepted"], lines);
        compare(&home, &truth);
        assert_eq!(import(&home, name, &[])["accepted"], 0);
        let elsewhere = home.path().join("elsewhere").display().to_string();
        assert_eq!(import(&home, name, &["--state", &elsewhere])["accepted"], lines);
        compare(&home, &truth);
        check(&home, &truth, lines).await;
        let running = home.start();
        running.settle(&running.browser(), &whole(&truth)).await;
        running.stop();
    }
}

/// A log that is still written, read while its last line is half there.
#[test]
fn a_line_that_was_half_written_is_sent_once_it_is_whole() {
    let home = Home::new(&[]);
    home.start().stop();
    let log = home.path().join("access.log");
    let file = log.display().to_string();
    let line = |n: u8| {
        format!(
            "10.0.0.{n} - - [28/Nov/2026:10:00:00 +0000] \"GET /page HTTP/1.1\" 200 12 \"-\" \"Firefox/1\"\n"
        )
    };
    let accepted = || {
        let output = home.on_folder(&["import", &file, "--json"]);
        assert!(output.status.success(), "{}", text(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["accepted"].clone()
    };
    let mut written = line(1) + &line(2)[..50];
    std::fs::write(&log, &written).unwrap();
    assert_eq!(accepted(), 1);
    written.push_str(&line(2)[50..]);
    written.push_str(&line(3));
    std::fs::write(&log, &written).unwrap();
    assert_eq!(accepted(), 2);
    assert_eq!(accepted(), 0);
}

#[test]
fn a_file_that_is_no_log_is_refused() {
    let home = Home::new(&[]);
    home.start().stop();
    let file = home.path().join("letter.txt");
    std::fs::write(&file, "Dear all,\nthe views are fine.\n").unwrap();
    let output = home.on_folder(&["import", &file.display().to_string()]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("letter.txt is a line of an access log"), "{}", text(&output));
}
