//! What a read and a write cost Cassandra and this process, in CPU time.
//!
//! `cargo run --release -p onlooker-scylla --example cost -- [ITEMS [NAME=VALUE…]]`, with settings of `cassandra.yaml`.

use anyhow::{Context, Result};
use onlooker_event::CountKey;
use onlooker_ports::conformance::archive::{key, shuffle};
use onlooker_ports::{Archive, ArchiveCell, Archived};
use onlooker_scylla::{ScyllaArchive, ScyllaConfig, apply};
use onlooker_testkit::cassandra::{CassandraServer, DATA_CENTRE};
use onlooker_testkit::java::Jvm;
use std::collections::BTreeMap;
use std::time::Instant;

/// The share of sketches that are dense, in percent; the others are sparse.
const DENSE_PERCENT: usize = 5;

#[tokio::main]
async fn main() -> Result<()> {
    let items: usize = std::env::args().nth(1).map_or(Ok(20_000), |text| text.parse())?;
    let mut builder = CassandraServer::builder().jvm(Jvm::lasting(512));
    for setting in std::env::args().skip(2) {
        let (name, value) = setting.split_once('=').context("a setting is name=value")?;
        builder = builder.setting(name, value);
    }
    let node = builder.start()?;
    let config = ScyllaConfig {
        nodes: vec![node.address()],
        replication: BTreeMap::from([(DATA_CENTRE.to_owned(), 1)]),
        request_timeout_ms: 20_000,
        ..ScyllaConfig::default()
    };
    apply(&config).await?;
    let archive = ScyllaArchive::new(&config, "cost")?;
    let pid = node.pid()?;
    // The first rounds warm the JVM up; the last ones count.
    for round in 1..=9i64 {
        let cells = cells(items, round);
        measure("numbers alone", &format!("{round}"), pid, items * 2, || async {
            all_written(&archive, &cells.numbers).await
        })
        .await?;
        measure("sketches and numbers of an item together", &format!("{round}"), pid, items * 4, || async {
            all_written(&archive, &cells.together).await
        })
        .await?;
        let mut keys: Vec<_> = (0..items).map(|i| [key("cost", &i.to_string(), None), day(i)]).collect();
        shuffle(&mut keys, round.cast_unsigned());
        let keys: Vec<_> = keys.into_iter().flatten().collect();
        measure("reads of an item, all time and a day", &format!("{round}"), pid, items, || async {
            for part in keys.chunks(4_000) {
                let found = read(&archive, part).await?;
                anyhow::ensure!(found.iter().all(|a| a.sketch.is_some()), "something is missing");
            }
            Ok(())
        })
        .await?;
        let absent: Vec<_> = (0..items).map(|i| key("cost", &format!("absent-{i}"), None)).collect();
        measure("reads of an item that is not there", &format!("{round}"), pid, items, || async {
            for part in absent.chunks(4_000) {
                read(&archive, part).await?;
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

struct Cells {
    numbers: Vec<ArchiveCell>,
    together: Vec<ArchiveCell>,
}

fn day(i: usize) -> CountKey {
    key("cost", &i.to_string(), Some(20_000))
}

fn cells(items: usize, round: i64) -> Cells {
    let mut cells = Cells { numbers: Vec::new(), together: Vec::new() };
    for i in 0..items {
        // As big as real ones; what is in them does not matter here, but it must not compress to nothing.
        let size = if i % 100 < DENSE_PERCENT { 12_304 } else { 144 };
        let mut state = i as u64 + 1;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8 & 0x3f
        })
        .take(size)
        .collect();
        for key in [key("cost", &i.to_string(), None), day(i)] {
            let number = ArchiveCell::Number { key: key.clone(), n: i as u64, u: round * 10 };
            cells.numbers.push(number.clone());
            cells.together.push(ArchiveCell::Number { key: key.clone(), n: i as u64, u: round * 10 + 1 });
            cells.together.push(ArchiveCell::Sketch { key, bytes: bytes.clone().into(), t: round * 10 });
        }
    }
    cells
}

async fn all_written(archive: &ScyllaArchive, cells: &[ArchiveCell]) -> Result<()> {
    for part in cells.chunks(4_000) {
        for result in archive.write(part).await {
            result?;
        }
    }
    Ok(())
}

/// A busy machine answers late at times; whoever asks asks again.
async fn read(archive: &ScyllaArchive, keys: &[CountKey]) -> Result<Vec<Archived>> {
    loop {
        match archive.read(keys).await {
            Err(error) if error.is_transient() => println!("{error}"),
            other => return Ok(other?),
        }
    }
}

async fn measure<F>(what: &str, round: &str, pid: u32, things: usize, work: impl FnOnce() -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let (server, client, start) = (cpu_seconds(pid)?, cpu_seconds(std::process::id())?, Instant::now());
    work().await?;
    let wall = start.elapsed().as_secs_f64();
    let per = |seconds: f64| seconds * 1e6 / things as f64;
    println!(
        "round {round}  {what}: server {:.1} µs, client {:.1} µs, wall {:.1} µs each",
        per(cpu_seconds(pid)? - server),
        per(cpu_seconds(std::process::id())? - client),
        per(wall)
    );
    Ok(())
}

/// User and system CPU time of a process so far.
fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').context("no command in stat")?.1;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(ticks / 100.0)
}
