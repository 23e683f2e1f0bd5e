//! What counting a view costs this process, apart from its clients: CPU time from a record in memory to a step that is
//! ready to be sent, over servers that answer at once.
//!
//! ```text
//! cargo run --release -p onlooker-counter --example counting [VIEWS] [ROUNDS]
//! ```
//! Zipf 1.05 over 100,000 items, 300,000 viewers, 8 partitions, one day.
#![allow(clippy::unwrap_used, missing_docs)]

use onlooker_counter::{CounterConfig, CounterPorts, run};
use onlooker_event::{CountKey, Digest128, ItemId, SiteId, ViewId, ViewerHash, partition_of};
use onlooker_ports::*;
use onlooker_proto::{Counted, encode_counted};
use onlooker_stage::{Health, ShutdownTrigger};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const PARTITIONS: usize = 8;

/// CPU time of the process, user and system, in seconds.
fn cpu_s() -> f64 {
    // SAFETY: `usage` is a valid place for the answer.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Batches of records by partition, as a Kafka reader would deliver them.
fn batches(views: usize, seed: u64) -> VecDeque<Batch> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut sum = 0.0;
    let weights = (1..=100_000).map(|rank| {
        sum += 1.0 / f64::from(rank).powf(1.05);
        sum
    });
    let cumulated: Vec<f64> = weights.collect();
    let site = SiteId::new("bench").unwrap();
    let mut open: Vec<_> = (0..PARTITIONS as i32).map(BatchBuilder::new).collect();
    let mut offsets = [0i64; PARTITIONS];
    let mut done = VecDeque::new();
    let mut payload = Vec::new();
    for _ in 0..views {
        let drawn = rng.random_range(0.0..sum);
        let rank = cumulated.partition_point(|w| *w < drawn);
        let item = format!("articles/2026/11/{rank}");
        let mut viewer = [0; 16];
        StdRng::seed_from_u64(rng.random_range(0..300_000)).fill(&mut viewer);
        let key = format!("bench:{item}");
        payload.clear();
        let view = Counted {
            view_id: ViewId(rng.random()),
            site: site.clone(),
            item: ItemId::new(&item).unwrap(),
            viewer: ViewerHash(viewer),
            event_ms: 1_796_000_000_000,
            source_partition: 3,
            source_offset: 123_456,
            slice: 498_888,
            slice_s: 3_600,
            claim: Digest128(rng.random()),
            id_claim: None,
            rule_version: 1,
        };
        encode_counted(&view, &mut payload);
        let partition = partition_of(key.as_bytes(), PARTITIONS as u32) as usize;
        open[partition].push(offsets[partition], 1_796_000_000_000, Some(key.as_bytes()), Some(&payload));
        offsets[partition] += 1;
        if open[partition].len() == 500 {
            let full = std::mem::replace(&mut open[partition], BatchBuilder::new(partition as i32));
            done.push_back(full.build());
        }
    }
    done.extend(open.into_iter().map(BatchBuilder::build));
    done
}

struct Reader {
    assigned: bool,
    batches: VecDeque<Batch>,
    started: usize,
}

impl GroupReader for Reader {
    type Membership = ();
    async fn next(&mut self, wait: Duration) -> Result<Option<GroupEvent<()>>, PortError> {
        if !self.assigned {
            self.assigned = true;
            let partitions = (0..PARTITIONS as i32).collect();
            return Ok(Some(GroupEvent::Assigned { partitions, membership: () }));
        }
        if self.started < PARTITIONS {
            tokio::task::yield_now().await;
            return Ok(None);
        }
        match self.batches.pop_front() {
            Some(batch) => Ok(Some(GroupEvent::Records(batch))),
            None => {
                tokio::time::sleep(wait).await;
                Ok(None)
            }
        }
    }
    async fn start(&mut self, _: i32, _: i64) -> Result<(), PortError> {
        self.started += 1;
        Ok(())
    }
    async fn stop(&mut self, _: i32) -> Result<(), PortError> {
        Ok(())
    }
    async fn committed(&mut self, _: i32) -> Result<Option<Committed>, PortError> {
        Ok(None)
    }
    async fn bounds(&mut self, _: i32) -> Result<(i64, i64), PortError> {
        Ok((0, 0))
    }
    async fn commit(&mut self, _: &[Position]) -> Result<(), PortError> {
        Ok(())
    }
    async fn partitions(&mut self) -> Result<u32, PortError> {
        Ok(PARTITIONS as u32)
    }
    async fn close(&mut self, _: Duration) {}
}

/// Holds nothing but sums: what comes is right.
#[derive(Clone, Default)]
struct Servers(Arc<Sums>);

#[derive(Default)]
struct Sums {
    views: AtomicU64,
    members: AtomicU64,
    numbers: AtomicU64,
    steps: AtomicU64,
    looked_up: AtomicU64,
}

impl CountStore for Servers {
    async fn applied(&self, _: i32) -> Result<Option<i64>, PortError> {
        Ok(Some(0))
    }
    async fn init(&self, _: i32, _: i64, _: i64) -> Result<i64, PortError> {
        Ok(0)
    }
    async fn lookup(&self, _: i32, _: i64, keys: &[CountKey]) -> Result<CountLookup, PortError> {
        self.0.looked_up.fetch_add(keys.len() as u64, Relaxed);
        tokio::task::yield_now().await;
        Ok(CountLookup::Found(vec![Held { number: Some(Number::default()), sketch: true }; keys.len()]))
    }
    async fn apply(&self, _: i32, batch: &Apply) -> Result<ApplyOutcome, PortError> {
        tokio::task::yield_now().await;
        self.0.steps.fetch_add(1, Relaxed);
        self.0.numbers.fetch_add(batch.numbers.len() as u64, Relaxed);
        self.0.members.fetch_add(batch.sketches.iter().map(|s| s.members.len() as u64).sum(), Relaxed);
        self.0.views.fetch_add((batch.to - batch.from) as u64, Relaxed);
        Ok(ApplyOutcome::Done)
    }
    async fn begin(&self, _: i32) -> Result<Option<Dirty>, PortError> {
        Ok(None)
    }
    async fn read_sketches(
        &self,
        _: i32,
        _: i64,
        _: &[CountKey],
    ) -> Result<Option<Vec<SketchRead>>, PortError> {
        Ok(None)
    }
    async fn read_numbers(
        &self,
        _: i32,
        _: i64,
        _: &[CountKey],
    ) -> Result<Option<Vec<NumberRead>>, PortError> {
        Ok(None)
    }
    async fn settle_sketches(&self, _: i32, _: &[(CountKey, i64)], _: Duration) -> Result<usize, PortError> {
        Ok(0)
    }
    async fn settle_numbers(&self, _: i32, _: &[(CountKey, Number)]) -> Result<usize, PortError> {
        Ok(0)
    }
    async fn sweep_numbers(&self, _: i32, _: u64, _: u32) -> Result<(u64, usize), PortError> {
        Ok((0, 0))
    }
    async fn take_wanted(&self, _: i32, _: usize) -> Result<Vec<CountKey>, PortError> {
        Ok(Vec::new())
    }
    async fn mark_absent(&self, _: i32, _: &[CountKey], _: Duration) -> Result<(), PortError> {
        Ok(())
    }
    async fn claim_round(&self, _: i32, _: Duration) -> Result<bool, PortError> {
        Ok(false)
    }
}

impl Archive for Servers {
    async fn read(&self, keys: &[CountKey]) -> Result<Vec<Archived>, PortError> {
        Ok(vec![Archived::default(); keys.len()])
    }
    async fn write(&self, cells: &[ArchiveCell]) -> Vec<Result<(), PortError>> {
        vec![Ok(()); cells.len()]
    }
    async fn durable(&self, _: i32) -> Result<Option<i64>, PortError> {
        Ok(None)
    }
    async fn set_durable(&self, _: i32, _: i64) -> Result<(), PortError> {
        Ok(())
    }
}

impl LogWriter for Servers {
    async fn append(&self, _: OutgoingBatch) -> Result<(), PortError> {
        Ok(())
    }
    fn is_reachable(&self) -> bool {
        true
    }
    async fn flush(&self, _: Duration) -> Result<(), PortError> {
        Ok(())
    }
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1).filter_map(|arg| arg.parse().ok());
    let views: usize = args.next().unwrap_or(1_000_000);
    for round in 0..args.next().unwrap_or(5) {
        let servers = Servers::default();
        let reader = Reader { assigned: false, batches: batches(views, round as u64), started: 0 };
        let ports =
            CounterPorts { reader, counts: servers.clone(), archive: servers.clone(), dead: servers.clone() };
        let trigger = ShutdownTrigger::default();
        let start = cpu_s();
        let counting = tokio::spawn(run(CounterConfig::default(), ports, Health::new(), trigger.shutdown()));
        while servers.0.views.load(Relaxed) < views as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let us = (cpu_s() - start) * 1e6 / views as f64;
        let per_view = |sum: &AtomicU64| sum.load(Relaxed) as f64 / views as f64;
        let sums = &servers.0;
        println!(
            "{us:.3} µs of CPU a view; {:.2} numbers, {:.2} members, {:.2} keys looked up a view; {:.0} views a step",
            per_view(&sums.numbers),
            per_view(&sums.members),
            per_view(&sums.looked_up),
            1.0 / per_view(&sums.steps),
        );
        trigger.request();
        counting.await.unwrap().unwrap();
    }
}
