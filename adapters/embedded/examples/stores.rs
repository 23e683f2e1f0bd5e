//! What the stores in memory cost: nanoseconds of CPU a view, beside a plain loop in the same run, and bytes an item.
//!
//! ```text
//! cargo run --release -p onlooker-embedded --example stores
//! ```
#![expect(clippy::unwrap_used, reason = "a measurement stops where something is wrong")]

use onlooker_embedded::store::{MemoryCounts, MemoryDedup};
use onlooker_event::{CountKey, DayNumber, Digest128, ItemId, ItemKey, Scope, SiteId, ViewerHash, dedup_key};
use onlooker_ports::{
    Apply, ApplyOutcome, Base, Claim, ClaimOutcome, CountLookup, CountStore, DedupStore, Lookup, Number,
    SketchAdd,
};
use onlooker_sketch::Sketch;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::hint::black_box;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const VIEWS: usize = 1_000_000;
const ITEMS: usize = 100_000;
const VIEWERS: u64 = 300_000;
const EXPONENT: f64 = 1.05;
const ROUNDS: usize = 7;
const DAY: Scope = Scope::Day(DayNumber(20_787));

/// The stores of this crate are never waited for.
fn now<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a store in memory was waited for"),
    }
}

/// CPU time of this process.
#[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "the clock never runs back")]
fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a value of the type that the call fills in.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct View {
    item: usize,
    viewer: [u8; 16],
    dedup: Digest128,
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn viewer(n: u64) -> [u8; 16] {
    let (mut a, mut b) = (n, !n);
    (u128::from(random(&mut a)) << 64 | u128::from(random(&mut b))).to_le_bytes()
}

fn item_key(item: usize) -> ItemKey {
    ItemKey::new(&SiteId::new("blog").unwrap(), &ItemId::new(&format!("article-{item}")).unwrap())
}

fn views(items: &[ItemKey]) -> Vec<View> {
    let mut sums = Vec::with_capacity(ITEMS);
    let mut sum = 0.0;
    for rank in 1..=ITEMS {
        sum += (rank as f64).powf(-EXPONENT);
        sums.push(sum);
    }
    let mut state = 42;
    (0..VIEWS)
        .map(|_| {
            let at = (random(&mut state) >> 11) as f64 / (1u64 << 53) as f64 * sum;
            let item = sums.partition_point(|s| *s < at).min(ITEMS - 1);
            let viewer = viewer(random(&mut state) % VIEWERS);
            let dedup = dedup_key(ViewerHash(viewer), items[item].as_bytes());
            View { item, viewer, dedup }
        })
        .collect()
}

/// Batches as the filter's: looked up, decided, claimed.
fn dedup(views: &[View], batch: usize) -> (f64, f64) {
    let store = MemoryDedup::new(1, usize::MAX);
    now(store.install(0, 0, 1, "begin", 0)).unwrap();
    let (mut spent, mut at, mut claimed) = (Duration::ZERO, 0i64, 0);
    for views in views.chunks(batch) {
        let keys: Vec<_> = views.iter().map(|view| view.dedup).collect();
        let begun = cpu();
        let Lookup::Found(found) = now(store.lookup(0, at, at, 1, &keys)).unwrap() else { panic!("a gap") };
        spent += cpu() - begun;
        let mut seen = HashSet::new();
        let new = keys.iter().zip(&found).filter(|(key, found)| found.newer.is_empty() && seen.insert(**key));
        let claims: Vec<_> =
            new.map(|(key, _)| Claim { key: *key, values: [7].into_iter().collect() }).collect();
        claimed += claims.len();
        let to = at + i64::try_from(views.len()).unwrap();
        let begun = cpu();
        assert_eq!(now(store.claim(0, at, to, 1, &claims, 0..0)), Ok(ClaimOutcome::Done));
        drop(black_box(found));
        spent += cpu() - begun;
        at = to;
    }
    (spent.as_nanos() as f64 / views.len() as f64, store.used_bytes() as f64 / claimed as f64)
}

/// A batch as the counter builds it: each item's keys, numbers and members once.
struct Prepared {
    keys: Vec<CountKey>,
    members: Vec<Vec<[u8; 16]>>,
}

fn prepare(views: &[View], batch: usize, items: &[ItemKey]) -> Vec<Prepared> {
    let batches = views.chunks(batch).map(|views| {
        let mut places = HashMap::new();
        let mut prepared = Prepared { keys: Vec::new(), members: Vec::new() };
        for view in views {
            let at = *places.entry(view.item).or_insert_with(|| {
                for scope in [Scope::All, DAY] {
                    prepared.keys.push(CountKey::new(scope, items[view.item].as_bytes()));
                }
                prepared.members.push(Vec::new());
                prepared.members.len() - 1
            });
            prepared.members[at].push(view.viewer);
        }
        for members in &mut prepared.members {
            members.sort_unstable();
            members.dedup();
        }
        prepared
    });
    batches.collect()
}

/// Looks up and applies; nanoseconds a view of look-up and of apply.
fn count(batches: &[Prepared], batch: usize) -> (f64, f64, MemoryCounts) {
    let store = MemoryCounts::new(1, usize::MAX);
    now(store.init(0, 0, 0)).unwrap();
    let (mut looking, mut applying, mut at) = (Duration::ZERO, Duration::ZERO, 0i64);
    for prepared in batches {
        // As the counter has them: looked up just before.
        let keys: Vec<_> = prepared
            .keys
            .iter()
            .map(|key| CountKey::parse(key.as_bytes().to_vec().into()).unwrap())
            .collect();
        let begun = cpu();
        let CountLookup::Found(held) = now(store.lookup(0, at, &keys)).unwrap() else { panic!("a gap") };
        looking += cpu() - begun;
        let to = at + i64::try_from(batch).unwrap();
        let step = Apply {
            from: at,
            to,
            as_of_ms: 1,
            numbers: (keys.iter().zip(&held).enumerate())
                .map(|(i, (key, held))| {
                    let n = held.number.map_or(0, |number| number.n) + prepared.members[i / 2].len() as u64;
                    (key.clone(), Number { n, u: to, changed_s: 1 })
                })
                .collect(),
            sketches: (keys.iter().zip(&held).enumerate())
                .map(|(i, (key, held))| SketchAdd {
                    key: key.clone(),
                    members: prepared.members[i / 2].clone().into(),
                    base: (!held.sketch).then(Base::default),
                })
                .collect(),
        };
        let begun = cpu();
        assert_eq!(now(store.apply(0, &step)), Ok(ApplyOutcome::Done));
        applying += cpu() - begun;
        at = to;
    }
    let each = |spent: Duration| spent.as_nanos() as f64 / VIEWS as f64;
    (each(looking), each(applying), store)
}

/// The least that could be done: who saw what, and a dense sketch an item. No scopes, no numbers, nothing durable.
fn reference(views: &[View]) -> f64 {
    let mut seen: foldhash::HashSet<([u8; 16], u32)> = foldhash::HashSet::default();
    let mut sketches: foldhash::HashMap<u32, Sketch> = foldhash::HashMap::default();
    let begun = cpu();
    for view in views {
        let item = u32::try_from(view.item).unwrap();
        if seen.insert((view.viewer, item)) {
            sketches.entry(item).or_insert_with(Sketch::new_dense).add(&view.viewer);
        }
    }
    let spent = cpu() - begun;
    black_box((&seen, &sketches));
    spent.as_nanos() as f64 / views.len() as f64
}

/// Bytes an item, all time and one day, each with its number.
fn memory(viewers: u64, items: usize) -> f64 {
    let store = MemoryCounts::new(1, usize::MAX);
    now(store.init(0, 0, 0)).unwrap();
    let empty = store.used_bytes();
    let members: Vec<_> = (0..viewers).map(viewer).collect();
    for item in 0..items {
        let at = i64::try_from(item).unwrap();
        let keys = [Scope::All, DAY].map(|scope| CountKey::new(scope, item_key(item).as_bytes()));
        let step = Apply {
            from: at,
            to: at + 1,
            as_of_ms: 1,
            numbers: keys
                .iter()
                .map(|key| (key.clone(), Number { n: viewers, u: at + 1, changed_s: 1 }))
                .collect(),
            sketches: (keys.into_iter())
                .map(|key| SketchAdd { key, members: members.clone().into(), base: Some(Base::default()) })
                .collect(),
        };
        assert_eq!(now(store.apply(0, &step)), Ok(ApplyOutcome::Done));
    }
    (store.used_bytes() - empty) as f64 / items as f64
}

fn tell(what: &str, mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    let (min, median, max) = (values[0], values[values.len() / 2], values[values.len() - 1]);
    println!("{what:<44} {min:>8.1} {median:>8.1} {max:>8.1}");
}

fn main() {
    let items: Vec<_> = (0..ITEMS).map(item_key).collect();
    let views = views(&items);
    println!("{VIEWS} views of {ITEMS} items by {VIEWERS} viewers, Zipf {EXPONENT}; {ROUNDS} rounds");
    println!("{:<44} {:>8} {:>8} {:>8}", "ns of CPU a view", "min", "median", "max");
    for batch in [500, 5_000] {
        let batches = prepare(&views, batch, &items);
        let (mut plain, mut claims, mut looks, mut applies, mut sums) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            plain.push(reference(&views));
            claims.push(dedup(&views, batch).0);
            let (look, apply, _) = count(&batches, batch);
            looks.push(look);
            applies.push(apply);
            sums.push(look + apply);
        }
        println!("batches of {batch}");
        tell("  reference: hash set and dense sketches", plain);
        tell("  dedup: look-up and claim", claims);
        tell("  counts: look-up", looks);
        tell("  counts: apply", applies);
        tell("  counts: look-up and apply", sums);
    }
    println!("\n{:.1} bytes a claim", dedup(&views, 5_000).1);
    println!("\nbytes an item, its name, all time and one day, two numbers");
    for (viewers, items) in
        [(0, 100_000), (1, 100_000), (10, 100_000), (100, 20_000), (1_000, 5_000), (100_000, 50)]
    {
        println!("{viewers:>8} viewers {:>10.0}", memory(viewers, items));
    }
}
