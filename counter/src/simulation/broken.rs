//! The conditions of the protocol, and what happens without them.

use crate::words::Fault;
use onlooker_model::simulation::Mutation;
use onlooker_model::{Rule, Timestamp};

/// A condition that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Break {
    /// One of the counter's own.
    Heart(Fault),
    /// One of the store's.
    Store(Rule),
    /// One of the archive's.
    Archive(Timestamp),
    /// The archive's numbers are read before the look-up, not after its answer.
    NumberReadBeforeLookup,
    /// The archive's sketches are read before the store says that they are absent there.
    BaseReadBeforeMissing,
    /// A number that the store does not hold is taken for 0.
    NilIsZero,
    /// Sketches that were read from the archive are kept for later batches.
    BasesKept,
    /// Nothing is applied while there are no records.
    NoIdleApply,
    /// What is dirty is read first, where the store stands later.
    BeginInTwoSteps,
    /// A number's n and u are read one after the other.
    NumberInTwoSteps,
    /// The flusher does not wait for acknowledgements.
    NoAcknowledgement,
    /// The janitor looks first and removes later.
    SweepInTwoSteps,
    /// What is applied is committed to the log's group.
    CommitsApplied,
}

const SKIPPED: &str = "views skipped; rebuilt from a stale base";
const FEW: &str = "too few views";
const TWICE: &str = "views counted twice; n that is not \"below u\"";
const LOST: &str = "members lost";
const NOT_BELOW: &str = "a snapshot that is not \"below T\"";
const CLEAN: &str = "unarchived data marked clean";
const HIGH: &str = "durable too high; a wrong cell";
const SHRINKS: &str = "the archive shrinks; a row that is not exact";

const fn row(name: &'static str, what: Break, removed: &'static str, then: &'static str) -> Mutation<Break> {
    Mutation { name, removed, then, rare: false, what }
}

const fn rare(row: Mutation<Break>) -> Mutation<Break> {
    Mutation { rare: true, ..row }
}

use Break::{Archive, Heart, Store};

pub(super) const MUTATIONS: &[Mutation<Break>] = &[
    row("apply-anywhere", Store(Rule::ApplyExact), "APPLY's applied == from", SKIPPED),
    row("apply-if-further", Store(Rule::ApplyNotFurther), "APPLY's == (>= instead)", SKIPPED),
    row("apply-without-gap", Store(Rule::ApplyTellsGap), "APPLY's GAP", SKIPPED),
    row("lookup-anywhere", Store(Rule::LookupExact), "LOOKUP's == from", SKIPPED),
    row("numbers-kept-at-gap", Heart(Fault::KeepNumbersAtGap), "forgetting (n, u) at GAP", FEW),
    row(
        "number-read-before-lookup",
        Break::NumberReadBeforeLookup,
        "the archive's views read after the nil was seen",
        FEW,
    ),
    row("nil-is-zero", Break::NilIsZero, "nil read from the archive (taken as 0)", FEW),
    row("count-all", Heart(Fault::CountAll), "offset >= u (all counted)", TWICE),
    row("u-is-to", Heart(Fault::UIsTo), "u' = max(to, u)", TWICE),
    row("missing-is-empty", Store(Rule::Missing), "MISSING (an empty one created instead)", LOST),
    row("base-read-before-missing", Break::BaseReadBeforeMissing, "the base read after MISSING", LOST),
    row("bases-kept", Break::BasesKept, "the base thrown away", LOST),
    row("base-timestamp", Store(Rule::BaseTimestamp), "base_ts", NOT_BELOW),
    row("created-is-clean", Store(Rule::CreatedIsDirty), "a created sketch is dirty", NOT_BELOW),
    row("unchanged-is-clean", Store(Rule::UnchangedIsDirty), "SADD even if n' = n", NOT_BELOW),
    row("no-persist", Store(Rule::Persist), "PERSIST", "an unarchived sketch is evicted"),
    row(
        "present-merges-base",
        Store(Rule::PresentIgnoresBase),
        "a present sketch ignores the base (merged instead)",
        "T too low for its content",
    ),
    row("sweep-in-two-steps", Break::SweepInTwoSteps, "HDEL's check in the same script", "a number lost"),
    row("init-anyway", Store(Rule::InitOnce), "NX in INIT", "a zombie makes applied jump over records"),
    row("no-idle-apply", Break::NoIdleApply, "the idle APPLY", "a loss is never noticed"),
    row(
        "sync-to-durable",
        Heart(Fault::SyncToDurable),
        "SYNC to applied (uses durable)",
        "GAP for ever after a failover",
    ),
    row("begin-in-two-steps", Break::BeginInTwoSteps, "BEGIN in one step", HIGH),
    row("read-below", Store(Rule::ReadNotBelow), "READ's applied >= A", HIGH),
    row("number-in-two-steps", Break::NumberInTwoSteps, "n and u read in one step", HIGH),
    row("settle-any-sketch", Store(Rule::SettleSketchCompares), "SETTLE_S's compare", CLEAN),
    row("settle-any-number", Store(Rule::SettleNumberCompares), "SETTLE_N's compare", CLEAN),
    row(
        "no-acknowledgement",
        Break::NoAcknowledgement,
        "durable after all acknowledgements",
        "committed views lost",
    ),
    row("sketch-without-timestamp", Archive(Timestamp::Sketch), "TIMESTAMP T on sketches", SHRINKS),
    row("number-without-timestamp", Archive(Timestamp::Number), "TIMESTAMP u on numbers", SHRINKS),
    row(
        "durable-without-timestamp",
        Archive(Timestamp::Durable),
        "TIMESTAMP A + 1 on durable",
        "durable goes back (safe, but commits are no longer monotone)",
    ),
    row("registers-kept-at-gap", Heart(Fault::KeepRegistersAtGap), "L cleared at GAP", LOST),
    row("registers-raised-early", Heart(Fault::RaiseWhenSending), "L updated only after OK", LOST),
    rare(row("registers-from-base", Heart(Fault::SeedFromBase), "L never seeded from a base", LOST)),
    row(
        "restore-sets",
        Store(Rule::BaseReplacesNothing),
        "a present sketch ignores the base (SET instead)",
        LOST,
    ),
    row(
        "evict-dirty",
        Store(Rule::EvictCleanOnly),
        "eviction of clean sketches alone",
        "an unarchived sketch is evicted",
    ),
    row(
        "commit-applied",
        Break::CommitsApplied,
        "offsets committed only when the archive has them",
        "the log may drop what the archive lacks",
    ),
];
