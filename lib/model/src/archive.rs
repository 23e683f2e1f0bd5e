//! The archive.

use onlooker_event::CountKey;
use onlooker_ports::{ArchiveCell, Archived};
use std::collections::BTreeMap;

/// Rows with their cells, and what is durable.
#[derive(Debug, Clone, Default)]
pub struct Archive {
    /// The rows of the current log.
    pub rows: BTreeMap<CountKey, Archived>,
    /// A partition's durable offset.
    pub durable: BTreeMap<i32, i64>,
    /// The statements that carry no timestamp: of these the last one wins.
    pub without: Option<Timestamp>,
}

/// A timestamp that can be left out, to see that a test would notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timestamp {
    /// A sketch's.
    Sketch,
    /// A number's.
    Number,
    /// That of what is durable.
    Durable,
}

impl Archive {
    /// Writes a cell. The higher timestamp wins; of two equal ones the smaller value, since a store may choose either.
    pub fn write(&mut self, cell: &ArchiveCell) {
        let last_wins = |of| self.without == Some(of);
        match cell {
            ArchiveCell::Sketch { key, bytes, t } => {
                let held = &mut self.rows.entry(key.clone()).or_default().sketch;
                let wins = held.as_ref().is_none_or(|(old, at)| t > at || (t == at && bytes < old));
                if wins || last_wins(Timestamp::Sketch) {
                    *held = Some((bytes.clone(), *t));
                }
            }
            ArchiveCell::Number { key, n, u } => {
                let held = &mut self.rows.entry(key.clone()).or_default().number;
                let wins = held.is_none_or(|(old, at)| *u > at || (*u == at && *n < old));
                if wins || last_wins(Timestamp::Number) {
                    *held = Some((*n, *u));
                }
            }
        }
    }

    /// Reads a row.
    pub fn read(&self, key: &CountKey) -> Archived {
        self.rows.get(key).cloned().unwrap_or_default()
    }

    /// Notes what is durable.
    pub fn set_durable(&mut self, partition: i32, offset: i64) {
        let held = self.durable.entry(partition).or_insert(offset);
        *held = if self.without == Some(Timestamp::Durable) { offset } else { offset.max(*held) };
    }
}
