//! An item with its scopes.

use super::allocation;
use super::form::Form;
use super::key::{ALL, ItemName, ScopeCode};
use onlooker_ports::Number;

/// Bits of `Slot::word` that are the scope.
const SCOPE: u32 = (1 << 27) - 1;
/// There is a number.
const NUMBER: u32 = 1 << 27;
/// The number changed since it was archived.
const NUMBER_DIRTY: u32 = 1 << 28;
/// The sketch changed since it was archived.
const SKETCH_DIRTY: u32 = 1 << 29;
/// Used since the clock's hand was here.
const USED: u32 = 1 << 30;
/// Of an item's first slot: the item is in the list of changed ones.
const LISTED: u32 = 1 << 31;

/// What one scope of an item has. 48 bytes.
pub(super) struct Slot {
    n: u64,
    u: i64,
    /// While the sketch is dirty: it holds the records below this offset.
    mark: i64,
    pub(super) form: Form,
    changed_s: u32,
    /// Scope and flags.
    word: u32,
}

impl Slot {
    pub(super) fn new(scope: ScopeCode) -> Self {
        Self { n: 0, u: 0, mark: 0, form: Form::Absent, changed_s: 0, word: scope }
    }

    pub(super) fn scope(&self) -> ScopeCode {
        self.word & SCOPE
    }

    #[inline]
    fn is(&self, flag: u32) -> bool {
        self.word & flag != 0
    }

    pub(super) fn number(&self) -> Option<Number> {
        self.is(NUMBER).then_some(Number { n: self.n, u: self.u, changed_s: self.changed_s })
    }

    #[inline]
    pub(super) fn set_number(&mut self, number: Number) {
        (self.n, self.u, self.changed_s) = (number.n, number.u, number.changed_s);
        self.word |= NUMBER | NUMBER_DIRTY;
    }

    pub(super) fn number_is_dirty(&self) -> bool {
        self.is(NUMBER_DIRTY)
    }

    pub(super) fn settle_number(&mut self) {
        self.word &= !NUMBER_DIRTY;
    }

    pub(super) fn remove_number(&mut self) {
        self.word &= !(NUMBER | NUMBER_DIRTY);
    }

    /// The mark of a changed sketch.
    #[inline]
    pub(super) fn mark(&self) -> Option<i64> {
        self.is(SKETCH_DIRTY).then_some(self.mark)
    }

    #[inline]
    pub(super) fn set_mark(&mut self, mark: i64) {
        self.mark = mark;
        self.word |= SKETCH_DIRTY;
    }

    pub(super) fn settle_sketch(&mut self) {
        self.word &= !SKETCH_DIRTY;
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.is(NUMBER_DIRTY | SKETCH_DIRTY)
    }

    /// Nothing is here.
    pub(super) fn is_vacant(&self) -> bool {
        !self.is(NUMBER | NUMBER_DIRTY | SKETCH_DIRTY) && self.form.is_absent()
    }

    /// Bytes that evicting the sketch would give back.
    #[inline]
    pub(super) fn evictable_bytes(&self) -> usize {
        if self.is(SKETCH_DIRTY) { 0 } else { self.form.heap_bytes() }
    }

    #[inline]
    pub(super) fn use_it(&mut self) {
        self.word |= USED;
    }

    /// Whether it was used since this was last asked.
    pub(super) fn was_used(&mut self) -> bool {
        let used = self.is(USED);
        self.word &= !USED;
        used
    }
}

/// An item: all time, and its days, the newest one inline. 128 bytes.
pub(super) struct Item {
    pub(super) name: ItemName,
    all: Slot,
    day: Slot,
    #[expect(clippy::box_collection, reason = "8 bytes where nearly all have none")]
    more: Option<Box<Vec<Slot>>>,
}

impl Item {
    pub(super) fn new(name: &[u8]) -> Self {
        Self { name: ItemName::new(name), all: Slot::new(ALL), day: Slot::new(ALL), more: None }
    }

    /// A place that is free.
    pub(super) fn none() -> Self {
        Self { name: ItemName::NONE, ..Self::new(&[]) }
    }

    #[inline]
    pub(super) fn slot(&self, scope: ScopeCode) -> Option<&Slot> {
        if scope == ALL {
            return Some(&self.all);
        }
        if self.day.scope() == scope {
            return Some(&self.day);
        }
        self.more.as_ref()?.iter().find(|slot| slot.scope() == scope)
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, scope: ScopeCode) -> Option<&mut Slot> {
        if scope == ALL {
            return Some(&mut self.all);
        }
        if self.day.scope() == scope {
            return Some(&mut self.day);
        }
        self.more.as_mut()?.iter_mut().find(|slot| slot.scope() == scope)
    }

    /// The slot of a scope, made if there is none.
    #[inline]
    pub(super) fn make_slot(&mut self, scope: ScopeCode) -> &mut Slot {
        if self.slot(scope).is_none() {
            self.add_day(scope);
        }
        match self.slot_mut(scope) {
            Some(slot) => slot,
            None => unreachable!("all time is always there, and a day was made just now"),
        }
    }

    fn add_day(&mut self, scope: ScopeCode) {
        if self.day.scope() == ALL {
            self.day = Slot::new(scope);
            return;
        }
        let mut slot = Slot::new(scope);
        if scope > self.day.scope() {
            std::mem::swap(&mut slot, &mut self.day);
        }
        let more = self.more.get_or_insert_default();
        more.reserve_exact(1);
        more.push(slot);
    }

    /// All slots; the one of the day has scope `ALL` while there is none.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        [&self.all, &self.day].into_iter().chain(self.more.iter().flat_map(|more| more.iter()))
    }

    pub(super) fn slots_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        [&mut self.all, &mut self.day]
            .into_iter()
            .chain(self.more.iter_mut().flat_map(|more| more.iter_mut()))
    }

    /// Gives back the place of days of which nothing is left.
    pub(super) fn tidy(&mut self) {
        if self.day.scope() != ALL && self.day.is_vacant() {
            self.day = Slot::new(ALL);
        }
        if let Some(more) = &mut self.more {
            more.retain(|slot| !slot.is_vacant());
            more.shrink_to_fit();
            if self.day.scope() == ALL
                && let Some(newest) = (0..more.len()).max_by_key(|at| more[*at].scope())
            {
                self.day = more.swap_remove(newest);
            }
            if more.is_empty() {
                self.more = None;
            }
        }
    }

    pub(super) fn is_vacant(&self) -> bool {
        self.slots().all(Slot::is_vacant)
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.slots().any(Slot::is_dirty)
    }

    pub(super) fn is_listed(&self) -> bool {
        self.all.is(LISTED)
    }

    pub(super) fn set_listed(&mut self, listed: bool) {
        self.all.word = self.all.word & !LISTED | if listed { LISTED } else { 0 };
    }

    /// Reads both its ends, so that it is near when it is needed.
    #[inline]
    pub(super) fn touch(&self) -> u32 {
        self.all.word ^ self.day.word
    }

    /// Bytes that a further day takes from the allocator, at most, about.
    pub(super) const DAY_BYTES: usize = size_of::<Slot>() + 64;

    /// Bytes that its name and further days take from the allocator; sketches are counted by themselves.
    pub(super) fn heap_bytes(&self) -> usize {
        let days = self.more.as_ref().map_or(0, |more| {
            allocation(size_of::<Vec<Slot>>()) + allocation(more.capacity() * size_of::<Slot>())
        });
        ItemName::heap_bytes(self.name.bytes().len()) + days
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_small() {
        assert_eq!((size_of::<Slot>(), size_of::<Item>()), (48, 128));
    }

    #[test]
    fn the_newest_day_is_inline_and_none_is_lost() {
        let mut item = Item::new(b"s:a");
        let number = |n| Number { n, u: 1, changed_s: 0 };
        for day in [20_260_103, 20_260_105, 20_260_101, 20_260_104] {
            item.make_slot(day).set_number(number(u64::from(day)));
            assert_eq!(item.make_slot(day).scope(), day);
        }
        item.make_slot(ALL).set_number(number(1));
        assert_eq!(item.day.scope(), 20_260_105);
        let mut scopes: Vec<_> = item.slots().map(Slot::scope).collect();
        scopes.sort_unstable();
        assert_eq!(scopes, [ALL, 20_260_101, 20_260_103, 20_260_104, 20_260_105]);
        for day in [20_260_105, 20_260_101] {
            item.slot_mut(day).unwrap().remove_number();
            item.tidy();
            assert!(item.slot(day).is_none());
        }
        assert_eq!(item.day.scope(), 20_260_104);
        assert_eq!(item.slot(20_260_103).unwrap().number(), Some(number(20_260_103)));
        item.slots_mut().for_each(Slot::remove_number);
        item.tidy();
        assert!(item.is_vacant() && item.heap_bytes() == 0);
    }
}
