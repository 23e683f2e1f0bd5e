//! Many short histories of a protocol's own state machines. Each is a function of its seed, so that one that goes wrong
//! can be told again step by step, and made shorter until nothing in it could be left out.
//!
//! A history is a list of numbered steps, and what happens in a step is drawn from the seed and the step's number alone.
//! That is what makes shortening work: without some steps, the others are still what they were.

mod command;
mod plan;
mod record;
mod report;
mod shrink;

pub use command::{Asked, asked};
pub use plan::Plan;
pub use record::Record;
pub use report::{Caught, Report, Violation};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Time that this thread had a processor for: what it takes on a machine that does nothing else. Where that is not
/// known, time.
fn time_spent(since: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos.map_or_else(|| since.elapsed(), Duration::from_nanos)
}

/// How long a history that went wrong is made shorter.
const SHRINKING: Duration = Duration::from_secs(20);

/// A condition of the protocol that can be left out, to see that a history notices.
#[derive(Debug, Clone, Copy)]
pub struct Mutation<M> {
    /// Its name on the command line.
    pub name: &'static str,
    /// The condition that is left out.
    pub removed: &'static str,
    /// What the protocol says happens then.
    pub then: &'static str,
    /// Few histories notice: more of them are needed than a test should take.
    pub rare: bool,
    /// What the simulation calls it.
    pub what: M,
}

/// Something to be simulated.
pub trait Protocol {
    /// Names a condition.
    type What: Copy + 'static;
    /// Its name on the command line.
    const NAME: &'static str;
    /// The kinds of faults, by the numbers under which they are recorded.
    const FAULTS: &'static [&'static str];
    /// What can be left out.
    const MUTATIONS: &'static [Mutation<Self::What>];

    /// Lives through one history. An error says what went wrong.
    fn live(plan: &Plan, without: Option<Self::What>, record: &mut Record) -> Result<(), String>;
}

/// One history, and what it came to. A machine that panics has gone wrong too.
fn live<P: Protocol>(plan: &Plan, without: Option<P::What>, record: &mut Record) -> Result<(), String> {
    record.begin(P::FAULTS.len());
    let lived = catch_unwind(AssertUnwindSafe(|| P::live(plan, without, record)));
    lived.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panicked: {}", text.unwrap_or_default()))
    })
}

/// Lives through as many histories, from a seed on. The first that goes wrong is made shorter and told.
pub fn histories<P: Protocol>(seeds: std::ops::Range<u64>, without: Option<P::What>) -> Report {
    let began = Instant::now();
    let before = time_spent(began);
    let mut record = Record::default();
    let mut report = Report { name: P::NAME, faults: vec![0; P::FAULTS.len()], ..Report::default() };
    report.kinds = P::FAULTS;
    for seed in seeds {
        let lived = live::<P>(&Plan::whole(seed), without, &mut record);
        report.add(&record);
        if let Err(why) = lived {
            report.violations += 1;
            if report.first.is_none() {
                report.first = Some(shrink::shortest::<P>(seed, why, record.reached(), without, SHRINKING));
            }
        }
    }
    report.spent = time_spent(began).saturating_sub(before);
    report
}

/// Tells one history from beginning to end.
pub fn told<P: Protocol>(seed: u64, without: Option<P::What>) -> (Vec<String>, Result<(), String>) {
    let mut record = Record::telling();
    let lived = live::<P>(&Plan::whole(seed), without, &mut record);
    (record.take_lines(), lived)
}

/// The names of those conditions, but for the rare ones, that nobody misses in these histories.
pub fn unnoticed<P: Protocol>(seeds: &std::ops::Range<u64>) -> Vec<&'static str> {
    let common = P::MUTATIONS.iter().filter(|mutation| !mutation.rare);
    common.filter(|m| catch::<P>(m, seeds.clone()).by.is_none()).map(|m| m.name).collect()
}

/// Looks for a history that goes wrong without a condition, in the order of the seeds.
pub fn catch<P: Protocol>(mutation: &Mutation<P::What>, seeds: std::ops::Range<u64>) -> Caught {
    let (began, first) = (Instant::now(), seeds.start);
    let before = time_spent(began);
    let mut record = Record::default();
    let mut caught = Caught { name: mutation.name, ..Caught::default() };
    (caught.removed, caught.then) = (mutation.removed, mutation.then);
    for seed in seeds {
        caught.histories = seed - first + 1;
        if let Err(why) = live::<P>(&Plan::whole(seed), Some(mutation.what), &mut record) {
            caught.by = Some((seed, why));
            break;
        }
    }
    caught.spent = time_spent(began).saturating_sub(before);
    caught
}
