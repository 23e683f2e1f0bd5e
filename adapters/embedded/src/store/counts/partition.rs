//! One partition's counters.

use super::allocation;
use super::item::{Item, Slot};
use super::key::{Keys, ScopeCode};
use super::repair::Held;
use super::segment::{Hash, Segment};
use super::wishes::Absent;
use onlooker_event::CountKey;
use onlooker_ports::PartitionState;
use std::time::Instant;

/// Parts of a partition.
pub(super) const SEGMENTS: usize = 64;

/// Where an item is: its segment above, its number there below.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(u32);

const ID_BITS: u32 = 26;

impl Id {
    fn new(segment: usize, number: u32) -> Self {
        Self((segment as u32) << ID_BITS | number)
    }

    pub(super) fn segment(self) -> usize {
        (self.0 >> ID_BITS) as usize
    }

    pub(super) fn number(self) -> u32 {
        self.0 & ((1 << ID_BITS) - 1)
    }
}

#[inline]
pub(super) fn segment_of(hash: Hash) -> usize {
    (hash >> 58) as usize
}

pub(super) struct Partition {
    /// Where it stands; none: it never began, or lost everything.
    pub(super) state: Option<PartitionState>,
    /// While somebody holds it; then it has no state.
    pub(super) held: Option<Held>,
    /// Counts were put, and no counter has asked since where it stands.
    pub(super) put: bool,
    pub(super) segments: Vec<Segment>,
    /// Items with a number or a sketch that changed, and some that were settled since.
    dirty: Vec<Id>,
    /// Bytes of sketches, names and further days.
    pub(super) heap: usize,
    /// Those of them that evicting sketches would give back.
    pub(super) evictable: usize,
    /// Where the clock's hand is: a place, and the segment in which it looks at it.
    pub(super) hand: (u32, usize),
    pub(super) absent: Absent,
    /// A flush round is claimed until then.
    pub(super) round_until: Option<Instant>,
}

impl Partition {
    pub(super) fn new() -> Self {
        Self {
            state: None,
            held: None,
            put: false,
            segments: (0..SEGMENTS).map(|_| Segment::default()).collect(),
            dirty: Vec::new(),
            heap: 0,
            evictable: 0,
            hand: (0, 0),
            absent: Absent::default(),
            round_until: None,
        }
    }

    pub(super) fn applied(&self) -> Option<i64> {
        self.state.map(|state| state.applied)
    }

    /// Bytes of memory, all included.
    pub(super) fn bytes(&self) -> usize {
        let tables: usize = self.segments.iter().map(Segment::bytes).sum();
        let dirty = allocation(self.dirty.capacity() * size_of::<Id>());
        tables + SEGMENTS * size_of::<Segment>() + dirty + self.heap + self.absent.bytes()
    }

    /// Whether evicting could give anything back.
    pub(super) fn has_clean(&self) -> bool {
        self.evictable > 0 || self.dirty.len() < self.items()
    }

    fn items(&self) -> usize {
        self.segments.iter().map(Segment::len).sum()
    }

    #[inline]
    pub(super) fn peek(&self, hash: Hash) -> u32 {
        self.segments[segment_of(hash)].peek(hash)
    }

    #[inline]
    pub(super) fn touch(&self, hash: Hash, peeked: u32) -> u32 {
        self.segments[segment_of(hash)].touch(peeked)
    }

    #[inline]
    pub(super) fn find(&self, hash: Hash, name: &[u8]) -> Option<Id> {
        let segment = segment_of(hash);
        self.segments[segment].find(hash, name).map(|number| Id::new(segment, number))
    }

    #[inline]
    pub(super) fn item(&self, id: Id) -> &Item {
        self.segments[id.segment()].item(id.number())
    }

    #[inline]
    pub(super) fn item_mut(&mut self, id: Id) -> &mut Item {
        self.segments[id.segment()].item_mut(id.number())
    }

    #[inline]
    pub(super) fn slot(&self, hash: Hash, scope: ScopeCode, name: &[u8]) -> Option<&Slot> {
        self.find(hash, name).and_then(|id| self.item(id).slot(scope))
    }

    /// The item, made if there is none.
    #[inline]
    pub(super) fn make(&mut self, hash: Hash, name: &[u8]) -> Id {
        if let Some(id) = self.find(hash, name) {
            return id;
        }
        let segment = segment_of(hash);
        let id = Id::new(segment, self.segments[segment].insert(hash, name));
        self.heap += self.item(id).heap_bytes();
        id
    }

    /// Notes that something of an item changed.
    #[inline]
    pub(super) fn list(&mut self, id: Id) {
        let item = self.item_mut(id);
        if !item.is_listed() {
            item.set_listed(true);
            self.dirty.push(id);
        }
    }

    /// Drops from the list what was settled, and frees the places of items that went meanwhile.
    fn tidy_list(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.retain(|id| {
            let item = self.item_mut(*id);
            if item.is_dirty() {
                return true;
            }
            item.set_listed(false);
            if item.name.bytes().is_empty() {
                self.segments[id.segment()].release(id.number());
            }
            false
        });
        if dirty.len() < dirty.capacity() / 4 {
            dirty.shrink_to(dirty.len() * 2);
        }
        self.dirty = dirty;
    }

    /// Gives memory of free places back.
    pub(super) fn compact(&mut self) {
        if !self.segments.iter().any(Segment::is_loose) {
            return;
        }
        // No place may be free and listed.
        self.tidy_list();
        for at in 0..SEGMENTS {
            if self.segments[at].is_loose() {
                let moved = self.segments[at].compact();
                for id in self.dirty.iter_mut().filter(|id| id.segment() == at) {
                    *id = Id::new(at, moved[id.number() as usize]);
                }
            }
        }
    }

    /// Keys of changed sketches and of changed numbers.
    pub(super) fn list_dirty(&mut self) -> (Keys, Keys) {
        self.tidy_list();
        let (mut sketches, mut numbers) = (Keys::default(), Keys::default());
        for id in &self.dirty {
            let item = self.item(*id);
            for slot in item.slots() {
                if slot.mark().is_some() {
                    sketches.push(slot.scope(), item.name.bytes());
                }
                if slot.number_is_dirty() {
                    numbers.push(slot.scope(), item.name.bytes());
                }
            }
        }
        (sketches, numbers)
    }

    /// Gives back what an item no longer needs; the item itself if nothing is left of it.
    pub(super) fn tidy(&mut self, id: Id, hash: impl Fn(&[u8]) -> Hash) {
        let before = self.item(id).heap_bytes();
        self.item_mut(id).tidy();
        self.heap -= before - self.item(id).heap_bytes();
        if !self.item(id).is_vacant() {
            return;
        }
        let item = self.item(id);
        let (listed, heap, hash) = (item.is_listed(), item.heap_bytes(), hash(item.name.bytes()));
        self.heap -= heap;
        let segment = &mut self.segments[id.segment()];
        segment.remove(id.number(), hash);
        if listed {
            // The list still leads here: the place is free once the list is tidied.
            segment.item_mut(id.number()).set_listed(true);
        } else {
            segment.release(id.number());
        }
    }

    pub(super) fn id(segment: usize, number: u32) -> Id {
        Id::new(segment, number)
    }

    /// A changed sketch's mark, if it is this one, is taken away; true if it was.
    pub(super) fn settle_sketch(&mut self, id: Id, scope: ScopeCode, t: i64) -> bool {
        let Some(slot) = self.item_mut(id).slot_mut(scope).filter(|slot| slot.mark() == Some(t)) else {
            return false;
        };
        slot.settle_sketch();
        let freed = slot.evictable_bytes();
        self.evictable += freed;
        true
    }

    /// Notes that the archive does not know a key, unless there is something of it here.
    pub(super) fn mark_absent(
        &mut self,
        hash: Hash,
        scope: ScopeCode,
        key: &CountKey,
        name: &[u8],
        until: Instant,
    ) {
        if self.slot(hash, scope, name).is_none_or(Slot::is_vacant) {
            self.absent.insert(key, until);
        }
    }
}
