//! Counter and flusher on the models of their servers, with the truth beside them.

use onlooker_counter::{CounterConfig, CounterError, CounterPorts};
use onlooker_event::{CountKey, DayNumber, Digest128, ItemId, Scope, SiteId, ViewId, ViewerHash};
use onlooker_flusher::{FlusherConfig, FlusherError, FlusherPorts};
use onlooker_model::{ArchivePort, Assignment, CountsPort, Log, Stored};
use onlooker_proto::{Counted, encode_counted};
use onlooker_sketch::Sketch;
use onlooker_stage::{Health, ShutdownTrigger};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

pub(crate) const PARTITIONS: i32 = 2;
pub(crate) const DAY: i32 = 20_000;

/// A counter that runs.
pub(crate) struct Running {
    pub(crate) trigger: ShutdownTrigger,
    pub(crate) task: JoinHandle<Result<(), CounterError>>,
    pub(crate) assignment: Assignment,
    pub(crate) health: Health,
}

impl Running {
    pub(crate) async fn stop(self) {
        self.trigger.request();
        self.task.await.unwrap().unwrap();
    }

    pub(crate) fn ready(&self) -> bool {
        self.health.report(false).ready
    }

    /// What its components say is the matter.
    pub(crate) fn reasons(&self) -> Vec<String> {
        self.health.report(false).components.into_iter().filter_map(|c| c.reason).collect()
    }
}

pub(crate) struct House {
    pub(crate) log: Log,
    pub(crate) counts: CountsPort,
    pub(crate) archive: ArchivePort,
    pub(crate) config: CounterConfig,
    pub(crate) flusher: FlusherConfig,
    truth: BTreeMap<(i32, CountKey), (u64, Sketch)>,
}

impl House {
    pub(crate) fn new() -> Self {
        Self {
            log: Log::new(PARTITIONS as usize),
            counts: CountsPort::default(),
            archive: ArchivePort::default(),
            config: CounterConfig { hot_members: 2, durable_ms: 7_000, ..CounterConfig::default() },
            flusher: FlusherConfig { page_keys: 3, ..FlusherConfig::default() },
            truth: BTreeMap::new(),
        }
    }

    /// A counter with these partitions.
    pub(crate) fn count(&self, partitions: &[i32]) -> Running {
        let reader = self.log.reader(5);
        let assignment = reader.assignment();
        assignment.assign(partitions);
        let (trigger, health) = (ShutdownTrigger::default(), Health::new());
        let ports = CounterPorts {
            reader,
            counts: self.counts.clone(),
            archive: self.archive.clone(),
            dead: self.log.clone(),
        };
        let run = onlooker_counter::run(self.config.clone(), ports, health.clone(), trigger.shutdown());
        Running { trigger, task: tokio::spawn(run), assignment, health }
    }

    pub(crate) fn flush(&self) -> (ShutdownTrigger, JoinHandle<Result<(), FlusherError>>) {
        let trigger = ShutdownTrigger::default();
        let ports = FlusherPorts {
            counts: self.counts.clone(),
            archive: self.archive.clone(),
            partitions: PARTITIONS as u32,
            hurry: None,
        };
        let run = onlooker_flusher::run(self.flusher.clone(), ports, Health::new(), trigger.shutdown());
        (trigger, tokio::spawn(run))
    }

    /// Appends a counted view.
    pub(crate) fn view(&mut self, partition: i32, item: &str, viewer: u32) {
        let (key, payload) = record(item, viewer, DAY);
        for scope in [Scope::All, Scope::Day(DayNumber(DAY))] {
            let entry = self.truth.entry((partition, CountKey::new(scope, &key))).or_default();
            entry.0 += 1;
            entry.1.add(&member(viewer));
        }
        self.log.push(partition, 1_700_000_000_000, Some(&key), Some(&payload));
    }

    /// True if the partitions' stores stand at the log's end.
    pub(crate) fn caught_up(&self) -> bool {
        (0..PARTITIONS).all(|p| self.counts.with(p, |c| c.applied) == Some(self.log.end(p)))
    }

    pub(crate) async fn until_caught_up(&self) {
        until("caught up", || self.caught_up()).await;
    }

    /// Every number is exact and every sketch the log's, in the store or else in the archive.
    pub(crate) fn check(&self) {
        for ((partition, key), (n, sketch)) in &self.truth {
            let row = self.archive.with(|a| a.read(key));
            let (number, held) =
                self.counts.with(*partition, |c| (c.numbers.get(key).copied(), c.sketches.get(key).cloned()));
            let found = number.map(|number| number.n).or(row.number.map(|(n, _)| n));
            assert_eq!(found, Some(*n), "views of {key:?}");
            let held = match held {
                Some(Stored::Sketch(sketch)) => sketch,
                Some(_) => panic!("{key:?} is no sketch"),
                None => Sketch::from_redis(&row.sketch.expect("a sketch somewhere").0).unwrap(),
            };
            assert!(held.register_eq(sketch), "sketch of {key:?}");
        }
    }

    /// The same in the archive alone.
    pub(crate) fn check_archive(&self) {
        for ((_, key), (n, sketch)) in &self.truth {
            let row = self.archive.with(|a| a.read(key));
            assert_eq!(row.number.map(|(n, _)| n), Some(*n), "archived views of {key:?}");
            let archived = Sketch::from_redis(&row.sketch.expect("archived").0).unwrap();
            assert!(archived.register_eq(sketch), "archived sketch of {key:?}");
        }
    }

    /// Every archived sketch is evicted.
    pub(crate) fn evict_all(&self) -> usize {
        let evict = |c: &mut onlooker_model::Counts| {
            let keys: Vec<_> = c.evictable.iter().cloned().collect();
            keys.iter().for_each(|key| c.evict(key));
            keys.len()
        };
        (0..PARTITIONS).map(|p| self.counts.with(p, evict)).sum()
    }

    pub(crate) fn durable(&self, partition: i32) -> Option<i64> {
        self.archive.with(|a| a.durable.get(&partition).copied())
    }
}

pub(crate) fn member(viewer: u32) -> [u8; 16] {
    let mut member = [7; 16];
    member[..4].copy_from_slice(&viewer.to_le_bytes());
    member
}

pub(crate) fn record(item: &str, viewer: u32, day: i32) -> (Vec<u8>, Vec<u8>) {
    let view = Counted {
        view_id: ViewId([9; 16]),
        site: SiteId::new("s").unwrap(),
        item: ItemId::new(item).unwrap(),
        viewer: ViewerHash(member(viewer)),
        event_ms: i64::from(day) * 86_400_000 + 5,
        source_partition: 0,
        source_offset: 1,
        slice: 2,
        slice_s: 3_600,
        claim: Digest128([8; 16]),
        id_claim: None,
        rule_version: 1,
    };
    let mut payload = Vec::new();
    encode_counted(&view, &mut payload);
    (format!("s:{item}").into_bytes(), payload)
}

pub(crate) fn key(item: &str) -> CountKey {
    CountKey::new(Scope::All, format!("s:{item}").as_bytes())
}

/// The clock of these tests stands still unless everybody waits, so this costs no time.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(3600), "never: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
