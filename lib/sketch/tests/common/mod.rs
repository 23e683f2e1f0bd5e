//! What several of the tests need.
#![allow(dead_code, reason = "each test takes a part")]

use onlooker_sketch::REGISTERS;

/// SplitMix64: the same numbers in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// The member of eight bytes that has this hash: MurmurHash64A run backwards.
pub(crate) fn member_of(hash: u64) -> [u8; 8] {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    // Newton's iteration doubles the right bits: 3, 6, 12, 24, 48, 96.
    let inverse =
        (0..5).fold(M, |inverse, _| inverse.wrapping_mul(2_u64.wrapping_sub(M.wrapping_mul(inverse))));
    let mut state = hash;
    for _ in 0..2 {
        state = (state ^ (state >> 47)).wrapping_mul(inverse);
    }
    let word = (state ^ 0xadc8_3b19 ^ M.wrapping_mul(8)).wrapping_mul(inverse);
    (word ^ (word >> 47)).wrapping_mul(inverse).to_le_bytes()
}

/// A dense sketch of given registers as Redis keeps it, its count stale; written bit by bit, unlike the
/// code under test.
pub(crate) fn dense_bytes(registers: &[u8; REGISTERS]) -> Vec<u8> {
    let mut bytes = vec![0; 16 + REGISTERS * 6 / 8];
    bytes[..4].copy_from_slice(b"HYLL");
    bytes[15] = 0x80;
    for (index, value) in registers.iter().enumerate() {
        for bit in 0..6 {
            let at = index * 6 + bit;
            bytes[16 + at / 8] |= (value >> bit & 1) << (at % 8);
        }
    }
    bytes
}
