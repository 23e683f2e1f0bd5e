//! The whole chain, from a filled `views` to sketches: what a view costs every process and server.

mod check;
mod report;

use super::drain::{Keys, Reading, until_archived, until_counted, until_filtered};
use super::{Options, now_ms};
use crate::meter::{Cost, Meter, Watched};
use crate::model::Model;
use crate::peers::direct;
use crate::resp::{Reply, Resp};
use crate::roles::{Role, Round};
use crate::servers::Servers;
use crate::workload::{Look, Shape, Workload, view};
use anyhow::{Result, bail, ensure};
use report::Report;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Arguments of the benchmark.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Args {
    /// Views of each drain; 1,000,000 if not said
    #[arg(long)]
    views: Option<u64>,
    /// Leaves the consumers that write to Redis directly out
    #[arg(long)]
    no_peers: bool,
}

/// Runs the benchmark and prints its tables.
pub(crate) fn run(options: &Options, args: &Args) -> Result<()> {
    let views = args.views.unwrap_or_else(|| options.count(1_000_000, 10_000));
    let servers = Servers::start()?;
    let mut report = Report::new(views);
    let rounds = options.rounds(3);
    // One more in front, which compiles the servers' code and is not counted.
    let first = usize::from(options.quick || rounds == 1);
    for number in first..=rounds {
        let counts = number > 0;
        eprintln!("{}", if counts { format!("round {number}") } else { "warming up".into() });
        let chain = ours(options, &servers, number, views)?;
        if counts {
            report.add_ours(&chain);
        }
        if args.no_peers {
            continue;
        }
        // One that awaits every answer takes long: a tenth of the views says as much.
        for (name, pipeline, views) in [(report::PIPELINED, 100, views), (report::AWAITED, 1, views / 10)] {
            let reading = peer(options, &servers, (name, number, pipeline), &looks(views, number as u64))?;
            if counts {
                report.add_peer(name, &reading, views);
            }
        }
    }
    report.print();
    Ok(())
}

/// The phases of one round.
#[derive(Debug)]
pub(super) struct Chain {
    /// Into empty stores: every item is new, and the archive is asked for it.
    pub(super) cold: Reading,
    /// Then what is dirty is archived.
    pub(super) flush: Vec<Cost>,
    pub(super) flushed: Flushed,
    /// Then as many views again, of the same items.
    pub(super) warm: Reading,
}

/// What was archived, and in what time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flushed {
    pub(super) sketches: u64,
    pub(super) took: Duration,
}

fn looks(views: u64, seed: u64) -> Vec<Look> {
    let shape = Shape::default();
    let start = now_ms() - views.cast_signed() * 1000 / i64::from(shape.per_second);
    Workload::new(shape, seed, start).take(views as usize).collect()
}

fn fill(round: &Round, looks: &[Look]) -> Result<u64> {
    round.views.fill((0..).zip(looks).filter_map(|(i, look)| {
        let view = view(*look, i).ok()?;
        let mut value = Vec::with_capacity(160);
        onlooker_proto::encode_view(&view, &mut value);
        Some((view.viewer.0.to_vec(), value))
    }))
}

fn ours(options: &Options, servers: &Servers, number: usize, views: u64) -> Result<Chain> {
    let round = Round::prepare(servers, &options.executable, number)?;
    let mut model = Model::default();
    let mut flusher = round.start("flusher", "")?;

    let seed = 2 * number as u64;
    let cold = drain(servers, (&round, flusher.watched()), &looks(views, seed), &mut model)?;
    let port = servers.counters.port();
    let meter = Meter::open(servers.watched()?.into_iter().chain([flusher.watched()]))?;
    let sketches = Keys::new(port, "dirtyS", &round.tags)?.fields()?;
    until_archived(port, &round.tags, &mut flusher)?;
    let flushed = Flushed { sketches: sketches.unsigned_abs(), took: meter.elapsed() };
    let flush = meter.read()?;
    let warm = drain(servers, (&round, flusher.watched()), &looks(views, seed + 1), &mut model)?;

    check::numbers(port, &round.tags, &model)?;
    check::sketches(port, &round.tags, &model)?;
    flusher.stop()?;
    round.clean_up()?;
    Ok(Chain { cold, flush, flushed, warm })
}

/// Fills `views`, then starts filter and counter and waits until all is applied.
fn drain(
    servers: &Servers,
    (round, flusher): (&Round, Watched),
    looks: &[Look],
    model: &mut Model,
) -> Result<Reading> {
    let filled = fill(round, looks)?;
    ensure!(filled == looks.len() as u64, "filled {filled} of {}", looks.len());
    looks.iter().for_each(|look| _ = model.judge(*look));
    let mut seen = Keys::new(servers.dedup.port(), "fapplied", &round.tags)?;
    let mut applied = Keys::new(servers.counters.port(), "applied", &round.tags)?;
    let mut meter = Meter::open(servers.watched()?.into_iter().chain([flusher]))?;
    let mut roles = [round.launch("filter", "")?, round.launch("counter", "")?];
    roles.iter().for_each(|role| meter.add_newborn(role.watched()));
    let filtered = until_filtered(&mut seen, round, &meter, &mut roles)?;
    let mut counted = until_counted(&mut applied, round, &meter, &mut roles)?;
    counted.first = filtered.first;
    roles.into_iter().try_for_each(Role::stop)?;
    Ok(counted)
}

fn peer(
    options: &Options,
    servers: &Servers,
    (name, number, pipeline): (&'static str, usize, usize),
    looks: &[Look],
) -> Result<Reading> {
    // Names that no round of ours has.
    let round = Round::prepare(servers, &options.executable, 1000 + number * 10 + pipeline % 10)?;
    fill(&round, looks)?;
    let [kafka, dedup, counters, _] = servers.watched()?;
    let mut meter = Meter::open([kafka, dedup, counters])?;
    let mut peer = direct::start(name, servers, &round.views, pipeline)?;
    meter.add_newborn(peer.watched());
    let mut resp = Resp::connect(servers.counters.port())?;
    let started = Instant::now();
    let reading = loop {
        sleep(Duration::from_millis(50));
        if resp.call(&[b"EXISTS", direct::DONE])? == Reply::Int(1) {
            break Reading { at: meter.elapsed(), costs: meter.read()?, first: None };
        }
        if !peer.process.is_alive() || started.elapsed() > Duration::from_secs(600) {
            bail!("{name} does not finish");
        }
    };
    let totals = resp.call(&[b"HVALS", direct::TOTALS])?.parts();
    let sum: u64 = totals
        .into_iter()
        .filter_map(Reply::bytes)
        .filter_map(|n| String::from_utf8(n).ok()?.parse::<u64>().ok())
        .sum();
    let expected = Model::of(looks.iter().copied()).counted();
    ensure!(sum == expected, "{name} counted {sum} of {expected}: it did not do the same work");
    round.clean_up()?;
    Ok(reading)
}
