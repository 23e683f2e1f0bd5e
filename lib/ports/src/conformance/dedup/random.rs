//! Steps in any order, on the store and on a model of it.

use super::{DedupUnderTest, digest, up};
use crate::{Applied, Claim, ClaimOutcome, DedupStore, InstallOutcome, Lookup, Remembered};
use onlooker_event::Digest128;
use std::collections::BTreeMap;

/// Slice, then key, then values.
type Slices = BTreeMap<i64, BTreeMap<Digest128, Vec<u32>>>;

#[derive(Default)]
struct Model {
    at: Option<Applied>,
    slices: Slices,
    staged: BTreeMap<String, (u64, Slices)>,
}

impl Model {
    fn lookup(&self, least: i64, most: i64, slice: i64, keys: &[Digest128]) -> Lookup {
        if !self.at.is_some_and(|at| (least..=most).contains(&at.offset)) {
            return Lookup::Gap(self.at);
        }
        let of = |slice: i64, key: &Digest128| {
            self.slices.get(&slice).and_then(|s| s.get(key)).cloned().unwrap_or_default()
        };
        let remembered = |key: &Digest128| Remembered { older: of(slice - 1, key), newer: of(slice, key) };
        Lookup::Found(keys.iter().map(remembered).collect())
    }

    fn claim(&mut self, from: i64, to: i64, slice: i64, claims: &[Claim]) -> ClaimOutcome {
        if self.at.is_none_or(|at| at.offset != from) {
            return ClaimOutcome::Gap(self.at);
        }
        let keys = self.slices.entry(slice).or_default();
        keys.extend(claims.iter().map(|claim| (claim.key, claim.values.to_vec())));
        self.at = Some(Applied { offset: to, slice });
        self.slices.retain(|s, _| *s >= slice - 1);
        ClaimOutcome::Done
    }

    fn stage(&mut self, name: &str, part: u64, slice: i64, claims: &[Claim]) -> bool {
        let next = self.staged.get(name).map_or(0, |(parts, _)| *parts);
        if part != next {
            return false;
        }
        let (parts, slices) = self.staged.entry(name.to_owned()).or_default();
        *parts += 1;
        let keys = slices.entry(slice).or_default();
        for claim in claims {
            keys.entry(claim.key).or_default().extend(&claim.values);
        }
        true
    }

    fn install(&mut self, offset: i64, slice: i64, name: &str, parts: u64) -> InstallOutcome {
        if self.staged.get(name).map_or(0, |(parts, _)| *parts) != parts {
            return InstallOutcome::Gap;
        }
        let (_, slices) = self.staged.remove(name).unwrap_or_default();
        if self.at.is_some_and(|at| at.offset >= offset) {
            return InstallOutcome::Discarded;
        }
        self.slices = slices;
        self.slices.retain(|s, _| *s == slice || *s == slice - 1);
        self.at = Some(Applied { offset, slice });
        InstallOutcome::Done
    }
}

/// Repeatable choices (xorshift).
struct Choice(u64);

impl Choice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn small(&mut self, n: u64) -> i64 {
        i64::try_from(self.below(n)).unwrap_or(0)
    }

    fn claims(&mut self) -> Vec<Claim> {
        let mut keys: Vec<u64> = (0..8).filter(|_| self.below(3) == 0).collect();
        keys.dedup();
        let number = |n: u64| u32::try_from(n).unwrap_or(0);
        keys.into_iter()
            .map(|key| Claim {
                key: digest(number(key)),
                values: (0..=self.below(3)).map(|_| number(self.below(1 << 32))).collect(),
            })
            .collect()
    }
}

/// A few hundred steps of two filters of which either may be a zombie; another order for each seed.
pub async fn random_steps_agree_with_a_model<D: DedupUnderTest>(test: &D, partition: i32, seed: u64) {
    let store = test.store();
    let mut choice = Choice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut model = Model::default();
    let keys: Vec<_> = (0..8).map(digest).collect();
    let (mut offset, mut slice) = (0i64, 100i64);
    for step in 0..400 {
        // Mostly the right offset, else one that is off by a little.
        let from = if choice.below(4) > 0 {
            model.at.map_or(0, |at| at.offset)
        } else {
            offset + choice.small(7) - 3
        };
        match choice.below(10) {
            0..=3 => {
                slice += if choice.below(6) == 0 { choice.small(3) } else { 0 };
                let (to, claims) = (from + choice.small(5), choice.claims());
                let expected = model.claim(from, to, slice, &claims);
                let got = up(store.claim(partition, from, to, slice, &claims, 0..slice - 1).await);
                assert_eq!(got, expected, "step {step}: claim {from} to {to}");
                offset = offset.max(to);
            }
            4..=6 => {
                let (least, most) = (from - choice.small(3), from + choice.small(3));
                let got = up(store.lookup(partition, least, most, slice, &keys).await);
                assert_eq!(got, model.lookup(least, most, slice, &keys), "step {step}: look-up");
            }
            7 | 8 => {
                let name = ["one", "two"][usize::from(choice.below(2) == 0)];
                let next = model.staged.get(name).map_or(0, |(parts, _)| *parts);
                let part = if choice.below(4) > 0 { next } else { choice.below(3) };
                let (into, claims) = (slice - choice.small(2), choice.claims());
                let expected = model.stage(name, part, into, &claims);
                let got = up(store.stage(partition, name, part, into, &claims).await);
                assert_eq!(got, expected, "step {step}: part {part} of {name}");
            }
            _ => {
                let name = ["one", "two"][usize::from(choice.below(2) == 0)];
                let parts = model.staged.get(name).map_or(0, |(parts, _)| *parts);
                let parts = if choice.below(4) > 0 { parts } else { parts + 1 };
                let at = from + choice.small(3);
                let expected = model.install(at, slice, name, parts);
                let got = up(store.install(partition, at, slice, name, parts).await);
                assert_eq!(got, expected, "step {step}: install {name} at {at}");
                offset = offset.max(at);
            }
        }
        assert_eq!(up(store.applied(partition).await), model.at, "step {step}");
    }
}
