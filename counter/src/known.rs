//! What the counter remembers between batches: numbers, and registers of hot sketches. All of it may be forgotten at any
//! moment; all of it must be at a gap.

use crate::index::{Index, hash};
use onlooker_event::{CountKey, DayNumber};
use onlooker_ports::{Base, Number};
use onlooker_sketch::Registers;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Batches after which registers that spare too little are given back.
const TEND_EVERY: u32 = 1024;
/// Members that registers must have spared between two such moments, to be worth their 8 KiB.
const WORTH_KEEPING: u32 = 256;

/// Bounds that all partitions of a process share.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// Keys that all partitions together may remember.
    pub(crate) keys: usize,
    /// Partitions that share them.
    pub(crate) partitions: Arc<AtomicUsize>,
    /// Register sets that may still be made.
    pub(crate) registers: Arc<AtomicUsize>,
}

impl Bounds {
    pub(crate) fn new(keys: usize, registers: usize) -> Self {
        Self {
            keys,
            partitions: Arc::new(AtomicUsize::new(1)),
            registers: Arc::new(AtomicUsize::new(registers)),
        }
    }

    fn keys_here(&self) -> usize {
        (self.keys / self.partitions.load(Ordering::Relaxed).max(1)).max(1)
    }
}

/// A lower bound of a sketch's registers: members that raise none of them are left out. Its owner keeps the condition
/// that every register is at most that of the sketch of the item's records below the store's offset.
#[derive(Debug)]
pub(crate) struct LeaveOut {
    pub(crate) registers: Registers,
    /// Members spared since the last look.
    pub(crate) spared: u32,
    pool: Arc<AtomicUsize>,
}

impl LeaveOut {
    /// The sketch contains these members.
    pub(crate) fn raise(&mut self, members: &[[u8; 16]]) {
        for member in members {
            self.registers.raise(onlooker_sketch::hash(member));
        }
    }

    /// For a heart with a fault: the sketch contains what the base does.
    pub(crate) fn seed(&mut self, base: Option<&Base>) {
        let blob = base.and_then(|base| base.blob.as_ref());
        let Some(sketch) = blob.and_then(|blob| onlooker_sketch::Sketch::from_redis(blob).ok()) else {
            return;
        };
        for (index, rank) in (0u64..).zip(sketch.registers()).filter(|(_, rank)| *rank > 0) {
            self.registers.raise(index | 1 << (13 + u64::from(rank)));
        }
    }
}

impl Drop for LeaveOut {
    fn drop(&mut self) {
        self.pool.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is known of one key.
#[derive(Debug)]
pub(crate) struct Entry {
    /// As the store has it; none: not known.
    pub(crate) number: Option<Number>,
    /// The archived sketch is damaged, or the store's is: its members are left out, its number goes on.
    pub(crate) out_of_service: bool,
    pub(crate) leave_out: Option<LeaveOut>,
    used: u32,
}

impl Entry {
    fn new(used: u32) -> Self {
        Self { number: None, out_of_service: false, leave_out: None, used }
    }
}

/// An item's scopes stand together: a batch nearly always asks for all time and one day.
#[derive(Debug)]
struct Item {
    hash: u64,
    name: Box<[u8]>,
    all: Entry,
    /// The newest.
    day: Option<(DayNumber, Entry)>,
    more: Vec<(DayNumber, Entry)>,
}

impl Item {
    fn keys(&self) -> usize {
        1 + usize::from(self.day.is_some()) + self.more.len()
    }

    fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        let days = self.day.iter_mut().chain(&mut self.more);
        std::iter::once(&mut self.all).chain(days.map(|(_, entry)| entry))
    }

    fn add_day(&mut self, day: DayNumber, used: u32) {
        let mut new = (day, Entry::new(used));
        match &mut self.day {
            None => self.day = Some(new),
            Some(newest) => {
                if newest.0 < day {
                    std::mem::swap(newest, &mut new);
                }
                self.more.push(new);
            }
        }
    }

    /// Drops the days that were not used since `epoch` began.
    fn drop_days(&mut self, epoch: u32) {
        self.more.retain(|(_, entry)| entry.used == epoch);
        if self.day.as_ref().is_some_and(|(_, entry)| entry.used != epoch) {
            let newest = (0..self.more.len()).max_by_key(|at| self.more[*at].0);
            self.day = newest.map(|at| self.more.swap_remove(at));
        }
        self.more.shrink_to_fit();
    }
}

/// Where an item stands. Good until the next `tend` or `forget`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ItemId(u32);

/// Which entry. Good until the next `tend` or `forget`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryId {
    item: ItemId,
    /// None: all time.
    day: Option<DayNumber>,
}

#[derive(Debug)]
pub(crate) struct Known {
    bounds: Bounds,
    items: Vec<Item>,
    index: Index,
    keys: usize,
    epoch: u32,
    batches: u32,
}

impl Known {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, items: Vec::new(), index: Index::default(), keys: 0, epoch: 0, batches: 0 }
    }

    /// Reads what looking these items up will need, without waiting for one before the next.
    pub(crate) fn near(&self, hashes: impl Iterator<Item = u64>) {
        let touched = hashes.filter_map(|hash| self.index.peek(hash)).fold(0, |all, at| {
            let item = self.items.get(at as usize);
            let day = item.and_then(|item| item.day.as_ref()).map_or(0, |(_, entry)| entry.used);
            all ^ day ^ item.map_or(0, |item| u32::from(item.name.first().copied().unwrap_or(0)))
        });
        std::hint::black_box(touched);
    }

    /// The item, made if there is none.
    #[inline]
    pub(crate) fn item(&mut self, hash: u64, name: &[u8]) -> ItemId {
        let items = &self.items;
        match self.index.find(hash, |at| *items[at as usize].name == *name) {
            Some(at) => ItemId(at),
            None => self.add(hash, name),
        }
    }

    fn add(&mut self, hash: u64, name: &[u8]) -> ItemId {
        // Far fewer than 2^32: `tend` keeps to the bound, give or take one batch.
        let at = u32::try_from(self.items.len()).unwrap_or(u32::MAX);
        let items = &self.items;
        self.index.insert(hash, at, |at| items[at as usize].hash);
        // Older than all others, until it is used.
        let all = Entry::new(self.epoch.wrapping_sub(1));
        self.items.push(Item { hash, name: name.into(), all, day: None, more: Vec::new() });
        self.keys += 1;
        ItemId(at)
    }

    /// An item's entry, made if there is none, as one that is used.
    #[inline]
    pub(crate) fn entry(&mut self, item: ItemId, day: Option<DayNumber>) -> EntryId {
        let (id, epoch) = (EntryId { item, day }, self.epoch);
        if let Some(entry) = self.find_mut(id) {
            entry.used = epoch;
        } else if let Some(day) = day {
            self.items[item.0 as usize].add_day(day, epoch);
            self.keys += 1;
        }
        id
    }

    /// The same for a key that a reader asked for.
    pub(crate) fn entry_of(&mut self, key: &CountKey) -> EntryId {
        let name = key.item_bytes();
        let item = self.item(hash(name), name);
        let id = EntryId { item, day: DayNumber::parse_compact(key.scope_bytes()) };
        if let (None, Some(day)) = (self.find_mut(id), id.day) {
            // Older than all others: made-up keys are the first to go.
            self.items[item.0 as usize].add_day(day, self.epoch.wrapping_sub(1));
            self.keys += 1;
        }
        id
    }

    #[inline]
    fn find(&self, id: EntryId) -> Option<&Entry> {
        let item = &self.items[id.item.0 as usize];
        match (id.day, &item.day) {
            (None, _) => Some(&item.all),
            (Some(day), Some((newest, entry))) if *newest == day => Some(entry),
            (Some(day), _) => item.more.iter().find(|(of, _)| *of == day).map(|(_, entry)| entry),
        }
    }

    #[inline]
    fn find_mut(&mut self, id: EntryId) -> Option<&mut Entry> {
        let item = &mut self.items[id.item.0 as usize];
        match (id.day, &mut item.day) {
            (None, _) => Some(&mut item.all),
            (Some(day), Some((newest, entry))) if *newest == day => Some(entry),
            (Some(day), _) => item.more.iter_mut().find(|(of, _)| *of == day).map(|(_, entry)| entry),
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: EntryId) -> &Entry {
        self.find(id).expect("who has its id has made it")
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: EntryId) -> &mut Entry {
        self.find_mut(id).expect("who has its id has made it")
    }

    /// Registers of which nothing is known yet, if the bound allows another set.
    pub(crate) fn new_registers(&self) -> Option<LeaveOut> {
        let pool = &self.bounds.registers;
        pool.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).ok()?;
        Some(LeaveOut { registers: Registers::new(), spared: 0, pool: Arc::clone(pool) })
    }

    /// Between batches: keeps to the bounds. Ends every `EntryId`.
    pub(crate) fn tend(&mut self) {
        self.batches = self.batches.wrapping_add(1);
        if self.batches.is_multiple_of(TEND_EVERY) {
            for entry in self.items.iter_mut().flat_map(Item::entries_mut) {
                entry.leave_out = entry.leave_out.take().filter(|l| l.spared >= WORTH_KEEPING);
                if let Some(leave_out) = &mut entry.leave_out {
                    leave_out.spared = 0;
                }
            }
        }
        let bound = self.bounds.keys_here();
        if self.keys > bound {
            // At least half goes, so that the cost is constant for each key that comes. What was used since the last
            // time stays first.
            let mut room = bound / 2;
            let epoch = self.epoch;
            self.items.retain_mut(|item| {
                item.drop_days(epoch);
                let keep = item.all.used == epoch && room > 0;
                room = room.saturating_sub(if keep { item.keys() } else { 0 });
                keep
            });
            self.epoch = self.epoch.wrapping_add(1);
            self.keys = self.items.iter().map(Item::keys).sum();
            self.index.clear();
            for (at, item) in (0u32..).zip(&self.items) {
                self.index.insert(item.hash, at, |at| self.items[at as usize].hash);
            }
        }
    }

    /// Everything, at a gap or a doubt.
    pub(crate) fn forget(&mut self) {
        self.items.clear();
        self.index.clear();
        self.keys = 0;
    }

    /// Keys that are remembered.
    pub(crate) fn len(&self) -> usize {
        self.keys
    }

    /// Half of it, for a heart with a fault.
    pub(crate) fn forget_numbers(&mut self) {
        self.items.iter_mut().flat_map(Item::entries_mut).for_each(|e| e.number = None);
    }

    /// The other half.
    pub(crate) fn forget_registers(&mut self) {
        self.items.iter_mut().flat_map(Item::entries_mut).for_each(|e| e.leave_out = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_event::Scope;

    fn name(n: usize) -> Vec<u8> {
        format!("s:{n}").into_bytes()
    }

    fn item(known: &mut Known, n: usize) -> ItemId {
        known.item(hash(&name(n)), &name(n))
    }

    #[test]
    fn keys_are_found_again_and_the_bound_holds() {
        let bounds = Bounds::new(200, 10);
        bounds.partitions.store(2, Ordering::Relaxed);
        let mut known = Known::new(bounds);
        for n in 0..1000 {
            known.tend();
            known.near((0..9).map(|n| hash(&name(n))));
            let at = item(&mut known, n);
            let id = known.entry(at, None);
            known.get_mut(id).number = Some(Number { n: n as u64, u: 1, changed_s: 0 });
            assert_eq!(item(&mut known, n), at);
            assert_eq!(known.entry_of(&CountKey::new(Scope::All, &name(n))), id);
            // Item 0 is used all the time and never forgotten.
            let hot = item(&mut known, 0);
            let hot = known.entry(hot, None);
            assert_eq!(known.get(hot).number.map(|x| x.n), Some(0), "{n}");
            assert!(known.len() <= 102);
        }
        let hot = item(&mut known, 0);
        let day = known.entry(hot, Some(DayNumber(5)));
        assert!(known.get(day).number.is_none());
        assert_eq!(known.entry_of(&CountKey::new(Scope::Day(DayNumber(5)), &name(0))), day);
    }

    #[test]
    fn an_item_has_as_many_days_as_come_and_keeps_those_that_are_used() {
        let mut known = Known::new(Bounds::new(6, 0));
        let at = item(&mut known, 0);
        for day in [7, 5, 9, 6] {
            let id = known.entry(at, Some(DayNumber(day)));
            known.get_mut(id).number = Some(Number { n: day as u64, ..Number::default() });
        }
        known.entry(at, None);
        let n = |known: &Known, day| {
            known.find(EntryId { item: at, day: Some(DayNumber(day)) }).and_then(|e| e.number).map(|x| x.n)
        };
        assert_eq!([5, 6, 7, 8, 9].map(|day| n(&known, day)), [Some(5), Some(6), Some(7), None, Some(9)]);
        assert_eq!(known.len(), 5);
        let wish = known.entry_of(&CountKey::new(Scope::Day(DayNumber(8)), &name(0)));
        assert!(known.get(wish).number.is_none());
        let other = item(&mut known, 1);
        known.entry(other, None);
        known.tend();
        assert_eq!(
            [6, 8, 9].map(|day| n(&known, day)),
            [Some(6), None, Some(9)],
            "a wish is the first to go"
        );
        known.entry(at, None);
        known.entry(at, Some(DayNumber(6)));
        for n in 2..6 {
            item(&mut known, n);
        }
        known.tend();
        assert_eq!([5, 6, 7, 9].map(|day| n(&known, day)), [None, Some(6), None, None]);
        assert_eq!(known.len(), 2);
    }

    #[test]
    fn registers_are_bounded_and_given_back() {
        let bounds = Bounds::new(100, 2);
        let pool = Arc::clone(&bounds.registers);
        let mut known = Known::new(bounds);
        let ids: Vec<EntryId> = (0..3)
            .map(|n| {
                let at = item(&mut known, n);
                let id = known.entry(at, None);
                known.get_mut(id).leave_out = known.new_registers();
                id
            })
            .collect();
        assert!(known.get(ids[2]).leave_out.is_none());
        known.get_mut(ids[0]).leave_out.as_mut().unwrap().spared = WORTH_KEEPING;
        for _ in 0..TEND_EVERY {
            known.tend();
        }
        assert_eq!(pool.load(Ordering::Relaxed), 1, "the one that spared nothing was given back");
        known.forget();
        assert_eq!(pool.load(Ordering::Relaxed), 2);
    }
}
