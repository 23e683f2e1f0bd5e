//! The log, and what follows from it.

use crate::group::{Grouped, Grouper};
use crate::testing::counted;
use onlooker_event::{CountKey, DayNumber, Scope};
use onlooker_ports::{ArchiveCell, Archived, BatchBuilder};
use onlooker_proto::{CARRIED_OVER, decode_counted, encode_counted};
use onlooker_sketch::Sketch;
use std::collections::BTreeMap;
use std::sync::LazyLock;

const DAY_MS: i64 = 86_400_000;

#[derive(Debug)]
struct Record {
    offset: i64,
    key: Vec<u8>,
    payload: Vec<u8>,
}

/// What a key's records below an offset come to.
#[derive(Debug, Clone, Default)]
pub(super) struct Fact {
    pub(super) n: u64,
    pub(super) sketch: Sketch,
}

static NOTHING: LazyLock<Fact> = LazyLock::new(Fact::default);

/// One partition's log, with the facts of each key after each of its records.
#[derive(Debug, Default)]
pub(super) struct Truth {
    records: Vec<Record>,
    pub(super) end: i64,
    facts: BTreeMap<CountKey, Vec<(i64, Fact)>>,
}

impl Truth {
    /// Views that were counted before this log began, below its first offset. Returns the archive's cells.
    pub(super) fn begin_with(&mut self, item: u8, viewers: &[u8], day: i32) -> Vec<ArchiveCell> {
        let key = format!("s:i{item}").into_bytes();
        let mut cells = Vec::new();
        for scope in [Scope::All, Scope::Day(DayNumber(day))] {
            let key = CountKey::new(scope, &key);
            let facts = self.facts.entry(key.clone()).or_default();
            let mut fact = facts.pop().map(|(_, fact)| fact).unwrap_or_default();
            fact.n += viewers.len() as u64;
            viewers.iter().for_each(|viewer| _ = fact.sketch.add(&[*viewer; 16]));
            cells.push(ArchiveCell::Number { key: key.clone(), n: fact.n, u: 0 });
            cells.push(ArchiveCell::Sketch { key, bytes: fact.sketch.to_redis().into(), t: 0 });
            facts.push((-1, fact));
        }
        cells
    }

    /// A record that was counted in the log before this one: it adds nothing.
    pub(super) fn carry_over(&mut self, item: u8, viewer: u8, day: i32) {
        let (key, payload) = counted(&format!("i{item}"), viewer, i64::from(day) * DAY_MS);
        let mut carried = decode_counted(Some(&payload)).unwrap();
        carried.source_offset = CARRIED_OVER;
        let mut payload = Vec::new();
        encode_counted(&carried, &mut payload);
        self.records.push(Record { offset: self.end, key, payload });
        self.end += 1;
    }

    pub(super) fn append(&mut self, gap: i64, item: u8, viewer: u8, day: i32) {
        let offset = self.end + gap;
        let name = format!("i{item}");
        let (key, payload) = counted(&name, viewer, i64::from(day) * DAY_MS);
        for scope in [Scope::All, Scope::Day(DayNumber(day))] {
            let facts = self.facts.entry(CountKey::new(scope, &key)).or_default();
            let mut fact = facts.last().map(|(_, fact)| fact.clone()).unwrap_or_default();
            fact.n += 1;
            fact.sketch.add(&[viewer; 16]);
            facts.push((offset, fact));
        }
        self.records.push(Record { offset, key, payload });
        self.end = offset + 1;
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The offset of the first record at or after `from`.
    pub(super) fn next_record(&self, from: i64) -> Option<i64> {
        self.records.get(self.records.partition_point(|r| r.offset < from)).map(|r| r.offset)
    }

    /// Up to `most` records from an offset on, grouped.
    pub(super) fn read(&self, from: i64, most: usize) -> Option<Grouped> {
        let first = self.records.partition_point(|r| r.offset < from);
        let mut batch = BatchBuilder::new(0);
        for r in self.records[first..].iter().take(most) {
            batch.push(r.offset, r.offset * 1000, Some(&r.key), Some(&r.payload));
        }
        let mut grouper = Grouper::new(0, "views.counted");
        batch.build().iter().for_each(|record| grouper.push(record));
        grouper.take()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &CountKey> {
        self.facts.keys()
    }

    /// What the key's records below the offset come to.
    pub(super) fn below(&self, key: &CountKey, offset: i64) -> &Fact {
        let facts = self.facts.get(key).map(Vec::as_slice).unwrap_or_default();
        let below = facts.partition_point(|(at, _)| *at < offset);
        below.checked_sub(1).map_or(&NOTHING, |last| &facts[last].1)
    }

    /// A cell is exactly the log below its timestamp.
    pub(super) fn check_cell(&self, cell: &ArchiveCell) -> Result<(), String> {
        match cell {
            ArchiveCell::Number { key, n, u } => {
                let truth = self.below(key, *u).n;
                if *n != truth {
                    return Err(format!("archived {n} at {u} for {key:?}, the log has {truth}"));
                }
            }
            ArchiveCell::Sketch { key, bytes, t } => {
                let sketch = Sketch::from_redis(bytes).map_err(|e| e.to_string())?;
                if !sketch.register_eq(&self.below(key, *t).sketch) {
                    return Err(format!("archived a sketch at {t} for {key:?} that is not the log's"));
                }
            }
        }
        Ok(())
    }

    /// A row has at least what the log has below the offset.
    pub(super) fn covers(&self, row: &Archived, key: &CountKey, offset: i64) -> Result<(), String> {
        let truth = self.below(key, offset);
        let n = row.number.map_or(0, |(n, _)| n);
        if n < truth.n {
            return Err(format!("the archive has {n} of {} for {key:?} below {offset}", truth.n));
        }
        let sketch =
            row.sketch.as_ref().map(|(bytes, _)| Sketch::from_redis(bytes).unwrap()).unwrap_or_default();
        if !contains(&sketch, &truth.sketch) {
            return Err(format!("the archive's sketch for {key:?} lacks members below {offset}"));
        }
        Ok(())
    }
}

pub(super) fn contains(all: &Sketch, part: &Sketch) -> bool {
    all.register_eq(part) || !all.clone().merge(part)
}
