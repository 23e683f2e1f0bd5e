//! A cluster's log read again, beside live traffic.

use crate::support::{LONG, System, Wishes, log_file, text, view};
use onlooker_testkit::wait_until;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn ask(system: &System, args: &[&str]) -> (Vec<Value>, i32) {
    let output = system.onlooker(&[args, &["--json"]].concat());
    let code = output.status.code().unwrap();
    assert!(code == 0 || code == 3, "{}", text(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), code)
}

/// A shadow is what the live counts are. Returns the views.
fn same(system: &System, shadow: &Path) -> u64 {
    let (lines, code) = ask(system, &["diff", &shadow.display().to_string()]);
    assert_eq!((lines.len(), code), (1, 0), "{lines:?}");
    let compared = &lines[0]["compared"];
    assert_eq!(compared["live_views"], compared["shadow_views"], "{compared}");
    compared["live_views"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_of_a_real_log_is_what_live_counts_are_while_views_come_in() {
    let config = "[flusher]\ninterval_ms = 1000\n".to_owned();
    let system = System::start(Wishes { config, ..Wishes::default() });
    let _roles = system.all_roles();
    let (file, collector) = (log_file("attackers").display().to_string(), system.collector_url());
    let imported = system.onlooker(&["import", &file, "--site", "blog", "--collector", &collector]);
    assert!(imported.status.success(), "{}", text(&imported));
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let sending = {
        let (http, stop, sent) = (system.http(), Arc::clone(&stop), Arc::clone(&sent));
        tokio::spawn(async move {
            let mut pause = tokio::time::interval(std::time::Duration::from_millis(20));
            for n in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                pause.tick().await;
                let views = (0..10).map(|i| view(&format!("item {i}"), &format!("viewer {n}")));
                http.send(&views.collect::<Vec<_>>()).await;
                sent.fetch_add(10, Ordering::Relaxed);
            }
        })
    };
    wait_until("some views", LONG, || sent.load(Ordering::Relaxed) > 500).unwrap();
    for command in ["rebuild", "replay"] {
        let shadow = system.folder.path().join(command);
        let (lines, _) = ask(&system, &[command, "--into", &shadow.display().to_string()]);
        assert_eq!(lines.last().unwrap()["done"], lines.last().unwrap()["of"], "{lines:?}");
        let views = same(&system, &shadow);
        assert!(views > 2_198, "{command}: {views}");
    }
    stop.store(true, Ordering::Relaxed);
    sending.await.unwrap();
    // By a window of five minutes, of the attackers' paths exactly ten have more views, 85 in all.
    let rules = system.folder.path().join("rules.toml");
    std::fs::write(&rules, "[sites.blog]\nwindow_s = 300\n").unwrap();
    let (lines, code) = ask(&system, &["recount", "--rules", &rules.display().to_string(), "--dry-run"]);
    let paths: Vec<&Value> = lines
        .iter()
        .filter(|line| line["scope"] == "*" && line["item"].as_str().unwrap().starts_with('/'))
        .collect();
    let more = |line: &&Value| line["shadow_views"].as_u64().unwrap() - line["live_views"].as_u64().unwrap();
    assert_eq!((paths.len(), paths.iter().map(more).sum::<u64>(), code), (10, 85, 3), "{paths:?}");
    let (lines, code) = ask(&system, &["verify", "--all"]);
    assert_eq!((lines.len(), code), (1, 0), "{lines:?}");
}
