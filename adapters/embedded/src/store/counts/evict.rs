//! Making room: what the archive has may go.

use super::form::Form;
use super::item::{Item, Slot};
use super::partition::{Partition, SEGMENTS};
use super::{MemoryCounts, lock};
use std::sync::Mutex;

/// Places that are looked at before others get the partition: some 100 µs.
const PLACES_AT_ONCE: usize = 2_048;

impl MemoryCounts {
    /// Evicts what is archived and was not used for longest, in this partition first: as much as is needed and a little
    /// more, so that not every batch has to make room. True if anything went.
    pub(super) fn make_room(&self, first: &Mutex<Partition>, needed: usize, attempt: u32) -> bool {
        let short = (self.used_bytes() + needed).saturating_sub(self.limit_bytes());
        // Places in tables may become free where none is needed: then more has to go.
        let goal = (short + self.limit_bytes() / 128) << attempt;
        let others = self.shared.partitions.iter().map(|(partition, _)| partition);
        let others = others.filter(|other| !std::ptr::eq(*other, first));
        let mut freed = 0;
        for mutex in std::iter::once(first).chain(others) {
            freed += self.make_room_in(mutex, goal - freed);
            if freed >= goal {
                break;
            }
        }
        self.shared.metrics.evicted.increment(freed as u64);
        freed > 0
    }

    fn make_room_in(&self, mutex: &Mutex<Partition>, goal: usize) -> usize {
        let (mut freed, mut looked) = (0, 0);
        loop {
            let mut partition = lock(mutex);
            // Twice around: the first time, the hand may find that all was used.
            let around = 2 * partition.rows() as usize * SEGMENTS;
            if freed >= goal || looked >= around || !partition.has_clean() {
                self.account(&mut partition, Partition::compact);
                return freed;
            }
            freed += self.account(&mut partition, |partition| {
                partition.evict(goal - freed, PLACES_AT_ONCE, |name| self.hash(name))
            });
            looked += PLACES_AT_ONCE;
        }
    }

    /// Evicts every sketch that may be.
    #[cfg(test)]
    pub(super) fn evict_all(&self) {
        for (mutex, _) in &self.shared.partitions {
            self.account(&mut lock(mutex), |partition| {
                for segment in 0..SEGMENTS {
                    for number in 0..partition.segments[segment].places() {
                        let id = Partition::id(segment, number);
                        let slots = partition.item_mut(id).slots_mut();
                        let freed: usize = slots.filter(|slot| slot.mark().is_none()).map(evict_sketch).sum();
                        partition.heap -= freed;
                        partition.evictable -= freed;
                        if !partition.item(id).name.bytes().is_empty() {
                            partition.tidy(id, |name| self.hash(name));
                        }
                    }
                }
            });
        }
    }
}

/// Takes a sketch away, whatever it is; the bytes that this gives back.
fn evict_sketch(slot: &mut Slot) -> usize {
    let freed = slot.form.heap_bytes();
    slot.form = Form::Absent;
    freed
}

impl Partition {
    /// Places of the longest segment.
    fn rows(&self) -> u32 {
        self.segments.iter().map(|segment| segment.places()).max().unwrap_or(0)
    }

    /// The clock: what was not used since the hand was here goes. Returns the bytes that are free for others; a place in
    /// a table is free for another item.
    fn evict(&mut self, goal: usize, places: usize, hash: impl Fn(&[u8]) -> u64) -> usize {
        let rows = self.rows();
        let mut freed = 0;
        for _ in 0..places {
            let (number, segment) = self.hand;
            // Across the segments, so that places become free in all of them.
            self.hand = match segment + 1 {
                SEGMENTS if number + 1 >= rows => (0, 0),
                SEGMENTS => (number + 1, 0),
                next => (number, next),
            };
            if number < self.segments[segment].places() {
                freed += self.evict_from(segment, number, &hash);
            }
            if freed >= goal {
                break;
            }
        }
        freed
    }

    fn evict_from(&mut self, segment: usize, number: u32, hash: &impl Fn(&[u8]) -> u64) -> usize {
        let id = Self::id(segment, number);
        let item = self.item_mut(id);
        if item.name.bytes().is_empty() {
            return 0;
        }
        let (mut freed, mut used) = (0, false);
        for slot in item.slots_mut() {
            if slot.was_used() {
                used = true;
            } else if slot.evictable_bytes() > 0 {
                freed += evict_sketch(slot);
            }
        }
        // An item goes whole or keeps its small sketches: they take nothing beside its place.
        let goes = !used && !item.is_dirty();
        if goes {
            for slot in item.slots_mut() {
                freed += evict_sketch(slot);
                slot.remove_number();
            }
        }
        self.heap -= freed;
        self.evictable -= freed;
        if goes {
            let rest = size_of::<Item>() + self.item(id).heap_bytes();
            self.tidy(id, hash);
            return freed + rest;
        }
        freed
    }
}
