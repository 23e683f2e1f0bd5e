//! The room on the model of its servers.
#![allow(clippy::unwrap_used)]

use onlooker_event::{CountKey, DayNumber, Scope};
use onlooker_flusher::{FlusherConfig, FlusherPorts, run};
use onlooker_model::{ArchivePort, CountsPort, Fate, Stored};
use onlooker_ports::{Apply, ApplyOutcome, Number, SketchAdd};
use onlooker_sketch::Sketch;
use onlooker_stage::{Health, ShutdownTrigger};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

struct House {
    counts: CountsPort,
    archive: ArchivePort,
    health: Health,
    trigger: ShutdownTrigger,
    config: FlusherConfig,
    /// When numbers last changed, as the records say.
    changed_s: u32,
}

type Running = JoinHandle<Result<(), onlooker_flusher::FlusherError>>;

impl House {
    fn new() -> Self {
        let house = Self {
            counts: CountsPort::default(),
            archive: ArchivePort::default(),
            health: Health::new(),
            trigger: ShutdownTrigger::default(),
            config: FlusherConfig { page_keys: 3, ..FlusherConfig::default() },
            changed_s: u32::MAX,
        };
        for partition in 0..2 {
            house.counts.with(partition, |c| c.init(0, 0));
        }
        house
    }

    fn start(&self) -> Running {
        self.start_with(None)
    }

    fn start_with(&self, hurry: Option<watch::Receiver<bool>>) -> Running {
        let ports =
            FlusherPorts { counts: self.counts.clone(), archive: self.archive.clone(), partitions: 2, hurry };
        tokio::spawn(run(self.config.clone(), ports, self.health.clone(), self.trigger.shutdown()))
    }

    /// Counts one view of each item by this viewer.
    fn view(&self, partition: i32, items: &[&str], viewer: u8) {
        self.counts.with(partition, |c| {
            let from = c.applied.unwrap();
            let to = from + items.len() as i64;
            let keys: Vec<_> =
                items.iter().flat_map(|item| [key(item, None), key(item, Some(20_000))]).collect();
            let numbers = keys.iter().map(|key| {
                let n = c.numbers.get(key).map_or(0, |number| number.n) + 1;
                (key.clone(), Number { n, u: to, changed_s: self.changed_s })
            });
            let numbers = numbers.collect();
            let base = Some(onlooker_ports::Base::default());
            let sketch = |key: &CountKey| SketchAdd {
                key: key.clone(),
                members: [[viewer; 16]].into(),
                base: base.clone(),
            };
            let sketches = keys.iter().map(sketch).collect();
            let outcome = c.apply(&Apply { from, to, as_of_ms: 1, numbers, sketches });
            assert_eq!(outcome, ApplyOutcome::Done);
        });
    }

    fn archived(&self, item: &str) -> (Option<u64>, u64) {
        let row = self.archive.with(|a| a.read(&key(item, None)));
        let sketch = row.sketch.map(|(bytes, _)| Sketch::from_redis(&bytes).unwrap());
        (row.number.map(|(n, _)| n), sketch.map_or(0, |s| s.count()))
    }

    fn durable(&self, partition: i32) -> Option<i64> {
        self.archive.with(|a| a.durable.get(&partition).copied())
    }

    fn ready(&self) -> bool {
        self.health.report(false).ready
    }
}

fn key(item: &str, day: Option<i32>) -> CountKey {
    CountKey::new(day.map_or(Scope::All, |d| Scope::Day(DayNumber(d))), format!("s:{item}").as_bytes())
}

/// The clock of these tests stands still unless everybody waits, so this costs no time.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < 3600 * SECOND, "never: {what}");
        sleep(SECOND / 20).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_changed_is_archived_and_settled_and_then_durable() {
    let house = House::new();
    house.view(0, &["a", "b", "c"], 1);
    house.view(0, &["a"], 2);
    house.view(1, &["z"], 1);
    let running = house.start();
    until("durable", || house.durable(0) == Some(4) && house.durable(1) == Some(1)).await;
    assert_eq!(
        [house.archived("a"), house.archived("b"), house.archived("z")],
        [(Some(2), 2), (Some(1), 1), (Some(1), 1)]
    );
    house.counts.with(0, |c| {
        assert!(c.dirty_sketches.is_empty() && c.dirty_numbers.is_empty());
        assert_eq!(c.evictable.len(), 6, "what is archived may be evicted");
    });
    // Durable comes after all writes of its partition.
    let mut order: Vec<_> = house.archive.journal.asked().into_iter().map(|(method, _)| method).collect();
    order.retain(|method| *method != "write_cell");
    order.dedup();
    assert_eq!(order, ["write", "set_durable", "write", "set_durable"]);
    assert!(house.ready());
    house.trigger.request();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_short_of_memory_is_flushed_out_of_turn() {
    let mut house = House::new();
    house.config.interval_ms = 3_000_000;
    let (short, hurry) = watch::channel(false);
    let running = house.start_with(Some(hurry));
    house.view(0, &["a"], 1);
    until("the first turn", || house.durable(0) == Some(1)).await;
    house.view(0, &["a"], 2);
    sleep(100 * SECOND).await;
    assert_eq!(house.durable(0), Some(1), "the interval is long");
    let begun = Instant::now();
    short.send(true).unwrap();
    until("a round out of turn", || house.durable(0) == Some(2)).await;
    // And again, as long as it lasts.
    house.view(0, &["a"], 3);
    until("another", || house.durable(0) == Some(3)).await;
    assert!(begun.elapsed() < 10 * SECOND, "{:?}", begun.elapsed());
    short.send(false).unwrap();
    sleep(SECOND).await;
    house.view(0, &["a"], 4);
    sleep(100 * SECOND).await;
    assert_eq!(house.durable(0), Some(3));
    drop(short);
    house.trigger.request();
    running.await.unwrap().unwrap();
    assert_eq!(house.durable(0), Some(4));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_nothing_changes_and_each_change_once_an_interval() {
    let mut house = House::new();
    house.config.interval_ms = 10_000;
    house.view(0, &["a"], 1);
    let (one, two) = (house.start(), house.start());
    until("durable", || house.durable(0) == Some(1) && house.durable(1) == Some(0)).await;
    house.archive.journal.clear();
    sleep(100 * SECOND).await;
    assert_eq!(house.archive.journal.count("write"), 0);
    assert!(house.archive.journal.count("set_durable") <= 2, "each flusher notes it once, at most");
    // A sketch and a number that change all the time, and two flushers: ten intervals, ten writes.
    house.archive.journal.clear();
    for viewer in 0..200 {
        house.view(0, &["a"], viewer);
        sleep(SECOND / 2).await;
    }
    let cells = house.archive.journal.count("write_cell");
    assert!((4 * 7..=4 * 11).contains(&cells), "{cells} cells in ten intervals");
    house.trigger.request();
    one.await.unwrap().unwrap();
    two.await.unwrap().unwrap();
    assert_eq!(house.archived("a"), (Some(201), Sketch::from_redis(&expected(0..200)).unwrap().count()));
}

fn expected(viewers: std::ops::Range<u8>) -> Vec<u8> {
    let mut sketch = Sketch::new();
    sketch.add(&[1; 16]);
    viewers.for_each(|viewer| _ = sketch.add(&[viewer; 16]));
    sketch.to_redis()
}

#[tokio::test(start_paused = true)]
async fn what_the_archive_refuses_stays_dirty_and_nothing_is_durable() {
    let house = House::new();
    house.view(0, &["a", "b", "c"], 1);
    let mut nth = 0;
    house.archive.journal.judge(move |method, _| {
        nth += usize::from(method == "write_cell");
        if method == "write_cell" && nth.is_multiple_of(3) { Fate::Lost } else { Fate::Well }
    });
    let running = house.start();
    until("a round", || house.archive.journal.count("write_cell") >= 12).await;
    sleep(SECOND).await;
    assert_eq!(house.durable(0), None);
    assert!(!house.ready());
    let dirty = house.counts.with(0, |c| c.dirty_sketches.len() + c.dirty_numbers.len());
    assert_eq!(dirty, 4, "every third cell of twelve");
    // All is written and no answer comes: the flusher cannot know.
    house.view(0, &["a"], 2);
    house.archive.journal.judge(|method, _| if method == "write" { Fate::Well } else { Fate::Unanswered });
    until("written", || house.archived("a") == (Some(2), 2)).await;
    assert_eq!(house.durable(0), None);
    house.archive.journal.heal();
    until("durable", || house.durable(0) == Some(4) && house.ready()).await;
    assert_eq!(house.archived("a"), (Some(2), 2));
    house.trigger.request();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_damaged_or_absent_sketch_never_overwrites_the_archived_one() {
    let house = House::new();
    house.view(0, &["a", "b", "c"], 1);
    let running = house.start();
    until("durable", || house.durable(0) == Some(3)).await;
    let good = house.archive.with(|a| a.read(&key("a", None)));
    // Somebody's hand: a sketch cut short, another one deleted.
    house.view(0, &["a", "b"], 2);
    house.counts.with(0, |c| {
        c.sketches.insert(key("a", None), Stored::Junk(good.sketch.as_ref().unwrap().0.slice(0..20)));
        c.sketches.remove(&key("b", None));
    });
    until("the alarm", || !house.ready()).await;
    sleep(60 * SECOND).await;
    assert_eq!(house.archive.with(|a| a.read(&key("a", None)).sketch), good.sketch);
    assert_eq!(house.archived("b"), (Some(2), 1), "its number goes on");
    assert_eq!(house.archived("c"), (Some(1), 1));
    assert_eq!(house.durable(0), Some(3));
    let reason = house.health.report(false).components[0].reason.clone();
    assert_eq!(reason.as_deref(), Some("a changed count in the store is absent or damaged"));
    // The safe cure.
    house.counts.flush_all();
    until("ready", || house.ready()).await;
    house.trigger.request();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_waited_for() {
    let house = House::new();
    house.view(0, &["a"], 1);
    house.counts.journal.judge(|_, _| Fate::Lost);
    let running = house.start();
    sleep(60 * SECOND).await;
    assert!(!house.ready());
    assert_eq!(house.archive.journal.asked(), []);
    house.counts.journal.heal();
    until("durable", || house.durable(0) == Some(1) && house.ready()).await;
    house.trigger.request();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stop_flushes_once_more_and_does_not_wait_for_ever() {
    let house = House::new();
    let running = house.start();
    until("durable", || house.durable(0) == Some(0)).await;
    house.view(0, &["a"], 1);
    house.trigger.request();
    running.await.unwrap().unwrap();
    assert_eq!((house.archived("a"), house.durable(0)), ((Some(1), 1), Some(1)));

    let house = House::new();
    house.view(0, &["a"], 1);
    house.archive.journal.judge(|_, _| Fate::Lost);
    house.counts.journal.judge(|_, _| Fate::Lost);
    let running = house.start();
    sleep(SECOND).await;
    let asked = Instant::now();
    house.trigger.request();
    running.await.unwrap().unwrap();
    assert!(asked.elapsed() <= Duration::from_millis(house.config.drain_ms));
}

#[tokio::test(start_paused = true)]
async fn old_numbers_are_swept_once_they_are_archived() {
    let mut house = House::new();
    (house.config.sweep_ms, house.changed_s) = (20_000, 5);
    house.view(0, &["a"], 1);
    house.archive.journal.judge(|_, _| Fate::Lost);
    let running = house.start();
    until("sweeps", || house.counts.journal.count("sweep_numbers") >= 4).await;
    assert_eq!(house.counts.with(0, |c| c.numbers.len()), 2, "not while they are dirty, however old");
    house.archive.journal.heal();
    until("swept", || house.counts.with(0, |c| c.numbers.is_empty())).await;
    assert_eq!(house.archived("a"), (Some(1), 1));
    house.trigger.request();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_login_ends_the_room() {
    let house = House::new();
    let running = run(
        house.config.clone(),
        FlusherPorts { counts: house.counts.clone(), archive: Refusing, partitions: 2, hurry: None },
        house.health.clone(),
        house.trigger.shutdown(),
    );
    house.view(0, &["a"], 1);
    let error = running.await.unwrap_err();
    assert_eq!(error.to_string(), "archive refused the login: wrong password");
}

struct Refusing;

impl onlooker_ports::Archive for Refusing {
    async fn read(&self, _: &[CountKey]) -> Result<Vec<onlooker_ports::Archived>, onlooker_ports::PortError> {
        Err(denied())
    }
    async fn write(
        &self,
        cells: &[onlooker_ports::ArchiveCell],
    ) -> Vec<Result<(), onlooker_ports::PortError>> {
        vec![Err(denied()); cells.len()]
    }
    async fn durable(&self, _: i32) -> Result<Option<i64>, onlooker_ports::PortError> {
        Err(denied())
    }
    async fn set_durable(&self, _: i32, _: i64) -> Result<(), onlooker_ports::PortError> {
        Err(denied())
    }
}

fn denied() -> onlooker_ports::PortError {
    onlooker_ports::PortError::Denied { server: "archive", detail: "wrong password".into() }
}
