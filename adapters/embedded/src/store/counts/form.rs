//! A sketch as it is kept in memory: as small as its members allow, quick to add to, and equal to Redis's register for
//! register. Redis's bytes are made when they are asked for.
//!
//! ```text
//! members   form
//! to 5      inline     5 × (index, rank) in the place of a pointer
//! to 66     list       len 1 | indices 2 × capacity | ranks 1 × capacity, in the order of arrival
//! to 4,700  buckets    len 2 | 64 × how many | (low bits of the index, rank) 2 × capacity, bucket after bucket
//! above     dense      lib/sketch's, 6 bits a register
//! ```
//! Redis's own sparse form takes 2 to 3 bytes a register, too, but has to be read from its beginning at each add.

use onlooker_sketch::{Encoding, REGISTERS, Sketch, SketchError, estimate};

/// Registers that stand inline.
const INLINE: usize = 5;
/// Index, low and high byte, and rank. Rank 0: free.
type Register = [u8; 3];

/// Where a bucket block has its counts, and where its registers begin.
const COUNTS: std::ops::Range<usize> = 2..2 + BUCKETS;
const BUCKETS: usize = 64;
const FIRST: usize = 2 + BUCKETS;

/// What a block of this size takes from the allocator: it keeps 8 bytes for itself and rounds up to 16, for which the
/// sizes below are chosen.
const ALLOCATION: usize = 8;
/// A dense sketch with its box.
const DENSE_BYTES: usize = 12_288 + 16 + 48;

macro_rules! forms {
    ($($name:ident $size:literal)*) => {
        /// A sketch, or none.
        #[derive(Clone)]
        pub(super) enum Form {
            /// There is none.
            Absent,
            /// What is here is no sketch. Nothing makes one; it stands for a defect that was noticed.
            #[cfg_attr(not(test), expect(dead_code, reason = "made by tests alone"))]
            Broken,
            Inline([u8; 3 * INLINE]),
            // A thin pointer each: with its length it would not fit beside the tag.
            $($name(Box<[u8; $size]>),)*
            Dense(Box<Sketch>),
        }

        /// Sizes of blocks, rising.
        const SIZES: &[usize] = &[$($size),*];

        impl Form {
            #[inline]
            fn block(&self) -> Option<&[u8]> {
                match self {
                    $(Form::$name(block) => Some(&block[..]),)*
                    _ => None,
                }
            }

            #[inline]
            fn block_mut(&mut self) -> Option<&mut [u8]> {
                match self {
                    $(Form::$name(block) => Some(&mut block[..]),)*
                    _ => None,
                }
            }

            /// An empty block; dense for a size that there is not.
            fn of_size(size: usize) -> Self {
                match size {
                    $($size => Form::$name(Box::new([0; $size])),)*
                    _ => Form::Dense(Box::new(Sketch::new_dense())),
                }
            }
        }
    };
}

forms! {
    L24 24 L40 40 L56 56 L72 72 L88 88 L104 104 L120 120 L136 136 L168 168 L200 200
    B232 232 B264 264 B296 296 B328 328 B376 376 B424 424 B488 488 B552 552 B616 616 B696 696 B792 792 B888 888
    B1000 1000 B1128 1128 B1272 1272 B1432 1432 B1608 1608 B1800 1800 B2024 2024 B2280 2280 B2568 2568 B2888 2888
    B3256 3256 B3656 3656 B4104 4104 B4616 4616 B5192 5192 B5848 5848 B6584 6584 B7416 7416 B8344 8344
}

/// The largest list. Above, buckets take less, and less time.
const LARGEST_LIST: usize = 200;

/// How many registers a block holds.
#[inline]
fn capacity(size: usize) -> usize {
    if size <= LARGEST_LIST { (size - 1) / 3 } else { (size - FIRST) / 2 }
}

/// What holds so many registers takes from the allocator.
fn bytes_for(registers: usize) -> usize {
    if registers <= INLINE {
        return 0;
    }
    SIZES.iter().find(|size| capacity(**size) >= registers).map_or(DENSE_BYTES, |size| size + ALLOCATION)
}

#[derive(PartialEq, Eq)]
enum Raised {
    Yes,
    No,
    NoRoom,
}

impl Form {
    /// Of no members.
    pub(super) fn empty() -> Self {
        Form::Inline([0; 3 * INLINE])
    }

    /// From Redis's bytes.
    pub(super) fn from_redis(bytes: &[u8]) -> Result<Self, SketchError> {
        let sketch = Sketch::from_redis(bytes)?;
        let registers = sketch.registers();
        let raised = registers.iter().filter(|rank| **rank > 0).count();
        if sketch.encoding() == Encoding::Dense && bytes_for(raised) == DENSE_BYTES {
            return Ok(Form::Dense(Box::new(sketch)));
        }
        let mut form = Self::empty();
        for (index, rank) in registers.into_iter().enumerate().filter(|(_, rank)| *rank > 0) {
            form.raise(index, rank);
        }
        Ok(form)
    }

    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Form::Absent)
    }

    pub(super) fn is_broken(&self) -> bool {
        matches!(self, Form::Broken)
    }

    /// Bytes taken from the allocator.
    #[inline]
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Form::Absent | Form::Broken | Form::Inline(_) => 0,
            Form::Dense(_) => DENSE_BYTES,
            _ => self.block().map_or(0, |block| block.len() + ALLOCATION),
        }
    }

    /// By how many bytes so many more members can make it grow.
    #[inline]
    pub(super) fn growth(&self, members: usize) -> usize {
        let (held, room) = match self {
            Form::Dense(_) | Form::Broken => return 0,
            Form::Absent => (0, INLINE),
            Form::Inline(_) if members == 0 => return 0,
            Form::Inline(_) => (self.count_registers(), INLINE),
            _ => self.block().map_or((0, 0), |block| (held(block), capacity(block.len()))),
        };
        if held + members <= room {
            return 0;
        }
        bytes_for(held + members).saturating_sub(self.heap_bytes())
    }

    fn count_registers(&self) -> usize {
        let mut n = 0;
        self.for_each(|_, _| n += 1);
        n
    }

    /// Reads the first byte, so that it is near when it is needed.
    #[inline]
    pub(super) fn touch(&self) -> u8 {
        self.block().map_or(0, |block| block[0])
    }

    /// Raises a register to `rank` if it is lower; true if it was. A sketch that is absent is none afterwards either.
    #[inline]
    pub(super) fn raise(&mut self, index: usize, rank: u8) -> bool {
        loop {
            let raised = match self {
                Form::Dense(sketch) => return sketch.add_hash(hash_of(index, rank)),
                Form::Inline(registers) => raise_inline(registers, index, rank),
                Form::Absent | Form::Broken => return false,
                _ => match self.block_mut() {
                    Some(block) if block.len() <= LARGEST_LIST => raise_list(block, index, rank),
                    Some(block) => raise_bucket(block, index, rank),
                    None => return false,
                },
            };
            if raised != Raised::NoRoom {
                return raised == Raised::Yes;
            }
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let size = self.block().map_or(0, <[u8]>::len);
        let next = SIZES.iter().copied().find(|next| *next > size);
        let Some(next) = next.filter(|_| !self.has_full_bucket()) else {
            // By its bytes and not by hashes, so that any rank passes.
            let dense = Sketch::from_redis(&pack(&self.registers(), 0));
            *self = Form::Dense(Box::new(dense.unwrap_or_else(|_| Sketch::new_dense())));
            return;
        };
        let mut grown = Self::of_size(next);
        if size > LARGEST_LIST
            && let (Some(old), Some(new)) = (self.block(), grown.block_mut())
        {
            new[..size].copy_from_slice(old);
        } else {
            self.for_each(|index, rank| {
                if let Some(block) = grown.block_mut() {
                    let push = if block.len() <= LARGEST_LIST { raise_list } else { raise_bucket };
                    push(block, index, rank);
                }
            });
        }
        *self = grown;
    }

    fn has_full_bucket(&self) -> bool {
        let block = self.block().filter(|block| block.len() > LARGEST_LIST);
        block.is_some_and(|block| block[COUNTS].contains(&u8::MAX))
    }

    /// Each register that is not 0, with its rank; not in order. Not of a dense one.
    fn for_each(&self, mut each: impl FnMut(usize, u8)) {
        match self {
            Form::Inline(registers) => {
                for [low, high, rank] in registers.as_chunks::<3>().0.iter().take_while(|r| r[2] > 0) {
                    each(usize::from(u16::from_le_bytes([*low, *high])), *rank);
                }
            }
            _ => match self.block() {
                Some(block) if block.len() <= LARGEST_LIST => {
                    let (len, ranks) = (usize::from(block[0]), 1 + 2 * capacity(block.len()));
                    for (index, rank) in block[1..].as_chunks::<2>().0[..len].iter().zip(&block[ranks..]) {
                        each(usize::from(u16::from_le_bytes(*index)), *rank);
                    }
                }
                Some(block) => {
                    let mut registers = block[FIRST..].as_chunks::<2>().0.iter();
                    for (bucket, count) in block[COUNTS].iter().enumerate() {
                        for [low, rank] in registers.by_ref().take(usize::from(*count)) {
                            each(bucket << 8 | usize::from(*low), *rank);
                        }
                    }
                }
                None => {}
            },
        }
    }

    fn registers(&self) -> [u8; REGISTERS] {
        if let Form::Dense(sketch) = self {
            return sketch.registers();
        }
        let mut registers = [0; REGISTERS];
        self.for_each(|index, rank| registers[index] = rank);
        registers
    }

    /// How many different members, estimated. None without a sketch.
    pub(super) fn count(&self) -> Option<u64> {
        match self {
            Form::Absent | Form::Broken => None,
            Form::Dense(sketch) => Some(sketch.count()),
            _ => {
                let mut counts = [0; 64];
                let mut raised = 0;
                self.for_each(|_, rank| {
                    counts[usize::from(rank) & 63] += 1;
                    raised += 1;
                });
                counts[0] = REGISTERS as u32 - raised;
                Some(estimate(&counts))
            }
        }
    }

    /// Redis's bytes: sparse where Redis would keep it so, else dense. None without a sketch.
    pub(super) fn to_redis(&self) -> Option<Vec<u8>> {
        let count = match self {
            Form::Dense(sketch) => return Some(sketch.to_redis()),
            _ => self.count()?,
        };
        let mut registers: Vec<Register> = Vec::with_capacity(64);
        self.for_each(|index, rank| {
            let [low, high] = (index as u16).to_le_bytes();
            registers.push([low, high, rank]);
        });
        registers.sort_unstable_by_key(|[low, high, _]| u16::from_le_bytes([*low, *high]));
        Some(sparse(&registers, count).unwrap_or_else(|| pack(&self.registers(), count)))
    }
}

/// A hash that speaks to this register and asks for this rank.
#[inline]
fn hash_of(index: usize, rank: u8) -> u64 {
    // Rank 51 is what a hash gets whose other bits are all 0.
    let bit = 1u64.checked_shl(13 + u32::from(rank)).unwrap_or(0);
    index as u64 | bit
}

#[inline]
fn held(block: &[u8]) -> usize {
    if block.len() <= LARGEST_LIST {
        usize::from(block[0])
    } else {
        usize::from(u16::from_le_bytes([block[0], block[1]]))
    }
}

#[inline]
fn raise_inline(registers: &mut [u8; 3 * INLINE], index: usize, rank: u8) -> Raised {
    let [low, high] = (index as u16).to_le_bytes();
    for register in registers.as_chunks_mut::<3>().0 {
        if register[2] == 0 {
            *register = [low, high, rank];
            return Raised::Yes;
        }
        if register[..2] == [low, high] {
            return raise_rank(&mut register[2], rank);
        }
    }
    Raised::NoRoom
}

#[inline]
fn raise_rank(held: &mut u8, rank: u8) -> Raised {
    if *held >= rank {
        return Raised::No;
    }
    *held = rank;
    Raised::Yes
}

#[inline]
fn raise_list(block: &mut [u8], index: usize, rank: u8) -> Raised {
    let (len, capacity) = (usize::from(block[0]), capacity(block.len()));
    let wanted = (index as u16).to_le_bytes();
    let indices = &block[1..].as_chunks::<2>().0[..len];
    // Eight at a time, without a way out in between.
    let group = indices.chunks(8).position(|group| group.iter().fold(false, |any, i| any | (*i == wanted)));
    if let Some(group) = group
        && let Some(at) = indices[group * 8..].iter().position(|i| *i == wanted)
    {
        return raise_rank(&mut block[1 + 2 * capacity + group * 8 + at], rank);
    }
    if len == capacity {
        return Raised::NoRoom;
    }
    block[1 + 2 * len..3 + 2 * len].copy_from_slice(&wanted);
    block[1 + 2 * capacity + len] = rank;
    block[0] += 1;
    Raised::Yes
}

#[inline]
fn raise_bucket(block: &mut [u8], index: usize, rank: u8) -> Raised {
    let (bucket, low) = (index >> 8, index as u8);
    let before: usize = block[COUNTS][..bucket].iter().map(|count| usize::from(*count)).sum();
    let count = usize::from(block[COUNTS][bucket]);
    let begin = FIRST + 2 * before;
    let end = begin + 2 * count;
    let registers = block[begin..end].as_chunks_mut::<2>().0;
    if let Some(register) = registers.iter_mut().find(|register| register[0] == low) {
        return raise_rank(&mut register[1], rank);
    }
    let len = held(block);
    if FIRST + 2 * len + 2 > block.len() || count == usize::from(u8::MAX) {
        return Raised::NoRoom;
    }
    block.copy_within(end..FIRST + 2 * len, end + 2);
    block[end..end + 2].copy_from_slice(&[low, rank]);
    block[COUNTS][bucket] += 1;
    block[..2].copy_from_slice(&(len as u16 + 1).to_le_bytes());
    Raised::Yes
}

fn header(encoding: u8, count: u64) -> Vec<u8> {
    let mut bytes = b"HYLL".to_vec();
    bytes.extend_from_slice(&[encoding, 0, 0, 0]);
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes
}

/// `hll-sparse-max-bytes` as it is by default.
const SPARSE_MAX_BYTES: usize = 3_000;

/// Redis's sparse encoding of registers in order; none where Redis would have gone over to the dense one.
fn sparse(registers: &[Register], count: u64) -> Option<Vec<u8>> {
    let mut bytes = header(1, count);
    bytes.reserve(3 * registers.len() + 2);
    let mut next = 0;
    let zeros = |bytes: &mut Vec<u8>, n: usize| match n {
        0 => {}
        1..=64 => bytes.push((n - 1) as u8),
        _ => {
            let [high, low] = ((n - 1) as u16).to_be_bytes();
            bytes.extend_from_slice(&[0x40 | high, low]);
        }
    };
    let mut rest = registers;
    while let Some(([low, high, rank], after)) = rest.split_first() {
        if *rank > 32 {
            return None;
        }
        let index = usize::from(u16::from_le_bytes([*low, *high]));
        let same = |i: usize| {
            let [low, high, other] = after[i];
            other == *rank && usize::from(u16::from_le_bytes([low, high])) == index + i + 1
        };
        let run = (0..after.len().min(3)).take_while(|i| same(*i)).count();
        zeros(&mut bytes, index - next);
        bytes.push(0x80 | (rank - 1) << 2 | run as u8);
        next = index + 1 + run;
        rest = &after[run..];
    }
    zeros(&mut bytes, REGISTERS - next);
    (bytes.len() <= SPARSE_MAX_BYTES).then_some(bytes)
}

/// Redis's dense encoding: six bits a register, from the lowest bit up.
fn pack(registers: &[u8; REGISTERS], count: u64) -> Vec<u8> {
    let mut bytes = header(0, count);
    bytes.reserve(REGISTERS / 4 * 3);
    for four in registers.as_chunks::<4>().0 {
        let word = four.iter().rev().fold(0u32, |word, rank| word << 6 | u32::from(*rank & 63));
        bytes.extend_from_slice(&word.to_le_bytes()[..3]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_sketch::place;
    use proptest::prelude::*;

    #[test]
    fn it_is_as_large_as_two_pointers() {
        assert_eq!(size_of::<Form>(), 16);
        assert!(SIZES.is_sorted() && SIZES.iter().all(|size| (size + ALLOCATION).is_multiple_of(16)));
    }

    /// Equal to `lib/sketch` after each of many members, through every form.
    #[test]
    fn it_is_redis_s_register_for_register() {
        let (mut form, mut sketch) = (Form::empty(), Sketch::new());
        for n in 0..20_000u32 {
            let hash = onlooker_sketch::hash(&n.to_le_bytes());
            let (index, rank) = place(hash);
            let rose = form.raise(index, rank);
            assert_eq!(rose, sketch.add_hash(hash), "member {n}");
            assert!(!form.raise(index, rank));
            if n < 300 || n % 97 == 0 {
                assert_eq!(form.count(), Some(sketch.count()), "{n} members");
                let bytes = form.to_redis().unwrap();
                let read = Sketch::from_redis(&bytes).unwrap();
                assert!(read.register_eq(&sketch), "{n} members");
                assert_eq!(bytes[8..16], sketch.count().to_le_bytes());
                assert!(bytes.len() <= 3_000 || bytes.len() == 12_304);
                let again = Form::from_redis(&bytes).unwrap();
                assert_eq!(again.registers(), form.registers());
                assert_eq!(again.heap_bytes(), form.heap_bytes());
            }
        }
        assert!(matches!(form, Form::Dense(_)));
    }

    #[test]
    fn growth_is_never_more_than_was_said() {
        for step in [1, 3, 10, 200, 5_000] {
            let mut form = Form::empty();
            for round in 0..40u32 {
                let (before, said) = (form.heap_bytes(), form.growth(step));
                for n in 0..step {
                    let member = (u64::from(round) << 32 | n as u64).to_le_bytes();
                    let (index, rank) = place(onlooker_sketch::hash(&member));
                    form.raise(index, rank);
                }
                assert!(form.heap_bytes() <= before + said, "{step} members in round {round}");
            }
        }
    }

    proptest! {
        /// Registers that lie together, and ranks that no sparse sketch can say.
        #[test]
        fn any_registers_in_any_order(
            raises in prop::collection::vec((0usize..600, 1u8..52), 0..600),
            base in 0usize..(REGISTERS - 600),
        ) {
            let (mut form, mut expected) = (Form::empty(), [0u8; REGISTERS]);
            for (index, rank) in raises {
                let held = &mut expected[base + index];
                prop_assert_eq!(form.raise(base + index, rank), rank > *held);
                *held = rank.max(*held);
            }
            prop_assert_eq!(form.registers(), expected);
            let read = Sketch::from_redis(&form.to_redis().unwrap()).unwrap();
            prop_assert_eq!(read.registers(), expected);
            prop_assert_eq!(Form::from_redis(&form.to_redis().unwrap()).unwrap().registers(), expected);
            prop_assert_eq!(form.count(), Some(read.count()));
        }
    }
}
