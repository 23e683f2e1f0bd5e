//! One process over one folder, on a file system that can be filled.

mod clock;

use crate::alone::load::Load;
use crate::alone::{Books, Client, Disk, Home, LONG, TOKEN};
use crate::reader::Reader;
use crate::schedule::{Planned, STEPS_S, Tally, Timeline, plan};
use crate::wish::Wish;
use onlooker_embedded::log::{EmbeddedLog, LogConfig};
use onlooker_embedded::store::Folder;
use onlooker_testkit::{WallClock, ports, wait_until_async};
use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// kill -9 at work.
    Kill,
    /// kill -9 within the first moments, while the folder is opened and read.
    EarlyKill,
    /// SIGTERM under load.
    Stop,
    /// SIGSTOP, SIGCONT.
    Pause,
    /// No room on the file system for a while.
    FullDisk,
    /// Killed, and what a torn write leaves behind is at the end of a journal.
    TornTail,
    /// A sketch and a number of the archive are gone: made again from the log after the archive was moved away.
    LostArchive,
    /// The wall clock steps by seconds to days, and back.
    ClockStep,
}

use Kind::*;

const ALL: [Kind; 8] = [Kill, EarlyKill, Stop, Pause, FullDisk, TornTail, LostArchive, ClockStep];
const SPAN: Duration = Duration::from_millis(1_200);
/// The log grows with every round, and so does what is read of it.
const ROUNDS_A_FOLDER: u64 = 25;

struct Field {
    home: Home,
    url: String,
    clock: Option<WallClock>,
    // Below what lies on it.
    disk: Option<Disk>,
    _place: tempfile::TempDir,
}

impl Field {
    fn new(with_clock: bool) -> Self {
        let place = tempfile::tempdir().unwrap();
        let disk = Disk::mount(&place.path().join("disk"), "160m");
        let folder =
            disk.as_ref().map_or_else(|| place.path().join("plain"), |disk| disk.0.clone()).join("data");
        let port = ports::free_port().unwrap();
        // Small files and little memory: so that files are begun and sketches evicted between any two faults.
        let sets = [
            format!("collector.listen=127.0.0.1:{port}"),
            format!("sites.main.token={TOKEN}"),
            "embedded.log.segment_bytes=65536".to_owned(),
            "embedded.counts_bytes=1048576".to_owned(),
            "flusher.interval_ms=100".to_owned(),
            "counter.durable_ms=100".to_owned(),
        ];
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
        let mut home = Home::at(tempfile::tempdir().unwrap(), folder, &sets);
        let clock = with_clock.then(|| WallClock::new(&place.path().join("clock")).unwrap());
        if let Some(clock) = &clock {
            home.set_environment(clock.environment());
        }
        Self { home, url: format!("http://127.0.0.1:{port}"), clock, disk, _place: place }
    }

    fn client(&self) -> Client {
        Client::new(&self.url, Some(TOKEN))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_on_one_machine_lose_and_repeat_nothing() {
    let wish = Wish::or(2_026, 12);
    let kinds: Vec<Kind> = ALL.into_iter().filter(|kind| wish.wants(kind)).collect();
    assert!(!kinds.is_empty(), "no kind begins with {}: {ALL:?}", wish.only);
    let (mut tally, mut views) = (Tally::default(), 0);
    let mut round = wish.first;
    let end = wish.first + wish.rounds;
    while round < end {
        let of_this = (end - round).min(ROUNDS_A_FOLDER - round % ROUNDS_A_FOLDER);
        let rounds = round..round + of_this;
        // Every other folder has a clock that steps: what clients know of times is worth nothing there.
        let steps = kinds == [ClockStep] || (kinds.contains(&ClockStep) && round / ROUNDS_A_FOLDER % 2 == 1);
        let here: Vec<Kind> = kinds.iter().copied().filter(|kind| steps || *kind != ClockStep).collect();
        views += if steps {
            clock::rounds(rounds, &here, &wish, &mut tally).await
        } else {
            self::rounds(rounds, &here, &wish, &mut tally).await
        };
        round += of_this;
        eprintln!("{round} rounds, {views} views");
    }
    tally.tell("one machine", wish.rounds, views);
}

/// Rounds on one folder; views that were acknowledged.
async fn rounds(rounds: Range<u64>, kinds: &[Kind], wish: &Wish, tally: &mut Tally) -> usize {
    let field = Field::new(false);
    let load = Load::start(2, 60, 12, || field.client());
    for round in rounds {
        let timeline = Timeline::new(round, wish.again("embedded", round));
        let faults = plan(kinds, wish.seed, round, SPAN);
        self::round(&field, &faults, &timeline, tally, &|| load.len(), &|| load.ids()).await;
    }
    let running = field.home.start();
    let acknowledged = load.end().await;
    running.settle(&running.client(), &acknowledged.views()).await;
    running.stop();
    let books = Books::of(field.home.folder()).await;
    books.check_outcomes(&acknowledged.ids());
    acknowledged.check(&books);
    acknowledged.ids().len()
}

async fn round(
    field: &Field,
    faults: &[Planned<Kind>],
    timeline: &Timeline,
    tally: &mut Tally,
    taken: &dyn Fn() -> usize,
    acknowledged: &dyn Fn() -> HashSet<String>,
) {
    let mut running = Some(field.home.start());
    timeline.note("started");
    let before = taken();
    wait_until_async("views to be taken in", LONG, async || taken() > before).await.unwrap();
    let client = field.client();
    let client = std::sync::Arc::new(client);
    let reader = Reader::start((0..5).map(|n| format!("item {n}")).collect(), move |items| {
        let client = std::sync::Arc::clone(&client);
        async move { client.try_counts(&items).await }
    });
    let begun = Instant::now();
    for fault in faults {
        sleep_until(begun + fault.at).await;
        // Where nothing can be mounted, nothing is filled.
        if fault.kind != FullDisk || field.disk.is_some() {
            tally.add(&fault.kind);
        }
        timeline.note(format!("{:?}", fault.kind));
        let mut process = running.take().unwrap();
        match fault.kind {
            Kill => process.kill(),
            EarlyKill => {
                process.kill();
                let starting = field.home.launch();
                sleep(fault.lasts / 8).await;
                starting.kill();
            }
            Stop => tokio::task::block_in_place(|| process.stop()),
            Pause => {
                process.signal(libc::SIGSTOP);
                sleep(fault.lasts).await;
                process.signal(libc::SIGCONT);
                running = Some(process);
                continue;
            }
            FullDisk => {
                if let Some(disk) = &field.disk {
                    tokio::task::block_in_place(|| disk.fill());
                    sleep(fault.lasts).await;
                    disk.make_room();
                }
                running = Some(process);
                continue;
            }
            ClockStep => {
                let step = STEPS_S[fault.pick % STEPS_S.len()];
                timeline.note(format!("by {step} s"));
                let clock = field.clock.as_ref().unwrap();
                clock.set(step).unwrap();
                sleep(fault.lasts).await;
                clock.set(0).unwrap();
                running = Some(process);
                continue;
            }
            TornTail => {
                process.kill();
                tear(field.home.folder(), fault.pick, timeline).await;
            }
            LostArchive => {
                process.kill();
                std::fs::remove_file(field.home.folder().join("archive.redb")).unwrap();
            }
        }
        running = Some(tokio::task::block_in_place(|| field.home.start()));
        timeline.note("started again");
    }
    sleep_until(begun + SPAN).await;
    // What was taken in is taken in: the books of a folder in the middle of its work.
    running.take().unwrap().kill();
    reader.end().await;
    Books::of(field.home.folder()).await.check_part(&acknowledged());
    timeline.note("no acknowledged view is missing");
}

/// Leaves the beginning of an entry, as a write does that was cut short, at the end of a journal.
async fn tear(folder: &Path, pick: usize, timeline: &Timeline) {
    // Opened and closed once, so that its files end where their last entry does.
    let opened = Folder::open(folder).unwrap();
    let (log, _) = EmbeddedLog::open(&opened.log().unwrap(), 2, LogConfig::default()).unwrap();
    log.close().await;
    drop(opened);
    let journal = folder.join("log").join(["views", "verdicts"][pick % 2]);
    let files = journal.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let last = files.filter(|path| path.extension().is_some_and(|e| e == "log")).max().unwrap();
    let end = std::fs::metadata(&last).unwrap().len();
    timeline.note(format!("torn behind {end} of {}", last.display()));
    let garbage: Vec<u8> = (0..50 + pick % 400).map(|n| (n * 31 + pick) as u8).collect();
    OpenOptions::new().append(true).open(last).unwrap().write_all(&garbage).unwrap();
}
