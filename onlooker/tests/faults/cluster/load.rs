//! Clients of a cluster.

use super::field::ITEMS;
use crate::support::{Http, System, view};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::interval;

pub(super) fn wire(item: &str, viewer: &str, id: &str) -> Value {
    let mut view = view(item, viewer);
    view["id"] = json!(id);
    view
}

/// Clients that send each request again, with the same ids, until it is acknowledged.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    senders: Vec<JoinHandle<HashSet<String>>>,
}

impl Load {
    pub(super) fn start(system: &System) -> Self {
        // No two loads share an id.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let stop = Arc::new(AtomicBool::new(false));
        let sender = |_| {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(send(system.http(), number, Arc::clone(&stop)))
        };
        Self { senders: (0..3).map(sender).collect(), stop }
    }

    pub(super) async fn end(self) -> HashSet<String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut acknowledged = HashSet::new();
        for sender in self.senders {
            acknowledged.extend(sender.await.unwrap());
        }
        acknowledged
    }
}

async fn send(http: Http, sender: u64, stop: Arc<AtomicBool>) -> HashSet<String> {
    let mut random = StdRng::seed_from_u64(sender);
    let mut acknowledged = HashSet::new();
    let mut pause = interval(Duration::from_millis(25));
    for batch in 0.. {
        let ids: Vec<String> = (0..5).map(|n| format!("{sender}-{batch}-{n}")).collect();
        let views: Vec<Value> = ids
            .iter()
            .map(|id| {
                let item = (random.random::<f64>().powi(3) * ITEMS as f64) as usize;
                wire(&format!("item {item}"), &format!("viewer {}", random.random_range(0..2_000)), id)
            })
            .collect();
        // To its end, even if the load is to stop: an id that was tried is in the log or not, and the client knows.
        loop {
            pause.tick().await;
            if let Some((202, answer)) = http.try_send(&json!(views)).await {
                assert_eq!(answer["accepted"], 5, "{answer}");
                break;
            }
        }
        acknowledged.extend(ids);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    acknowledged
}
