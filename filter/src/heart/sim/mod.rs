//! The proof: the machine against a model of Kafka and Redis that loses, delays, repeats and reorders.
//!
//! Everything random comes from the seed. After each run every record of the log has exactly one verdict, the one of a
//! naive reference that reads the log once. That the runs can fail is shown as well: with any one condition of the
//! protocol left out, one of them does.

mod check;
mod faults;
mod instance;
mod log;
mod network;
pub(crate) mod reference;
pub(crate) mod rng;
mod script;
pub(crate) mod store;
mod world;

use super::Settings;
use crate::config::{FilterConfig, SiteRules, Sites};
use faults::Faults;
use onlooker_event::SiteId;
use std::sync::Arc;
use world::{Stats, Violation, World};

const PARTITIONS: usize = 2;
const WINDOW_S: u32 = 10;
const SLICE_S: u32 = 20;

/// A condition that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    LookupFloor,
    LookupCeiling,
    NoOverlay,
    DropUnderLookup,
    ClaimAnywhere,
    ClaimBeforeCommit,
    UnstableOffsets,
    AnyMembership,
    LatestMembership,
    KeepAtReassignment,
    UnknownIsDone,
    UnknownIsAborted,
    WriteBelowCommitted,
    GroupBeforeMemory,
    RebuildWithoutEnds,
    RebuildBeyondCommitted,
    RebuildOneSlice,
    StageAnyPart,
    InstallAnyCount,
    JudgeAgain,
    ClaimsExpire,
    InstallOnlyIfMissing,
    RecordsBeforeStart,
}

fn settings(broken: Option<Broken>) -> Arc<Settings> {
    let config = FilterConfig {
        batch_records: 3,
        linger_ms: 0,
        transaction_records: 12,
        slice_s: SLICE_S,
        lateness_s: SLICE_S - WINDOW_S,
        clock_skew_s: 4,
        dead_limit_percent: 100,
        ..FilterConfig::default()
    };
    let sites: Sites = [(SiteId::new("s").unwrap(), SiteRules { window_s: WINDOW_S })].into_iter().collect();
    assert_eq!(config.faults(&sites), []);
    let mut settings = Settings::new(config, sites);
    settings.broken = broken;
    Arc::new(settings)
}

/// What goes wrong in a run: each seed has its own mixture, so that some faults are rare in one run and common in
/// another. Every third run is a storm of failovers, every third one of rebalances and losses.
fn faults(seed: u64) -> Faults {
    let mut rng = rng::Rng::new(seed ^ 0xfa01);
    let mut some = |most: usize| match rng.below(10) {
        0..5 => 0,
        5..9 => rng.below(most + 1),
        _ => 5 * most,
    };
    match seed % 3 {
        0 => Faults { crash: 15, time_out: 20, store_set_back: 25, late: 25, ..Faults::default() },
        1 => Faults { rebalance: 25, crash: 5, store_lost: 25, time_out: 20, late: 15, ..Faults::default() },
        _ => Faults {
            crash: some(6),
            rebalance: some(12),
            store_lost: some(6),
            store_set_back: some(8),
            split_brain: some(10),
            lost_request: some(30),
            time_out: some(40),
            retention: some(10),
            txn_expires: some(6),
            late: some(10),
        },
    }
}

fn run(seed: u64, broken: Option<Broken>) -> Result<Stats, Violation> {
    World::new(seed, broken).run(80, 2_500, faults(seed))
}

/// The first violation within so many seeds.
fn first_violation(broken: Broken, seeds: u64) -> Option<(u64, Violation)> {
    (0..seeds).find_map(|seed| run(seed, Some(broken)).err().map(|violation| (seed, violation)))
}

#[test]
fn every_record_has_the_one_verdict_that_the_log_says() {
    let mut total = Stats::default();
    for seed in 0..300 {
        let stats = run(seed, None).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        total.records += stats.records;
        total.commits += stats.commits;
        total.rebuilds += stats.rebuilds;
        total.syncs += stats.syncs;
        total.unknown += stats.unknown;
    }
    // The runs are not idle.
    assert!(total.rebuilds > 300 && total.unknown > 20 && total.syncs > 3_000, "{total:?}");
}

macro_rules! left_out {
    ($($name:ident: $broken:ident,)*) => {
        $(#[test]
        fn $name() {
            let found = first_violation(Broken::$broken, 3_000);
            assert!(found.is_some(), "nothing went wrong without this condition");

        })*
    };
}

left_out! {
    without_lookups_lower_bound_a_view_is_decided_differently: LookupFloor,
    without_lookups_upper_bound_a_view_is_decided_differently: LookupCeiling,
    without_the_overlay_repeats_count: NoOverlay,
    an_overlay_dropped_under_a_lookup_counts_repeats: DropUnderLookup,
    without_claims_from_repeats_count: ClaimAnywhere,
    a_claim_before_the_commit_loses_views: ClaimBeforeCommit,
    without_stable_offsets_views_are_written_twice: UnstableOffsets,
    without_the_generation_check_a_zombie_writes_twice: AnyMembership,
    with_the_latest_membership_a_zombie_writes_twice: LatestMembership,
    state_kept_through_a_reassignment_writes_twice: KeepAtReassignment,
    an_unknown_result_taken_for_success_leaves_holes: UnknownIsDone,
    an_unknown_result_taken_for_failure_writes_twice: UnknownIsAborted,
    written_below_the_committed_offset_is_twice: WriteBelowCommitted,
    the_groups_offset_read_first_refuses_falsely: GroupBeforeMemory,
    a_rebuild_that_does_not_wait_for_the_ends_is_partial: RebuildWithoutEnds,
    a_rebuild_of_one_slice_forgets: RebuildOneSlice,
    staging_without_a_count_installs_a_part: StageAnyPart,
    installing_without_a_count_installs_a_part: InstallAnyCount,
    judging_again_is_wrong_for_ever: JudgeAgain,
    claims_that_expire_by_a_clock_are_forgotten: ClaimsExpire,
    installing_only_where_nothing_is_gets_stuck: InstallOnlyIfMissing,
    records_of_an_earlier_reading_leave_holes: RecordsBeforeStart,
}
