//! The sketch itself.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::REGISTERS;
use crate::dense::{self, Dense};
use crate::estimate::estimate;
use crate::format::{Encoding, SketchError, View};
use crate::hash::{MAX_RANK, hash, place};
use crate::sparse::{self, MAX_OPCODES, Raised, Sparse};

/// In place of a cached count: the registers have changed since. Redis's mark, too.
const STALE: u64 = 1 << 63;

/// A HyperLogLog: how many different members were added, in at most 12 KiB, with a standard error of
/// 0.81 %.
///
/// Sparse while it is small, dense from then on, by Redis's rules. Adding is idempotent and its order makes
/// no difference to the registers; two sketches of the same members may still differ in their sparse bytes,
/// so compare with [`register_eq`](Self::register_eq).
pub struct Sketch {
    form: Form,
    /// The count of the registers as they are, or [`STALE`]. Atomic only so that `count` can fill it in.
    cached: AtomicU64,
}

#[derive(Clone)]
enum Form {
    Sparse(Sparse),
    Dense(Dense),
}

impl Sketch {
    /// Of no members.
    #[must_use]
    pub fn new() -> Self {
        Self { form: Form::Sparse(Sparse::new()), cached: AtomicU64::new(0) }
    }

    /// Of no members, and dense from the start: for the union of many, where a sparse one would be copied at
    /// every merge only to become dense in the end.
    #[must_use]
    pub fn new_dense() -> Self {
        Self { form: Form::Dense(Dense::new()), cached: AtomicU64::new(0) }
    }

    /// From what Redis answers to `GET`, and keeps what it says in the encoding it has.
    ///
    /// Accepts what Redis accepts (but for a last opcode that is cut, which Redis reads past its end), and
    /// checks it whole, so that no later call can fail. The cached cardinality is not trusted but computed
    /// again at the first [`count`](Self::count).
    ///
    /// # Errors
    /// If the bytes are no sketch. Nothing of them is usable then.
    pub fn from_redis(bytes: &[u8]) -> Result<Self, SketchError> {
        let form = match View::parse(bytes)? {
            View::Dense(registers) => Form::Dense(Dense::copy_of(registers)),
            View::Sparse(opcodes) if opcodes.len() <= MAX_OPCODES => {
                Form::Sparse(Sparse::from_opcodes(opcodes.to_vec()))
            }
            // From a server with a higher limit, or in needlessly many opcodes.
            View::Sparse(opcodes) => Form::Dense(to_dense(opcodes)),
        };
        Ok(Self { form, cached: AtomicU64::new(STALE) })
    }

    /// What Redis can `SET`: after that, `PFADD`, `PFCOUNT` and `PFMERGE` go on from here. The cached
    /// cardinality in it is valid. At most 12,304 bytes.
    #[must_use]
    pub fn to_redis(&self) -> Vec<u8> {
        self.view().to_redis(self.count())
    }

    /// Adds a member; true if a register rose, when `PFADD` would answer 1. False says that the count is
    /// as it was, not that the member had been added before.
    #[inline]
    pub fn add(&mut self, member: &[u8]) -> bool {
        self.add_hash(hash(member))
    }

    /// Adds a member by its [`hash`](crate::hash).
    #[inline]
    pub fn add_hash(&mut self, hash: u64) -> bool {
        let (index, rank) = place(hash);
        let rose = match &mut self.form {
            Form::Dense(dense) => dense.raise(index, rank),
            Form::Sparse(sparse) => match sparse.raise(index, rank) {
                Raised::Yes => true,
                Raised::No => false,
                Raised::NeedsDense => {
                    self.make_dense().raise(index, rank);
                    true
                }
            },
        };
        if rose {
            *self.cached.get_mut() = STALE;
        }
        rose
    }

    /// How many different members, estimated: what `PFCOUNT` answers, to the last digit. Cached until a
    /// register rises. See [`bounds`](crate::bounds) for how far off it may be.
    #[must_use]
    pub fn count(&self) -> u64 {
        let cached = self.cached.load(Ordering::Relaxed);
        if cached != STALE {
            return cached;
        }
        let count = estimate(&self.histogram());
        self.cached.store(count, Ordering::Relaxed);
        count
    }

    /// Adds all members of another sketch; true if a register rose. Merging twice is merging once.
    pub fn merge(&mut self, other: &Self) -> bool {
        self.merge_view(other.view())
    }

    /// Merges what Redis answers to `GET`, without making a sketch of it first.
    ///
    /// # Errors
    /// If the bytes are no sketch. This one is then as it was.
    pub fn merge_bytes(&mut self, bytes: &[u8]) -> Result<bool, SketchError> {
        Ok(self.merge_view(View::parse(bytes)?))
    }

    /// The values of all registers: 0 where nothing was added, else a rank from 1 to 51.
    #[must_use]
    pub fn registers(&self) -> [u8; REGISTERS] {
        let mut registers = [0; REGISTERS];
        match self.view() {
            View::Dense(bytes) => dense::unpack(bytes, &mut registers),
            View::Sparse(opcodes) => {
                let mut rest = &mut registers[..];
                for (value, len) in sparse::runs(opcodes) {
                    let (run, after) = rest.split_at_mut(len);
                    run.fill(value);
                    rest = after;
                }
            }
        }
        registers
    }

    /// Whether two sketches stand for the same members, whatever their encodings.
    #[must_use]
    pub fn register_eq(&self, other: &Self) -> bool {
        match (self.view(), other.view()) {
            (View::Dense(ours), View::Dense(theirs)) => ours == theirs,
            (View::Sparse(ours), View::Sparse(theirs)) if ours == theirs => true,
            _ => self.registers() == other.registers(),
        }
    }

    /// Whether nothing was ever added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.histogram()[0] == REGISTERS as u32
    }

    /// How many registers hold a value that no member can give: 0, unless the bytes that this was read
    /// from were damaged in a way that the format cannot show and Redis does not refuse. The count of such
    /// a sketch says nothing.
    #[must_use]
    pub fn impossible_registers(&self) -> usize {
        self.histogram()[usize::from(MAX_RANK) + 1..].iter().map(|&count| count as usize).sum()
    }

    /// How the registers are kept, and would be written.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        match self.form {
            Form::Sparse(_) => Encoding::Sparse,
            Form::Dense(_) => Encoding::Dense,
        }
    }

    /// Bytes of memory, on the heap and off it, without what an allocator adds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let heap = match &self.form {
            Form::Sparse(sparse) => sparse.heap_bytes(),
            Form::Dense(dense) => dense.bytes().len(),
        };
        size_of::<Self>() + heap
    }

    fn view(&self) -> View<'_> {
        match &self.form {
            Form::Sparse(sparse) => View::Sparse(sparse.opcodes()),
            Form::Dense(dense) => View::Dense(dense.bytes()),
        }
    }

    fn histogram(&self) -> [u32; 64] {
        match self.view() {
            View::Dense(bytes) => dense::histogram(bytes),
            View::Sparse(opcodes) => {
                let mut counts = [0; 64];
                for (value, len) in sparse::runs(opcodes) {
                    counts[usize::from(value)] += len as u32;
                }
                counts
            }
        }
    }

    fn merge_view(&mut self, other: View<'_>) -> bool {
        let rose = match (&mut self.form, other) {
            (Form::Dense(dense), View::Dense(theirs)) => dense.merge(theirs),
            (Form::Dense(dense), View::Sparse(theirs)) => raise_all(dense, theirs),
            // Dense with anything is dense, as Redis does it.
            (Form::Sparse(_), View::Dense(theirs)) => self.make_dense().merge(theirs),
            (Form::Sparse(sparse), View::Sparse(theirs)) => {
                let (opcodes, rose) = sparse::union(sparse.opcodes(), theirs);
                if rose && opcodes.len() <= MAX_OPCODES {
                    *sparse = Sparse::from_opcodes(opcodes);
                } else if rose {
                    self.form = Form::Dense(to_dense(&opcodes));
                }
                rose
            }
        };
        if rose {
            *self.cached.get_mut() = STALE;
        }
        rose
    }

    fn make_dense(&mut self) -> &mut Dense {
        if let Form::Sparse(sparse) = &self.form {
            self.form = Form::Dense(to_dense(sparse.opcodes()));
        }
        match &mut self.form {
            Form::Dense(dense) => dense,
            Form::Sparse(_) => unreachable!("made dense above"),
        }
    }
}

fn to_dense(opcodes: &[u8]) -> Dense {
    let mut dense = Dense::new();
    raise_all(&mut dense, opcodes);
    dense
}

fn raise_all(dense: &mut Dense, opcodes: &[u8]) -> bool {
    let (mut first, mut rose) = (0, false);
    for (value, len) in sparse::runs(opcodes) {
        if value != 0 {
            rose |= dense.raise_run(first, len, value);
        }
        first += len;
    }
    rose
}

impl Default for Sketch {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Sketch {
    fn clone(&self) -> Self {
        Self { form: self.form.clone(), cached: AtomicU64::new(self.cached.load(Ordering::Relaxed)) }
    }
}

impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sketch").field("encoding", &self.encoding()).field("count", &self.count()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate;

    fn redis_bytes(opcodes: &[u8]) -> Vec<u8> {
        View::Sparse(opcodes).to_redis(STALE)
    }

    #[test]
    fn the_drawn_bytes_say_what_is_written_beside_them() {
        assert_eq!(Sketch::new().to_redis()[16..], [0x7f, 0xff]);
        let drawn = Sketch::from_redis(&redis_bytes(&[0x4a, 0x20, 0x84, 0x75, 0xdd])).unwrap();
        let mut expected = [0; REGISTERS];
        expected[2593] = 2;
        assert_eq!(drawn.registers(), expected);
    }

    #[test]
    fn each_kind_of_damage_has_its_error() {
        let sketch = |opcodes: &[u8]| Sketch::from_redis(&redis_bytes(opcodes)).map(|sketch| sketch.count());
        assert_eq!(sketch(&[0x7f, 0xff]), Ok(0));
        assert_eq!(sketch(&[0x7f, 0xff, 0x00]), Err(SketchError::TooManyRegisters));
        assert_eq!(sketch(&[0x7f, 0xff, 0x7f, 0xff]), Err(SketchError::TooManyRegisters));
        assert_eq!(sketch(&[0x7f, 0xfe]), Err(SketchError::TooFewRegisters { registers: 16383 }));
        assert_eq!(sketch(&[]), Err(SketchError::TooFewRegisters { registers: 0 }));
        assert_eq!(sketch(&[0x7f]), Err(SketchError::CutOpcode));
        // The 16,129 registers of an XZERO whose second byte is taken to be 0, as Redis takes it.
        assert_eq!(sketch(&[0x40, 0xfe, 0x7f]), Err(SketchError::CutOpcode));

        let valid = Sketch::new().to_redis();
        assert_eq!(validate(&valid[..15]), Err(SketchError::TooShort { bytes: 15 }));
        assert_eq!(validate(b""), Err(SketchError::TooShort { bytes: 0 }));
        assert_eq!(validate(b"HYLM\x01\0\0\0\0\0\0\0\0\0\0\0\x7f\xff"), Err(SketchError::Magic));
        assert_eq!(validate(b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\0"), Err(SketchError::Encoding { encoding: 2 }));
        assert_eq!(validate(b"HYLL\0\0\0\0\0\0\0\0\0\0\0\0"), Err(SketchError::DenseLength { bytes: 16 }));
    }

    #[test]
    fn the_cached_count_goes_stale() {
        let mut sketch = Sketch::new();
        assert_eq!(sketch.count(), 0);
        assert!(sketch.add(b"ada"));
        assert_eq!(sketch.count(), 1);
        assert!(!sketch.add(b"ada"));
        assert_eq!(sketch.count(), 1);
        let mut other = Sketch::new();
        assert!(other.add(b"grace"));
        assert!(sketch.merge(&other));
        assert_eq!(sketch.count(), 2);
        assert!(!sketch.merge(&other));
        assert_eq!(sketch.count(), 2);
    }

    #[test]
    fn a_lie_in_the_header_is_not_believed() {
        let mut bytes = Sketch::new().to_redis();
        bytes[8..16].copy_from_slice(&77_u64.to_le_bytes());
        assert_eq!(Sketch::from_redis(&bytes).unwrap().count(), 0);
    }

    #[test]
    fn a_value_above_32_makes_it_dense() {
        let mut sketch = Sketch::new();
        assert!(sketch.add_hash(1 << (14 + 31)));
        assert_eq!((sketch.encoding(), sketch.registers()[0]), (Encoding::Sparse, 32));
        assert!(sketch.add_hash(1 << (14 + 32)));
        assert_eq!((sketch.encoding(), sketch.registers()[0]), (Encoding::Dense, 33));
        assert!(sketch.add_hash(0));
        assert_eq!(sketch.registers()[0], 51);
        assert_eq!(sketch.impossible_registers(), 0);
    }

    #[test]
    fn a_failed_merge_changes_nothing() {
        let mut sketch = Sketch::new();
        sketch.add(b"ada");
        let before = sketch.to_redis();
        let mut bytes = redis_bytes(&[0x80, 0x7f, 0xfe]);
        bytes.push(0);
        assert_eq!(sketch.merge_bytes(&bytes), Err(SketchError::TooManyRegisters));
        assert_eq!(sketch.to_redis(), before);
    }

    #[test]
    fn a_small_sketch_is_small() {
        let mut sketch = Sketch::new();
        let mut sizes = Vec::new();
        for n in 1..=1000_u32 {
            sketch.add(&n.to_le_bytes());
            if [1, 10, 100, 1000].contains(&n) {
                sizes.push(sketch.memory_bytes());
            }
        }
        let limits = [50, 80, 350, 3100];
        assert!(sizes.iter().zip(limits).all(|(&size, limit)| size <= limit), "{sizes:?} against {limits:?}");
    }
}
