//! The sparse representation: runs of equal registers, an opcode each, that together cover all 16,384.
//!
//! ```text
//! 00xxxxxx            ZERO   x + 1 registers of 0, up to 64
//! 01xxxxxx yyyyyyyy   XZERO  xy + 1 registers of 0, up to 16,384
//! 1vvvvvxx            VAL    x + 1 registers of v + 1: up to 4 registers, values up to 32
//! ```
//!
//! The opcodes in memory are Redis's own, changed by Redis's own steps: after the same members in the same
//! order they are the same bytes, and the change to dense comes at the same member. A sorted list of
//! registers would be quicker to add to, but up to 1.7 times as large.

use crate::REGISTERS;
use crate::format::SketchError;

/// The longest sparse sketch, Redis's header included (`hll-sparse-max-bytes` as it is by default).
pub(crate) const SPARSE_MAX_BYTES: usize = 3000;
/// The longest sequence of opcodes.
pub(crate) const MAX_OPCODES: usize = SPARSE_MAX_BYTES - crate::format::HEADER_BYTES;
/// The highest value that VAL can say.
const MAX_VALUE: u8 = 32;
const MAX_VAL_RUN: usize = 4;
const MAX_ZERO_RUN: usize = 64;

const XZERO: u8 = 0x40;
const VAL: u8 = 0x80;

/// One opcode, read.
#[derive(Clone, Copy)]
struct Op {
    value: u8,
    registers: usize,
    bytes: usize,
}

impl Op {
    /// The opcode at `at`; none past the end, or where an XZERO lacks its second byte.
    #[inline]
    fn read(opcodes: &[u8], at: usize) -> Option<Self> {
        let op = *opcodes.get(at)?;
        if op & VAL != 0 {
            Some(Self { value: ((op >> 2) & 31) + 1, registers: (op & 3) as usize + 1, bytes: 1 })
        } else if op & XZERO == 0 {
            Some(Self { value: 0, registers: op as usize + 1, bytes: 1 })
        } else {
            let low = *opcodes.get(at + 1)?;
            Some(Self { value: 0, registers: usize::from(u16::from_be_bytes([op & 63, low])) + 1, bytes: 2 })
        }
    }
}

/// The registers that eight opcodes of one byte cover, or none if there is an XZERO among them.
#[inline]
fn registers_of_eight(opcodes: [u8; 8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const EVEN_BYTES: u64 = 0x00ff_00ff_00ff_00ff;
    let word = u64::from_le_bytes(opcodes);
    if word << 1 & !word & (ONES << 7) != 0 {
        return None;
    }
    // ZERO's length has six bits, VAL's two.
    let length_bits = ONES * 0x3f - (word >> 7 & ONES) * 0x3c;
    let lengths = (word & length_bits) + ONES;
    let by_two = (lengths & EVEN_BYTES) + (lengths >> 8 & EVEN_BYTES);
    Some((by_two.wrapping_mul(0x0001_0001_0001_0001) >> 48) as usize)
}

/// Whether the opcodes cover exactly all registers, which is all that makes them valid.
pub(crate) fn check(opcodes: &[u8]) -> Result<(), SketchError> {
    let (mut at, mut covered) = (0, 0);
    while at < opcodes.len() {
        let eight = opcodes[at..].first_chunk().and_then(|eight| registers_of_eight(*eight));
        if let Some(registers) = eight {
            covered += registers;
            at += 8;
        } else {
            let op = Op::read(opcodes, at).ok_or(SketchError::CutOpcode)?;
            covered += op.registers;
            at += op.bytes;
        }
        // Checked on the way, so that the sum stays small whatever the length of the input.
        if covered > REGISTERS {
            return Err(SketchError::TooManyRegisters);
        }
    }
    if covered < REGISTERS { Err(SketchError::TooFewRegisters { registers: covered }) } else { Ok(()) }
}

/// The runs of valid opcodes, in the registers' order: value and length.
pub(crate) fn runs(opcodes: &[u8]) -> impl Iterator<Item = (u8, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let op = Op::read(opcodes, at)?;
        at += op.bytes;
        Some((op.value, op.registers))
    })
}

/// What became of a wish to raise a register.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Raised {
    /// The register rose.
    Yes,
    /// It was as high already.
    No,
    /// It has to rise, and only a dense sketch can hold it. Nothing has changed.
    NeedsDense,
}

#[derive(Clone)]
pub(crate) struct Sparse {
    opcodes: Vec<u8>,
}

impl Sparse {
    pub(crate) fn new() -> Self {
        Self { opcodes: vec![XZERO | 63, 255] }
    }

    /// Of opcodes that [`check`] found valid.
    pub(crate) fn from_opcodes(opcodes: Vec<u8>) -> Self {
        Self { opcodes }
    }

    pub(crate) fn opcodes(&self) -> &[u8] {
        &self.opcodes
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.opcodes.capacity()
    }

    pub(crate) fn raise(&mut self, index: usize, rank: u8) -> Raised {
        if rank > MAX_VALUE {
            return Raised::NeedsDense;
        }
        let Some(found) = self.find(index) else { return Raised::No };
        let Found { op, at, before, first } = found;
        if op.value >= rank {
            return Raised::No;
        }
        // The opcode falls into what it says of the registers before, the one that rises, and those after:
        // five bytes where an XZERO is cut in its middle.
        let mut pieces = Pieces::default();
        pieces.push(op.value, index - first);
        pieces.push(rank, 1);
        pieces.push(op.value, first + op.registers - 1 - index);
        let pieces = pieces.bytes();
        // Redis compares before it joins neighbours, and only where the opcodes grow.
        if pieces.len() > op.bytes && self.opcodes.len() + pieces.len() - op.bytes > MAX_OPCODES {
            return Raised::NeedsDense;
        }
        self.replace(at, op.bytes, pieces);
        self.join_from(before.unwrap_or(0));
        Raised::Yes
    }

    /// The opcode that covers the register `index`.
    fn find(&self, index: usize) -> Option<Found> {
        let (mut at, mut first, mut before) = (0, 0, None);
        loop {
            let eight = self.opcodes[at..].first_chunk().and_then(|eight| registers_of_eight(*eight));
            if let Some(registers) = eight
                && first + registers <= index
            {
                first += registers;
                at += 8;
                before = Some(at - 1);
                continue;
            }
            let op = Op::read(&self.opcodes, at)?;
            if index < first + op.registers {
                return Some(Found { op, at, before, first });
            }
            before = Some(at);
            first += op.registers;
            at += op.bytes;
        }
    }

    fn replace(&mut self, at: usize, old_bytes: usize, new: &[u8]) {
        let (len, after) = (self.opcodes.len(), at + old_bytes);
        let new_len = len - old_bytes + new.len();
        if new_len > self.opcodes.capacity() {
            // By an eighth and not by doubling: most sketches stay small, and there are many of them.
            self.opcodes.reserve_exact(new_len - len + len / 8 + 4);
        }
        self.opcodes.resize(new_len.max(len), 0);
        self.opcodes.copy_within(after..len, at + new.len());
        self.opcodes.truncate(new_len);
        self.opcodes[at..at + new.len()].copy_from_slice(new);
    }

    /// Joins neighbouring VALs of one value where they fit in one, over the five opcodes that a change can
    /// have touched.
    fn join_from(&mut self, mut at: usize) {
        for _ in 0..5 {
            let Some(op) = Op::read(&self.opcodes, at) else { return };
            let next = Op::read(&self.opcodes, at + op.bytes);
            match next {
                Some(next)
                    if op.value != 0
                        && op.value == next.value
                        && op.registers + next.registers <= MAX_VAL_RUN =>
                {
                    self.opcodes.remove(at);
                    self.opcodes[at] = val(op.value, op.registers + next.registers);
                }
                _ => at += op.bytes,
            }
        }
    }
}

struct Found {
    op: Op,
    at: usize,
    /// Where the opcode before it stands.
    before: Option<usize>,
    /// The first register that it covers.
    first: usize,
}

fn val(value: u8, registers: usize) -> u8 {
    VAL | (value - 1) << 2 | (registers - 1) as u8
}

/// Up to three opcodes under construction.
#[derive(Default)]
struct Pieces {
    bytes: [u8; 5],
    len: usize,
}

impl Pieces {
    fn push(&mut self, value: u8, registers: usize) {
        if registers == 0 {
            return;
        }
        let (op, bytes) = encode(value, registers);
        self.bytes[self.len..self.len + bytes].copy_from_slice(&op[..bytes]);
        self.len += bytes;
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// One run as one opcode, and the opcode's bytes. The run must fit in one.
fn encode(value: u8, registers: usize) -> ([u8; 2], usize) {
    if value != 0 {
        ([val(value, registers), 0], 1)
    } else if registers <= MAX_ZERO_RUN {
        ([(registers - 1) as u8, 0], 1)
    } else {
        let [high, low] = ((registers - 1) as u16).to_be_bytes();
        ([XZERO | high, low], 2)
    }
}

/// The union of two valid sequences, in the fewest opcodes, and whether any register of `a` rose in it.
pub(crate) fn union(a: &[u8], b: &[u8]) -> (Vec<u8>, bool) {
    let mut opcodes = Vec::with_capacity(a.len().max(b.len()));
    let (mut run, mut rose) = ((0, 0), false);
    let (mut a, mut b) = (runs(a), runs(b));
    let (mut left, mut right) = (a.next(), b.next());
    while let (Some((x, x_len)), Some((y, y_len))) = (left, right) {
        let len = x_len.min(y_len);
        left = if x_len == len { a.next() } else { Some((x, x_len - len)) };
        right = if y_len == len { b.next() } else { Some((y, y_len - len)) };
        let value = x.max(y);
        rose |= y > x;
        if value == run.0 {
            run.1 += len;
        } else {
            write_run(&mut opcodes, run);
            run = (value, len);
        }
    }
    write_run(&mut opcodes, run);
    (opcodes, rose)
}

fn write_run(opcodes: &mut Vec<u8>, (value, mut registers): (u8, usize)) {
    let longest = if value == 0 { REGISTERS } else { MAX_VAL_RUN };
    while registers > 0 {
        let len = registers.min(longest);
        let (op, bytes) = encode(value, len);
        opcodes.extend_from_slice(&op[..bytes]);
        registers -= len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_union_has_the_fewest_opcodes() {
        let nothing = [0x7f, 0xff];
        let fewest =
            [val(7, 4), val(7, 1), 0, val(32, 4), val(32, 4), 63, val(1, 1), XZERO | 63, 175, val(9, 1)];
        let more = [
            &[val(7, 1), val(7, 1), val(7, 2), val(7, 1), 0, val(32, 3), val(32, 1), val(32, 4)][..],
            &[31, 31, val(1, 1), XZERO, 63, XZERO | 63, 111, val(9, 1)],
        ]
        .concat();
        assert_eq!((check(&fewest), check(&more)), (Ok(()), Ok(())));
        assert_eq!(union(&more, &nothing), (fewest.to_vec(), false));
        assert_eq!(union(&nothing, &more), (fewest.to_vec(), true));
        assert_eq!(union(&more, &fewest), (fewest.to_vec(), false));
        assert_eq!(union(&nothing, &nothing), (nothing.to_vec(), false));
    }

    #[test]
    fn eight_opcodes_at_once_are_as_each_alone() {
        for first in 0..=255_u8 {
            for second in [0, 63, VAL, 255, first] {
                let opcodes = [first, second, first, 0, second, 255, 63, first];
                let has_xzero = opcodes.iter().any(|op| op & 0xc0 == XZERO);
                let alone = opcodes.iter().map(|op| Op::read(&[*op, 0], 0).unwrap().registers).sum();
                assert_eq!(registers_of_eight(opcodes), (!has_xzero).then_some(alone), "{opcodes:?}");
            }
        }
    }
}
