//! A memory made from verdicts, after the dedup store lost its own.
//!
//! Judging again from some earlier offset would be wrong for ever: a viewer who returns every 29 minutes makes the
//! chain of what depends on what endless. The verdicts themselves say what was counted.

use super::Settings;
use super::chunk::whole_seconds;
use super::command::Attempt;
use super::note::Note;
use onlooker_event::Digest128;
use onlooker_ports::{Applied, Batch, Claim};
use onlooker_proto::{ClaimRef, decode_counted};
use std::collections::HashMap;
use std::sync::Arc;

/// Claims in one part, at most: what a rebuild holds in memory for each slice of a partition.
const PART_CLAIMS: usize = if cfg!(test) { 2 } else { 2_000 };

/// A partition whose memory is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// The partition.
    pub partition: i32,
    /// The attempt that asked.
    pub attempt: Attempt,
    /// Where the store is to stand: the committed offset, and the slice there.
    pub to: Applied,
    /// The length of a slice at that commit, in seconds.
    pub noted_slice_s: u32,
}

/// The partitions that are rebuilt by one reading of `views.counted`.
#[derive(Debug)]
pub struct Verdicts {
    settings: Arc<Settings>,
    rebuilds: HashMap<i32, Rebuild, foldhash::fast::RandomState>,
}

/// One partition's memory under construction.
#[derive(Debug)]
pub struct Rebuild {
    /// What it is for.
    pub job: Job,
    /// The fresh name that its parts are staged under.
    pub name: String,
    /// Parts handed out so far.
    pub parts: u64,
    /// Claims handed out so far.
    pub claims: u64,
    older: Gathered,
    newer: Gathered,
}

type Gathered = HashMap<Digest128, Vec<u32>, foldhash::fast::RandomState>;

/// Claims that are staged together.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// The partition.
    pub partition: i32,
    /// The fresh name.
    pub name: String,
    /// Its number.
    pub part: u64,
    /// The slice.
    pub slice: i64,
    /// The claims.
    pub claims: Vec<Claim>,
}

impl Verdicts {
    /// `name` is one that nobody has used before or ever will.
    pub fn new(settings: Arc<Settings>, jobs: &[Job], name: &str) -> Self {
        let rebuilds = jobs.iter().map(|job| {
            let (older, newer) = (Gathered::default(), Gathered::default());
            let name = format!("{name}-{}", job.partition);
            (job.partition, Rebuild { job: *job, name, parts: 0, claims: 0, older, newer })
        });
        Self { settings, rebuilds: rebuilds.collect() }
    }

    /// The append time to read `views.counted` from, in milliseconds since 1970: nothing that was counted in a slice
    /// that is wanted is older, whichever server's clock stamped it.
    pub fn from_ms(&self) -> i64 {
        let slice_s = i64::from(self.settings.config.slice_s);
        let skew_s = i64::from(self.settings.config.clock_skew_s);
        #[cfg(test)]
        let skew_s = if self.settings.breaks(super::sim::Broken::RebuildWithoutSkew) { 0 } else { skew_s };
        let start_s = |job: &Job| {
            let stretch_s =
                if job.noted_slice_s == self.settings.config.slice_s { 0 } else { job.noted_slice_s };
            (job.to.slice - 1).saturating_mul(slice_s) - i64::from(stretch_s)
        };
        let first_s = self.rebuilds.values().map(|r| start_s(&r.job)).min().unwrap_or(0);
        (first_s - skew_s).max(0).saturating_mul(1_000)
    }

    /// Takes verdicts, in the order of their log, and hands out full parts.
    pub fn take(&mut self, batch: &Batch, parts: &mut Vec<Part>) {
        for record in batch.iter() {
            let Some(claim) = read(record.payload) else { continue };
            let Some(rebuild) = self.rebuilds.get_mut(&claim.source_partition) else { continue };
            rebuild.take(&self.settings, &claim, parts);
        }
    }

    /// The rest, when every end has been passed.
    pub fn finish(self, parts: &mut Vec<Part>) -> Vec<Rebuild> {
        let mut rebuilds: Vec<Rebuild> = self.rebuilds.into_values().collect();
        rebuilds.sort_by_key(|rebuild| rebuild.job.partition);
        for rebuild in &mut rebuilds {
            rebuild.hand_out(true, parts);
            rebuild.hand_out(false, parts);
        }
        rebuilds
    }
}

/// A record that cannot be read was counted by somebody else's program: it claims nothing that is known here.
fn read(payload: Option<&[u8]>) -> Option<ClaimRef> {
    if let Some(claim) = payload.and_then(ClaimRef::read) {
        return Some(claim);
    }
    let counted = decode_counted(payload).ok()?;
    Some(ClaimRef {
        event_ms: counted.event_ms,
        source_partition: counted.source_partition,
        source_offset: counted.source_offset,
        slice: counted.slice,
        slice_s: counted.slice_s,
        claim: counted.claim,
        id_claim: counted.id_claim,
    })
}

impl Rebuild {
    fn take(&mut self, settings: &Settings, claim: &ClaimRef, parts: &mut Vec<Part>) {
        let to = self.job.to;
        #[cfg(test)]
        if settings.breaks(super::sim::Broken::JudgeAgain) {
            return;
        }
        // The store is to stand at `to`: a verdict beyond it belongs to a later state, and would turn its own view,
        // when that is judged again, into a repeat.
        let beyond = claim.source_offset >= to.offset;
        #[cfg(test)]
        let beyond = beyond && !settings.breaks(super::sim::Broken::RebuildBeyondCommitted);
        if beyond {
            return;
        }
        #[cfg(test)]
        if settings.breaks(super::sim::Broken::RebuildWithoutCarried) && claim.source_offset < 0 {
            return;
        }
        let slice_s = if claim.slice_s == 0 { settings.config.slice_s } else { claim.slice_s };
        let slice = Note { slice: claim.slice, slice_s }.slice_now(settings).min(to.slice);
        // Two slices, because a view is remembered in its slice and the next.
        let oldest = to.slice - 1;
        #[cfg(test)]
        let oldest = if settings.breaks(super::sim::Broken::RebuildOneSlice) { to.slice } else { oldest };
        if slice < oldest {
            return;
        }
        let newer = slice == to.slice;
        let gathered = if newer { &mut self.newer } else { &mut self.older };
        gathered.entry(claim.claim).or_default().push(whole_seconds(claim.event_ms));
        if let Some((id, fingerprint)) = claim.id_claim {
            gathered.entry(id).or_default().push(fingerprint);
        }
        if gathered.len() >= PART_CLAIMS {
            self.hand_out(newer, parts);
        }
    }

    fn hand_out(&mut self, newer: bool, parts: &mut Vec<Part>) {
        let (gathered, slice) = if newer {
            (&mut self.newer, self.job.to.slice)
        } else {
            (&mut self.older, self.job.to.slice - 1)
        };
        if gathered.is_empty() {
            return;
        }
        let claims: Vec<Claim> =
            gathered.drain().map(|(key, values)| Claim { key, values: values.into() }).collect();
        self.claims += claims.len() as u64;
        parts.push(Part {
            partition: self.job.partition,
            name: self.name.clone(),
            part: self.parts,
            slice,
            claims,
        });
        self.parts += 1;
    }
}
