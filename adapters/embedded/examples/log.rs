//! What the log costs: appending and reading back, beside `write` + `fdatasync` of the same bytes, and beside redb.
//!
//! `cargo run --release -p onlooker-embedded --example log [-- FOLDER [appends]]`. CPU is that of the whole process, so that no
//! thread hides anything. Each line is the minimum, median and maximum of the rounds.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use onlooker_embedded::log::{Durability, EmbeddedLog, LogConfig};
use onlooker_ports::{
    Batch, GroupEvent, GroupReader, LogWriter, OutgoingBatch, Position, Topic, Transactor, VerdictHistory,
};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const PARTITIONS: u32 = 8;
/// As a view is encoded, about.
const VALUE: usize = 110;
const KEY: usize = 16;

fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a value of the type that the call fills in.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Spent {
    wall: Duration,
    cpu: Duration,
}

struct Watch(Instant, Duration);

impl Watch {
    fn start() -> Self {
        Self(Instant::now(), cpu())
    }

    fn stop(self) -> Spent {
        Spent { wall: self.0.elapsed(), cpu: cpu() - self.1 }
    }
}

fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    format!("{:>9.0} {:>9.0} {:>9.0}", values[0], values[values.len() / 2], values[values.len() - 1])
}

fn report(what: &str, records: usize, spent: &[Spent]) {
    let per = |time: Duration| time.as_secs_f64() * 1e9 / records as f64;
    let wall = spread(spent.iter().map(|s| per(s.wall)).collect());
    let cpu = spread(spent.iter().map(|s| per(s.cpu)).collect());
    println!("{what:<46} wall ns/record {wall}   cpu ns/record {cpu}");
}

fn batch(topic: Topic, first: u64, records: usize) -> OutgoingBatch {
    let mut batch = OutgoingBatch::with_capacity(records, records * (KEY + VALUE));
    for n in first..first + records as u64 {
        let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        batch.push_with(topic, &[key, key].concat(), |out| out.resize(out.len() + VALUE, n as u8));
    }
    batch
}

fn config(synced: bool) -> LogConfig {
    let durability = if synced { Durability::Power } else { Durability::Process };
    LogConfig { durability, ..LogConfig::default() }
}

struct Folder(PathBuf);

impl Folder {
    fn new(base: &Path) -> Self {
        let path = base.join(format!("onlooker-log-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

/// What the file system alone takes for entries of this size.
fn raw(base: &Path, size: usize, records: usize, synced: bool) -> Spent {
    let folder = Folder::new(base);
    let file = File::create(folder.0.join("raw")).unwrap();
    let bytes = vec![7u8; size * (KEY + VALUE + 8) + 64 + 24 * PARTITIONS.min(size as u32) as usize];
    let watch = Watch::start();
    for n in 0..records / size {
        file.write_all_at(&bytes, (n * bytes.len()) as u64).unwrap();
        if synced {
            file.sync_data().unwrap();
        }
    }
    watch.stop()
}

async fn ours(base: &Path, size: usize, records: usize, synced: bool, clients: usize) -> Spent {
    let folder = Folder::new(base);
    let (log, _) = EmbeddedLog::open(&folder.0, PARTITIONS, config(synced)).unwrap();
    // A few that stay in the processor's caches, as those of a collector are; each append takes a copy.
    let some: Vec<OutgoingBatch> = (0..8).map(|n| batch(Topic::Views, n * size as u64, size)).collect();
    let watch = Watch::start();
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let (writer, some) = (log.writer(), some.clone());
            tokio::spawn(async move {
                for n in (client..records / size).step_by(clients) {
                    writer.append(some[n % some.len()].clone()).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let spent = watch.stop();
    log.close().await;
    spent
}

fn redb(base: &Path, size: usize, records: usize, synced: bool) -> Spent {
    const TABLE: redb::TableDefinition<'_, u64, &[u8]> = redb::TableDefinition::new("log");
    let folder = Folder::new(base);
    let database = redb::Database::create(folder.0.join("redb")).unwrap();
    let value = [7u8; KEY + VALUE];
    let watch = Watch::start();
    for n in 0..records / size {
        let mut write = database.begin_write().unwrap();
        let durability = if synced { redb::Durability::Immediate } else { redb::Durability::None };
        write.set_durability(durability).unwrap();
        let mut table = write.open_table(TABLE).unwrap();
        for key in n * size..(n + 1) * size {
            table.insert(key as u64, value.as_slice()).unwrap();
        }
        drop(table);
        write.commit().unwrap();
    }
    watch.stop()
}

/// The filter's way through the log and nothing else: views in, as many verdicts and a position out.
async fn transact(base: &Path, size: usize, records: usize, synced: bool) -> Spent {
    let folder = Folder::new(base);
    let (log, _) = EmbeddedLog::open(&folder.0, PARTITIONS, config(synced)).unwrap();
    let mut reader = log.reader(Topic::Views, "filter");
    let Some(GroupEvent::Assigned { membership, .. }) = reader.next(Duration::ZERO).await.unwrap() else {
        panic!("the reader is alone");
    };
    let mut transactor = log.transactor(Topic::Views);
    let some: Vec<OutgoingBatch> = (0..8).map(|n| batch(Topic::Counted, n * size as u64, size)).collect();
    let watch = Watch::start();
    for n in 0..records / size {
        let position = |partition| Position { partition, offset: n as i64, note: "A=472222".into() };
        let positions: Vec<_> = (0..PARTITIONS.cast_signed()).map(position).collect();
        transactor.commit(&some[n % some.len()], &positions, &membership).await.unwrap();
    }
    let spent = watch.stop();
    log.close().await;
    spent
}

/// Reads everything as the sole member of a group, and looks at every byte of it if `touch`.
async fn read(log: &EmbeddedLog, records: usize) -> Spent {
    let mut reader = log.reader(Topic::Views, "reader");
    reader.next(Duration::ZERO).await.unwrap();
    let watch = Watch::start();
    for partition in 0..PARTITIONS.cast_signed() {
        let (start, _) = reader.bounds(partition).await.unwrap();
        reader.start(partition, start).await.unwrap();
    }
    let (mut found, mut ended, mut sum) = (0, 0, 0u64);
    while ended < PARTITIONS {
        match reader.next(Duration::from_secs(10)).await.unwrap().unwrap() {
            GroupEvent::Records(batch) => {
                found += batch.len();
                for record in batch.iter() {
                    sum = sum.wrapping_add(u64::from(record.payload.unwrap()[0]));
                }
            }
            GroupEvent::CaughtUp { .. } => ended += 1,
            other => panic!("{other:?}"),
        }
    }
    let spent = watch.stop();
    assert!(found == records, "{found} of {records} {sum}");
    spent
}

async fn fill(log: &EmbeddedLog, topic: Topic, records: usize, size: usize) {
    let writer = log.writer();
    for n in 0..records / size {
        writer.append(batch(topic, (n * size) as u64, size)).await.unwrap();
    }
}

async fn reading(base: &Path) {
    for (what, size) in [("entries of 1", 1), ("entries of 100", 100), ("entries of 1,000", 1_000)] {
        let records = if size == 1 { 50_000 } else { 1_000_000 };
        let mut from_files = Vec::new();
        let mut from_memory = Vec::new();
        for _ in 0..ROUNDS {
            let folder = Folder::new(base);
            let roomy = LogConfig { tail_bytes: 1 << 30, ..config(false) };
            let (log, _) = EmbeddedLog::open(&folder.0, PARTITIONS, roomy).unwrap();
            fill(&log, Topic::Views, records, size).await;
            from_memory.push(read(&log, records).await);
            log.close().await;
            let (log, _) = EmbeddedLog::open(&folder.0, PARTITIONS, config(false)).unwrap();
            from_files.push(read(&log, records).await);
        }
        report(&format!("read {what}, from memory"), records, &from_memory);
        report(&format!("read {what}, from files"), records, &from_files);
    }
}

async fn opening(base: &Path) {
    let (records, size) = (10_000_000, 500);
    let folder = Folder::new(base);
    let (log, _) = EmbeddedLog::open(&folder.0, PARTITIONS, config(false)).unwrap();
    fill(&log, Topic::Views, records, size).await;
    fill(&log, Topic::Counted, 1_000_000, size).await;
    log.close().await;
    let mut times = Vec::new();
    let mut last = 0;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let (log, report) = EmbeddedLog::open(&folder.0, PARTITIONS, config(false)).unwrap();
        times.push(begun.elapsed().as_secs_f64() * 1e6);
        last = report.bytes;
        log.close().await;
    }
    println!("open {records} views ({} MB), closed in good order: {} us", last >> 20, spread(times));
    let mut times = Vec::new();
    for journal in ["views", "verdicts"] {
        for entry in std::fs::read_dir(folder.0.join(journal)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "idx") {
                std::fs::remove_file(path).unwrap();
            }
        }
    }
    let begun = Instant::now();
    let (log, _) = EmbeddedLog::open(&folder.0, PARTITIONS, config(false)).unwrap();
    times.push(begun.elapsed().as_secs_f64() * 1e6);
    println!("the same without any index: {} us", spread(times));
    let mut spent = Vec::new();
    for _ in 0..ROUNDS {
        let watch = Watch::start();
        let history = log.history();
        let ends = history.ends().await.unwrap();
        let (sink, mut batches) = tokio::sync::mpsc::channel::<Batch>(4);
        let count = async {
            let mut count = 0;
            while let Some(batch) = batches.recv().await {
                count += batch.len();
            }
            count
        };
        let (outcome, count) = tokio::join!(history.read(0, &ends, sink), count);
        outcome.unwrap();
        assert_eq!(count, 1_000_000);
        spent.push(watch.stop());
    }
    report("history of 1,000,000 verdicts", 1_000_000, &spent);
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let base = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    println!(
        "values of {VALUE} bytes, keys of {KEY}, {PARTITIONS} partitions; minimum, median, maximum of {ROUNDS}"
    );
    for (synced, records) in [(true, [1_000, 100_000, 500_000]), (false, [50_000, 1_000_000, 1_000_000])] {
        let how = if synced { "synced" } else { "written" };
        for (size, records) in [1, 100, 1_000].into_iter().zip(records) {
            let (mut raws, mut logs, mut trees, mut transactions) = (vec![], vec![], vec![], vec![]);
            for _ in 0..ROUNDS {
                raws.push(raw(&base, size, records, synced));
                logs.push(ours(&base, size, records, synced, 1).await);
                transactions.push(transact(&base, size, records, synced).await);
                trees.push(redb(&base, size, records.min(200_000), synced));
            }
            report(&format!("{how}, batches of {size}: raw write"), records, &raws);
            report(&format!("{how}, batches of {size}: log"), records, &logs);
            report(&format!("{how}, batches of {size}: log, transactions"), records, &transactions);
            report(&format!("{how}, batches of {size}: redb"), records.min(200_000), &trees);
        }
        let mut several = Vec::new();
        for _ in 0..ROUNDS {
            several.push(ours(&base, 1_000, 500_000, synced, 4).await);
        }
        report(&format!("{how}, batches of 1000, 4 clients: log"), 500_000, &several);
        let mut crowd = Vec::new();
        for _ in 0..ROUNDS {
            crowd.push(ours(&base, 1, 50_000, synced, 64).await);
        }
        report(&format!("{how}, batches of 1, 64 clients: log"), 50_000, &crowd);
    }
    if std::env::args().nth(2).is_none() {
        reading(&base).await;
        opening(&base).await;
    }
}
