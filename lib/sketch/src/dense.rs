//! The dense representation: 16,384 registers of six bits, one after the other from the lowest bit up.
//!
//! ```text
//! byte      0        1        2        3
//!       +--------+--------+--------+--------+--
//!       |11000000|22221111|33333322|55444444|    the digit names the register; highest bit left
//!       +--------+--------+--------+--------+--
//! ```
//!
//! Four registers fill three bytes, and 32 fill three words of 64 bits. The loops over all registers take
//! such a block at a time: the code has no branches then, and every shift in it is a constant.

use crate::REGISTERS;

/// Bytes of the registers, without Redis's header.
pub(crate) const DENSE_BYTES: usize = REGISTERS * 6 / 8;

/// Three words: 32 registers.
const BLOCK: usize = 24;
/// Eight registers, the most that is whole in a word and starts and ends at a byte.
const GROUP: u64 = (1 << 48) - 1;

#[derive(Clone)]
pub(crate) struct Dense(Box<[u8; DENSE_BYTES]>);

impl Dense {
    pub(crate) fn new() -> Self {
        Self::copy_of(&[0; DENSE_BYTES])
    }

    pub(crate) fn copy_of(bytes: &[u8; DENSE_BYTES]) -> Self {
        Self(Box::new(*bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8; DENSE_BYTES] {
        &self.0
    }

    /// Raises one register to `rank` if it is lower; true if it was.
    #[inline]
    pub(crate) fn raise(&mut self, index: usize, rank: u8) -> bool {
        let (byte, shift) = locate(index);
        let pair = u16::from_le_bytes([self.0[byte], self.0[byte + 1]]);
        if u16::from(rank) <= (pair >> shift) & 63 {
            return false;
        }
        let raised = (pair & !(63 << shift)) | (u16::from(rank) << shift);
        [self.0[byte], self.0[byte + 1]] = raised.to_le_bytes();
        true
    }

    /// Raises a run of neighbours; true if any was lower.
    ///
    /// Writes whether or not anything rises: in a merge that is as good as random, and a branch on it costs
    /// more than the write.
    #[inline]
    pub(crate) fn raise_run(&mut self, first: usize, len: usize, rank: u8) -> bool {
        let mut changed = 0;
        for index in first..first + len {
            let (byte, shift) = locate(index);
            let pair = u16::from_le_bytes([self.0[byte], self.0[byte + 1]]);
            let value = ((pair >> shift) & 63).max(u16::from(rank));
            let raised = (pair & !(63 << shift)) | (value << shift);
            changed |= pair ^ raised;
            [self.0[byte], self.0[byte + 1]] = raised.to_le_bytes();
        }
        changed != 0
    }

    /// Takes the higher of each two registers; true if any of ours rose.
    pub(crate) fn merge(&mut self, other: &[u8; DENSE_BYTES]) -> bool {
        let mut rose = 0;
        let (ours, _) = self.0.as_chunks_mut::<BLOCK>();
        for (ours, theirs) in ours.iter_mut().zip(other.as_chunks::<BLOCK>().0) {
            let before = groups(ours);
            let theirs = groups(theirs);
            let after: [u64; 4] = std::array::from_fn(|i| higher(before[i], theirs[i]));
            for i in 0..4 {
                rose |= before[i] ^ after[i];
            }
            *ours = ungroup(after);
        }
        rose != 0
    }
}

/// How many registers hold each value.
pub(crate) fn histogram(bytes: &[u8; DENSE_BYTES]) -> [u32; 64] {
    // Neighbours are counted two at a time, which halves the increments. Four tables take turns: in a sketch
    // that is nearly empty almost all pairs are alike, and an increment waits for the last one of its cell.
    let mut tables = [[0u16; 4096]; 4];
    for block in bytes.as_chunks::<BLOCK>().0 {
        for group in groups(block) {
            for (i, table) in tables.iter_mut().enumerate() {
                table[(group >> (12 * i)) as usize & 4095] += 1;
            }
        }
    }
    let [a, b, c, d] = tables.each_ref().map(|table| table.as_chunks::<64>().0);
    let mut counts = [0; 64];
    for high in 0..64 {
        let [a, b, c, d] = [&a[high], &b[high], &c[high], &d[high]];
        let mut in_row = 0;
        for (low, count) in counts.iter_mut().enumerate() {
            // 8,192 pairs at the most, so that 16 bits hold the sum.
            let seen = u32::from(a[low] + b[low] + c[low] + d[low]);
            *count += seen;
            in_row += seen;
        }
        counts[high] += in_row;
    }
    counts
}

/// All registers, one a byte.
pub(crate) fn unpack(bytes: &[u8; DENSE_BYTES], into: &mut [u8; REGISTERS]) {
    for (block, out) in bytes.as_chunks::<BLOCK>().0.iter().zip(into.as_chunks_mut::<32>().0) {
        for (group, out) in groups(block).into_iter().zip(out.as_chunks_mut::<8>().0) {
            *out = std::array::from_fn(|i| (group >> (6 * i)) as u8 & 63);
        }
    }
}

/// The first of the two bytes that hold a register whole, and the register's lowest bit in them.
#[inline]
fn locate(index: usize) -> (usize, u32) {
    let bit = index * 6;
    // The last register lies in the last byte alone: it is read with the byte before it, not after it.
    let byte = (bit / 8).min(DENSE_BYTES - 2);
    (byte, (bit - byte * 8) as u32)
}

/// A block as four words of eight registers each.
#[inline]
fn groups(block: &[u8; BLOCK]) -> [u64; 4] {
    let words = block.as_chunks::<8>().0;
    let [a, b, c] = [0, 1, 2].map(|i| u64::from_le_bytes(words[i]));
    [a & GROUP, (a >> 48 | b << 16) & GROUP, (b >> 32 | c << 32) & GROUP, c >> 16]
}

#[inline]
fn ungroup([a, b, c, d]: [u64; 4]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let words = [a | b << 48, b >> 16 | c << 32, c >> 32 | d << 16];
    for (out, word) in block.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *out = word.to_le_bytes();
    }
    block
}

/// The higher of each of eight pairs of registers.
#[inline]
fn higher(a: u64, b: u64) -> u64 {
    // Every second register, so that each has six free bits above it.
    const EVEN: u64 = 0x03f_03f_03f_03f;
    higher_even(a & EVEN, b & EVEN) | higher_even((a >> 6) & EVEN, (b >> 6) & EVEN) << 6
}

#[inline]
fn higher_even(a: u64, b: u64) -> u64 {
    // A guard bit above each register survives the subtraction where a is not the lower one; spread over
    // the register's six bits it selects a there and b elsewhere.
    const GUARD: u64 = 0x040_040_040_040;
    let kept = ((a | GUARD) - b) & GUARD;
    let select = kept - (kept >> 6);
    (a & select) | (b & !select)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(dense: &Dense, index: usize) -> u8 {
        let mut registers = [0; REGISTERS];
        unpack(dense.bytes(), &mut registers);
        registers[index]
    }

    #[test]
    fn registers_do_not_touch_their_neighbours() {
        for index in [0, 1, 2, 3, 4, 8191, 8192, REGISTERS - 2, REGISTERS - 1] {
            let mut dense = Dense::new();
            assert!(dense.raise(index, 51));
            assert!(!dense.raise(index, 51));
            assert!(!dense.raise(index, 1));
            assert_eq!(value(&dense, index), 51);
            let counts = histogram(dense.bytes());
            assert_eq!((counts[0], counts[51]), (REGISTERS as u32 - 1, 1));
        }
    }

    #[test]
    fn the_higher_of_every_two_values() {
        for a in 0..64 {
            for b in 0..64 {
                // The pair under test, between extremes that a borrow or a carry would change.
                for place in 0..8 {
                    let low = GROUP & !(63 << (6 * place));
                    let expected = low | a.max(b) << (6 * place);
                    assert_eq!(higher(low | a << (6 * place), b << (6 * place)), expected);
                    assert_eq!(higher(a << (6 * place), low | b << (6 * place)), expected);
                }
            }
        }
    }

    #[test]
    fn a_block_survives_grouping() {
        let block: [u8; BLOCK] = std::array::from_fn(|i| (i * 37 + 11) as u8);
        assert_eq!(ungroup(groups(&block)), block);
    }
}
