//! Two counters and two flushers over servers that lose, delay, repeat and refuse what they are asked. Each run follows
//! from its seed, but for the waits between tries; at the end every count is exact.

use crate::house::{House, PARTITIONS, until};
use onlooker_model::Fate;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;
use tokio::time::sleep;

async fn run(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut house = House::new();
    house.config.batch_records = rng.random_range(1..50);
    house.config.base_bytes = if rng.random_bool(0.5) { 1 } else { 1 << 20 };
    house.config.known_keys = if rng.random_bool(0.5) { 4 } else { 1000 };
    house.config.idle_ms = 500;
    house.flusher.interval_ms = 700;
    let trouble = rng.random_range(0.0..0.3);
    for (salt, journal) in [(1, &house.counts.journal), (2, &house.archive.journal)] {
        let mut rng = StdRng::seed_from_u64(seed ^ (salt << 32));
        journal.judge(move |_, _| match rng.random_range(0.0..1.0) {
            x if x > trouble => Fate::Well,
            x if x < trouble * 0.3 => Fate::Lost,
            x if x < trouble * 0.6 => Fate::Unanswered,
            x if x < trouble * 0.9 => Fate::Late(Duration::from_millis(rng.random_range(1..3000))),
            _ => Fate::Full,
        });
    }
    let mut counters = vec![house.count(&[0]), house.count(&[1])];
    let flushers = [house.flush(), house.flush()];
    for _ in 0..rng.random_range(20..100) {
        for _ in 0..rng.random_range(0..20) {
            // An item lives in one partition.
            let partition = rng.random_range(0..PARTITIONS);
            let item = format!("{partition}/{}", rng.random_range(0..8));
            house.view(partition, &item, rng.random_range(0..300));
        }
        sleep(Duration::from_millis(rng.random_range(0..200))).await;
        let partition = rng.random_range(0..PARTITIONS);
        match rng.random_range(0..20) {
            0 => house.counts.flush_all(),
            1 => _ = house.evict_all(),
            2 => _ = house.counts.with(partition, |c| c.sweep(u32::MAX)),
            // A counter dies wherever it is, and another one takes its partitions.
            3 => {
                let at = rng.random_range(0..2);
                counters[at].task.abort();
                counters[at] = house.count(&[i32::try_from(at).unwrap()]);
            }
            // Both hold a partition for a while.
            4 => counters.iter().for_each(|c| c.assignment.assign(&[partition])),
            5 => {
                let owner = usize::try_from(partition).unwrap();
                counters[1 - owner].assignment.revoke(&[partition]);
            }
            6 => house.log.marker(partition),
            7 => house.counts.slow(partition, Duration::from_millis(rng.random_range(0..1500))),
            _ => {}
        }
    }
    // Calm again: one owner each.
    for (at, counter) in counters.iter().enumerate() {
        counter.assignment.revoke(&[0, 1]);
        counter.assignment.assign(&[i32::try_from(at).unwrap()]);
    }
    (0..PARTITIONS).for_each(|partition| house.counts.slow(partition, Duration::ZERO));
    house.counts.journal.heal();
    house.archive.journal.heal();
    house.until_caught_up().await;
    // What was late has landed by now.
    sleep(Duration::from_secs(5)).await;
    house.until_caught_up().await;
    house.check();
    until("durable", || (0..PARTITIONS).all(|p| house.durable(p) == Some(house.log.end(p)))).await;
    house.check_archive();
    for counter in counters {
        counter.stop().await;
    }
    for (stop, task) in flushers {
        stop.request();
        task.await.unwrap().unwrap();
    }
    house.check();
}

#[tokio::test(start_paused = true)]
async fn every_count_is_exact_in_the_end() {
    let seeds = std::env::var("CHAOS_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    for seed in 0..seeds {
        println!("seed {seed}");
        run(seed).await;
    }
}
