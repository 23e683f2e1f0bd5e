//! What a history consists of.

/// A seed, and which of its steps are done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    seed: u64,
    /// None: all.
    only: Option<Vec<u32>>,
}

impl Plan {
    /// The whole history of a seed.
    pub fn whole(seed: u64) -> Self {
        Self { seed, only: None }
    }

    /// The same history with these steps alone, in rising order.
    pub fn only(seed: u64, steps: Vec<u32>) -> Self {
        Self { seed, only: Some(steps) }
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The steps that are done, of the first `most`.
    pub fn steps(&self, most: u32) -> impl Iterator<Item = u32> {
        let some = self.only.iter().flatten().copied().filter(move |step| *step < most);
        let all = 0..if self.only.is_none() { most } else { 0 };
        all.chain(some)
    }

    /// What a step's randomness begins with.
    pub fn seed_of(&self, step: u32) -> u64 {
        self.mixed(u64::from(step) << 8)
    }

    /// The same for what is no step: what comes before the first and after the last.
    pub fn seed_of_part(&self, part: u8) -> u64 {
        self.mixed(u64::from(part) + 1)
    }

    /// SplitMix64's own mixing: neighbouring numbers have nothing to do with each other afterwards.
    fn mixed(&self, salt: u64) -> u64 {
        let mut z = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.wrapping_mul(0xd1b5_4a32_d192_ed03);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_the_same_whatever_else_is_done() {
        let (whole, some) = (Plan::whole(7), Plan::only(7, vec![1, 4, 9]));
        assert_eq!(whole.steps(3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(some.steps(9).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(whole.seed_of(4), some.seed_of(4));
        let mut seeds: Vec<u64> = (0..1000).map(|step| whole.seed_of(step)).collect();
        seeds.extend((0..10).map(|part| whole.seed_of_part(part)));
        seeds.extend((0..1000).map(|step| Plan::whole(8).seed_of(step)));
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 2010);
    }
}
