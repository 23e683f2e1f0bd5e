//! The claims of one slice: a key of 16 bytes and, nearly always, one value.

use foldhash::{HashMap, HashMapExt};

type Key = [u8; 16];

/// Parts of a table that grow by themselves, so that no step waits for the growth of the whole. A power of two.
const SEGMENTS: usize = 64;
/// Marks a slot as free. A key of zeros stands elsewhere.
const FREE: Key = [0; 16];

/// 20 bytes, without padding.
#[derive(Clone, Copy)]
struct Slot {
    key: Key,
    value: [u8; 4],
}

impl Slot {
    const FREE: Self = Self { key: FREE, value: [0; 4] };
}

/// Where a key belongs within its segment. Keys are hashes already.
#[inline]
fn rank(key: &Key) -> u32 {
    u32::from_le_bytes([key[4], key[5], key[6], key[7]])
}

/// Open addressing. A key's home is proportional to its rank and keys stand in the order of their ranks, so that a search
/// ends at the first higher one; and the number of slots need not be a power of two, so that it grows by a third and not
/// by doubling.
#[derive(Default)]
struct Segment {
    /// `homes` of them, and some behind for what is pushed out at the end.
    slots: Vec<Slot>,
    homes: u32,
    len: u32,
}

enum Place {
    Found(usize),
    /// Where it would stand.
    Absent(usize),
}

impl Segment {
    #[inline]
    fn home(&self, rank: u32) -> usize {
        ((u64::from(rank) * u64::from(self.homes)) >> 32) as usize
    }

    #[inline]
    fn find(&self, key: &Key) -> Place {
        let rank_of_key = rank(key);
        let mut at = self.home(rank_of_key);
        while let Some(slot) = self.slots.get(at) {
            if slot.key == *key {
                return Place::Found(at);
            }
            if slot.key == FREE || rank(&slot.key) > rank_of_key {
                break;
            }
            at += 1;
        }
        Place::Absent(at)
    }

    /// Writes a key's value.
    #[inline]
    fn set(&mut self, key: &Key, value: u32) {
        let value = value.to_le_bytes();
        loop {
            let at = match self.find(key) {
                Place::Found(at) => {
                    self.slots[at].value = value;
                    return;
                }
                Place::Absent(at) => at,
            };
            // Seven eighths: a search then looks at four slots or five.
            if self.len < self.homes - self.homes / 8 {
                let gap = self.slots[at..].iter().position(|slot| slot.key == FREE).unwrap_or_else(|| {
                    self.slots.reserve_exact(8);
                    self.slots.push(Slot::FREE);
                    self.slots.len() - 1 - at
                });
                self.slots.copy_within(at..at + gap, at + 1);
                self.slots[at] = Slot { key: *key, value };
                self.len += 1;
                return;
            }
            self.grow();
        }
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.homes = (self.homes + self.homes / 3).max(8);
        let len = self.homes as usize;
        self.slots = vec![Slot::FREE; len + len / 64 + 8];
        // In order, so each goes to its home or right behind the one before. More than a few are
        // pushed over the end only where keys are no hashes.
        let mut next = 0;
        for slot in old.iter().filter(|slot| slot.key != FREE) {
            let at = self.home(rank(&slot.key)).max(next);
            if at == self.slots.len() {
                self.slots.push(*slot);
            } else {
                self.slots[at] = *slot;
            }
            next = at + 1;
        }
    }

    fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }
}

/// The claims of a slice.
pub(super) struct Table {
    segments: Vec<Segment>,
    /// The key of zeros.
    zero: Option<u32>,
    /// The complete lists of keys with more than one value, which have their first value in a segment as well.
    many: HashMap<Key, Vec<u32>>,
    segment_bytes: usize,
    list_bytes: usize,
}

/// What a list costs beside its values: its key and place in the map.
const LIST: usize = size_of::<(Key, Vec<u32>)>() * 2;

impl Table {
    pub(super) fn new() -> Self {
        Self {
            segments: (0..SEGMENTS).map(|_| Segment::default()).collect(),
            zero: None,
            many: HashMap::new(),
            segment_bytes: 0,
            list_bytes: 0,
        }
    }

    #[inline]
    fn segment(&self, key: &Key) -> &Segment {
        &self.segments[usize::from(key[0]) % SEGMENTS]
    }

    /// Reads where a key would stand and does nothing with it: for many keys in a row memory is then waited for once.
    #[inline]
    pub(super) fn touch(&self, key: &Key) -> u8 {
        let segment = self.segment(key);
        segment.slots.get(segment.home(rank(key))).map_or(0, |slot| slot.key[0])
    }

    /// All values of a key, in order; nothing is allocated if there are none.
    #[inline]
    pub(super) fn values(&self, key: &Key) -> Vec<u32> {
        let Some(first) = self.first(key) else { return Vec::new() };
        if self.many.is_empty() {
            return vec![first];
        }
        self.many.get(key).cloned().unwrap_or_else(|| vec![first])
    }

    #[inline]
    fn first(&self, key: &Key) -> Option<u32> {
        if *key == FREE {
            return self.zero;
        }
        let segment = self.segment(key);
        match segment.find(key) {
            Place::Found(at) => Some(u32::from_le_bytes(segment.slots[at].value)),
            Place::Absent(_) => None,
        }
    }

    /// Sets a key's complete list.
    #[inline]
    pub(super) fn set(&mut self, key: &Key, values: &[u32]) {
        let first = values.first().copied().unwrap_or(0);
        if *key == FREE {
            self.zero = Some(first);
        } else {
            let segment = &mut self.segments[usize::from(key[0]) % SEGMENTS];
            let before = segment.bytes();
            segment.set(key, first);
            self.segment_bytes = self.segment_bytes + segment.bytes() - before;
        }
        if values.len() != 1 {
            self.set_list(key, values.to_vec());
        } else if !self.many.is_empty()
            && let Some(old) = self.many.remove(key)
        {
            self.list_bytes -= LIST + old.capacity() * size_of::<u32>();
        }
    }

    /// Appends to a key's list.
    pub(super) fn append(&mut self, key: &Key, values: &[u32]) {
        if self.first(key).is_none() {
            return self.set(key, values);
        }
        let mut all = self.values(key);
        all.extend_from_slice(values);
        self.set(key, &all);
    }

    fn set_list(&mut self, key: &Key, values: Vec<u32>) {
        self.list_bytes += LIST + values.capacity() * size_of::<u32>();
        if let Some(old) = self.many.insert(*key, values) {
            self.list_bytes -= LIST + old.capacity() * size_of::<u32>();
        }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        SEGMENTS * size_of::<Segment>() + self.segment_bytes + self.list_bytes
    }

    /// Keys.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.segments.iter().map(|segment| segment.len as usize).sum::<usize>()
            + usize::from(self.zero.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Few keys, so that they meet often; some of one rank and of one segment, and the one of zeros.
    fn keys() -> impl Strategy<Value = Key> {
        (0u8..4, prop_oneof![Just(0u32), Just(u32::MAX), Just(7u32), any::<u32>()], 0u8..8).prop_map(
            |(segment, rank, rest)| {
                let mut key = [0; 16];
                key[0] = segment;
                key[4..8].copy_from_slice(&rank.to_le_bytes());
                key[15] = rest;
                key
            },
        )
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec(
            (keys(), prop::collection::vec(any::<u32>(), 0..4), any::<bool>()), 0..400,
        )) {
            let (mut table, mut map) = (Table::new(), BTreeMap::<Key, Vec<u32>>::new());
            for (key, values, append) in steps {
                if append {
                    table.append(&key, &values);
                    map.entry(key).or_default().extend(values);
                } else {
                    table.set(&key, &values);
                    map.insert(key, values);
                }
                prop_assert_eq!(&table.values(&key), &map[&key]);
            }
            prop_assert_eq!(table.len(), map.len());
            for (key, values) in &map {
                prop_assert_eq!(&table.values(key), values);
                let mut other = *key;
                other[14] = 1;
                prop_assert_eq!(table.values(&other), Vec::<u32>::new());
            }
        }
    }

    #[test]
    fn its_bytes_are_counted() {
        let mut table = Table::new();
        let empty = table.bytes();
        for n in 0..100_000u64 {
            let hash = u128::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            table.set(&hash.to_be_bytes(), &[1]);
        }
        let each = (table.bytes() - empty) as f64 / 100_000.0;
        assert!((20.0..31.0).contains(&each), "{each} bytes a claim");
        let key = 1u128.to_be_bytes();
        let before = table.bytes();
        table.set(&key, &[1; 1_000]);
        assert!(table.bytes() > before + 4_000);
        table.set(&key, &[1]);
        assert!(table.bytes() < before + 2_000);
    }
}
