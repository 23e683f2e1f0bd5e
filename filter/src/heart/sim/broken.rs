//! The conditions of the protocol, and what happens without them.

use onlooker_model::simulation::Mutation;

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
    RebuildWithoutSkew,
    RebuildWithoutCarried,
    StageAnyPart,
    StagedExpireApart,
    InstallAnyCount,
    InstallKeepsTtl,
    JudgeAgain,
    ClaimsExpire,
    InstallOnlyIfMissing,
    RecordsBeforeStart,
}

const TWICE: &str = "a view decided twice, differently";
const ZOMBIE: &str = "a zombie commits twice";
const PARTIAL: &str = "a partial state is installed: views counted twice";

const fn row(
    name: &'static str,
    what: Broken,
    removed: &'static str,
    then: &'static str,
) -> Mutation<Broken> {
    Mutation { name, removed, then, rare: false, what }
}

const fn rare(row: Mutation<Broken>) -> Mutation<Broken> {
    Mutation { rare: true, ..row }
}

pub(super) const MUTATIONS: &[Mutation<Broken>] = &[
    row("lookup-floor", Broken::LookupFloor, "LOOKUP's lower bound", TWICE),
    row("lookup-ceiling", Broken::LookupCeiling, "LOOKUP's upper bound", TWICE),
    row("no-overlay", Broken::NoOverlay, "the overlay", TWICE),
    row(
        "overlay-dropped-early",
        Broken::DropUnderLookup,
        "the overlay, kept while a look-up is under way",
        TWICE,
    ),
    row("claim-anywhere", Broken::ClaimAnywhere, "CLAIM's == from", "repeats counted, views lost"),
    row(
        "claim-before-commit",
        Broken::ClaimBeforeCommit,
        "CLAIM only after the commit is known",
        "repeats counted, views lost",
    ),
    row("unstable-offsets", Broken::UnstableOffsets, "require_stable", ZOMBIE),
    row("any-membership", Broken::AnyMembership, "the generation check", ZOMBIE),
    row("latest-membership", Broken::LatestMembership, "the membership of the assignment", ZOMBIE),
    row("kept-at-reassignment", Broken::KeepAtReassignment, "forgetting at reassignment", ZOMBIE),
    row("unknown-is-done", Broken::UnknownIsDone, "SYNC at an unknown result (success assumed)", "holes"),
    row(
        "unknown-is-aborted",
        Broken::UnknownIsAborted,
        "SYNC at an unknown result (failure assumed)",
        "duplicates",
    ),
    row("write-below-committed", Broken::WriteBelowCommitted, "output only at or above c", "duplicates"),
    row("group-before-memory", Broken::GroupBeforeMemory, "a read before c", "a false refusal"),
    row("rebuild-without-ends", Broken::RebuildWithoutEnds, "waiting for the ends", PARTIAL),
    rare(row("rebuild-beyond-committed", Broken::RebuildBeyondCommitted, "source offset < c", PARTIAL)),
    row("rebuild-one-slice", Broken::RebuildOneSlice, "slice A - 1", PARTIAL),
    rare(row(
        "rebuild-without-skew",
        Broken::RebuildWithoutSkew,
        "seeking by time, less clock skew",
        PARTIAL,
    )),
    row(
        "rebuild-without-carried",
        Broken::RebuildWithoutCarried,
        "verdicts that were carried over (source offset -1)",
        "viewers of the other log counted twice",
    ),
    row("stage-any-part", Broken::StageAnyPart, "STAGE's count", PARTIAL),
    row("staged-expire-apart", Broken::StagedExpireApart, "staged keys expire together", PARTIAL),
    row("install-any-count", Broken::InstallAnyCount, "INSTALL's count", PARTIAL),
    row(
        "install-keeps-ttl",
        Broken::InstallKeepsTtl,
        "INSTALL's PERSIST",
        "the memory forgets and counts twice",
    ),
    row("judge-again", Broken::JudgeAgain, "rebuild from verdicts (re-deciding instead)", "wrong for ever"),
    row("claims-expire", Broken::ClaimsExpire, "no TTL", "a lagging filter forgets and counts twice"),
    row(
        "install-only-if-missing",
        Broken::InstallOnlyIfMissing,
        "INSTALL if missing or < c (only if missing)",
        "stuck after a failover below retention",
    ),
    row(
        "records-before-start",
        Broken::RecordsBeforeStart,
        "records only of the reading that was asked for",
        "holes",
    ),
];
