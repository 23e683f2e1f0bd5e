//! A part of a partition's items, with the index that finds them. There are many, so that growing one takes a moment.

use super::allocation;
use super::item::Item;

/// Where an item is found: its name's hash.
pub(super) type Hash = u64;

/// Items, and an index by open addressing. A word of the index is the low half of an item's hash above, its number plus
/// one below; 0 is free. So a search leads to the item itself only where the hashes agree.
#[derive(Default)]
pub(super) struct Segment {
    index: Vec<u64>,
    items: Vec<Item>,
    /// Places that are free.
    free: Vec<u32>,
    len: usize,
}

impl Segment {
    #[inline]
    fn mask(&self) -> usize {
        self.index.len().wrapping_sub(1)
    }

    /// Reads where a search begins, and answers where it leads to if the first place is the one.
    #[inline]
    pub(super) fn peek(&self, hash: Hash) -> u32 {
        self.index.get(hash as u32 as usize & self.mask()).map_or(0, |word| *word as u32)
    }

    /// Reads the item that `peek` led to.
    #[inline]
    pub(super) fn touch(&self, peeked: u32) -> u32 {
        self.items.get((peeked as usize).wrapping_sub(1)).map_or(0, Item::touch)
    }

    #[inline]
    pub(super) fn find(&self, hash: Hash, name: &[u8]) -> Option<u32> {
        let mask = self.mask();
        let mut at = hash as u32 as usize & mask;
        loop {
            let word = *self.index.get(at)?;
            if word == 0 {
                return None;
            }
            let id = word as u32 - 1;
            if (word >> 32) as u32 == hash as u32 && self.items[id as usize].name.bytes() == name {
                return Some(id);
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    pub(super) fn item(&self, id: u32) -> &Item {
        &self.items[id as usize]
    }

    #[inline]
    pub(super) fn item_mut(&mut self, id: u32) -> &mut Item {
        &mut self.items[id as usize]
    }

    /// Places that have or had an item; those without one have an empty name.
    pub(super) fn places(&self) -> u32 {
        self.items.len() as u32
    }

    /// By how many bytes so many new items make the tables grow, names not included.
    pub(super) fn growth(&self, new: usize) -> usize {
        let places = new.saturating_sub(self.free.len() + self.items.capacity() - self.items.len());
        let items = if places == 0 { 0 } else { places.max(self.step()) * size_of::<Item>() };
        let mut words = self.index.len();
        while (self.len + new) * 4 > words * 3 {
            words = (words * 2).max(8);
        }
        items + (words - self.index.len()) * size_of::<u64>()
    }

    /// Places that are added at once: few, for what is not used yet counts as well. Large tables are moved by the
    /// operating system and not copied.
    fn step(&self) -> usize {
        self.items.len() / 16 + 4
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds an item that is not there.
    pub(super) fn insert(&mut self, hash: Hash, name: &[u8]) -> u32 {
        if (self.len + 1) * 4 > self.index.len() * 3 {
            self.widen();
        }
        let id = match self.free.pop() {
            Some(id) => {
                self.items[id as usize] = Item::new(name);
                id
            }
            None => {
                if self.items.len() == self.items.capacity() {
                    self.items.reserve_exact(self.step());
                }
                self.items.push(Item::new(name));
                self.items.len() as u32 - 1
            }
        };
        self.len += 1;
        self.place(u64::from(hash as u32) << 32 | u64::from(id + 1));
        id
    }

    fn place(&mut self, word: u64) {
        let mask = self.mask();
        let mut at = (word >> 32) as usize & mask;
        while self.index[at] != 0 {
            at = (at + 1) & mask;
        }
        self.index[at] = word;
    }

    fn widen(&mut self) {
        let words = (self.index.len() * 2).max(8);
        let old = std::mem::replace(&mut self.index, vec![0; words]);
        old.into_iter().filter(|word| *word != 0).for_each(|word| self.place(word));
    }

    /// Takes an item out. Its place is used again after `release`.
    pub(super) fn remove(&mut self, id: u32, hash: Hash) {
        let mask = self.mask();
        let mut hole = hash as u32 as usize & mask;
        while self.index[hole] as u32 != id + 1 {
            hole = (hole + 1) & mask;
        }
        // What stood behind it moves up, unless it would come before its home.
        let mut at = (hole + 1) & mask;
        while self.index[at] != 0 {
            let home = (self.index[at] >> 32) as usize & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.index[hole] = self.index[at];
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.index[hole] = 0;
        self.items[id as usize] = Item::none();
        self.len -= 1;
    }

    pub(super) fn release(&mut self, id: u32) {
        self.free.push(id);
    }

    /// Whether so many places are free that giving them back is worth moving the other items.
    pub(super) fn is_loose(&self) -> bool {
        self.free.len() > self.items.len() / 8
    }

    /// Gives all free places back. Answers where the item of each place is now.
    pub(super) fn compact(&mut self) -> Vec<u32> {
        let old = std::mem::take(&mut self.items);
        let mut moved = Vec::with_capacity(old.len());
        self.items.reserve_exact(self.len);
        for item in old {
            moved.push(self.items.len() as u32);
            if !item.name.bytes().is_empty() {
                self.items.push(item);
            }
        }
        self.free = Vec::new();
        for word in self.index.iter_mut().filter(|word| **word != 0) {
            let id = moved[(*word as u32 - 1) as usize];
            *word = *word >> 32 << 32 | u64::from(id + 1);
        }
        if self.index.len() > 8 && self.len * 4 < self.index.len() {
            let words = (self.len * 2).next_power_of_two().max(8);
            let old = std::mem::replace(&mut self.index, vec![0; words]);
            old.into_iter().filter(|word| *word != 0).for_each(|word| self.place(word));
        }
        moved
    }

    /// Bytes taken from the allocator, without what hangs on the items.
    pub(super) fn bytes(&self) -> usize {
        allocation(self.index.capacity() * size_of::<u64>())
            + allocation(self.items.capacity() * size_of::<Item>())
            + allocation(self.free.capacity() * size_of::<u32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Few hashes, so that searches run into each other and around the end.
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0u8..40, any::<bool>()), 0..400)) {
            let mut segment = Segment::default();
            let mut map = BTreeMap::new();
            for (name, insert) in steps {
                // An item's hash depends on its name alone.
                let hash = u64::from(name % 7).wrapping_mul(0x1_0000_0003) ^ (u64::from(name % 3) * 7);
                let found = segment.find(hash, &[name]);
                prop_assert_eq!(found, map.get(&name).copied());
                match found {
                    None if insert => {
                        map.insert(name, segment.insert(hash, &[name]));
                    }
                    Some(id) if !insert => {
                        segment.remove(id, hash);
                        segment.release(id);
                        map.remove(&name);
                        if segment.is_loose() {
                            let moved = segment.compact();
                            map.values_mut().for_each(|id| *id = moved[*id as usize]);
                            prop_assert_eq!(segment.places() as usize, map.len());
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(segment.len(), map.len());
            }
        }
    }
}
