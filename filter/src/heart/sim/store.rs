//! A model of the dedup store, one partition: each step atomic, its state gone or set back at any time.

use super::Broken;
use onlooker_event::Digest128;
use onlooker_ports::{Applied, Claim, ClaimOutcome, InstallOutcome, Lookup, Remembered};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

type Slice = BTreeMap<Digest128, Vec<u32>>;
/// Shared with earlier states, so that keeping one costs little.
type Slices = BTreeMap<i64, Arc<Slice>>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Store {
    pub(crate) applied: Option<Applied>,
    pub(crate) slices: Slices,
    pub(crate) staged: BTreeMap<String, (u64, Slices)>,
    /// Slices that have a TTL, because a condition is left out.
    pub(crate) expiring: BTreeSet<i64>,
}

impl Store {
    pub(crate) fn lookup(&self, at_least: i64, at_most: i64, slice: i64, keys: &[Digest128]) -> Lookup {
        match self.applied {
            // Without the floor a store that lost everything is taken for one that never had anything.
            None if at_least == i64::MIN => {}
            Some(applied) if applied.offset >= at_least && applied.offset <= at_most => {}
            other => return Lookup::Gap(other),
        }
        let read = |slice: i64, key: &Digest128| {
            self.slices.get(&slice).and_then(|s| s.get(key)).cloned().unwrap_or_default()
        };
        let found =
            keys.iter().map(|key| Remembered { older: read(slice - 1, key), newer: read(slice, key) });
        Lookup::Found(found.collect())
    }

    pub(crate) fn claim(
        &mut self,
        broken: Option<Broken>,
        (from, to): (i64, i64),
        slice: i64,
        claims: &[Claim],
        drop: Range<i64>,
    ) -> ClaimOutcome {
        if self.applied.map(|a| a.offset) != Some(from) && broken != Some(Broken::ClaimAnywhere) {
            return ClaimOutcome::Gap(self.applied);
        }
        if !claims.is_empty() {
            let fields = Arc::make_mut(self.slices.entry(slice).or_default());
            fields.extend(claims.iter().map(|claim| (claim.key, claim.values.to_vec())));
        }
        self.applied = Some(Applied { offset: to, slice });
        self.slices.retain(|slice, _| !drop.contains(slice));
        ClaimOutcome::Done
    }

    pub(crate) fn stage(
        &mut self,
        broken: Option<Broken>,
        name: &str,
        part: u64,
        slice: i64,
        claims: &[Claim],
    ) -> bool {
        let (next, slices) = self.staged.entry(name.to_owned()).or_default();
        if *next != part && broken != Some(Broken::StageAnyPart) {
            return false;
        }
        *next = part + 1;
        let fields = Arc::make_mut(slices.entry(slice).or_default());
        for claim in claims {
            fields.entry(claim.key).or_default().extend(&claim.values);
        }
        true
    }

    pub(crate) fn install(
        &mut self,
        broken: Option<Broken>,
        to: Applied,
        name: &str,
        parts: u64,
    ) -> InstallOutcome {
        let (staged, slices) = self.staged.get(name).cloned().unwrap_or_default();
        if staged != parts && broken != Some(Broken::InstallAnyCount) {
            return InstallOutcome::Gap;
        }
        let keep = match self.applied {
            Some(_) if broken == Some(Broken::InstallOnlyIfMissing) => true,
            Some(applied) => applied.offset >= to.offset,
            None => false,
        };
        self.staged.remove(name);
        if keep {
            return InstallOutcome::Discarded;
        }
        (self.applied, self.slices) = (Some(to), slices);
        if broken == Some(Broken::InstallKeepsTtl) {
            self.expiring = self.slices.keys().copied().collect();
        }
        InstallOutcome::Done
    }

    /// The clock runs out for what has a TTL: what was staged, whole, for its keys were all touched together.
    pub(crate) fn expire(&mut self, broken: Option<Broken>) {
        if broken == Some(Broken::StagedExpireApart) {
            self.staged.values_mut().for_each(|(_, slices)| _ = slices.pop_first());
        } else {
            self.staged.clear();
        }
        for slice in std::mem::take(&mut self.expiring) {
            self.slices.remove(&slice);
        }
    }
}
