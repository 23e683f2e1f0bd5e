//! What is held, for the counter and for readers.

use super::apply::{TOGETHER, near};
use super::form::Form;
use super::key::split;
use super::{MemoryCounts, lock};
use onlooker_event::CountKey;
use onlooker_ports::{
    CountLookup, CountObserver, Held, KeyView, PartitionState, PortError, ReadCount, SketchValue,
};
use std::time::Instant;

/// Keys that readers get before the counter may have the partition: counting a large sketch anew takes 7 µs.
const KEYS_A_READ: usize = 64;

/// What is made into an answer once the partition is free again.
enum Found {
    Nothing,
    Estimate(u64),
    Copy(Form),
    Broken,
}

impl MemoryCounts {
    pub(super) fn look_up(
        &self,
        partition: i32,
        from: i64,
        keys: &[CountKey],
    ) -> Result<CountLookup, PortError> {
        let mut hashed = Vec::with_capacity(keys.len());
        for key in keys {
            let (scope, name) = split(key);
            let hash = match hashed.last() {
                Some((_, last, hash)) if *last == name => *hash,
                _ => self.hash(name),
            };
            hashed.push((scope, name, hash));
        }
        let mut partition = self.partition(partition)?;
        let at = partition.known();
        if at != Some(from) {
            return Ok(CountLookup::Gap(at));
        }
        let mut held = Vec::with_capacity(keys.len());
        let mut last: Option<(&[u8], _)> = None;
        for group in hashed.chunks(TOGETHER) {
            near(&partition, group.iter().map(|(_, _, hash)| *hash));
            for (scope, name, hash) in group {
                let id = match last {
                    Some((of, id)) if of == *name => id,
                    _ => partition.find(*hash, name),
                };
                last = Some((name, id));
                let slot = id.and_then(|id| partition.item_mut(id).slot_mut(*scope));
                held.push(slot.map_or_else(Held::default, |slot| {
                    // The batch is about to need it.
                    slot.use_it();
                    Held { number: slot.number(), sketch: !slot.form.is_absent() }
                }));
            }
        }
        Ok(CountLookup::Found(held))
    }

    pub(super) fn read_counts(
        &self,
        keys: &[(i32, CountKey)],
        bytes: bool,
    ) -> Vec<(ReadCount, Option<PartitionState>)> {
        let nothing = ReadCount { views: None, sketch: None, known_absent: false };
        let mut out = vec![(nothing, None); keys.len()];
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|at| keys[*at].0);
        let now = Instant::now();
        for group in order.chunk_by(|a, b| keys[*a].0 == keys[*b].0) {
            let Some((mutex, _)) = self.at(keys[group[0]].0) else { continue };
            for part in group.chunks(KEYS_A_READ) {
                let mut found = Vec::with_capacity(part.len());
                let mut partition = lock(mutex);
                let state = partition.shown();
                for at in part {
                    let key = &keys[*at].1;
                    let (scope, name) = split(key);
                    let id = partition.find(self.hash(name), name);
                    let slot = id.and_then(|id| partition.item_mut(id).slot_mut(scope));
                    let (views, sketch) = slot.map_or((None, Found::Nothing), |slot| {
                        slot.use_it();
                        (slot.number().map(|number| number.n), find(&slot.form, bytes))
                    });
                    let nothing = views.is_none() && matches!(sketch, Found::Nothing);
                    let known_absent = nothing && partition.absent.contains(key, now);
                    found.push((*at, views, sketch, known_absent));
                }
                drop(partition);
                for (at, views, sketch, known_absent) in found {
                    out[at] = (ReadCount { views, sketch: sketch.answer(), known_absent }, state);
                }
            }
        }
        out
    }
}

impl CountObserver for MemoryCounts {
    async fn observe(
        &self,
        partition: i32,
        keys: &[CountKey],
    ) -> Result<(Option<i64>, Vec<KeyView>), PortError> {
        let partition = self.partition(partition)?;
        let mut views = Vec::with_capacity(keys.len());
        for key in keys {
            let (scope, name) = split(key);
            let slot = partition.slot(self.hash(name), scope, name);
            views.push(slot.map_or_else(KeyView::default, |slot| KeyView {
                number: slot.number(),
                number_dirty: slot.number_is_dirty(),
                sketch: match &slot.form {
                    Form::Absent => None,
                    // Of bytes that are no sketch nothing was kept.
                    form => Some(form.to_redis().unwrap_or_default().into()),
                },
                sketch_dirty: slot.mark(),
                ttl: None,
            }));
        }
        Ok((partition.shown().map(|state| state.applied), views))
    }
}

fn find(form: &Form, bytes: bool) -> Found {
    match form {
        Form::Absent => Found::Nothing,
        Form::Broken => Found::Broken,
        _ if bytes => Found::Copy(form.clone()),
        _ => form.count().map_or(Found::Broken, Found::Estimate),
    }
}

impl Found {
    fn answer(self) -> Option<SketchValue> {
        match self {
            Found::Nothing => None,
            Found::Estimate(count) => Some(SketchValue::Estimate(count)),
            Found::Copy(form) => {
                Some(form.to_redis().map_or(SketchValue::Corrupt, |bytes| SketchValue::Bytes(bytes.into())))
            }
            Found::Broken => Some(SketchValue::Corrupt),
        }
    }
}
