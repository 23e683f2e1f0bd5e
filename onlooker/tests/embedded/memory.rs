//! A memory limit that holds a tenth of the sketches (a fourth in the quick suite): counts are what they are without it, and the process stays within
//! the limit and what `docs/configuration.md` says that it takes besides.

use crate::support::{Books, Home, text, view};
use onlooker_testkit::full;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};

const LIMIT: usize = 1 << 20;
/// What a process takes besides `counts_bytes`, `dedup_bytes` and `archive_cache_bytes`, as documented.
const BESIDES: u64 = 320 << 20;

const LARGE: usize = 40;

/// Items with one viewer or two, and how many times the limit all counts then take.
fn size() -> (usize, usize) {
    if full() { (125_000, 10) } else { (52_000, 4) }
}

/// Views of many items with one viewer, and of some with more than a thousand; then of a part of them again.
fn views() -> impl Iterator<Item = (String, String)> {
    let (many, _) = size();
    let small = move |from: &'static str, step: usize| {
        (0..many).step_by(step).map(move |n| (format!("item {n}"), format!("{from} {}", n % 5_000)))
    };
    let large = |from: usize, to: usize| {
        (from..to).flat_map(|n| (0..LARGE).map(move |item| (format!("large {item}"), format!("reader {n}"))))
    };
    large(0, 1_400).chain(small("viewer", 1)).chain(small("second", 7)).chain(large(1_400, 1_500))
}

#[tokio::test(flavor = "multi_thread")]
async fn with_memory_for_a_part_of_the_sketches_counts_are_exact() {
    let (many, times) = size();
    let mut home = Home::with_token(&["flusher.interval_ms=1000"]);
    home.set(&format!("embedded.counts_bytes={LIMIT}"));
    home.set("embedded.dedup_bytes=67108864");
    let running = home.start();
    let client = running.client();
    let all: Vec<Value> = views().map(|(item, viewer)| view(&item, &viewer)).collect();
    for batch in all.chunks(1_000) {
        client.send(&json!(batch)).await;
    }
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    views().for_each(|(item, _)| *expected.entry(item).or_default() += 1);
    let sample = expected.iter().filter(|(item, _)| item.starts_with("large") || item.ends_with("77"));
    running.settle(&client, &sample.map(|(item, n)| (item.clone(), *n)).collect()).await;
    let peak = running.memory("VmHWM");
    running.stop();
    // Counts what may still wait.
    let output = home.on_folder(&["get", "item 1"]);
    assert!(output.status.success(), "{}", text(&output));

    let books = Books::of(home.folder()).await;
    books.check_outcomes(&HashSet::new());
    let counts = books.check_counts();
    assert_eq!(counts.len(), 2 * (many + LARGE), "all time, and the day");
    for (item, n) in &expected {
        assert_eq!(counts[&format!("*:main:{item}")].1, *n, "{item}");
    }
    let bytes: usize = counts.iter().map(|(key, (sketch, _))| key.len() + sketch.to_redis().len()).sum();
    assert!(bytes >= times * LIMIT, "all counts take {bytes} bytes");
    let mib = |bytes: u64| bytes >> 20;
    eprintln!("{} MiB of counts, {} MiB resident at most", mib(bytes as u64), mib(peak));
    let allowed = LIMIT as u64 + (64 << 20) + (16 << 20) + BESIDES;
    assert!(peak < allowed, "{} MiB resident, {} MiB allowed", mib(peak), mib(allowed));
}
