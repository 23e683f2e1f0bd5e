//! Real access logs, imported through the collector, give the numbers that were computed from them independently.

use crate::support::{Books, LONG, Ledger, System, Truth, Wishes, log_file, text};
use onlooker_sketch::Sketch;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::time::interval;

const LOGS: [(&str, &str); 2] = [("blog", "combined"), ("attackers", "combined")];

fn import(system: &System, file: &Path, extra: &[&str]) -> Value {
    let file = file.display().to_string();
    let collector = system.collector_url();
    let mut args = vec!["import", &file, "--site", "blog", "--collector", &collector, "--json"];
    args.extend(extra);
    let output = system.onlooker(&args);
    assert!(output.status.success(), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Waits until the API's numbers of all paths are those of the truth, then checks each.
async fn compare(system: &System, truth: &Truth) {
    let http = system.http();
    let paths: Vec<&str> = truth.paths.keys().map(String::as_str).collect();
    let mut missing = Vec::new();
    let begun = Instant::now();
    let mut pause = interval(Duration::from_millis(200));
    loop {
        pause.tick().await;
        missing.clear();
        for chunk in paths.chunks(1000) {
            let counts = http.counts(chunk).await;
            missing.extend(
                counts.into_iter().filter(|c| c["views"] != truth.paths[c["item"].as_str().unwrap()].1),
            );
        }
        if missing.is_empty() {
            break;
        }
        let sample = &missing[..missing.len().min(3)];
        assert!(begun.elapsed() < LONG, "{} counts are not there, as {sample:?}", missing.len());
    }
    for chunk in paths.chunks(1000) {
        for (path, count) in chunk.iter().zip(http.counts(chunk).await) {
            let (uniq, nx) = truth.paths[*path];
            assert_eq!(count["item"], *path, "order of the answer");
            assert_eq!(count["status"], "ok", "{count}");
            assert_eq!(count["views"], nx, "{count}");
            let got = count["uniques"].as_u64().unwrap() as f64;
            // The key is fixed here, so that this is the same in every run.
            let allowed = (3.0 * 0.0081 * uniq as f64).max(3.0);
            assert!((got - uniq as f64).abs() <= allowed, "{path}: {got} unique viewers, {uniq} in truth");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn imported_logs_give_the_truth_and_count_once() {
    for (name, format) in LOGS {
        let system = System::start(Wishes::default());
        let _roles = system.all_roles();
        let truth = Truth::of(name);
        let file = log_file(name);
        let first = import(&system, &file, &["--format", format]);
        assert_eq!(first["rejected"], serde_json::json!({}), "{first}");
        assert_eq!(first["unreadable"], serde_json::json!({}), "{first}");
        compare(&system, &truth).await;

        // At once: the import remembers what it sent.
        let again = import(&system, &file, &["--format", format]);
        assert_eq!(again["accepted"], 0, "{again}");
        // From another machine, that remembers nothing: the filter knows the ids.
        let elsewhere = system.folder.path().join("elsewhere").display().to_string();
        let other = import(&system, &file, &["--format", format, "--state", &elsewhere]);
        assert_eq!(other["accepted"], first["accepted"], "{other}");
        // After the claims are forgotten.
        system.dedup_eyes().flush_all();
        let later = import(&system, &file, &["--format", format]);
        assert_eq!(later["accepted"], 0, "{later}");

        Ledger::check(&system, &std::collections::HashSet::new());
        compare(&system, &truth).await;
        let expected = Ledger::check_counts(&system).await;
        let all: u64 = expected.iter().filter(|(k, _)| k.starts_with("*:")).map(|(_, (_, n))| n).sum();
        assert_eq!(all, truth.total_views());
    }
}

/// One folder and a cluster, told of the same log with the same key of the viewers' hashes.
#[tokio::test(flavor = "multi_thread")]
async fn one_machine_and_a_cluster_hold_the_same_registers() {
    for (name, format) in LOGS {
        let system = System::start(Wishes::default());
        let _roles = system.all_roles();
        import(&system, &log_file(name), &["--format", format]);
        compare(&system, &Truth::of(name)).await;
        Ledger::check_counts(&system).await;

        let folder = system.folder.path().join("data");
        std::fs::create_dir(&folder).unwrap();
        let (file, dir) = (log_file(name).display().to_string(), folder.display().to_string());
        let output = system.onlooker(&["import", &file, "--site", "blog", "--format", format, "--dir", &dir]);
        assert!(output.status.success(), "{}", text(&output));
        let books = Books::of(&folder).await;
        books.check_outcomes(&std::collections::HashSet::new());
        books.check_counts();

        let sketch = |bytes: &[u8]| Sketch::from_redis(bytes).unwrap();
        let cluster = system.archive().await.rows().await;
        assert!(cluster.keys().eq(books.archived.keys()), "the same keys");
        for (key, ours) in &books.archived {
            let ((ours_blob, _), (ours_views, _)) = (ours.sketch.clone().unwrap(), ours.number.unwrap());
            let ((blob, _), (views, _)) = (cluster[key].blob.clone().unwrap(), cluster[key].views.unwrap());
            assert_eq!(i64::try_from(ours_views).unwrap(), views, "{key}");
            assert!(sketch(&ours_blob).register_eq(&sketch(&blob)), "{key}: archive and folder differ");
        }
        let in_redis = system.counters_eyes().sketches();
        assert!(in_redis.len() > books.archived.len() / 2, "{} sketches in redis", in_redis.len());
        for (key, bytes) in in_redis {
            let (ours, _) = books.archived[&key].sketch.clone().unwrap();
            assert!(sketch(&ours).register_eq(&sketch(&bytes)), "{key}: redis and folder differ");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_import_goes_on_and_a_grown_log_adds_its_new_lines() {
    let system = System::start(Wishes::default());
    let _roles = system.all_roles();
    let mut log = Vec::new();
    std::io::Read::read_to_end(
        &mut flate2::read::GzDecoder::new(std::fs::File::open(log_file("attackers")).unwrap()),
        &mut log,
    )
    .unwrap();
    let half = log.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(1_500).unwrap().0 + 1;
    let file = system.folder.path().join("access.log");
    std::fs::write(&file, &log[..half]).unwrap();
    let first = import(&system, &file, &[]);
    assert_eq!((first["accepted"].as_u64(), first["lines"].as_u64()), (Some(1_501), Some(1_501)));
    std::fs::write(&file, &log).unwrap();
    let rest = import(&system, &file, &[]);
    assert_eq!(rest["accepted"], 3_456 - 1_501);
    compare(&system, &Truth::of("attackers")).await;
    // Lines that cannot be read are counted by reason and stop nothing.
    std::fs::write(
        &file,
        b"nonsense\n\n10.0.0.1 - - [01/Jan/2020:00:00:00 +0000] \"GET /x HTTP/1.1\" 200 5\n",
    )
    .unwrap();
    let odd = import(&system, &file, &["--format", "common"]);
    assert_eq!(odd["accepted"], 1);
    assert_eq!(odd["unreadable"]["no [time]"][0], 1, "{odd}");
    assert_eq!(odd["unreadable"]["empty line"][0], 1, "{odd}");
}
