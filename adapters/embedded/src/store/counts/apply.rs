//! A batch, applied whole or not at all.

use super::form::Form;
use super::item::{Item, Slot};
use super::key::{ItemName, ScopeCode, split};
use super::partition::{Id, Partition, SEGMENTS, segment_of};
use super::segment::Hash;
use super::{MemoryCounts, SERVER, lock};
use onlooker_event::CountKey;
use onlooker_ports::{Apply, ApplyOutcome, Number, PortError, SketchAdd};
use onlooker_sketch::{hash, place};

/// Items whose places are read together before any is looked at: memory is then waited for once.
pub(super) const TOGETHER: usize = 32;

/// How often room is made for a batch before it is refused.
const ATTEMPTS: u32 = 5;

/// What a batch says of one key.
struct Touched<'a> {
    key: &'a CountKey,
    scope: ScopeCode,
    name: &'a [u8],
    hash: Hash,
    number: Option<Number>,
    /// The sketch's index in the batch.
    sketch: Option<usize>,
}

/// What a look at the partition says about a batch.
#[derive(Default)]
struct Survey {
    ids: Vec<Option<Id>>,
    missing: Vec<usize>,
    corrupt: Vec<usize>,
    /// Bytes by which memory grows, at most.
    growth: usize,
}

impl MemoryCounts {
    pub(super) fn apply_batch(&self, partition: i32, batch: &Apply) -> Result<ApplyOutcome, PortError> {
        let (mutex, _) = self.require(partition)?;
        // All that needs nothing but the batch is done before anybody has to wait for it.
        let touched = self.touched(batch);
        let mut bases = read_bases(&batch.sketches)?;
        for attempt in 0..=ATTEMPTS {
            let mut partition = lock(mutex);
            // What the store holds at an offset is a function of the log below it. On top of any other state this batch
            // would skip records, or build on a base that is too old.
            let at = partition.known();
            if at != Some(batch.from) {
                return Ok(ApplyOutcome::Gap(at));
            }
            let survey = survey(&partition, batch, &touched, &bases);
            if !survey.corrupt.is_empty() {
                self.account(&mut partition, |partition| {
                    survey
                        .corrupt
                        .iter()
                        .for_each(|at| self.mark_corrupt(partition, &batch.sketches[*at].key, batch.to));
                });
                return Ok(ApplyOutcome::Corrupt(survey.corrupt));
            }
            if !survey.missing.is_empty() {
                return Ok(ApplyOutcome::Missing(survey.missing));
            }
            if survey.growth > 0 && self.used_bytes() + survey.growth > self.limit_bytes() {
                drop(partition);
                if attempt < ATTEMPTS && self.make_room(mutex, survey.growth, attempt) {
                    continue;
                }
                self.shared.refusing.send_replace(true);
                return Err(self.full(survey.growth));
            }
            self.account(&mut partition, |partition| {
                write(partition, batch, &touched, &survey.ids, &mut bases)
            });
            drop(partition);
            self.shared.refusing.send_if_modified(std::mem::take);
            break;
        }
        Ok(ApplyOutcome::Done)
    }

    fn full(&self, needed: usize) -> PortError {
        let (used, limit) = (self.used_bytes(), self.limit_bytes());
        let detail = format!(
            "what is not archived yet leaves no room: {used} bytes of {limit} are in use, up to {needed} more are needed"
        );
        PortError::Full { server: SERVER, detail }
    }

    /// The batch's keys, each once where sketches stand in the order of their numbers.
    fn touched<'a>(&self, batch: &'a Apply) -> Vec<Touched<'a>> {
        let mut touched: Vec<Touched<'a>> = Vec::with_capacity(batch.numbers.len().max(batch.sketches.len()));
        let mut push = |key: &'a CountKey, number, sketch| {
            let (scope, name) = split(key);
            // An item's scopes stand next to each other.
            let hash = match touched.last() {
                Some(last) if *last.name == *name => last.hash,
                _ => self.hash(name),
            };
            touched.push(Touched { key, scope, name, hash, number, sketch });
        };
        let mut next = 0;
        for (key, number) in &batch.numbers {
            let sketch = batch.sketches.get(next).filter(|add| same(&add.key, key)).map(|_| next);
            next += usize::from(sketch.is_some());
            push(key, Some(*number), sketch);
        }
        for (at, add) in batch.sketches.iter().enumerate().skip(next) {
            push(&add.key, None, Some(at));
        }
        touched
    }

    /// It does not count as archived, or the log could be given up.
    fn mark_corrupt(&self, partition: &mut Partition, key: &CountKey, to: i64) {
        let (scope, name) = split(key);
        let id = partition.make(self.hash(name), name);
        let slot = partition.item_mut(id).make_slot(scope);
        if slot.mark().is_none() {
            slot.set_mark(to);
        }
        partition.list(id);
    }
}

/// Whether two keys are one: they mostly stand in the same place.
#[inline]
fn same(one: &CountKey, other: &CountKey) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    std::ptr::eq(one, other) || one == other
}

/// Bases as sketches, none where there is none to build on.
fn read_bases(sketches: &[SketchAdd]) -> Result<Vec<Option<Form>>, PortError> {
    let base = |add: &SketchAdd| {
        let Some(base) = &add.base else { return Ok(None) };
        let Some(blob) = &base.blob else { return Ok(Some(Form::empty())) };
        Form::from_redis(blob).map(Some).map_err(|error| PortError::Failed {
            server: SERVER,
            detail: format!("a base is no sketch: {error}"),
        })
    };
    sketches.iter().map(base).collect()
}

/// Looks every key up, and changes nothing.
fn survey(partition: &Partition, batch: &Apply, touched: &[Touched<'_>], bases: &[Option<Form>]) -> Survey {
    let mut survey = Survey { ids: Vec::with_capacity(touched.len()), ..Survey::default() };
    let mut new_items = [0usize; SEGMENTS];
    let mut last: Option<(&[u8], Option<Id>)> = None;
    for group in touched.chunks(TOGETHER) {
        near(partition, group.iter().map(|touched| touched.hash));
        let begin = survey.ids.len();
        for touched in group {
            let id = match last {
                Some((name, id)) if name == touched.name => id,
                _ => {
                    let id = partition.find(touched.hash, touched.name);
                    if id.is_none() {
                        new_items[segment_of(touched.hash)] += 1;
                        survey.growth += ItemName::heap_bytes(touched.name.len());
                    }
                    last = Some((touched.name, id));
                    id
                }
            };
            survey.ids.push(id);
        }
        let slots = group.iter().zip(&survey.ids[begin..]);
        let mut found = [None; TOGETHER];
        let mut first_bytes = 0;
        for (found, (touched, id)) in found.iter_mut().zip(slots) {
            *found = id.and_then(|id| partition.item(id).slot(touched.scope));
            first_bytes ^= found.map_or(0, |slot| slot.form.touch());
        }
        std::hint::black_box(first_bytes);
        for (at_in_group, (touched, slot)) in group.iter().zip(found).enumerate() {
            if slot.is_none() && survey.ids[begin + at_in_group].is_some() {
                survey.growth += Item::DAY_BYTES;
            }
            if let Some(at) = touched.sketch {
                let members = batch.sketches[at].members.len();
                look_at_sketch(&mut survey, slot, at, members, bases[at].as_ref());
            }
        }
    }
    let tables = partition.segments.iter().zip(new_items);
    survey.growth += tables.map(|(segment, new)| segment.growth(new)).sum::<usize>();
    survey.missing.sort_unstable();
    survey.corrupt.sort_unstable();
    survey
}

/// A sketch that is absent and created empty instead would lose its members; and one that is marked as changed cannot be
/// absent: nothing may be built in its place, or the flusher would write it over the good one.
fn look_at_sketch(survey: &mut Survey, slot: Option<&Slot>, at: usize, members: usize, base: Option<&Form>) {
    let absent = Form::Absent;
    let (form, marked) = slot.map_or((&absent, false), |slot| (&slot.form, slot.mark().is_some()));
    if form.is_broken() || (form.is_absent() && marked) {
        survey.corrupt.push(at);
    } else if form.is_absent() {
        match base {
            None => survey.missing.push(at),
            Some(base) => survey.growth += base.heap_bytes() + base.growth(members),
        }
    } else {
        survey.growth += form.growth(members);
    }
}

/// Reads what many look-ups will need, without a branch in between.
pub(super) fn near(partition: &Partition, hashes: impl Iterator<Item = Hash> + Clone) {
    let mut peeked = [0; TOGETHER];
    for (peeked, hash) in peeked.iter_mut().zip(hashes.clone()) {
        *peeked = partition.peek(hash);
    }
    let touched =
        peeked.iter().zip(hashes).fold(0, |all, (peeked, hash)| all ^ partition.touch(hash, *peeked));
    std::hint::black_box(touched);
}

fn write(
    partition: &mut Partition,
    batch: &Apply,
    touched: &[Touched<'_>],
    ids: &[Option<Id>],
    bases: &mut [Option<Form>],
) {
    for (touched, id) in touched.iter().zip(ids) {
        // An earlier key of the batch may have made the item.
        let id = id.unwrap_or_else(|| partition.make(touched.hash, touched.name));
        let days = partition.item(id).slot(touched.scope).is_none();
        let before = if days { partition.item(id).heap_bytes() } else { 0 };
        let slot = partition.item_mut(id).make_slot(touched.scope);
        let new = slot.is_vacant();
        slot.use_it();
        // Also where n did not change: u did.
        let mut changed = touched.number.is_some();
        if let Some(number) = touched.number {
            slot.set_number(number);
        }
        let mut bytes = Bytes::default();
        if let Some(at) = touched.sketch {
            changed |= add(slot, &batch.sketches[at], &mut bases[at], batch.to, &mut bytes);
        }
        partition.heap = partition.heap + bytes.after - bytes.before;
        partition.evictable -= bytes.no_longer_clean;
        if days {
            partition.heap = partition.heap + partition.item(id).heap_bytes() - before;
        }
        if new {
            partition.absent.remove(touched.key);
        }
        if changed {
            partition.list(id);
        }
    }
    if let Some(state) = &mut partition.state {
        state.applied = batch.to;
        if batch.as_of_ms != 0 {
            state.as_of_ms = batch.as_of_ms;
        }
    }
}

/// What became of a sketch's bytes.
#[derive(Default)]
struct Bytes {
    before: usize,
    after: usize,
    no_longer_clean: usize,
}

/// Adds members to one sketch; true if it differs from the archive for it.
#[inline]
fn add(slot: &mut Slot, add: &SketchAdd, base: &mut Option<Form>, to: i64, bytes: &mut Bytes) -> bool {
    bytes.before = slot.form.heap_bytes();
    let clean = slot.evictable_bytes();
    let created = slot.form.is_absent();
    if created {
        slot.form = base.take().unwrap_or_else(Form::empty);
    }
    let mut rose = false;
    for member in &add.members {
        let (index, rank) = place(hash(member));
        rose |= slot.form.raise(index, rank);
    }
    bytes.after = slot.form.heap_bytes();
    if created {
        // Changed since it was archived, even without a new member: the archive's answer may come from a write that was
        // never acknowledged. The mark is not below the base's own, because its content is not.
        slot.set_mark(to.max(add.base.as_ref().map_or(0, |base| base.ts)));
        return true;
    }
    if rose {
        // It can no longer be evicted.
        bytes.no_longer_clean = clean;
        slot.set_mark(to);
    }
    rose
}
