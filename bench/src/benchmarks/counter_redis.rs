//! What a sketch costs the counters Redis, against one PFADD; and what readers feel of it.

use super::drain::{Keys, until_counted};
use super::{Options, now_ms, us_each};
use crate::latency::Latency;
use crate::meter::{Cost, Meter};
use crate::model::Model;
use crate::prober::Prober;
use crate::resp::{Pipeline, Resp};
use crate::roles::{Role, Round};
use crate::servers::{COUNTERS, Servers};
use crate::stats::{Spread, number};
use crate::table::Table;
use crate::workload::{Look, SITE, Shape, Workload, item_name, view, viewer_hash};
use anyhow::{Context, Result};
use onlooker_event::{DayNumber, ItemKey, dedup_key};
use onlooker_proto::{Counted, encode_counted};
use std::thread::sleep;
use std::time::Duration;

const PIPELINE: usize = 100;

/// All time, and the day.
const SCOPES: u64 = 2;

/// Runs the benchmark and prints its tables.
pub(crate) fn run(options: &Options) -> Result<()> {
    let views = options.count(500_000, 5_000);
    let servers = Servers::start()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut felt =
        [Felt::new("nothing else")?, Felt::new("PFADD, pipelines of 100")?, Felt::new("the counter")?];
    for number in 0..options.rounds(5) {
        eprintln!("round {}", number + 1);
        let looks = counted(views, number as u64);
        let count = looks.len() as u64 * SCOPES;

        // Once for the CPU, once with readers, whose commands cost CPU as well.
        servers.flush()?;
        theirs.push(us_each(pfadd(&servers, &looks)?.cpu, count));
        ours.push(us_each(counter(options, &servers, 2 * number, &looks, None)?.cpu, count));

        servers.flush()?;
        let port = servers.counters.port();
        Prober::prepare(port)?;
        felt[0].during(port, || {
            sleep(Duration::from_secs(options.count(5, 1)));
            Ok(())
        })?;
        felt[1].during(port, || pfadd(&servers, &looks).map(drop))?;
        counter(options, &servers, 2 * number + 1, &looks, Some(&mut felt[2]))?;
    }
    println!("### Counter: CPU of the counters Redis\n");
    let mut table = Table::new(["", "Redis CPU µs a sketch", "ratio"]);
    table.row(["PFADD, pipelines of 100".into(), Spread::of(theirs.iter().copied()).to_string()]);
    table.row([
        "the counter (sketch, number, bookkeeping)".into(),
        Spread::of(ours.iter().copied()).to_string(),
        Spread::ratio(&ours, &theirs).to_string(),
    ]);
    println!("{table}");
    println!("{} views a round, each for two sketches (all time, day)\n", number(views as f64));
    println!("### Counter: readers of the counters Redis meanwhile\n");
    let mut table = Table::new(["beside", "reads", "p50 ms", "p99 ms", "longest ms"]);
    for one in &felt {
        table.row([
            one.beside.into(),
            number(one.latency.len() as f64),
            number(one.latency.quantile_ms(0.5)),
            number(one.latency.quantile_ms(0.99)),
            number(one.latency.max_ms()),
        ]);
    }
    println!("{table}");
    Ok(())
}

/// The views of the workload that count, in their order.
fn counted(views: u64, seed: u64) -> Vec<Look> {
    let shape = Shape::default();
    let start = now_ms() - views.cast_signed() * 1000 / i64::from(shape.per_second);
    let mut model = Model::default();
    Workload::new(shape, seed, start).take(views as usize).filter(|look| model.judge(*look)).collect()
}

/// What readers felt beside one kind of work, over all rounds.
#[derive(Debug)]
struct Felt {
    beside: &'static str,
    latency: Latency,
}

impl Felt {
    fn new(beside: &'static str) -> Result<Self> {
        Ok(Self { beside, latency: Latency::new()? })
    }

    fn during<T>(&mut self, port: u16, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let prober = Prober::start(port)?;
        let done = work();
        self.latency.merge(&prober.stop()?)?;
        done
    }
}

fn meter(servers: &Servers) -> Result<Meter> {
    let [_, _, counters, _] = servers.watched()?;
    Meter::open([counters])
}

fn only(costs: Vec<Cost>) -> Result<Cost> {
    costs.into_iter().find(|cost| cost.name == COUNTERS).context("the counters Redis was not watched")
}

/// The same sketches, by a PFADD each.
fn pfadd(servers: &Servers, looks: &[Look]) -> Result<Cost> {
    let mut resp = Resp::connect(servers.counters.port())?;
    let meter = meter(servers)?;
    let mut pipeline = Pipeline::default();
    for look in looks {
        let (item, day) = (item_name(look.item), DayNumber::of_ms(look.at_ms).compact());
        let member = viewer_hash(look.viewer).0;
        pipeline.push(&[b"PFADD", format!("sketch:*:{SITE}:{item}").as_bytes(), &member]);
        let day = String::from_utf8_lossy(&day);
        pipeline.push(&[b"PFADD", format!("sketch:{day}:{SITE}:{item}").as_bytes(), &member]);
        if pipeline.len() >= PIPELINE {
            resp.run(&mut pipeline)?;
        }
    }
    resp.run(&mut pipeline)?;
    only(meter.read()?)
}

fn counter(
    options: &Options,
    servers: &Servers,
    number: usize,
    looks: &[Look],
    felt: Option<&mut Felt>,
) -> Result<Cost> {
    let round = Round::prepare(servers, &options.executable, number)?;
    let port = servers.counters.port();
    round.counted.fill((0..).zip(looks).filter_map(|(i, look)| record(*look, i)))?;
    let drain = || {
        let meter = meter(servers)?;
        let mut roles = [round.launch("counter", "")?];
        let mut keys = Keys::new(port, "applied", &round.tags)?;
        let reading = until_counted(&mut keys, &round, &meter, &mut roles)?;
        roles.into_iter().try_for_each(Role::stop)?;
        only(reading.costs)
    };
    let cost = match felt {
        None => drain()?,
        Some(felt) => {
            Prober::prepare(port)?;
            felt.during(port, drain)?
        }
    };
    round.clean_up()?;
    Ok(cost)
}

/// A record as the filter writes it.
fn record(look: Look, number: u64) -> Option<(Vec<u8>, Vec<u8>)> {
    let view = view(look, number).ok()?;
    let item = ItemKey::new(&view.site, &view.item);
    let counted = Counted {
        view_id: view.view_id,
        site: view.site,
        item: view.item,
        viewer: view.viewer,
        event_ms: view.event_ms,
        source_partition: 0,
        source_offset: i64::try_from(number).ok()?,
        slice: view.event_ms / 3_600_000,
        slice_s: 3_600,
        claim: dedup_key(view.viewer, item.as_bytes()),
        id_claim: None,
        rule_version: 1,
    };
    let mut value = Vec::with_capacity(160);
    encode_counted(&counted, &mut value);
    Some((item.as_bytes().to_vec(), value))
}
