//! The power goes at random moments, while several clients send: all rooms as in the program, over disks that forget
//! what was not synced and tear the last write.

use crate::support::load::Load;
use crate::support::{Books, Client, LONG, TOKEN};
use onlooker_collector::{CollectorConfig, IdentityConfig, SiteConfig};
use onlooker_counter::{CounterConfig, CounterPorts};
use onlooker_embedded::log::files::{Faults, Simulated};
use onlooker_embedded::log::{EmbeddedLog, LogConfig, OpenError};
use onlooker_embedded::store::{MemoryCounts, MemoryDedup, RedbArchive, SimulatedDisk};
use onlooker_event::SiteId;
use onlooker_filter::{FilterConfig, FilterPorts, SiteRules};
use onlooker_flusher::{FlusherConfig, FlusherPorts};
use onlooker_ports::{GroupReader, Position, Secret, Topic};
use onlooker_stage::{Health, RoomExit, ShutdownTrigger, Supervisor};
use onlooker_testkit::{full, ports, wait_until};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

const PARTITIONS: u32 = 2;

/// The power goes after so many operations.
fn dying(operations: u64) -> Faults {
    Faults { operations_left: Some(operations), ..Faults::default() }
}

/// What stays when the power goes.
struct Disks {
    log: Simulated,
    archive: SimulatedDisk,
}

/// All rooms, on a runtime that can be taken away from them.
struct Rooms {
    runtime: Runtime,
    log: EmbeddedLog<Simulated>,
    archive: Arc<RedbArchive>,
    trigger: ShutdownTrigger,
    running: JoinHandle<Result<(), RoomExit>>,
}

impl Disks {
    fn open_log(&self) -> Result<(EmbeddedLog<Simulated>, String), OpenError> {
        // Small files, so that many are begun and removed.
        let config = LogConfig { segment_bytes: 16 << 10, ..LogConfig::default() };
        let (log, report) = EmbeddedLog::open_on(self.log.clone(), Path::new("/log"), PARTITIONS, config)?;
        Ok((log, format!("{:016x}", report.id)))
    }

    /// Opens the disks and starts all rooms. None: the power went meanwhile.
    fn start(&self, port: u16) -> Option<Rooms> {
        let begun = self.open_log().map_err(|error| error.to_string()).and_then(|(log, generation)| {
            let archive = RedbArchive::open_on(&self.archive, &generation, 1 << 20);
            Ok((log, Arc::new(archive.map_err(|error| error.to_string())?)))
        });
        match begun {
            Ok((log, archive)) => Rooms::start(log, archive, port),
            Err(error) => {
                assert!(self.log.is_dead() || self.archive.is_off(), "it does not open: {error}");
                None
            }
        }
    }

    /// The power comes back.
    fn recover(&self) {
        self.log.power_loss();
        self.archive.power_cycle();
    }
}

impl Rooms {
    fn start(log: EmbeddedLog<Simulated>, archive: Arc<RedbArchive>, port: u16) -> Option<Self> {
        let runtime = Runtime::new().unwrap();
        let trigger = ShutdownTrigger::default();
        let begun = runtime.block_on(begin(&log));
        let supervisor = runtime.block_on(rooms(&log, &archive, &trigger, port));
        let running = runtime.spawn(supervisor.run());
        let rooms = Self { runtime, log, archive, trigger, running };
        if !begun {
            rooms.lose();
            return None;
        }
        Some(rooms)
    }

    /// Takes everything away, and waits until nobody has the disks open.
    fn lose(self) {
        let Self { runtime, log, archive, .. } = self;
        runtime.shutdown_timeout(LONG);
        drop(log);
        wait_until("the archive to be let go", LONG, || Arc::strong_count(&archive) == 1).unwrap();
    }

    /// A stop in good order after all is judged, counted and archived. What then lies on the disks.
    fn stop(self) -> Books {
        let Self { runtime, log, archive, trigger, running } = self;
        wait_until("everything to be judged and durable", LONG, || {
            let done = |group, topic| {
                let committed = log.committed(group, topic).into_iter();
                let committed: Vec<i64> = committed.map(|at| at.map_or(0, |at| at.offset)).collect();
                committed == log.ends(topic)
            };
            done("filter", Topic::Views) && done("counter", Topic::Counted)
        })
        .unwrap();
        trigger.request();
        runtime.block_on(running).unwrap().unwrap();
        runtime.block_on(Books::read(&log, &archive))
    }
}

/// As the program does on a new folder: the filter begins at the beginning. False: the power went meanwhile.
async fn begin(log: &EmbeddedLog<Simulated>) -> bool {
    let committed = log.committed("filter", Topic::Views);
    let missing = (0..).zip(committed).filter(|(_, committed)| committed.is_none());
    let start = |(partition, _)| Position { partition, offset: 0, note: String::new() };
    let missing: Vec<Position> = missing.map(start).collect();
    let mut reader = log.reader(Topic::Views, "filter");
    let done = missing.is_empty() || reader.commit(&missing).await.is_ok();
    reader.close(Duration::from_secs(1)).await;
    done
}

async fn rooms(
    log: &EmbeddedLog<Simulated>,
    archive: &Arc<RedbArchive>,
    trigger: &ShutdownTrigger,
    port: u16,
) -> Supervisor {
    let mut supervisor = Supervisor::new(trigger.clone(), LONG);
    let health = Health::new();
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let site = SiteConfig { token: Some(Secret::new(TOKEN.to_owned())), ..SiteConfig::default() };
    let collector = CollectorConfig {
        identity: IdentityConfig { version: 1, secret: Secret::new("5a".repeat(32)) },
        sites: [("main".to_owned(), site)].into(),
        ..CollectorConfig::default()
    };
    let (writer, of_room) = (log.writer(), health.clone());
    supervisor.room("collector", |stop| onlooker_collector::run(collector, writer, listener, of_room, stop));

    let filter = FilterConfig { volatile: true, linger_ms: 2, ..FilterConfig::default() };
    let sites = [(SiteId::new("main").unwrap(), SiteRules::default())].into_iter().collect();
    let ports = FilterPorts {
        reader: log.reader(Topic::Views, "filter"),
        transactor: log.transactor(Topic::Views),
        history: log.history(),
        dedup: MemoryDedup::new(PARTITIONS, 64 << 20),
    };
    let of_room = health.clone();
    supervisor.room("filter", |stop| onlooker_filter::run(filter, sites, ports, of_room, stop));

    // Less than all sketches need.
    let counts = MemoryCounts::new(PARTITIONS, 1 << 20);
    let counter = CounterConfig { volatile: true, linger_ms: 2, durable_ms: 50, ..CounterConfig::default() };
    let ports = CounterPorts {
        reader: log.reader(Topic::Counted, "counter"),
        counts: counts.clone(),
        archive: Arc::clone(archive),
        dead: log.writer(),
    };
    let of_room = health.clone();
    supervisor.room("counter", |stop| onlooker_counter::run(counter, ports, of_room, stop));

    let flusher = FlusherConfig { interval_ms: 50, ..FlusherConfig::default() };
    let hurry = Some(counts.refusing());
    let ports = FlusherPorts { counts, archive: Arc::clone(archive), partitions: PARTITIONS, hurry };
    supervisor.room("flusher", |stop| onlooker_flusher::run(flusher, ports, health, stop));
    supervisor
}

#[test]
fn losses_of_power_at_random_moments_lose_and_repeat_nothing() {
    let rounds = if full() { 200 } else { 40 };
    let disks = Disks { log: Simulated::new(1), archive: SimulatedDisk::new(2) };
    let port = ports::free_port().unwrap();
    let clients = Runtime::new().unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let load = clients.block_on(async { Load::start(4, 60, 8, || Client::new(&url, Some(TOKEN))) });
    let mut random = StdRng::seed_from_u64(3);
    for round in 0..rounds {
        if round % 5 == 0 {
            // While what the last loss left is still being looked at.
            disks.log.set_faults(dying(random.random_range(0..40)));
        }
        if let Some(rooms) = disks.start(port) {
            if round % 3 == 0 {
                disks.archive.fail_after(random.random_range(1..120));
            } else {
                let failing_syncs = if round % 4 == 0 { 1 } else { 0 };
                disks.log.set_faults(Faults { failing_syncs, ..dying(random.random_range(1..250)) });
            }
            let off = || disks.log.is_dead() || disks.archive.is_off();
            wait_until("the power to go", LONG, off).unwrap();
            // There is one power supply.
            disks.archive.fail_after(0);
            disks.log.set_faults(dying(0));
            rooms.lose();
        }
        disks.recover();
        disks.log.advance_ms(1_000);
        if round % 20 == 0 {
            let acknowledged = load.ids();
            let (log, generation) = disks.open_log().unwrap();
            let archive = RedbArchive::open_on(&disks.archive, &generation, 1 << 20).unwrap();
            clients.block_on(Books::read(&log, &archive)).check_part(&acknowledged);
        }
    }
    assert!(load.len() > rounds * 20, "{} views in {rounds} rounds", load.len());
    let rooms = disks.start(port).unwrap();
    let acknowledged = clients.block_on(load.end());
    let books = rooms.stop();
    books.check_outcomes(&acknowledged.ids());
    acknowledged.check(&books);
    let (views, counted) = (books.views.len(), books.counted.len());
    eprintln!("{views} views, {counted} counted, {} acknowledged, {rounds} losses", acknowledged.ids().len());
}
