//! What an archive has lost, although it had acknowledged it.

use crate::support::{Client, Home, Running, view};
use onlooker_embedded::log::{EmbeddedLog, LogConfig};
use onlooker_embedded::store::{Folder, RedbArchive};
use onlooker_event::{CountKey, ItemId, ItemKey, Scope, SiteId, partition_of};
use onlooker_ports::{Archive, ArchiveCell};
use serde_json::Value;
use std::path::PathBuf;

const ITEM: &str = "item";

fn file(home: &Home) -> PathBuf {
    home.folder().join("archive.redb")
}

async fn seen_by(running: &Running, client: &Client, viewers: std::ops::Range<u64>) {
    for viewer in viewers.clone() {
        client.send(&view(ITEM, &format!("viewer {viewer}"))).await;
    }
    running.settle(client, &[(ITEM.to_owned(), viewers.end)].into()).await;
}

/// Puts an older archive in place of the folder's, with what is durable as it was; and a number, if one is given.
async fn put_back(home: &Home, older: &[u8], number: Option<u64>) {
    let open = || {
        let folder = Folder::open(home.folder()).unwrap();
        let (log, report) = EmbeddedLog::open(&folder.log().unwrap(), 2, LogConfig::default()).unwrap();
        let archive = RedbArchive::open(&folder.archive(), &format!("{:016x}", report.id), 1 << 20);
        (archive.unwrap(), log, folder)
    };
    let key = ItemKey::new(&SiteId::new("main").unwrap(), &ItemId::new(ITEM).unwrap());
    let partition = partition_of(key.as_bytes(), 2);
    let (archive, log, folder) = open();
    let durable = archive.durable(partition).await.unwrap().unwrap();
    log.close().await;
    drop((archive, folder));
    std::fs::write(file(home), older).unwrap();
    let (archive, log, _folder) = open();
    archive.set_durable(partition, durable).await.unwrap();
    let key = CountKey::new(Scope::All, key.as_bytes());
    if let Some(n) = number {
        for outcome in archive.write(&[ArchiveCell::Number { key: key.clone(), n, u: durable }]).await {
            outcome.unwrap();
        }
    }
    log.close().await;
}

/// Of the item's differences, all time: place, what, direction, stored and from the log.
fn found(home: &Home) -> Vec<Value> {
    let (lines, code) = home.ask(&["verify", ITEM]);
    assert_eq!(code, 3, "{lines:?}");
    let of_all = lines.into_iter().filter(|line| line["key"] == "*:main:item" && line["place"] == "archive");
    of_all.map(|l| serde_json::json!([l["what"], l["direction"], l["stored"], l["from_log"]])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_lost_what_it_acknowledged_is_found_out() {
    let home = Home::with_token(&[]);
    home.start().stop();
    let empty = std::fs::read(file(&home)).unwrap();
    let running = home.start();
    seen_by(&running, &running.client(), 0..3).await;
    running.stop();
    let older = std::fs::read(file(&home)).unwrap();
    let running = home.start();
    seen_by(&running, &running.client(), 0..5).await;
    running.stop();
    let whole = std::fs::read(file(&home)).unwrap();
    assert_eq!(home.ask(&["verify", ITEM]).1, 0);

    // Each cell is right by its own offset, and is not what was archived last.
    put_back(&home, &older, None).await;
    let too_few = |what: &str| serde_json::json!([what, "too few", 3, 5]);
    assert_eq!(found(&home), [too_few("sketch"), too_few("views")]);

    std::fs::write(file(&home), &whole).unwrap();
    put_back(&home, &empty, None).await;
    let missing = |what: &str| serde_json::json!([what, "missing", null, 5]);
    assert_eq!(found(&home), [missing("sketch"), missing("views")]);

    std::fs::write(file(&home), &whole).unwrap();
    put_back(&home, &empty, Some(5)).await;
    assert_eq!(found(&home), [missing("sketch")]);
}
