//! A real file system that is full: views are refused, nothing that was acknowledged is lost, and it goes on by itself.

use crate::support::load::Load;
use crate::support::{Books, Disk, Home, LONG, TOKEN, view};
use onlooker_testkit::{wait_until, wait_until_async};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_views_and_goes_on_when_there_is_room() {
    let place = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(&place.path().join("disk"), "96m") else { return };
    let token = format!("sites.main.token={TOKEN}");
    let sets = [token.as_str(), "embedded.log.segment_bytes=1048576", "flusher.interval_ms=200"];
    let home = Home::at(tempfile::tempdir().unwrap(), disk.0.join("data"), &sets);
    let running = home.start();
    let client = running.client();
    let load = Load::start(3, 60, 8, || running.client());
    for round in 1..=2 {
        let before = load.len();
        wait_until("views to be taken in", LONG, || load.len() > before + 500).unwrap();
        disk.fill();
        let refused = || async {
            match client.try_send(&view("probe", &format!("viewer {round}"))).await {
                Some((503, headers, _)) => {
                    let wait = headers["retry-after"].to_str().unwrap().parse::<u32>().unwrap();
                    assert!((1..=60).contains(&wait), "Retry-After: {wait}");
                    true
                }
                _ => false,
            }
        };
        wait_until_async("a view to be refused", LONG, refused).await.unwrap();
        wait_until("readiness to say so", LONG, || running.admin("readyz").unwrap().0 == 503).unwrap();
        assert_eq!(running.admin("livez").unwrap().0, 200, "a full disk is no reason for a restart");
        disk.make_room();
        let before = load.len();
        wait_until("views to be taken in again", LONG, || load.len() > before + 200).unwrap();
        wait_until("readiness", LONG, || running.admin("readyz").unwrap().0 == 200).unwrap();
    }
    let acknowledged = load.end().await;
    running.settle(&client, &acknowledged.views()).await;
    running.stop();
    let books = Books::of(home.folder()).await;
    books.check_outcomes(&acknowledged.ids());
    let counts = books.check_counts();
    for (item, n) in acknowledged.views() {
        assert_eq!(counts[&format!("*:main:{item}")].1, n, "{item}");
    }
}
