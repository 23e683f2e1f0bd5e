//! Requests and answers in few words, for timelines.

use super::instance::{Reply, Request};
use onlooker_ports::{ClaimOutcome, InstallOutcome, Lookup};

impl Request {
    pub(super) fn brief(&self) -> String {
        match self {
            Self::AskMemory { partition, .. } => format!("where does the store stand ({partition})"),
            Self::AskGroup { partition, .. } => format!("what is committed ({partition})"),
            Self::Lookup { partition, bounds: (low, high), slice, keys, .. } => {
                format!("look up {} keys of slice {slice} at {low}..={high} ({partition})", keys.len())
            }
            Self::Claim { partition, span: (from, to), slice, claims, .. } => {
                format!("claim {from}..{to}, {} keys of slice {slice} ({partition})", claims.len())
            }
            Self::Stage { part, .. } => {
                format!(
                    "stage part {} of {}, slice {} ({})",
                    part.part, part.name, part.slice, part.partition
                )
            }
            Self::Install { partition, job, name, parts, .. } => {
                let (offset, slice) = (job.to.offset, job.to.slice);
                format!("install {name}, {parts} parts, at {offset}, slice {slice} ({partition})")
            }
            Self::Ends { partition, .. } => format!("where do the verdicts end ({partition})"),
            Self::Produce { txn, partition, records } => {
                format!("transaction {txn}: {} verdicts to output {partition}", records.len())
            }
            Self::SendOffsets { txn, generation, positions } => {
                let offsets: Vec<_> = positions.iter().map(|p| (p.partition, p.offset)).collect();
                format!("transaction {txn}: offsets {offsets:?} of generation {generation}")
            }
            Self::End { txn, commit } => {
                format!("transaction {txn}: {}", if *commit { "commit" } else { "abort" })
            }
        }
    }
}

impl Reply {
    pub(super) fn brief(&self) -> String {
        let offset = |applied: &Option<onlooker_ports::Applied>| match applied {
            Some(applied) => format!("{}, slice {}", applied.offset, applied.slice),
            None => "nowhere".to_owned(),
        };
        match self {
            Self::Memory(applied) => offset(applied),
            Self::Group(committed, bounds) => {
                format!("{:?} of {bounds:?}", committed.as_ref().map(|c| (c.offset, c.note.as_str())))
            }
            Self::Lookup(Lookup::Gap(applied)) => format!("gap, {}", offset(applied)),
            Self::Lookup(Lookup::Found(found)) => {
                let known = found.iter().filter(|r| !r.older.is_empty() || !r.newer.is_empty()).count();
                format!("{known} known")
            }
            Self::Claim(ClaimOutcome::Gap(applied)) => format!("gap, {}", offset(applied)),
            Self::Claim(ClaimOutcome::Done) | Self::Install(InstallOutcome::Done) => "done".to_owned(),
            Self::Stage(ok) | Self::Txn(_, ok) => if *ok { "done" } else { "no" }.to_owned(),
            Self::Install(outcome) => format!("{outcome:?}"),
            Self::Ends(ends) => format!("{ends:?}"),
        }
    }
}
