//! From an item's name to its place in a list. One hash of the name serves every index of the process.

use foldhash::fast::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;

static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// The hash of a name. Names are chosen by whoever sends views, so it is seeded anew in each process.
#[inline]
pub(crate) fn hash(name: &[u8]) -> u64 {
    HASHER.hash_one(name)
}

/// Places by hash: open addressing, without removal. A word is the upper half of a hash above, a place plus one below;
/// 0 is free. So a search leads to the list itself only where the hashes agree.
#[derive(Debug, Default)]
pub(crate) struct Index {
    words: Vec<u64>,
    len: usize,
}

impl Index {
    /// The place with this hash of which `is` says that it is the one.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.words.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        loop {
            let word = *self.words.get(at)?;
            if word == 0 {
                return None;
            }
            let place = word as u32 - 1;
            if word >> 32 == hash >> 32 && is(place) {
                return Some(place);
            }
            at = (at + 1) & mask;
        }
    }

    /// Where a search for this hash leads to if the first word is the one. Many such answers are had in the time of one
    /// when they are asked for together.
    #[inline]
    pub(crate) fn peek(&self, hash: u64) -> Option<u32> {
        let word = self.words.get(hash as usize & self.words.len().wrapping_sub(1))?;
        (*word as u32).checked_sub(1)
    }

    /// Adds a place that is not there. `hash_of` tells the hashes of the places that are.
    pub(crate) fn insert(&mut self, hash: u64, place: u32, hash_of: impl Fn(u32) -> u64) {
        if (self.len + 1) * 8 > self.words.len() * 5 {
            let wider = (self.words.len() * 2).max(64);
            let old = std::mem::replace(&mut self.words, vec![0; wider]);
            for word in old.into_iter().filter(|word| *word != 0) {
                self.put(hash_of(word as u32 - 1), word);
            }
        }
        self.put(hash, hash >> 32 << 32 | u64::from(place + 1));
        self.len += 1;
    }

    fn put(&mut self, hash: u64, word: u64) {
        let mask = self.words.len() - 1;
        let mut at = hash as usize & mask;
        while self.words[at] != 0 {
            at = (at + 1) & mask;
        }
        self.words[at] = word;
    }

    /// Forgets all places and keeps the memory.
    pub(crate) fn clear(&mut self) {
        if self.len > 0 {
            self.words.fill(0);
        }
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_by_what_they_hold_and_not_by_the_hash_alone() {
        let hashes: Vec<u64> = (0..3_000).map(|n| hash(format!("s:{n}").as_bytes()) % 700).collect();
        let mut index = Index::default();
        for round in 0..2 {
            for (at, hash) in (0..).zip(&hashes) {
                assert_eq!(index.find(*hash, |place| place == at), None, "{round}");
                index.insert(*hash, at, |place| hashes[place as usize]);
            }
            for (at, hash) in (0..).zip(&hashes) {
                assert_eq!(index.find(*hash, |place| place == at), Some(at));
                assert!(index.peek(*hash).is_some());
                assert_eq!(index.find(*hash, |_| false), None);
            }
            assert_eq!(index.find(1 << 40, |_| true), None);
            index.clear();
            assert_eq!(index.find(hashes[0], |_| true), None);
            assert_eq!(index.peek(hashes[0]), None);
        }
    }
}
