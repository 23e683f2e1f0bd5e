//! The process is killed at random moments, while several clients send.

use crate::support::load::Load;
use crate::support::{Books, Client, Home, LONG, TOKEN};
use onlooker_testkit::{full, ports, wait_until_async};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

#[tokio::test(flavor = "multi_thread")]
async fn kills_at_random_moments_lose_and_repeat_nothing() {
    let rounds = if full() { 200 } else { 40 };
    let port = ports::free_port().unwrap();
    // Small files and little memory: so that files are begun and sketches evicted between any two kills.
    let home = Home::with_token(&[
        &format!("collector.listen=127.0.0.1:{port}"),
        "embedded.log.segment_bytes=65536",
        "embedded.counts_bytes=1048576",
        "flusher.interval_ms=100",
        "counter.durable_ms=100",
    ]);
    let url = format!("http://127.0.0.1:{port}");
    let load = Load::start(6, 60, 3, || Client::new(&url, Some(TOKEN)));
    let mut random = StdRng::seed_from_u64(200);
    let mut tick = interval(Duration::from_millis(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for round in 1..=rounds {
        let process = home.launch();
        // Some die before they have opened the folder or while they read it, most while they work.
        let at_work = round % 4 != 0;
        if at_work {
            let before = load.len();
            wait_until_async("views to be taken in", LONG, async || load.len() > before).await.unwrap();
        }
        for _ in 0..random.random_range(0..250) {
            tick.tick().await;
        }
        process.kill();
        if round % 20 == 0 {
            let acknowledged = load.ids();
            Books::of(home.folder()).await.check_part(&acknowledged);
        }
    }
    assert!(load.len() > rounds * 100, "{} views in {rounds} rounds", load.len());
    let running = home.start();
    let acknowledged = load.end().await;
    running.settle(&running.client(), &acknowledged.views()).await;
    running.stop();
    let books = Books::of(home.folder()).await;
    books.check_outcomes(&acknowledged.ids());
    acknowledged.check(&books);
    let (views, counted) = (books.views.len(), books.counted.len());
    eprintln!("{views} views, {counted} counted, {} acknowledged, {rounds} kills", acknowledged.ids().len());
}
