//! What holds for all members, all orders and all bytes.
#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{Random, dense_bytes};
use onlooker_sketch::{Encoding, REGISTERS, Registers, Sketch, hash, validate};
use proptest::collection::vec;
use proptest::prelude::*;

/// Hashes as they come, and some whose ranks are rare or whose registers are the first and the last.
fn any_hash() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => any::<u64>(),
        1 => (any::<u64>(), 0..64_u32).prop_map(|(hash, zeros)| hash & 0x3fff | (hash & !0x3fff).wrapping_shl(zeros)),
        1 => (any::<bool>(), any::<u64>()).prop_map(|(last, hash)| if last { hash | 0x3fff } else { hash & !0x3fff }),
    ]
}

/// From empty to well past the change to dense.
fn hashes() -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![vec(any_hash(), 0..40), vec(any_hash(), 0..3000)]
}

fn sketch_of(hashes: &[u64]) -> Sketch {
    let mut sketch = Sketch::new();
    hashes.iter().for_each(|&hash| _ = sketch.add_hash(hash));
    sketch
}

fn dense_of(hashes: &[u64]) -> Sketch {
    let mut sketch = Sketch::new_dense();
    hashes.iter().for_each(|&hash| _ = sketch.add_hash(hash));
    sketch
}

/// The definition: for each register the highest rank.
fn registers_of(hashes: &[u64]) -> [u8; REGISTERS] {
    let mut registers = [0; REGISTERS];
    for hash in hashes {
        let register = &mut registers[(hash & 0x3fff) as usize];
        let zeros = (0..50).take_while(|bit| hash >> (14 + bit) & 1 == 0).count() as u8;
        *register = zeros.saturating_add(1).max(*register);
    }
    registers
}

fn merged(a: &Sketch, b: &Sketch) -> Sketch {
    let mut merged = a.clone();
    merged.merge(b);
    merged
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn registers_follow_the_definition(hashes in hashes()) {
        let (sketch, dense) = (sketch_of(&hashes), dense_of(&hashes));
        prop_assert_eq!(sketch.registers(), registers_of(&hashes));
        prop_assert!(sketch.register_eq(&dense) && dense.register_eq(&sketch));
        prop_assert_eq!(sketch.count(), dense.count());
        prop_assert_eq!(sketch.is_empty(), hashes.is_empty());
        prop_assert_eq!(dense.is_empty(), hashes.is_empty());
        prop_assert_eq!(sketch.impossible_registers(), 0);
    }

    #[test]
    fn an_add_says_whether_the_registers_changed(hashes in vec(any_hash(), 0..300), dense: bool) {
        let mut sketch = if dense { Sketch::new_dense() } else { Sketch::new() };
        for hash in hashes.iter().chain(&hashes) {
            let before = sketch.clone();
            prop_assert_eq!(sketch.add_hash(*hash), !sketch.register_eq(&before));
        }
    }

    #[test]
    fn neither_order_nor_repetition_matters(hashes in hashes(), seed: u64) {
        let sketch = sketch_of(&hashes);
        let mut random = Random(seed);
        let mut other: Vec<u64> = hashes.iter().chain(&hashes).copied().collect();
        for i in (1..other.len()).rev() {
            other.swap(i, random.below(i + 1));
        }
        let shuffled = sketch_of(&other);
        prop_assert!(shuffled.register_eq(&sketch));
        prop_assert_eq!(shuffled.count(), sketch.count());
    }

    #[test]
    fn merging_is_the_union(a in hashes(), b in hashes(), c in hashes()) {
        let all: Vec<u64> = [&a[..], &b, &c].concat();
        let [sa, sb, sc] = [&a, &b, &c].map(|hashes| sketch_of(hashes));
        let left = merged(&merged(&sa, &sb), &sc);
        prop_assert_eq!(left.registers(), registers_of(&all));
        prop_assert_eq!(left.count(), sketch_of(&all).count());
        prop_assert!(left.register_eq(&merged(&sa, &merged(&sb, &sc))));
        prop_assert!(merged(&sa, &sb).register_eq(&merged(&sb, &sa)));
        prop_assert!(left.register_eq(&merged(&left, &left)));
        // The same from bytes, into a dense one, and from dense ones.
        let mut union = Sketch::new_dense();
        for sketch in [&sa, &sb, &sc] {
            union.merge_bytes(&sketch.to_redis()).unwrap();
        }
        prop_assert!(union.register_eq(&left));
        let dense = merged(&merged(&dense_of(&a), &dense_of(&b)), &dense_of(&c));
        prop_assert!(dense.register_eq(&left));
    }

    #[test]
    fn a_merge_says_whether_the_registers_changed(a in hashes(), b in hashes(), part in 0..3_usize) {
        for ours in [sketch_of(&a), dense_of(&a)] {
            // Nothing at all, some of ours and some new, nothing new.
            let theirs = [&[], &a[a.len() / 2..], &a][part].iter().chain([&b[..0], &b][part % 2]);
            let theirs: Vec<u64> = theirs.copied().collect();
            for theirs in [sketch_of(&theirs), dense_of(&theirs)] {
                let mut sketch = ours.clone();
                _ = sketch.count();
                let rose = sketch.merge(&theirs);
                prop_assert_eq!(rose, !sketch.register_eq(&ours));
                prop_assert_eq!(sketch.count(), Sketch::from_redis(&sketch.to_redis()).unwrap().count());
            }
        }
    }

    #[test]
    fn the_way_to_redis_and_back(hashes in hashes(), base in hashes()) {
        for sketch in [sketch_of(&hashes), dense_of(&hashes), merged(&sketch_of(&hashes), &sketch_of(&base))] {
            let bytes = sketch.to_redis();
            let back = Sketch::from_redis(&bytes).unwrap();
            prop_assert!(back.register_eq(&sketch));
            prop_assert_eq!(back.to_redis(), &bytes[..]);
            prop_assert_eq!(u64::from_le_bytes(bytes[8..16].try_into().unwrap()), sketch.count());
            match sketch.encoding() {
                Encoding::Sparse => prop_assert!(bytes.len() <= 3000),
                Encoding::Dense => {
                    prop_assert_eq!(bytes.len(), 12304);
                    // As text it does not survive, and says so. Sparse bytes nearly always say so: of 256
                    // second bytes of an XZERO there is one that text replaces by as many registers.
                    let text = String::from_utf8_lossy(&bytes).into_owned().into_bytes();
                    prop_assert!(text == bytes || validate(&text).is_err());
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200), encoding in 0..3_u8, dense: bool) {
        // Bare, with a header that is right, and of the one length that a dense sketch has.
        let mut headed = [b"HYLL", &[encoding, 0, 0, 0][..], &[0; 8], &bytes].concat();
        if dense {
            headed.resize(12304, *bytes.first().unwrap_or(&0));
        }
        for bytes in [&bytes, &headed] {
            let read = Sketch::from_redis(bytes);
            prop_assert_eq!(validate(bytes).err(), read.as_ref().err().copied());
            let mut sketch = Sketch::new();
            let merged = sketch.merge_bytes(bytes);
            prop_assert_eq!(merged.err(), read.as_ref().err().copied());
            if let Ok(read) = read {
                prop_assert!(read.register_eq(&sketch));
                prop_assert_eq!(read.count(), sketch.count());
            } else {
                prop_assert!(sketch.is_empty());
            }
        }
    }

    #[test]
    fn damaged_bytes_are_read_or_refused(
        hashes in hashes(), dense: bool, damage in vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..4),
    ) {
        let mut bytes = if dense { dense_of(&hashes) } else { sketch_of(&hashes) }.to_redis();
        for (at, byte, kind) in damage {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => _ = bytes.remove(at),
                _ => bytes.truncate(at),
            }
        }
        if let Ok(mut sketch) = Sketch::from_redis(&bytes) {
            // What was read once is sound for good.
            sketch.add(b"one more");
            let again = Sketch::from_redis(&sketch.to_redis()).unwrap();
            prop_assert_eq!(again.registers(), sketch.registers());
        }
    }

    #[test]
    fn every_six_bits_are_read_as_they_are(registers in vec(0..64_u8, REGISTERS)) {
        let registers: [u8; REGISTERS] = registers.try_into().unwrap();
        let sketch = Sketch::from_redis(&dense_bytes(&registers)).unwrap();
        prop_assert_eq!(sketch.registers(), registers);
        let impossible = registers.iter().filter(|value| **value > 51).count();
        prop_assert_eq!(sketch.impossible_registers(), impossible);
    }

    #[test]
    fn what_is_left_out_would_have_changed_nothing(hashes in hashes()) {
        let (mut kept, mut sketch) = (Registers::new(), Sketch::new());
        for &hash in hashes.iter().chain(&hashes) {
            if kept.would_raise(hash) {
                sketch.add_hash(hash);
                kept.raise(hash);
            }
        }
        prop_assert_eq!(sketch.registers(), registers_of(&hashes));
    }
}

#[test]
fn a_hash_is_that_of_the_member() {
    let mut sketch = Sketch::new();
    assert!(sketch.add(b"ada"));
    assert!(!sketch.add_hash(hash(b"ada")));
}

#[test]
fn full_registers_survive_every_copy() {
    for value in [51, 63] {
        let bytes = dense_bytes(&[value; REGISTERS]);
        let sketch = Sketch::from_redis(&bytes).unwrap();
        assert_eq!(sketch.to_redis()[16..], bytes[16..]);
        assert_eq!(sketch.count(), i64::MAX as u64);
        let mut union = Sketch::new();
        assert!(union.merge(&sketch));
        assert!(union.register_eq(&sketch));
    }
}
