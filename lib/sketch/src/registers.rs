//! What a writer remembers of a sketch that lives elsewhere.

use std::fmt;

use crate::REGISTERS;
use crate::hash::place;

/// The highest value that four bits remember.
const CEILING: u8 = 15;

/// A lower bound of each register of a sketch that lives elsewhere, in 8 KiB.
///
/// A member that [would raise](Self::would_raise) none of these registers would raise none of the sketch's,
/// as long as every register here is at most the sketch's own. Such a member need not be sent. It is the
/// owner who keeps that condition: [raise](Self::raise) only what the sketch is known to contain, and
/// [clear](Self::clear) when in doubt. For the same reason there is no way to fill it from a sketch's
/// bytes.
///
/// Values above 15 are remembered as 15, so that one member in 2^15 is sent in vain. Six bits a register
/// would spare these, but take half as much memory again and, where many such memories are in use, a quarter
/// more time.
#[derive(Clone)]
pub struct Registers {
    /// Two a byte, the even one below.
    halves: Box<[u8; REGISTERS / 2]>,
}

impl Registers {
    /// Of a sketch of which nothing is known: every member would raise it.
    #[must_use]
    pub fn new() -> Self {
        Self { halves: Box::new([0; REGISTERS / 2]) }
    }

    /// Whether a member may raise a register of the sketch, by the member's [`hash`](crate::hash). False is
    /// certain, true is not.
    #[inline]
    #[must_use]
    pub fn would_raise(&self, hash: u64) -> bool {
        let (index, rank) = place(hash);
        rank > self.halves[index / 2] >> (index % 2 * 4) & 15
    }

    /// Remembers that the sketch contains this member.
    #[inline]
    pub fn raise(&mut self, hash: u64) {
        let (index, rank) = place(hash);
        let shift = index % 2 * 4;
        let half = &mut self.halves[index / 2];
        let rank = rank.min(CEILING);
        if rank > *half >> shift & 15 {
            *half = *half & !(15 << shift) | rank << shift;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.halves.fill(0);
    }

    /// Bytes of memory, on the heap and off it.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.halves.len()
    }
}

impl Default for Registers {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Registers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raised = self.halves.iter().map(|half| u32::from(half & 15 != 0) + u32::from(half >> 4 != 0));
        f.debug_struct("Registers").field("raised", &raised.sum::<u32>()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_raised_would_not_raise_again() {
        let mut registers = Registers::new();
        for index in [0, 1, 2, (REGISTERS - 1) as u64] {
            for rank in 1..=15 {
                let hash = index | 1 << (14 + rank - 1);
                assert!(registers.would_raise(hash), "register {index}, rank {rank}");
                registers.raise(hash);
                assert!(!registers.would_raise(hash), "register {index}, rank {rank}");
                registers.raise(index | 1 << 14);
                assert!(!registers.would_raise(hash), "a lower rank lowered register {index}");
            }
            let rare = index | 1 << (14 + 15);
            registers.raise(rare);
            assert!(registers.would_raise(rare), "a rank above the ceiling is always sent");
        }
        registers.clear();
        assert!(registers.would_raise(1 << 14));
    }
}
