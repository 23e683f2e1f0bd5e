//! A cluster's counts that are wrong, in Redis or in Cassandra, are replaced by what the log gives.

use crate::support::{LONG, System, Wishes, text, view};
use onlooker_event::partition_of;
use onlooker_sketch::Sketch;
use onlooker_testkit::{wait_until, wait_until_async};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const WRONG: [&str; 4] = ["archived sketch", "lost member", "number", "removed"];

fn ask(system: &System, args: &[&str]) -> (Vec<Value>, i32) {
    let output = system.onlooker(&[args, &["--json"]].concat());
    let code = output.status.code().unwrap();
    assert!(code == 0 || code == 3, "{}", text(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), code)
}

/// Items that the lines of an answer name.
fn items(lines: &[Value]) -> Vec<&str> {
    let mut items: Vec<&str> = lines.iter().filter_map(|line| line["item"].as_str()).collect();
    items.sort_unstable();
    items
}

/// Changes what the servers have of `WRONG`, each in another way.
async fn damage(system: &System) {
    let eyes = system.counters_eyes();
    let keys = eyes.keys();
    let of = |kind: &str, item: &str| {
        let partition = partition_of(format!("blog:{item}").as_bytes(), system.partitions);
        let part = format!(".{partition}.");
        let named = |key: &&String| match kind {
            "sketch" => key.starts_with("sketch:{") && key.ends_with(&format!("}}:*:blog:{item}")),
            _ => key.starts_with(&format!("{kind}:{{")) && key.contains(&part),
        };
        keys.iter().find(named).unwrap_or_else(|| panic!("no {kind} of {item} in {keys:?}")).clone()
    };
    // u, n and when: small enough to be text.
    let number = "\u{1}\0\0\0\0\0\0\0\u{7}\u{7}\0\0\0\0\0\0\u{1}\0\0\0";
    eyes.command(&["HSET", &of("totals", "number"), "*:blog:number", number]);
    let sketch = of("sketch", "lost member");
    eyes.command(&["DEL", &sketch]);
    eyes.command(&["PFADD", &sketch, "a stranger"]);
    // Somebody removed what was not archived yet: nothing of its partition becomes durable any more.
    let removed = of("sketch", "removed");
    eyes.command(&["DEL", &removed]);
    let partition = partition_of(b"blog:removed", system.partitions);
    let any = keys.iter().find(|key| key.starts_with("applied:{") && key.contains(&format!(".{partition}.")));
    eyes.command(&["HSET", &any.unwrap().replace("applied", "dirtyS"), &removed, "1"]);
    let archive = system.archive().await;
    let (_, written) = archive.rows().await["*:blog:archived sketch"].blob.clone().unwrap();
    let mut strangers = Sketch::new();
    (0..9u8).for_each(|n| _ = strangers.add(&[n; 16]));
    archive.put_blob("archived sketch", &strangers.to_redis(), written + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_counts_of_a_cluster_are_replaced_while_views_come_in() {
    let config = "[flusher]\ninterval_ms = 500\n".to_owned();
    let system = System::start(Wishes { config, ..Wishes::default() });
    let roles = system.all_roles();
    let http = system.http();
    let views = WRONG.iter().flat_map(|item| (0..6).map(|n| view(item, &format!("viewer {n}"))));
    http.send(&views.collect::<Vec<_>>()).await;
    wait_until_async("the views to be counted", LONG, || async {
        http.counts(&WRONG).await.iter().all(|count| count["views"] == 6 && count["uniques"] == 6)
    })
    .await
    .unwrap();
    let settled = || {
        let (lines, _) = ask(&system, &["lag"]);
        !lines.is_empty() && lines.iter().all(|line| line["durable"] == line["end"])
    };
    wait_until("the rows to be archived", LONG, settled).unwrap();
    let archive = system.archive().await;
    wait_until_async("all rows", LONG, || async {
        let rows = archive.rows().await;
        WRONG.iter().all(|item| {
            rows.get(&format!("*:blog:{item}")).is_some_and(|row| row.blob.is_some() && row.views.is_some())
        })
    })
    .await
    .unwrap();

    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let sending = {
        let (http, stop, sent) = (system.http(), Arc::clone(&stop), Arc::clone(&sent));
        tokio::spawn(async move {
            let mut pause = tokio::time::interval(Duration::from_millis(20));
            for n in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                pause.tick().await;
                let views = (0..40).map(|i| view(&format!("item {i}"), &format!("viewer {n}")));
                http.send(&views.collect::<Vec<_>>()).await;
                // No reader ever sees a loss.
                for count in http.counts(&["item 1", "item 2", "number"]).await {
                    assert!(count["status"] != "rebuilding", "{count}");
                }
                sent.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    wait_until("some views", LONG, || sent.load(Ordering::Relaxed) > 30).unwrap();
    damage(&system).await;
    let into = system.folder.path().join("shadow").display().to_string();
    let (lines, code) = ask(&system, &["rebuild", "--into", &into, "--swap"]);
    assert_eq!((items(&lines), code), (WRONG.to_vec(), 0), "{lines:?}");
    let done = lines.last().unwrap();
    println!("{done}");
    assert_eq!((&done["swapped"], &done["left"]), (&json!(4), &json!(0)), "{done}");
    let (lines, code) = ask(&system, &["verify", "--all"]);
    assert_eq!((lines.len(), code), (1, 0), "{lines:?}");
    let (lines, code) = ask(&system, &["diff", &into]);
    assert_eq!((lines.len(), code), (1, 0), "{lines:?}");
    let counts = http.counts(&WRONG).await;
    assert!(counts.iter().all(|count| count["views"] == 6 && count["uniques"] == 6), "{counts:?}");
    assert_eq!(ask(&system, &["rebuild", "--into", &into, "--confirm"]).1, 0);
    stop.store(true, Ordering::Relaxed);
    sending.await.unwrap();
    assert!(roles.iter().all(crate::support::Role::is_alive));

    // A row of the very offset where its partition stands still, and that Cassandra prefers: it is said, and one more view
    // is what it takes.
    wait_until("all of it to be archived", LONG, settled).unwrap();
    let at = archive.durable().await[&(partition_of(b"blog:number", system.partitions))];
    archive.put_blob("number", b"ZZZZ", at).await;
    let (lines, code) = ask(&system, &["rebuild", "--into", &into, "--swap"]);
    let left = lines.iter().find(|line| line["item"] == "number").unwrap();
    assert!(code == 3 && left["left"].as_str().unwrap().contains("one more view"), "{lines:?}");
    http.send(&[view("number", "another viewer")]).await;
    wait_until_async("the view to be counted", LONG, || async {
        http.counts(&["number"]).await[0]["views"] == 7
    })
    .await
    .unwrap();
    assert_eq!(ask(&system, &["rebuild", "--into", &into, "--confirm"]).1, 0);
    let (lines, code) = ask(&system, &["rebuild", "--into", &into, "--swap"]);
    assert_eq!(code, 0, "{lines:?}");
    let (lines, code) = ask(&system, &["verify", "--all"]);
    assert_eq!((lines.len(), code), (1, 0), "{lines:?}");
}
