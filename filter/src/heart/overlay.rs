//! Counted views of decided chunks that the dedup store does not hold yet.
//!
//! Without it, two views of one viewer in batches that follow each other closely would both count.

use onlooker_event::Digest128;
use onlooker_ports::{Claim, Values};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

type Index = HashMap<Digest128, u32, foldhash::fast::RandomState>;

/// Which keys a chunk may have: a bit for each, of so many that few others fall on one. Nearly all keys that are asked for
/// are in no chunk, and several chunks are asked.
#[derive(Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(expected: usize) -> Self {
        const BITS_A_KEY: usize = 16;
        Self(vec![0; (expected * BITS_A_KEY / 64).next_power_of_two()])
    }

    #[inline]
    fn place(&self, key: &Digest128) -> (usize, u64) {
        // A digest's bits are as good as those of any hash of it.
        let bits = u128::from_le_bytes(key.0) as u64;
        ((bits >> 6) as usize & self.0.len().wrapping_sub(1), 1 << (bits & 63))
    }

    #[inline]
    fn add(&mut self, key: &Digest128) {
        let (word, bit) = self.place(key);
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    #[inline]
    fn may_have(&self, key: &Digest128) -> bool {
        let (word, bit) = self.place(key);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }
}

/// A decided chunk: for each key that it counted, *all* values of the key in the slice up to the chunk's end. So of
/// several chunks the newest that knows a key has its complete list.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub(super) to: i64,
    pub(super) slice: i64,
    pub(super) records: usize,
    pub(super) claims: Arc<Vec<Claim>>,
    bits: Bits,
    index: Index,
}

/// A chunk in the making.
#[derive(Debug)]
pub(super) struct Deciding {
    slice: i64,
    claims: Vec<Claim>,
    bits: Bits,
    index: Index,
}

impl Deciding {
    pub(super) fn new(slice: i64, expected: usize) -> Self {
        Self {
            slice,
            claims: Vec::with_capacity(expected),
            bits: Bits::new(expected),
            index: Index::with_capacity_and_hasher(expected, foldhash::fast::RandomState::default()),
        }
    }

    #[inline]
    fn get(&self, key: &Digest128) -> Option<&[u32]> {
        if !self.bits.may_have(key) {
            return None;
        }
        self.index.get(key).map(|at| self.claims[*at as usize].values.as_slice())
    }

    /// Adds a value to the key's list, which so far is `before` if this chunk does not know the key.
    pub(super) fn count(&mut self, key: Digest128, before: &[u32], value: u32) {
        if self.bits.may_have(&key)
            && let Some(at) = self.index.get(&key)
        {
            self.claims[*at as usize].values.push(value);
            return;
        }
        self.bits.add(&key);
        let mut values = Values::with_capacity(before.len() + 1);
        values.extend_from_slice(before);
        values.push(value);
        self.index.insert(key, u32::try_from(self.claims.len()).unwrap_or(u32::MAX));
        self.claims.push(Claim { key, values });
    }

    pub(super) fn finish(self, to: i64, records: usize) -> Decided {
        let (slice, claims) = (self.slice, Arc::new(self.claims));
        Decided { to, slice, records, claims, bits: self.bits, index: self.index }
    }
}

/// The decided chunks of a partition that are not claimed yet, oldest first; and the claimed ones that a look-up under
/// way may not have seen.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    chunks: VecDeque<Decided>,
    /// Chunks up to here are claimed.
    claimed: i64,
}

/// The claims of consecutive chunks of one slice.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) to: i64,
    pub(super) slice: i64,
    pub(super) claims: Arc<Vec<Claim>>,
}

impl Overlay {
    /// Without a chunk, where everything below `claimed` is claimed.
    pub(super) fn from(claimed: i64) -> Self {
        Self { chunks: VecDeque::new(), claimed }
    }

    fn unclaimed(&self) -> impl Iterator<Item = &Decided> {
        self.chunks.iter().skip_while(|chunk| chunk.to <= self.claimed)
    }

    pub(super) fn push(&mut self, chunk: Decided) {
        self.chunks.push_back(chunk);
    }

    /// Whether everything is claimed.
    pub(super) fn is_claimed(&self) -> bool {
        self.unclaimed().next().is_none()
    }

    /// Decided and not claimed.
    pub(super) fn records(&self) -> usize {
        self.unclaimed().map(|chunk| chunk.records).sum()
    }

    /// The key's complete list in a slice, if any decided chunk (or the one in the making) counted it there.
    pub(super) fn get<'a>(
        &'a self,
        deciding: &'a Deciding,
        key: &Digest128,
        slice: i64,
    ) -> Option<&'a [u32]> {
        if deciding.slice == slice
            && let Some(values) = deciding.get(key)
        {
            return Some(values);
        }
        self.chunks
            .iter()
            .rev()
            .filter(|chunk| chunk.slice == slice && chunk.bits.may_have(key))
            .find_map(|chunk| chunk.index.get(key).map(|at| chunk.claims[*at as usize].values.as_slice()))
    }

    /// What one CLAIM writes next: chunks of one slice that end at or below `limit`, up to about `max` claims.
    pub(super) fn claimable(&self, limit: i64, max: usize) -> Option<Claims> {
        let first = self.unclaimed().next().filter(|chunk| chunk.to <= limit)?;
        let mut total = 0;
        let together: Vec<&Decided> = self
            .unclaimed()
            .take_while(|chunk| {
                total += chunk.claims.len();
                chunk.to <= limit && chunk.slice == first.slice && (total <= max || chunk.to == first.to)
            })
            .collect();
        let (last, earlier) = together.split_last()?;
        if earlier.iter().all(|chunk| chunk.claims.is_empty()) {
            return Some(Claims { to: last.to, slice: last.slice, claims: Arc::clone(&last.claims) });
        }
        // The newest list of a key contains the older ones.
        let mut claims: Vec<Claim> = last.claims.to_vec();
        let mut seen: Index = last.index.clone();
        for chunk in earlier.iter().rev() {
            for claim in chunk.claims.iter() {
                if seen.insert(claim.key, 0).is_none() {
                    claims.push(claim.clone());
                }
            }
        }
        Some(Claims { to: last.to, slice: last.slice, claims: Arc::new(claims) })
    }

    #[cfg(test)]
    pub(super) fn forget_keys(&mut self) {
        self.chunks.iter_mut().for_each(|chunk| chunk.index.clear());
    }

    #[cfg(test)]
    pub(super) fn cut(&mut self, end: i64) {
        self.chunks.retain(|chunk| chunk.to <= end);
    }

    /// The dedup store holds everything below `to`.
    pub(super) fn claimed(&mut self, to: i64) {
        self.claimed = to;
    }

    /// Drops what is claimed and lies below `floor`: where the store stood, at least, for whoever still looks up.
    pub(super) fn drop_below(&mut self, floor: i64) {
        let end = floor.min(self.claimed);
        while self.chunks.front().is_some_and(|chunk| chunk.to <= end) {
            self.chunks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> Digest128 {
        Digest128([n; 16])
    }

    fn chunk(to: i64, slice: i64, claims: &[(u8, &[u32])]) -> Decided {
        let mut deciding = Deciding::new(slice, 4);
        for (n, values) in claims {
            let (last, before) = values.split_last().unwrap();
            deciding.count(key(*n), before, *last);
        }
        deciding.finish(to, 2)
    }

    fn sorted(claims: &Claims) -> Vec<(u8, Vec<u32>)> {
        let mut all: Vec<_> = claims.claims.iter().map(|c| (c.key.0[0], c.values.to_vec())).collect();
        all.sort();
        all
    }

    #[test]
    fn the_newest_chunk_of_the_slice_answers() {
        let mut overlay = Overlay::from(0);
        overlay.push(chunk(10, 4, &[(1, &[100])]));
        overlay.push(chunk(20, 5, &[(1, &[200])]));
        overlay.push(chunk(30, 5, &[(1, &[200, 300]), (2, &[301])]));
        let mut deciding = Deciding::new(5, 4);
        assert_eq!(overlay.get(&deciding, &key(1), 5), Some(&[200, 300][..]));
        assert_eq!(overlay.get(&deciding, &key(1), 4), Some(&[100][..]));
        assert_eq!(overlay.get(&deciding, &key(2), 4), None);
        deciding.count(key(2), &[301], 400);
        deciding.count(key(2), &[], 500);
        assert_eq!(overlay.get(&deciding, &key(2), 5), Some(&[301, 400, 500][..]));
    }

    #[test]
    fn several_commits_share_a_claim_within_a_slice() {
        let mut overlay = Overlay::from(0);
        overlay.push(chunk(10, 5, &[(1, &[100]), (2, &[101])]));
        overlay.push(chunk(20, 5, &[(1, &[100, 200])]));
        overlay.push(chunk(30, 6, &[(3, &[300])]));
        assert_eq!(overlay.claimable(9, 100), None);
        let first = overlay.claimable(30, 100).unwrap();
        assert_eq!((first.to, first.slice), (20, 5));
        assert_eq!(sorted(&first), [(1, vec![100, 200]), (2, vec![101])]);
        // Nothing of a record at or beyond the limit is in it.
        assert_eq!(sorted(&overlay.claimable(19, 100).unwrap()), [(1, vec![100]), (2, vec![101])]);
        // The limit on claims never stops a chunk that is alone.
        assert_eq!(overlay.claimable(30, 1).unwrap().to, 10);
        overlay.claimed(20);
        // A look-up that was sent when nothing was claimed may have seen nothing of it.
        overlay.drop_below(0);
        assert_eq!(overlay.get(&Deciding::new(5, 0), &key(1), 5), Some(&[100, 200][..]));
        overlay.drop_below(20);
        assert_eq!(overlay.get(&Deciding::new(5, 0), &key(1), 5), None);
        assert_eq!(overlay.records(), 2);
        assert_eq!(overlay.claimable(30, 100).unwrap().slice, 6);
        overlay.claimed(30);
        assert!(overlay.is_claimed());
    }
}
