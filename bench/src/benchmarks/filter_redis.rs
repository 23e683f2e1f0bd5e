//! What a view costs the dedup Redis, against one SET NX EX.

use super::drain::{Keys, until_filtered};
use super::{Options, now_ms, us_each};
use crate::meter::{Cost, Meter};
use crate::resp::{Pipeline, Resp};
use crate::roles::{Role, Round};
use crate::servers::{DEDUP, Servers};
use crate::stats::{Spread, number};
use crate::table::Table;
use crate::workload::{Look, Shape, Workload, item_name, view};
use anyhow::{Context, Result, ensure};
use onlooker_event::dedup_key;
use std::process::Command;

const PIPELINE: usize = 100;

/// Runs the benchmark and prints its table.
pub(crate) fn run(options: &Options) -> Result<()> {
    let views = options.count(500_000, 5_000);
    let servers = Servers::start()?;
    let (mut ours, mut benchmark, mut same, mut memory) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for number in 0..options.rounds(5) {
        eprintln!("round {}", number + 1);
        let shape = Shape::default();
        let start = now_ms() - views.cast_signed() * 1000 / i64::from(shape.per_second);
        let looks: Vec<Look> = Workload::new(shape, number as u64, start).take(views as usize).collect();

        servers.flush()?;
        let cost = redis_benchmark(&servers, views)?;
        benchmark.push(us_each(cost.cpu, views));
        servers.flush()?;
        let cost = set_nx(&servers, &looks)?;
        same.push(us_each(cost.cpu, views));
        let theirs = used_memory(&servers)?;
        let cost = filter(options, &servers, number, &looks)?;
        ours.push(us_each(cost.cpu, views));
        memory.push(used_memory(&servers)? / theirs);
    }
    println!("### Filter: CPU of the dedup Redis\n");
    let mut table = Table::new(["", "Redis CPU µs a view", "filter against it"]);
    let row = |name: &str, series: &[f64]| {
        [
            name.to_owned(),
            Spread::of(series.iter().copied()).to_string(),
            Spread::ratio(&ours, series).to_string(),
        ]
    };
    table.row(row("`redis-benchmark` SET NX EX, pipelines of 100", &benchmark));
    table.row(row("the same views by SET NX EX, pipelines of 100", &same));
    table.row(["the filter".into(), Spread::of(ours.iter().copied()).to_string()]);
    println!("{table}");
    println!(
        "{} views a round; memory against SET NX EX of the same views: {}\n",
        number(views as f64),
        Spread::of(memory)
    );
    Ok(())
}

fn dedup(servers: &Servers) -> Result<Meter> {
    let [_, dedup, ..] = servers.watched()?;
    Meter::open([dedup])
}

fn only(costs: Vec<Cost>) -> Result<Cost> {
    costs.into_iter().find(|cost| cost.name == DEDUP).context("the dedup Redis was not watched")
}

/// As many keys as make about one in eight views a repeat, which is what the workload has.
fn redis_benchmark(servers: &Servers, views: u64) -> Result<Cost> {
    let meter = dedup(servers)?;
    let output = Command::new("redis-benchmark")
        .args(["-h", "127.0.0.1", "-p", &servers.dedup.port().to_string(), "-q"])
        .args(["-P", &PIPELINE.to_string(), "-n", &views.to_string(), "-r", &(views * 4).to_string()])
        .args(["SET", "seen:__rand_int__", "", "NX", "EX", "1800"])
        .output()
        .context("cannot run redis-benchmark (Debian: redis-tools)")?;
    ensure!(output.status.success(), "redis-benchmark: {}", String::from_utf8_lossy(&output.stderr));
    only(meter.read()?)
}

fn set_nx(servers: &Servers, looks: &[Look]) -> Result<Cost> {
    let mut resp = Resp::connect(servers.dedup.port())?;
    let meter = dedup(servers)?;
    let mut pipeline = Pipeline::default();
    for chunk in looks.chunks(PIPELINE) {
        for look in chunk {
            let item = format!("{}:{}", crate::workload::SITE, item_name(look.item));
            let key = dedup_key(crate::workload::viewer_hash(look.viewer), item.as_bytes());
            pipeline.push(&[b"SET", &key.0, b"", b"NX", b"EX", b"1800"]);
        }
        resp.run(&mut pipeline)?;
    }
    only(meter.read()?)
}

fn filter(options: &Options, servers: &Servers, number: usize, looks: &[Look]) -> Result<Cost> {
    let round = Round::prepare(servers, &options.executable, number)?;
    round.views.fill((0..).zip(looks).filter_map(|(i, look)| {
        let view = view(*look, i).ok()?;
        let mut value = Vec::with_capacity(160);
        onlooker_proto::encode_view(&view, &mut value);
        Some((view.viewer.0.to_vec(), value))
    }))?;
    let meter = dedup(servers)?;
    let mut roles = [round.launch("filter", "")?];
    let mut keys = Keys::new(servers.dedup.port(), "fapplied", &round.tags)?;
    let reading = until_filtered(&mut keys, &round, &meter, &mut roles)?;
    roles.into_iter().try_for_each(Role::stop)?;
    round.clean_up()?;
    only(reading.costs)
}

fn used_memory(servers: &Servers) -> Result<f64> {
    let info = servers.dedup.cli(&["INFO", "memory"])?;
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory_dataset:"));
    Ok(line.context("INFO has no used_memory_dataset")?.trim().parse()?)
}
