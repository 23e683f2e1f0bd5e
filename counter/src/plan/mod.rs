//! One batch on its way: what has to be looked up, what has to be read from the archive, and the step that results.

mod build;

use crate::group::Grouped;
use crate::known::{EntryId, Known};
use crate::words::Told;
use bytes::Bytes;
use onlooker_event::{CountKey, CountKeys, DayNumber, Scope};
use onlooker_ports::{Apply, Archived, Base, Held, Members, Number, SketchAdd};
use std::collections::{HashSet, VecDeque};

/// Items of which what is known is read together before any is looked at.
const TOGETHER: usize = 32;

/// One key of the batch.
#[derive(Debug)]
struct Planned {
    id: EntryId,
    /// Which of the batch's items; none for a reader's wish.
    item: Option<u32>,
    /// Only this day's records of the item, where it has several.
    day: Option<DayNumber>,
    /// The look-up, or a `Missing`, said at `from` that the sketch is absent. Only a base that was read after such an
    /// answer is used.
    absent: bool,
    base: Option<Base>,
    /// A reader's wish: the number is absent in the store and known from elsewhere.
    restore_number: bool,
}

#[derive(Debug)]
pub(crate) struct Plan {
    from: i64,
    to: i64,
    as_of_ms: i64,
    /// Append time, in seconds, that restored numbers get: they were wanted now.
    now_s: u32,
    pub(crate) grouped: Option<Grouped>,
    /// Asked for by readers, not by records.
    pub(crate) for_readers: bool,
    /// The records up to `to` are lost: the log has to be read from there on.
    pub(crate) restart: bool,
    keys: Vec<Planned>,
    /// The name of each of `keys`.
    names: Vec<CountKey>,
    asked: Vec<CountKey>,
    asked_of: Vec<u32>,
    main: Apply,
    /// The key of each sketch of `main`.
    main_of: Vec<u32>,
    /// Restores that go before `main`, because all bases at once would be too large for one step.
    before: VecDeque<Apply>,
    built: bool,
}

impl Plan {
    /// A batch without keys.
    pub(crate) fn empty(from: i64, to: i64, as_of_ms: i64) -> Self {
        Self {
            from,
            to,
            as_of_ms,
            now_s: 0,
            grouped: None,
            for_readers: false,
            restart: false,
            keys: Vec::new(),
            names: Vec::new(),
            asked: Vec::new(),
            asked_of: Vec::new(),
            main: Apply { from, to, as_of_ms, numbers: Vec::new(), sketches: Vec::new() },
            main_of: Vec::new(),
            before: VecDeque::new(),
            built: false,
        }
    }

    /// The keys of these records: for each item all time and each day, next to each other, so that the archive reads an
    /// item once.
    pub(crate) fn of_records(from: i64, to: i64, as_of_ms: i64, grouped: Grouped, known: &mut Known) -> Self {
        let mut plan = Self::empty(from, to, as_of_ms);
        plan.keys.reserve(grouped.items.len() * 2);
        // Two scopes' prefixes.
        let bytes = 2 * grouped.name_bytes() + grouped.items.len() * 11;
        let mut names = CountKeys::with_capacity(grouped.items.len() * 2, bytes);
        for (chunk, begin) in grouped.items.chunks(TOGETHER).zip((0u32..).step_by(TOGETHER)) {
            known.near(chunk.iter().map(|group| group.hash));
            for (at, group) in (begin..).zip(chunk) {
                let name = grouped.name(group);
                let known_item = known.item(group.hash, name);
                let mut add = |scope, known_day, day| {
                    names.push(scope, name);
                    let (id, item) = (known.entry(known_item, known_day), Some(at));
                    plan.keys.push(Planned {
                        id,
                        item,
                        day,
                        absent: false,
                        base: None,
                        restore_number: false,
                    });
                };
                add(Scope::All, None, None);
                let several = group.days().len() > 1;
                for day in group.days() {
                    add(Scope::Day(day), Some(day), several.then_some(day));
                }
            }
        }
        plan.names = names.finish();
        plan.grouped = Some(grouped);
        plan
    }

    /// The keys that readers asked for. All are looked up: what the counter knows says nothing about what is present.
    pub(crate) fn of_wishes(
        from: i64,
        as_of_ms: i64,
        now_s: u32,
        wishes: &[CountKey],
        known: &mut Known,
    ) -> Self {
        let mut plan = Self::empty(from, from, as_of_ms);
        (plan.for_readers, plan.now_s) = (true, now_s);
        let mut seen = HashSet::new();
        for key in wishes.iter().filter(|key| seen.insert(*key)) {
            let id = known.entry_of(key);
            plan.names.push(key.clone());
            plan.keys.push(Planned {
                id,
                item: None,
                day: None,
                absent: false,
                base: None,
                restore_number: false,
            });
        }
        plan
    }

    /// Where the store will stand.
    pub(crate) fn to(&self) -> i64 {
        self.to
    }

    pub(crate) fn as_of_ms(&self) -> i64 {
        self.as_of_ms
    }

    /// What is being looked up or read.
    pub(crate) fn asked(&self) -> &[CountKey] {
        &self.asked
    }

    fn ask(&mut self, wanted: impl Fn(&Planned) -> bool) -> bool {
        self.asked.clear();
        self.asked_of.clear();
        for (at, planned) in (0u32..).zip(&self.keys) {
            if wanted(planned) {
                self.asked.push(self.names[at as usize].clone());
                self.asked_of.push(at);
            }
        }
        !self.asked.is_empty()
    }

    /// Prepares the look-up; false if nothing has to be looked up.
    pub(crate) fn ask_store(&mut self, known: &Known) -> bool {
        let for_readers = self.for_readers;
        self.ask(|planned| for_readers || known.get(planned.id).number.is_none())
    }

    /// Takes the look-up's answer and prepares the archive's reading; false if nothing has to be read.
    pub(crate) fn looked_up(&mut self, found: &[Held], known: &mut Known) -> bool {
        for (at, held) in self.asked_of.iter().zip(found) {
            let planned = &mut self.keys[*at as usize];
            let entry = known.get_mut(planned.id);
            planned.absent = !held.sketch;
            planned.restore_number = held.number.is_none() && self.for_readers;
            entry.number = held.number.or(entry.number);
        }
        // One reading serves both: the number's base, and the sketch's. Both were absent in one atomic step in which
        // the store stood at `from`, and the archive is read after that answer. So it returns at least every record
        // below `from`, and the step that uses it is applied only if the store stands at `from`.
        self.ask(|planned| {
            let entry = known.get(planned.id);
            entry.number.is_none() || (planned.absent && !entry.out_of_service)
        })
    }

    /// Takes `Missing`: the archive has to be read for these sketches.
    pub(crate) fn missing(&mut self, sketches: &[usize], known: &Known) -> bool {
        for sketch in sketches {
            let Some(at) = self.main_of.get(*sketch) else { return false };
            self.keys[*at as usize].absent = true;
        }
        self.ask(|planned| planned.absent && planned.base.is_none() && !known.get(planned.id).out_of_service)
    }

    /// Takes what the archive has.
    pub(crate) fn archived(&mut self, rows: Vec<Archived>, known: &mut Known, told: &mut Told) {
        for (at, row) in self.asked_of.iter().zip(rows) {
            let planned = &mut self.keys[*at as usize];
            let entry = known.get_mut(planned.id);
            let nothing = row.sketch.is_none() && row.number.is_none();
            if nothing && planned.item.is_none() && entry.number.is_none() {
                told.absent.push(self.names[*at as usize].clone());
                planned.restore_number = false;
            }
            if entry.number.is_none() {
                // No cell: the item has no records of this log below `from`. A row of another log is not looked at: it
                // counts other records.
                let (n, u) = row.number.unwrap_or((0, 0));
                entry.number = Some(Number { n, u, changed_s: 0 });
            }
            // A sketch that was present at the look-up may be evicted since; then this blob was read too early, and
            // `Missing` will ask for it again.
            if planned.absent && !entry.out_of_service {
                match usable(row.sketch) {
                    Ok(base) => planned.base = Some(base),
                    Err(()) => {
                        // Building a new sketch would make the flusher write it over the damaged one, with a timestamp
                        // that says "everything below is in": the viewers of the past would be gone for good, and
                        // nobody would know. So it stays as it is, for a person to restore.
                        entry.out_of_service = true;
                        entry.leave_out = None;
                        told.damaged_archived.push(self.names[*at as usize].clone());
                    }
                }
            }
        }
    }

    /// True once `build` was called: what comes from the archive now answers a `Missing`.
    pub(crate) fn built(&self) -> bool {
        self.built
    }

    /// After `Missing`: gives the sketches that lack it their base, and drops those that are out of service.
    pub(crate) fn rebuild(&mut self, known: &Known) {
        for (sketch, at) in self.main.sketches.iter_mut().zip(&self.main_of) {
            if let Some(base) = self.keys[*at as usize].base.take() {
                sketch.base = Some(base);
            }
        }
        self.drop_out_of_service(known);
    }

    fn drop_out_of_service(&mut self, known: &Known) {
        let out: Vec<bool> =
            self.main_of.iter().map(|at| known.get(self.keys[*at as usize].id).out_of_service).collect();
        let mut at = out.iter();
        self.main.sketches.retain(|_| !at.next().is_some_and(|out| *out));
        let mut at = out.iter();
        self.main_of.retain(|_| !at.next().is_some_and(|out| *out));
    }

    /// Moves bases that are too many for one step into steps of their own that go before, at the same `from`. A sketch
    /// that such a step creates has no TTL, so it is usually still there when `main` comes; if the flusher was faster,
    /// `Missing` says so.
    pub(crate) fn spread(&mut self, most_bytes: usize, store_as_of_ms: i64) {
        let bytes = |s: &SketchAdd| s.base.as_ref().and_then(|b| b.blob.as_ref()).map_or(0, Bytes::len);
        if self.main.sketches.iter().map(bytes).sum::<usize>() <= most_bytes {
            return;
        }
        let mut size = 0;
        for sketch in self.main.sketches.iter_mut().filter(|s| s.base.is_some()) {
            let more = bytes(sketch);
            if self.before.is_empty() || size + more > most_bytes {
                // What readers see as "as of" does not change by a restore.
                self.before.push_back(Apply {
                    from: self.from,
                    to: self.from,
                    as_of_ms: store_as_of_ms,
                    numbers: Vec::new(),
                    sketches: Vec::new(),
                });
                size = 0;
            }
            size += more;
            if let Some(step) = self.before.back_mut() {
                step.sketches.push(SketchAdd {
                    key: sketch.key.clone(),
                    members: Members::new(),
                    base: sketch.base.take(),
                });
            }
        }
    }

    /// The step to apply now.
    pub(crate) fn step(&self) -> &Apply {
        self.before.front().unwrap_or(&self.main)
    }

    /// True if `step` is the last one.
    pub(crate) fn at_main(&self) -> bool {
        self.before.is_empty()
    }

    /// True if there is nothing to apply: all that was wished for is there, or nowhere.
    pub(crate) fn is_void(&self) -> bool {
        self.for_readers
            && self.before.is_empty()
            && self.main.numbers.is_empty()
            && self.main.sketches.is_empty()
    }

    /// `step` was applied and was not the last one.
    pub(crate) fn next_step(&mut self) {
        self.before.pop_front();
    }

    /// Takes `Corrupt`: these sketches of `step` are left out from now on.
    pub(crate) fn corrupt(&mut self, sketches: &[usize], known: &mut Known, told: &mut Told) {
        let keys: Vec<CountKey> =
            sketches.iter().filter_map(|at| self.step().sketches.get(*at)).map(|s| s.key.clone()).collect();
        for key in keys {
            let id = known.entry_of(&key);
            let entry = known.get_mut(id);
            (entry.out_of_service, entry.leave_out) = (true, None);
            if let Some(step) = self.before.front_mut() {
                step.sketches.retain(|s| s.key != key);
            }
            told.corrupt_stored.push(key);
        }
        self.drop_out_of_service(known);
    }

    /// Sketches of `step` that come with a base, and how many of them the archive knows.
    pub(crate) fn bases(&self) -> (u64, u64) {
        let bases = self.step().sketches.iter().filter_map(|s| s.base.as_ref());
        bases.fold((0, 0), |(all, known), b| (all + 1, known + u64::from(b.blob.is_some())))
    }
}

/// A base from the archive's sketch cell; an error if it holds no sketch.
fn usable(cell: Option<(Bytes, i64)>) -> Result<Base, ()> {
    let Some((blob, ts)) = cell else { return Ok(Base::default()) };
    onlooker_sketch::validate(&blob).map_err(|_| ())?;
    Ok(Base { blob: Some(blob), ts })
}
