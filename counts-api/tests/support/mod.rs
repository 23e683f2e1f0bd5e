//! A counts API on a real socket, over counters that live in a map.

use onlooker_counts_api::{CountsApiConfig, run};
use onlooker_event::{CountKey, DayNumber, ItemId, ItemKey, Scope, SiteId, partition_of};
use onlooker_ports::{CountReader, PartitionState, PortError, ReadCount, SketchValue};
use onlooker_sketch::Sketch;
use onlooker_stage::Health;
use onlooker_stage::shutdown::{ShutdownTrigger, channel};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

pub(crate) const PARTITIONS: u32 = 4;

/// What the counters hold, and what was asked of them.
pub(crate) struct State {
    pub(crate) counts: HashMap<CountKey, ReadCount>,
    pub(crate) absent: HashSet<CountKey>,
    pub(crate) state: Option<PartitionState>,
    pub(crate) partitions: Option<u32>,
    /// Everything fails so.
    pub(crate) fault: Option<PortError>,
    pub(crate) wanted: Vec<CountKey>,
    /// Keys of each read.
    pub(crate) reads: Vec<Vec<CountKey>>,
}

#[derive(Clone)]
pub(crate) struct Counters {
    state: Arc<Mutex<State>>,
    /// A read takes one and gives it back; a test that takes all holds reads up.
    pub(crate) gate: Arc<Semaphore>,
    reading: Arc<AtomicUsize>,
}

impl Counters {
    pub(crate) fn new() -> Self {
        let state = State {
            counts: HashMap::new(),
            absent: HashSet::new(),
            state: Some(PartitionState { applied: 10, as_of_ms: 1_796_036_400_000, whole_at: 0 }),
            partitions: Some(PARTITIONS),
            fault: None,
            wanted: Vec::new(),
            reads: Vec::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            gate: Arc::new(Semaphore::new(1_000)),
            reading: Arc::default(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Reads that were asked for and have no answer yet.
    pub(crate) fn reading(&self) -> usize {
        self.reading.load(Ordering::SeqCst)
    }

    /// Counts so many views by these viewers.
    pub(crate) fn put(&self, key: CountKey, views: u64, viewers: Range<u32>) {
        let mut sketch = Sketch::new();
        viewers.for_each(|viewer| _ = sketch.add(&viewer.to_be_bytes()));
        let sketch = Some(SketchValue::Bytes(sketch.to_redis().into()));
        self.state().counts.insert(key, ReadCount { views: Some(views), sketch, known_absent: false });
    }
}

/// The key of an item of the site `s`; no day: all time.
pub(crate) fn key(item: &str, day: Option<i32>) -> CountKey {
    let item = ItemKey::new(&SiteId::new("s").unwrap(), &ItemId::new(item).unwrap());
    CountKey::new(day.map_or(Scope::All, |d| Scope::Day(DayNumber(d))), item.as_bytes())
}

impl CountReader for Counters {
    async fn partitions(&self) -> Result<Option<u32>, PortError> {
        let state = self.state();
        state.fault.clone().map_or(Ok(state.partitions), Err)
    }

    async fn states(&self, partitions: &[i32]) -> Result<Vec<Option<PartitionState>>, PortError> {
        let state = self.state();
        state.fault.clone().map_or(Ok(vec![state.state; partitions.len()]), Err)
    }

    async fn read(&self, keys: &[(i32, CountKey)], bytes: bool) -> Result<Vec<ReadCount>, PortError> {
        self.reading.fetch_add(1, Ordering::SeqCst);
        let _open = self.gate.acquire().await.unwrap();
        self.reading.fetch_sub(1, Ordering::SeqCst);
        let mut state = self.state();
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        for (partition, key) in keys {
            assert_eq!(*partition, partition_of(key.item_bytes(), PARTITIONS), "read where it is not");
        }
        state.reads.push(keys.iter().map(|(_, key)| key.clone()).collect());
        let found = keys.iter().map(|(_, key)| {
            let known_absent = state.absent.contains(key);
            let nothing = ReadCount { views: None, sketch: None, known_absent };
            let mut read = state.counts.get(key).cloned().unwrap_or(nothing);
            if let Some(SketchValue::Bytes(sketch)) = &read.sketch
                && !bytes
            {
                read.sketch = Some(SketchValue::Estimate(Sketch::from_redis(sketch).unwrap().count()));
            }
            read
        });
        Ok(found.collect())
    }

    async fn want(&self, keys: &[(i32, CountKey)]) -> Result<(), PortError> {
        self.state().wanted.extend(keys.iter().map(|(_, key)| key.clone()));
        Ok(())
    }
}

/// A counts API that runs.
pub(crate) struct Api {
    pub(crate) url: String,
    pub(crate) http: reqwest::Client,
    pub(crate) counters: Counters,
    pub(crate) health: Health,
    pub(crate) stop: ShutdownTrigger,
    pub(crate) running: JoinHandle<()>,
}

impl Api {
    pub(crate) async fn start(config: CountsApiConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/counts", listener.local_addr().unwrap());
        let (counters, health) = (Counters::new(), Health::new());
        let (stop, shutdown) = channel();
        let room = run(config, counters.clone(), listener, health.clone(), shutdown);
        let running = tokio::spawn(async move { room.await.unwrap() });
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { url, http: reqwest::Client::new(), counters, health, stop, running }
    }

    pub(crate) async fn get(&self, query: &str) -> reqwest::Response {
        self.http.get(format!("{}?{query}", self.url)).send().await.unwrap()
    }

    pub(crate) async fn post(&self, body: &str) -> reqwest::Response {
        self.http.post(&self.url).body(body.to_owned()).send().await.unwrap()
    }

    /// The counts of a request that succeeds.
    pub(crate) async fn counts(&self, query: &str) -> Vec<Value> {
        let response = self.get(query).await;
        assert_eq!(response.status(), 200);
        response.json::<Value>().await.unwrap()["counts"].as_array().unwrap().clone()
    }
}

/// Polls until it is so, for ten seconds at most.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let poll = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), poll)
        .await
        .unwrap_or_else(|_| panic!("waited in vain for {what}"));
}
