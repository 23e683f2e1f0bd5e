//! A sketch of the archive that is none any more, needed by a store that was emptied.

use super::field::Field;
use super::load::wire;
use crate::schedule::Timeline;
use crate::support::{LONG, Role, text};
use onlooker_event::{ItemId, ItemKey, SiteId, partition_of};
use onlooker_testkit::{wait_until, wait_until_async};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

const SAID: &str = "archived sketch is damaged and stays out of service";

/// An item of its own, so that nothing else is counted of it. What is archived with timestamp T of an item that had no
/// record since is also what lies below T + 1 and T + 2: so damage and cure have timestamps that are true.
pub(super) async fn damage_archive(field: &Field, pick: usize, timeline: &Timeline) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let system = &field.system;
    let item = format!("rare {number}");
    let partition = partition_of(key_of(&item).as_bytes(), system.partitions);
    send(field, &item, "first").await;
    let archive = system.archive().await;
    let row = format!("*:blog:{item}");
    wait_until_async("the item to be archived", LONG, || async {
        archive.rows().await.get(&row).is_some_and(|row| row.blob.is_some() && row.views.is_some())
    })
    .await
    .unwrap();
    let (good, below) = archive.rows().await[&row].blob.clone().unwrap();
    for n in 0.. {
        if tokio::task::block_in_place(|| system.log().end("views.counted", partition)) > below + 3 {
            break;
        }
        send(field, &format!("common {number} {n}"), "first").await;
    }
    let bad =
        if pick.is_multiple_of(2) { b"no sketch at all".to_vec() } else { good[..good.len() / 2].to_vec() };
    timeline.note(format!("{} bytes that are no sketch in the archive's row {row}, FLUSHALL", bad.len()));
    archive.put_blob(&item, &bad, below + 1).await;
    let counters = field.of(&["counter"]);
    let told = || counters.iter().map(|counter| counter.log().matches(SAID).count()).sum::<usize>();
    let before = told();
    tokio::task::block_in_place(|| system.counters_eyes().flush_all());
    send(field, &item, "second").await;
    tokio::task::block_in_place(|| wait_until("the damage to be told", LONG, || told() > before)).unwrap();
    timeline.note("it is told");
    // A number may be shown, and never a sketch that is not whole.
    let http = system.http();
    wait_until_async("the item's number", LONG, || async {
        let count = &http.counts(&[&item]).await[0];
        assert!(count["uniques"].is_null() || count["status"] != "ok", "{count}");
        count["status"] != "rebuilding"
    })
    .await
    .unwrap();
    let output = tokio::task::block_in_place(|| system.onlooker(&["verify", &item, "--site", "blog"]));
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("damaged"), "{}", text(&output));
    assert_eq!(archive.rows().await[&row].blob, Some((bad, below + 1)), "it is not written over");
    // The cure. A flusher that is at work could raise again what is durable.
    let flushers = field.of(&["flusher"]);
    tokio::task::block_in_place(|| flushers.iter().for_each(|flusher| _ = flusher.stop(LONG)));
    archive.put_blob(&item, &good, below + 2).await;
    archive.lower_durable(partition, below).await;
    tokio::task::block_in_place(|| system.counters_eyes().flush_all());
    flushers.iter().for_each(|flusher| Role::restart(flusher));
    timeline.note("a good copy is back, and what is durable lowered; FLUSHALL");
}

fn key_of(item: &str) -> ItemKey {
    ItemKey::new(&SiteId::new("blog").unwrap(), &ItemId::new(item).unwrap())
}

/// Until it is acknowledged.
async fn send(field: &Field, item: &str, viewer: &str) {
    let views: [Value; 1] = [wire(item, viewer, &format!("{item} {viewer}"))];
    let http = field.system.http();
    let taken = || async { matches!(http.try_send(&json!(views)).await, Some((202, _))) };
    wait_until_async("a view to be taken", LONG, taken).await.unwrap();
}
