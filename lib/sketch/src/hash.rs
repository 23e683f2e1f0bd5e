//! From a member to the register it speaks to.

use crate::REGISTERS;

/// Bits of the hash that choose the register.
const INDEX_BITS: u32 = 14;
/// Bits of the hash that are left for the rank.
pub(crate) const RANK_BITS: u32 = 64 - INDEX_BITS;
/// The highest rank that a 64-bit hash can have: all of its rank bits are zero.
pub(crate) const MAX_RANK: u8 = RANK_BITS as u8 + 1;

/// Redis's seed. A sketch counts right only as long as nobody ever changes it.
const SEED: u64 = 0xadc8_3b19;
const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

/// The 64-bit hash of a member, as Redis computes it in `PFADD` (MurmurHash64A, endian-neutral).
///
/// One hash serves every sketch that the member goes into. It is not keyed: who chooses members freely
/// can bend a sketch, so what is counted should already be a keyed hash of a person. Any bytes are a
/// member, none at all included.
#[inline]
#[must_use]
pub fn hash(member: &[u8]) -> u64 {
    let mut hash = SEED ^ (member.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, tail) = member.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        word ^= word >> SHIFT;
        hash = (hash ^ word.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ (hash >> SHIFT)).wrapping_mul(MULTIPLIER);
    hash ^ (hash >> SHIFT)
}

/// Which register a hash speaks to, and the rank it asks for: one more than the zeros before the first
/// set bit above the index: from 1 to 51.
#[inline]
#[must_use]
pub fn place(hash: u64) -> (usize, u8) {
    let index = hash as usize & (REGISTERS - 1);
    // The bit above the hash ends the search where all of the hash's own bits are zero.
    let rest = (hash >> INDEX_BITS) | (1 << RANK_BITS);
    (index, rest.trailing_zeros() as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_one_more_than_the_zeros() {
        assert_eq!(place(0), (0, 51));
        assert_eq!(place(0x3fff), (0x3fff, 51));
        assert_eq!(place(1 << 14), (0, 1));
        assert_eq!(place(1 << 63 | 7), (7, 50));
        assert_eq!(place(u64::MAX), (0x3fff, 1));
    }

    #[test]
    fn every_tail_length_enters_the_hash() {
        let bytes = [7; 24];
        let hashes: std::collections::HashSet<u64> = (0..=24).map(|n| hash(&bytes[..n])).collect();
        assert_eq!(hashes.len(), 25);
    }
}
