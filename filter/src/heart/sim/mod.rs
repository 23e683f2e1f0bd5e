//! The proof: the machine against a model of Kafka and Redis that loses, delays, repeats and reorders.
//!
//! Everything random comes from the seed. At any time the store holds what the log below its offset says; after each run
//! every record of the log has exactly one verdict, the one of a naive reference that reads the log once. That the runs
//! can fail is shown as well: with any one condition of the protocol left out, one of them does.

mod appends;
mod broken;
mod check;
mod faults;
mod instance;
mod log;
mod network;
pub(crate) mod reference;
pub(crate) mod rng;
mod script;
mod steps;
pub(crate) mod store;
mod tell;
mod world;

use super::Settings;
use crate::config::{FilterConfig, SiteRules, Sites};
use onlooker_event::SiteId;
use onlooker_model::simulation::{self, Asked, Mutation, Plan, Protocol, Record};
use std::sync::{Arc, OnceLock};
use world::{Stats, World};

pub(crate) use broken::Broken;

const PARTITIONS: usize = 2;
const WINDOW_S: u32 = 10;
const SLICE_S: u32 = 20;

type Violation = String;

fn settings(broken: Option<Broken>, transaction_records: usize) -> Arc<Settings> {
    static WHOLE: OnceLock<Settings> = OnceLock::new();
    let whole = WHOLE.get_or_init(|| {
        let config = FilterConfig {
            batch_records: 3,
            linger_ms: 0,
            slice_s: SLICE_S,
            lateness_s: SLICE_S - WINDOW_S,
            clock_skew_s: 4,
            dead_limit_percent: 100,
            ..FilterConfig::default()
        };
        let sites: Sites =
            [(SiteId::new("s").unwrap(), SiteRules { window_s: WINDOW_S })].into_iter().collect();
        assert_eq!(config.faults(&sites), []);
        Settings::new(config, sites)
    });
    let mut settings = Settings { broken, ..whole.clone() };
    settings.config.transaction_records = transaction_records;
    Arc::new(settings)
}

/// The filter's protocol.
struct Filter;

impl Protocol for Filter {
    type What = Broken;
    const NAME: &'static str = "filter";
    const FAULTS: &'static [&'static str] = faults::KINDS;
    const MUTATIONS: &'static [Mutation<Broken>] = broken::MUTATIONS;

    fn live(plan: &Plan, without: Option<Broken>, record: &mut Record) -> Result<(), Violation> {
        World::new(plan, without, record).live(plan).map(|_| ())
    }
}

#[test]
fn every_record_has_the_one_verdict_that_the_log_says() {
    if simulation::asked::<Filter>() == Asked::Done {
        return;
    }
    let mut total = Stats::default();
    for seed in 0..300 {
        let (plan, mut record) = (Plan::whole(seed), Record::default());
        let stats = World::new(&plan, None, &mut record).live(&plan);
        let Stats { records, commits, rebuilds, syncs, unknown } = stats.unwrap_or_else(|_| {
            panic!("{}", simulation::histories::<Filter>(seed..seed + 1, None).first.unwrap())
        });
        total.records += records;
        total.commits += commits;
        total.rebuilds += rebuilds;
        total.syncs += syncs;
        total.unknown += unknown;
    }
    // The runs are not idle.
    assert!(total.rebuilds > 100 && total.unknown > 10 && total.syncs > 1_000, "{total:?}");
}

#[test]
fn a_seed_names_a_history_for_ever() {
    for seed in 0..20 {
        let told = || simulation::told::<Filter>(seed, Some(Broken::ClaimAnywhere));
        assert_eq!(told(), told());
    }
}

#[test]
fn each_condition_is_needed() {
    assert_eq!(simulation::unnoticed::<Filter>(&(0..2_000)), [""; 0], "nobody noticed");
}
