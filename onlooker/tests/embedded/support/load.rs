//! Clients that send views under load, and what they know to be true of them.

use super::{Books, Client};
use onlooker_event::{CountKey, DayNumber, ItemId, ItemKey, Scope, SiteId};
use onlooker_sketch::Sketch;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

const HOUR_MS: i64 = 3_600_000;

/// A view that a client sent.
#[derive(Debug, Clone)]
struct Sent {
    id: String,
    item: String,
    viewer: String,
    /// Views of one hour's first ten minutes are one, those of different hours are not: whatever order they come in.
    hour: i64,
}

impl Sent {
    fn wire(&self, random: &mut StdRng) -> Value {
        let at = self.hour * HOUR_MS + random.random_range(0..600_000);
        json!({ "item": self.item, "viewer": self.viewer, "id": self.id, "at": at })
    }
}

/// A key's sketch, and who looked in which hour.
type Seen<'a> = (Sketch, BTreeSet<(&'a str, i64)>);

/// What was acknowledged so far.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged(Vec<Sent>);

impl Acknowledged {
    pub(crate) fn ids(&self) -> HashSet<String> {
        self.0.iter().map(|sent| sent.id.clone()).collect()
    }

    /// Views of each item.
    pub(crate) fn views(&self) -> BTreeMap<String, u64> {
        let distinct: BTreeSet<_> = self.0.iter().map(|s| (&s.item, &s.viewer, s.hour)).collect();
        let mut views = BTreeMap::new();
        for (item, ..) in distinct {
            *views.entry(item.clone()).or_default() += 1;
        }
        views
    }

    /// Numbers and sketches of all keys are those of the views that the clients know of: nothing is taken from the
    /// verdicts, only the viewers' hashes from the views.
    pub(crate) fn check(&self, books: &Books) {
        let hashes: HashMap<&str, [u8; 16]> = (books.views.iter())
            .filter_map(|(_, view)| Some((view.client_id.as_ref()?.as_str(), view.viewer.0)))
            .collect();
        let mut viewers: HashMap<&str, [u8; 16]> = HashMap::new();
        let mut expected: BTreeMap<String, Seen<'_>> = BTreeMap::new();
        let site = SiteId::new("main").unwrap();
        for sent in &self.0 {
            let hash = hashes[sent.id.as_str()];
            assert_eq!(*viewers.entry(&sent.viewer).or_insert(hash), hash, "{} has two hashes", sent.viewer);
            let item = ItemKey::new(&site, &ItemId::new(&sent.item).unwrap());
            for scope in [Scope::All, Scope::Day(DayNumber::of_ms(sent.hour * HOUR_MS))] {
                let key = CountKey::new(scope, item.as_bytes());
                let key = String::from_utf8(key.as_bytes().to_vec()).unwrap();
                let (sketch, views) = expected.entry(key).or_default();
                sketch.add(&hash);
                views.insert((&sent.viewer, sent.hour));
            }
        }
        let counts = books.check_counts();
        assert_eq!(counts.len(), expected.len(), "keys");
        for (key, (sketch, views)) in expected {
            let (counted, n) = &counts[&key];
            assert_eq!(*n, views.len() as u64, "{key}");
            assert!(counted.register_eq(&sketch), "{key}: the sketch is not that of its viewers");
        }
    }
}

/// Several clients at once. Each sends a request again, with the same ids, until it is acknowledged.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Acknowledged>>,
    senders: Vec<JoinHandle<()>>,
}

impl Load {
    /// `pause_ms` lie between two requests of a client.
    pub(crate) fn start(senders: usize, items: usize, pause_ms: u64, client: impl Fn() -> Client) -> Self {
        let pause = Duration::from_millis(pause_ms);
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::<Mutex<Acknowledged>>::default();
        let senders = (0..senders)
            .map(|n| {
                tokio::spawn(send(client(), n, items, pause, Arc::clone(&stop), Arc::clone(&acknowledged)))
            })
            .collect();
        Self { stop, acknowledged, senders }
    }

    /// How many views were acknowledged.
    pub(crate) fn len(&self) -> usize {
        self.acknowledged.lock().unwrap().0.len()
    }

    pub(crate) fn ids(&self) -> HashSet<String> {
        self.acknowledged.lock().unwrap().ids()
    }

    /// Tells the clients to send nothing new; each still repeats its last request until it is acknowledged.
    pub(crate) fn fade(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends the load, with everything acknowledged that was ever tried.
    pub(crate) async fn end(self) -> Acknowledged {
        self.fade();
        for sender in self.senders {
            sender.await.unwrap();
        }
        std::mem::take(&mut *self.acknowledged.lock().unwrap())
    }
}

async fn send(
    client: Client,
    sender: usize,
    items: usize,
    pause: Duration,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Acknowledged>>,
) {
    let mut random = StdRng::seed_from_u64(sender as u64);
    let mut pause = interval(pause);
    pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let this_hour = i64::try_from(now.as_millis()).unwrap() / HOUR_MS;
    for request in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        // Skewed to low numbers, with repeats of viewers and items.
        let batch = if random.random_range(0..3) == 0 { 1 } else { random.random_range(2..30) };
        let sent: Vec<Sent> = (0..batch)
            .map(|n| Sent {
                id: format!("{sender}-{request}-{n}"),
                item: format!("item {}", (random.random::<f64>().powi(3) * items as f64) as usize),
                viewer: format!("viewer {}", random.random_range(0..400)),
                hour: this_hour - random.random_range(1..30),
            })
            .collect();
        let mut views: Vec<Value> = sent.iter().map(|sent| sent.wire(&mut random)).collect();
        let body = if batch == 1 { views.remove(0) } else { json!(views) };
        loop {
            pause.tick().await;
            match client.try_send(&body).await {
                Some((202, _, answer)) => {
                    assert_eq!(answer["accepted"], batch, "{answer}");
                    break;
                }
                Some((503, ..)) | None => {}
                Some((status, _, answer)) => panic!("{status} {answer}"),
            }
        }
        acknowledged.lock().unwrap().0.extend(sent);
    }
}
