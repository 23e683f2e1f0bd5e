//! What a view costs the servers: CPU time of redis-server for the filter's memory and for the counters, beside the
//! plain commands that the same work would take, in the same run.
//!
//! `cargo run --release -p onlooker-redis --example server_cpu [VIEWS_A_BATCH] [VIEWS] [ROUNDS]`

#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

use std::collections::{HashMap, HashSet};
use std::fs;

use onlooker_event::{CountKey, DayNumber, Digest128, ItemId, ItemKey, Scope, SiteId};
use onlooker_ports::{
    Apply, ApplyOutcome, Base, Claim, ClaimOutcome, CountLookup, CountStore, DedupStore, Lookup, Number,
    SketchAdd,
};
use onlooker_redis::{Client, Layout, RedisConfig, RedisCounters, RedisDedup, Role};
use onlooker_testkit::redis::RedisServer;

const ITEMS: usize = 100_000;
const VIEWERS: u64 = 300_000;
const ZIPF: f64 = 1.05;
/// What the peers send in one go, as `redis-benchmark -P 100` does.
const PIPELINE: usize = 100;

/// Repeatable randomness (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Time on a processor of all threads of a process, in microseconds.
fn cpu_us(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let nanos = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0)
    };
    tasks.filter_map(Result::ok).map(nanos).sum::<f64>() / 1_000.0
}

struct Workload {
    /// Item and viewer of each view.
    views: Vec<(usize, u64)>,
    keys: Vec<[CountKey; 2]>,
}

impl Workload {
    fn new(views: usize) -> Self {
        let mut sums = Vec::with_capacity(ITEMS);
        let mut sum = 0.0;
        for rank in 1..=ITEMS {
            sum += (rank as f64).powf(-ZIPF);
            sums.push(sum);
        }
        let mut random = Random(1);
        let views = (0..views)
            .map(|_| {
                let at = (random.next() >> 11) as f64 / (1u64 << 53) as f64 * sum;
                (sums.partition_point(|s| *s < at).min(ITEMS - 1), random.next() % VIEWERS)
            })
            .collect();
        let site = SiteId::new("blog.example.com").unwrap();
        let keys = (0..ITEMS)
            .map(|n| {
                let item = ItemKey::new(&site, &ItemId::new(&format!("/articles/{n}")).unwrap());
                [Scope::All, Scope::Day(DayNumber(20_787))].map(|scope| CountKey::new(scope, item.as_bytes()))
            })
            .collect();
        Self { views, keys }
    }
}

fn member(viewer: u64) -> [u8; 16] {
    let (a, b) = (Random(viewer).next(), Random(!viewer).next());
    (u128::from(a) << 64 | u128::from(b)).to_le_bytes()
}

fn claim_key(view: &(usize, u64)) -> Digest128 {
    let (a, b) =
        (Random(view.1 << 20 | view.0 as u64).next(), Random(!(view.1 << 20 | view.0 as u64)).next());
    Digest128((u128::from(a) << 64 | u128::from(b)).to_le_bytes())
}

fn connection(server: &RedisServer) -> redis::Connection {
    redis::Client::open(server.url()).unwrap().get_connection().unwrap()
}

fn send(connection: &mut redis::Connection, pipeline: &mut redis::Pipeline) {
    pipeline.exec(connection).unwrap();
    pipeline.clear();
}

/// One SET NX EX a view.
fn plain_claims(server: &RedisServer, work: &Workload) {
    let (mut connection, mut pipeline) = (connection(server), redis::pipe());
    for chunk in work.views.chunks(PIPELINE) {
        for view in chunk {
            let key = claim_key(view).0.iter().map(|b| format!("{b:02x}")).collect::<String>();
            pipeline.cmd("SET").arg(format!("claim:{key}")).arg(1).arg("NX").arg("EX").arg(1_800);
        }
        send(&mut connection, &mut pipeline);
    }
}

/// One look-up and one claim a batch, as the filter does.
async fn our_claims(store: &RedisDedup, work: &Workload, batch: usize) {
    store.install(0, 0, 1, "begin", 0).await.unwrap();
    let mut at = 0i64;
    for views in work.views.chunks(batch) {
        let keys: Vec<_> = views.iter().map(claim_key).collect();
        let Lookup::Found(found) = store.lookup(0, at, at, 1, &keys).await.unwrap() else { panic!("a gap") };
        let mut seen = HashSet::new();
        let fresh =
            keys.iter().zip(found).filter(|(key, found)| found.newer.is_empty() && seen.insert(**key));
        let claims: Vec<_> = fresh
            .map(|(key, _)| Claim { key: *key, values: [1_764_500_000].into_iter().collect() })
            .collect();
        let to = at + i64::try_from(views.len()).unwrap();
        assert_eq!(store.claim(0, at, to, 1, &claims, 0..0).await.unwrap(), ClaimOutcome::Done);
        at = to;
    }
}

/// One PFADD for each view and each sketch.
fn plain_adds(server: &RedisServer, work: &Workload, from: usize, to: usize) {
    let (mut connection, mut pipeline) = (connection(server), redis::pipe());
    for chunk in work.views[from..to].chunks(PIPELINE / 2) {
        for (item, viewer) in chunk {
            for key in &work.keys[*item] {
                pipeline
                    .cmd("PFADD")
                    .arg([b"sketch:{1.0.1}:", key.as_bytes()].concat())
                    .arg(&member(*viewer)[..]);
            }
        }
        send(&mut connection, &mut pipeline);
    }
}

/// The counter's steps: numbers of unknown keys are looked up, then each batch is one APPLY.
struct Counting<'a> {
    store: &'a RedisCounters,
    known: HashMap<CountKey, u64>,
    at: i64,
}

impl Counting<'_> {
    async fn run(&mut self, work: &Workload, views: &[(usize, u64)], batch: usize) {
        for views in views.chunks(batch) {
            let mut members: HashMap<&CountKey, Vec<[u8; 16]>> = HashMap::new();
            let mut counts: HashMap<&CountKey, u64> = HashMap::new();
            for (item, viewer) in views {
                for key in &work.keys[*item] {
                    members.entry(key).or_default().push(member(*viewer));
                    *counts.entry(key).or_default() += 1;
                }
            }
            let unknown: Vec<CountKey> = counts
                .keys()
                .filter(|key| !self.known.contains_key(**key))
                .map(|key| (*key).clone())
                .collect();
            let mut absent = HashSet::new();
            if !unknown.is_empty() {
                let CountLookup::Found(held) = self.store.lookup(0, self.at, &unknown).await.unwrap() else {
                    panic!("a gap")
                };
                for (key, held) in unknown.iter().zip(held) {
                    self.known.insert(key.clone(), held.number.map_or(0, |number| number.n));
                    if !held.sketch {
                        absent.insert(key.clone());
                    }
                }
            }
            let to = self.at + i64::try_from(views.len()).unwrap();
            let numbers = counts.iter().map(|(key, count)| {
                let n = self.known.get_mut(*key).unwrap();
                *n += count;
                ((*key).clone(), Number { n: *n, u: to, changed_s: 1_764_500_000 })
            });
            let numbers = numbers.collect();
            let sketches = members.into_iter().map(|(key, mut members)| {
                members.sort_unstable();
                members.dedup();
                SketchAdd {
                    key: key.clone(),
                    members: members.into(),
                    base: absent.contains(key).then(Base::default),
                }
            });
            let apply = Apply {
                from: self.at,
                to,
                as_of_ms: 1_764_500_000_000,
                numbers,
                sketches: sketches.collect(),
            };
            assert_eq!(self.store.apply(0, &apply).await.unwrap(), ApplyOutcome::Done);
            self.at = to;
        }
    }
}

fn show(name: &str, mut ours: Vec<f64>, mut plain: Vec<f64>) {
    let mut ratios: Vec<f64> = ours.iter().zip(&plain).map(|(ours, plain)| ours / plain).collect();
    let spread = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        format!("{:.2} {:.2} {:.2}", values[0], values[values.len() / 2], values[values.len() - 1])
    };
    println!("{name:34} {:>16} {:>16} {:>16}", spread(&mut ours), spread(&mut plain), spread(&mut ratios));
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>().unwrap());
    let batch = arguments.next().unwrap_or(4_000);
    let work = Workload::new(arguments.next().unwrap_or(400_000));
    let rounds = arguments.next().unwrap_or(5);
    let server = RedisServer::start().unwrap();
    let pid = server.pid().unwrap();
    let config =
        RedisConfig { response_timeout_ms: 60_000, ..RedisConfig::single("127.0.0.1", server.port()) };
    let layout = Layout::new("1", 1).unwrap();
    let dedup = RedisDedup::new(Client::new(Role::Dedup, &config).unwrap(), layout.clone());
    let counters = RedisCounters::new(Client::new(Role::Counters, &config).unwrap(), layout);
    let views = work.views.len();
    let half = views / 2;
    // Views, or views times sketches.
    let (per_view, per_half) = (views as f64, (2 * half) as f64);

    let (mut claims, mut client) = ((vec![], vec![]), (vec![], vec![]));
    let (mut cold, mut warm) = ((vec![], vec![]), (vec![], vec![]));
    for _ in 0..rounds {
        server.cli(&["FLUSHALL"]).unwrap();
        let begun = cpu_us(pid);
        plain_claims(&server, &work);
        claims.1.push((cpu_us(pid) - begun) / per_view);

        server.cli(&["FLUSHALL"]).unwrap();
        let (begun, own) = (cpu_us(pid), cpu_us(std::process::id()));
        our_claims(&dedup, &work, batch).await;
        claims.0.push((cpu_us(pid) - begun) / per_view);
        client.0.push((cpu_us(std::process::id()) - own) / per_view);

        server.cli(&["FLUSHALL"]).unwrap();
        let begun = cpu_us(pid);
        plain_adds(&server, &work, 0, half);
        let middle = cpu_us(pid);
        plain_adds(&server, &work, half, 2 * half);
        cold.1.push((middle - begun) / per_half);
        warm.1.push((cpu_us(pid) - middle) / per_half);

        server.cli(&["FLUSHALL"]).unwrap();
        counters.init(0, 0, 0).await.unwrap();
        let mut counting = Counting { store: &counters, known: HashMap::new(), at: 0 };
        let own = cpu_us(std::process::id());
        let begun = cpu_us(pid);
        counting.run(&work, &work.views[..half], batch).await;
        let middle = cpu_us(pid);
        counting.run(&work, &work.views[half..2 * half], batch).await;
        cold.0.push((middle - begun) / per_half);
        warm.0.push((cpu_us(pid) - middle) / per_half);
        client.1.push((cpu_us(std::process::id()) - own) / per_half / 2.0);
    }
    println!("{views} views in batches of {batch}, {rounds} rounds; min median max");
    println!("CPU time of redis-server in µs      {:>16} {:>16} {:>16}", "ours", "plain", "ratio");
    show("filter, a view (SET NX EX)", claims.0, claims.1);
    show("counter, a view and sketch, new", cold.0, cold.1);
    show("counter, a view and sketch (PFADD)", warm.0, warm.1);
    let ones = |n: usize| vec![1.0; n];
    println!("CPU time of this program in µs, with what it does to prepare");
    show("filter, a view", client.0, ones(rounds));
    show("counter, a view and sketch", client.1, ones(rounds));
}
