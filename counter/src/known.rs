//! What the counter remembers between batches: numbers, and registers of hot sketches. All of it may be forgotten at any
//! moment; all of it must be at a gap.

use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use onlooker_event::{CountKey, Scope};
use onlooker_ports::Number;
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

impl Drop for LeaveOut {
    fn drop(&mut self) {
        self.pool.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is known of one key.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: CountKey,
    /// As the store has it; none: not known.
    pub(crate) number: Option<Number>,
    /// The archived sketch is damaged, or the store's is: its members are left out, its number goes on.
    pub(crate) out_of_service: bool,
    pub(crate) leave_out: Option<LeaveOut>,
    used: u32,
}

/// Where an entry stands. Good until the next `tend` or `forget`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryId(u32);

#[derive(Debug)]
pub(crate) struct Known {
    bounds: Bounds,
    entries: Vec<Entry>,
    index: HashMap<Bytes, u32>,
    epoch: u32,
    batches: u32,
    scratch: Vec<u8>,
}

impl Known {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, entries: Vec::new(), index: HashMap::new(), epoch: 0, batches: 0, scratch: Vec::new() }
    }

    /// The entry of a key, made if there is none.
    pub(crate) fn entry(&mut self, scope: Scope, item: &[u8]) -> EntryId {
        self.scratch.clear();
        CountKey::write(scope, item, &mut self.scratch);
        if let Some(at) = self.index.get(&self.scratch[..]) {
            self.entries[*at as usize].used = self.epoch;
            return EntryId(*at);
        }
        self.add(CountKey::new(scope, item), self.epoch)
    }

    /// The same for a key that a reader asked for.
    pub(crate) fn entry_of(&mut self, key: &CountKey) -> EntryId {
        match self.index.get(key.as_bytes()) {
            Some(at) => EntryId(*at),
            // Older than all others: made-up keys are the first to go.
            None => self.add(key.clone(), self.epoch.wrapping_sub(1)),
        }
    }

    fn add(&mut self, key: CountKey, used: u32) -> EntryId {
        // Far fewer than 2^32: `tend` keeps to the bound, give or take one batch.
        let at = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.index.insert(key.bytes(), at);
        self.entries.push(Entry { key, number: None, out_of_service: false, leave_out: None, used });
        EntryId(at)
    }

    pub(crate) fn get(&self, id: EntryId) -> &Entry {
        &self.entries[id.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, id: EntryId) -> &mut Entry {
        &mut self.entries[id.0 as usize]
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
            for entry in &mut self.entries {
                entry.leave_out = entry.leave_out.take().filter(|l| l.spared >= WORTH_KEEPING);
                if let Some(leave_out) = &mut entry.leave_out {
                    leave_out.spared = 0;
                }
            }
        }
        let bound = self.bounds.keys_here();
        if self.entries.len() > bound {
            // At least half goes, so that the cost is constant for each key that comes. What was used since the last
            // time stays first.
            let mut room = bound / 2;
            let epoch = self.epoch;
            self.entries.retain(|entry| {
                let keep = entry.used == epoch && room > 0;
                room -= usize::from(keep);
                keep
            });
            self.epoch = self.epoch.wrapping_add(1);
            self.index.clear();
            for (at, entry) in (0u32..).zip(&self.entries) {
                self.index.insert(entry.key.bytes(), at);
            }
        }
    }

    /// Everything, at a gap or a doubt.
    pub(crate) fn forget(&mut self) {
        self.entries.clear();
        self.index.clear();
    }

    /// Keys that are remembered.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Half of it, for a heart with a fault.
    pub(crate) fn forget_numbers(&mut self) {
        self.entries.iter_mut().for_each(|e| e.number = None);
    }

    /// The other half.
    pub(crate) fn forget_registers(&mut self) {
        self.entries.iter_mut().for_each(|e| e.leave_out = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_event::DayNumber;

    fn item(n: usize) -> Vec<u8> {
        format!("s:{n}").into_bytes()
    }

    #[test]
    fn keys_are_found_again_and_the_bound_holds() {
        let bounds = Bounds::new(200, 10);
        bounds.partitions.store(2, Ordering::Relaxed);
        let mut known = Known::new(bounds);
        for n in 0..1000 {
            known.tend();
            let id = known.entry(Scope::All, &item(n));
            known.get_mut(id).number = Some(Number { n: n as u64, u: 1, changed_s: 0 });
            assert_eq!(known.entry(Scope::All, &item(n)), id);
            assert_eq!(known.entry_of(&CountKey::new(Scope::All, &item(n))), id);
            // Item 0 is used all the time and never forgotten.
            let hot = known.entry(Scope::All, &item(0));
            assert_eq!(known.get(hot).number.map(|x| x.n), Some(0), "{n}");
            assert!(known.len() <= 102);
        }
        let day = known.entry(Scope::Day(DayNumber(5)), &item(0));
        assert_eq!(known.get(day).key.as_bytes(), b"19700106:s:0");
        assert!(known.get(day).number.is_none());
    }

    #[test]
    fn registers_are_bounded_and_given_back() {
        let bounds = Bounds::new(100, 2);
        let pool = Arc::clone(&bounds.registers);
        let mut known = Known::new(bounds);
        for n in 0..3 {
            let id = known.entry(Scope::All, &item(n));
            known.get_mut(id).leave_out = known.new_registers();
        }
        let third = known.entry(Scope::All, &item(2));
        assert!(known.get(third).leave_out.is_none());
        let first = known.entry(Scope::All, &item(0));
        known.get_mut(first).leave_out.as_mut().unwrap().spared = WORTH_KEEPING;
        for _ in 0..TEND_EVERY {
            known.tend();
        }
        assert_eq!(pool.load(Ordering::Relaxed), 1, "the one that spared nothing was given back");
        known.forget();
        assert_eq!(pool.load(Ordering::Relaxed), 2);
    }
}
