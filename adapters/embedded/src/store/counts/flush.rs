//! What the flusher reads and settles, and the janitor.

use super::MemoryCounts;
use super::form::Form;
use super::key::split;
use super::partition::{Partition, SEGMENTS};
use onlooker_event::CountKey;
use onlooker_ports::{Dirty, Number, NumberRead, PortError, SketchRead};

/// Keys that are handled before others get the partition.
const KEYS_AT_ONCE: usize = 256;

impl MemoryCounts {
    /// One moment: a loss in between could hide an item, and what is durable would be too high.
    pub(super) fn list_dirty(&self, partition: i32) -> Result<Option<Dirty>, PortError> {
        let mut partition = self.partition(partition)?;
        let Some(applied) = partition.applied() else { return Ok(None) };
        let (sketches, numbers) = self.account(&mut partition, Partition::list_dirty);
        drop(partition);
        Ok(Some(Dirty { applied, sketches: sketches.finish(), numbers: numbers.finish() }))
    }

    pub(super) fn read_dirty_sketches(
        &self,
        partition: i32,
        applied: i64,
        keys: &[CountKey],
    ) -> Result<Option<Vec<SketchRead>>, PortError> {
        // An empty list, too, finds out whether the round still holds.
        let mut found = Vec::with_capacity(keys.len());
        if self.stands_below(partition, applied)? {
            return Ok(None);
        }
        for chunk in keys.chunks(KEYS_AT_ONCE) {
            let partition = self.partition(partition)?;
            // Below it everything was lost after the round began.
            if partition.applied().is_none_or(|at| at < applied) {
                return Ok(None);
            }
            let copied: Vec<Option<(i64, Form)>> = chunk
                .iter()
                .map(|key| {
                    let (scope, name) = split(key);
                    let slot = partition.slot(self.hash(name), scope, name)?;
                    Some((slot.mark()?, slot.form.clone()))
                })
                .collect();
            // Redis's bytes are made of the copies, while others have the partition.
            drop(partition);
            found.extend(copied.into_iter().map(|copied| match copied {
                None => SketchRead::Clean,
                Some((t, form)) => match form.to_redis() {
                    Some(bytes) => SketchRead::Found { t, bytes: bytes.into() },
                    None => SketchRead::Corrupt,
                },
            }));
        }
        Ok(Some(found))
    }

    pub(super) fn read_dirty_numbers(
        &self,
        partition: i32,
        applied: i64,
        keys: &[CountKey],
    ) -> Result<Option<Vec<NumberRead>>, PortError> {
        let mut found = Vec::with_capacity(keys.len());
        if self.stands_below(partition, applied)? {
            return Ok(None);
        }
        for chunk in keys.chunks(KEYS_AT_ONCE) {
            let partition = self.partition(partition)?;
            if partition.applied().is_none_or(|at| at < applied) {
                return Ok(None);
            }
            found.extend(chunk.iter().map(|key| {
                let (scope, name) = split(key);
                let slot = partition.slot(self.hash(name), scope, name);
                match slot.filter(|slot| slot.number_is_dirty()) {
                    None => NumberRead::Clean,
                    Some(slot) => slot.number().map_or(NumberRead::Corrupt, NumberRead::Found),
                }
            }));
        }
        Ok(Some(found))
    }

    fn stands_below(&self, partition: i32, applied: i64) -> Result<bool, PortError> {
        Ok(self.partition(partition)?.applied().is_none_or(|at| at < applied))
    }

    /// Only what is still as it was archived: something that changed meanwhile would lose its mark, then its memory.
    pub(super) fn mark_sketches_clean(
        &self,
        partition: i32,
        archived: &[(CountKey, i64)],
    ) -> Result<usize, PortError> {
        let mut settled = 0;
        for chunk in archived.chunks(KEYS_AT_ONCE) {
            let mut partition = self.partition(partition)?;
            for (key, t) in chunk {
                let (scope, name) = split(key);
                if let Some(id) = partition.find(self.hash(name), name) {
                    settled += usize::from(partition.settle_sketch(id, scope, *t));
                }
            }
        }
        Ok(settled)
    }

    pub(super) fn mark_numbers_clean(
        &self,
        partition: i32,
        archived: &[(CountKey, Number)],
    ) -> Result<usize, PortError> {
        let mut settled = 0;
        for chunk in archived.chunks(KEYS_AT_ONCE) {
            let mut partition = self.partition(partition)?;
            for (key, number) in chunk {
                let (scope, name) = split(key);
                let Some(id) = partition.find(self.hash(name), name) else { continue };
                let Some(slot) = partition.item_mut(id).slot_mut(scope) else { continue };
                // A number is settled by the offset below which it counts: it says which records are in.
                if slot.number_is_dirty() && slot.number().is_some_and(|held| held.u == number.u) {
                    slot.settle_number();
                    settled += 1;
                }
            }
        }
        Ok(settled)
    }

    /// A segment a call.
    pub(super) fn sweep(
        &self,
        partition: i32,
        cursor: u64,
        changed_before_s: u32,
    ) -> Result<(u64, usize), PortError> {
        let mut partition = self.partition(partition)?;
        let Some(segment) = usize::try_from(cursor).ok().filter(|segment| *segment < SEGMENTS) else {
            return Ok((0, 0));
        };
        let removed = self.account(&mut partition, |partition| {
            let mut removed = 0;
            for number in 0..partition.segments[segment].places() {
                let id = Partition::id(segment, number);
                let old = partition.item_mut(id).slots_mut().filter(|slot| {
                    let number = slot.number().filter(|_| !slot.number_is_dirty());
                    number.is_some_and(|number| number.changed_s < changed_before_s)
                });
                let mut here = 0;
                old.for_each(|slot| {
                    slot.remove_number();
                    here += 1;
                });
                if here > 0 {
                    partition.tidy(id, |name| self.hash(name));
                }
                removed += here;
            }
            removed
        });
        let next = if segment + 1 == SEGMENTS { 0 } else { cursor + 1 };
        Ok((next, removed))
    }
}
