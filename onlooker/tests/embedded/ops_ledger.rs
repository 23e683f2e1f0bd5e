//! Whether every accepted view has exactly one outcome, as an operator is told.

use crate::support::{Books, Home, LONG, text, view};
use onlooker_embedded::log::{EmbeddedLog, LogConfig};
use onlooker_embedded::store::Folder;
use onlooker_event::ItemKey;
use onlooker_ports::{LogWriter, OutgoingBatch, Topic};
use onlooker_proto::encode_counted;
use onlooker_testkit::wait_until;
use serde_json::{Value, json};

/// The hours, and the sum.
fn ledger(home: &Home, args: &[&str]) -> (Vec<Value>, Value, i32) {
    let (mut lines, code) = home.ask(&[&["ledger"], args].concat());
    let total = lines.pop().unwrap();
    assert_eq!(total["line"], "total");
    (lines, total, code)
}

fn sum(hours: &[Value], field: &str) -> u64 {
    hours.iter().map(|hour| hour[field].as_u64().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_view_is_accounted_for() {
    let home = Home::with_token(&["ledger.every_s=1"]);
    let mut running = Some(home.start());
    let (hours, total, code) = ledger(&home, &[]);
    assert_eq!((hours.len(), &total["accepted"], code), (0, &json!(0), 0), "of an empty system");
    let client = running.as_ref().unwrap().client();
    for n in 0..30 {
        client.send(&json!([view("a", &format!("viewer {}", n % 20)), view("b", "one")])).await;
    }
    let settled = || ledger(&home, &[]).1["pending"] == 0;
    wait_until("every view to be judged", LONG, settled).unwrap();
    for open in [true, false] {
        if !open {
            let process = running.take().unwrap();
            wait_until("the ledger to be kept", LONG, || {
                process.metric("onlooker_ledger_checked_timestamp_seconds") > 0.0
            })
            .unwrap();
            assert_eq!(process.metric("onlooker_ledger_open_views"), 0.0);
            process.stop();
        }
        let (hours, total, code) = ledger(&home, &["--site", "main"]);
        assert_eq!((&total["closes"], code), (&json!(true), 0), "{total}");
        assert_eq!((sum(&hours, "accepted"), sum(&hours, "counted")), (60, 21), "{hours:?}");
        let ignored: u64 =
            hours.iter().map(|hour| hour["ignored"]["recent_view"].as_u64().unwrap_or(0)).sum();
        assert_eq!((ignored, sum(&hours, "dead"), &total["shortened"]), (39, 0, &json!(false)));
        assert_eq!(ledger(&home, &["--site", "nobody"]).0.len(), 0);
    }
    let shown = text(&home.on_folder(&["ledger"]));
    assert!(shown.contains("every other one has one outcome") && shown.contains("recent_view 39"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_too_many_is_told() {
    let home = Home::with_token(&[]);
    let running = home.start();
    running.client().send(&json!([view("a", "one"), view("b", "one")])).await;
    running.settle(&running.client(), &[("a".to_owned(), 1), ("b".to_owned(), 1)].into()).await;
    running.stop();
    // Somebody appends garbage, which is an outcome of its own, and a verdict once more.
    let (_, counted) = Books::of(home.folder()).await.counted.swap_remove(0);
    let (key, mut verdict) = (ItemKey::new(&counted.site, &counted.item), Vec::new());
    encode_counted(&counted, &mut verdict);
    let folder = Folder::open(home.folder()).unwrap();
    let (log, _) = EmbeddedLog::open(&folder.log().unwrap(), 2, LogConfig::default()).unwrap();
    let mut batch = OutgoingBatch::default();
    batch.push(Topic::Counted, key.as_bytes(), &verdict);
    batch.push(Topic::Views, b"k", b"garbage");
    log.writer().append(batch).await.unwrap();
    log.close().await;
    drop(folder);
    let (hours, total, code) = ledger(&home, &[]);
    assert_eq!((&total["closes"], &total["extra"], code), (&json!(false), &json!(1), 3), "{total}");
    assert_eq!(
        (sum(&hours, "accepted"), sum(&hours, "counted"), sum(&hours, "dead")),
        (3, 2, 1),
        "{hours:?}"
    );
    let of_garbage = hours.iter().find(|hour| hour["dead"] == 1).unwrap();
    assert_eq!(of_garbage["site"], "(unreadable)");
}
