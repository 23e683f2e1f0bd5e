//! The tables, and how a row stands in them.
//!
//! ```text
//! meta        "rows"                  -> 1, the version of everything below
//! sketches:G  CountKey                -> codec, t, bytes
//! numbers:G   CountKey                -> (n, u)
//! durable:G   partition               -> offset
//!
//! G           the log's generation
//! CountKey    its bytes, "*:site:item" or "YYYYMMDD:site:item": the cells of a day lie together, and are in few pages
//! codec       1 byte. 0: the bytes are a sketch in Redis's format
//! t           8 bytes, signed, little-endian: the records below this offset are in the sketch
//! ```
//! Sketches and numbers have tables of their own, because most rounds change a number and not its sketch.

use bytes::Bytes;
use onlooker_event::CountKey;
use onlooker_ports::{ArchiveCell, Archived, PortError};
use redb::{ReadTransaction, ReadableTable, Table, TableDefinition, TableError, WriteTransaction};
use std::ops::Bound;

use super::error::{SERVER, port_error};

const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
const VERSION_KEY: &str = "rows";
/// The version of the rows.
const VERSION: u64 = 1;
/// The sketch follows as it is. LZ4 would make 11,795 bytes of a dense one of 100,000 members, and the file's pages round
/// both up to 16 KiB: not worth its time.
const PLAIN: u8 = 0;
const HEAD: usize = 9;

/// The tables' names for one generation of the log.
#[derive(Debug)]
pub(super) struct Tables {
    sketches: String,
    numbers: String,
    durable: String,
}

/// A table that may not be there yet.
macro_rules! if_there {
    ($opened:expr) => {
        match $opened {
            Ok(table) => Some(table),
            Err(TableError::TableDoesNotExist(_)) => None,
            Err(error) => return Err(error.into()),
        }
    };
}

impl Tables {
    pub(super) fn new(generation: &str) -> Self {
        Self {
            sketches: format!("sketches:{generation}"),
            numbers: format!("numbers:{generation}"),
            durable: format!("durable:{generation}"),
        }
    }

    fn sketches(&self) -> TableDefinition<'_, &'static [u8], &'static [u8]> {
        TableDefinition::new(&self.sketches)
    }

    fn numbers(&self) -> TableDefinition<'_, &'static [u8], (u64, i64)> {
        TableDefinition::new(&self.numbers)
    }

    fn durable(&self) -> TableDefinition<'_, i32, i64> {
        TableDefinition::new(&self.durable)
    }

    /// Marks an empty database as ours; the version of one that is not.
    pub(super) fn prepare(transaction: &WriteTransaction) -> Result<Result<(), PortError>, redb::Error> {
        let mut meta = transaction.open_table(META)?;
        let found = meta.get(VERSION_KEY)?.map(|version| version.value());
        match found {
            None => {
                meta.insert(VERSION_KEY, VERSION)?;
                Ok(Ok(()))
            }
            Some(VERSION) => Ok(Ok(())),
            Some(found) => Ok(Err(PortError::Misconfigured {
                server: SERVER,
                detail: format!("its rows have version {found}, and this program knows version {VERSION}"),
            })),
        }
    }

    /// Writes cells; of two of one kind and key the one with the higher timestamp stays. Of equal ones, which are the same
    /// unless one of them was wrong, the later.
    pub(super) fn write<'a>(
        &self,
        transaction: &WriteTransaction,
        cells: impl IntoIterator<Item = &'a ArchiveCell>,
    ) -> Result<(), redb::Error> {
        let mut cells: Vec<_> = cells.into_iter().collect();
        if cells.is_empty() {
            return Ok(());
        }
        // Neighbours are in the same page then.
        cells.sort_by(|a, b| a.key().cmp(b.key()));
        let mut sketches = transaction.open_table(self.sketches())?;
        let mut numbers = transaction.open_table(self.numbers())?;
        let mut value = Vec::new();
        for cell in cells {
            match cell {
                ArchiveCell::Sketch { key, bytes, t } => {
                    if newest_sketch(&sketches, key)?.is_some_and(|there| there > *t) {
                        continue;
                    }
                    value.clear();
                    value.push(PLAIN);
                    value.extend_from_slice(&t.to_le_bytes());
                    value.extend_from_slice(bytes);
                    sketches.insert(key.as_bytes(), value.as_slice())?;
                }
                ArchiveCell::Number { key, n, u } => {
                    let there = numbers.get(key.as_bytes())?.map(|there| there.value().1);
                    if there.is_none_or(|there| there <= *u) {
                        numbers.insert(key.as_bytes(), (*n, *u))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes what is durable; a lower offset loses.
    pub(super) fn set_durable(
        &self,
        transaction: &WriteTransaction,
        partition: i32,
        offset: i64,
    ) -> Result<(), redb::Error> {
        let mut table = transaction.open_table(self.durable())?;
        let there = table.get(partition)?.map(|there| there.value());
        if there.is_none_or(|there| there < offset) {
            table.insert(partition, offset)?;
        }
        Ok(())
    }

    /// What is durable of every partition that has an offset.
    pub(super) fn all_durable(&self, transaction: &ReadTransaction) -> Result<Vec<(i32, i64)>, redb::Error> {
        let Some(table) = if_there!(transaction.open_table(self.durable())) else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for row in table.iter()? {
            let (partition, offset) = row?;
            all.push((partition.value(), offset.value()));
        }
        Ok(all)
    }

    pub(super) fn read(
        &self,
        transaction: &ReadTransaction,
        keys: &[CountKey],
    ) -> Result<Result<Vec<Archived>, PortError>, redb::Error> {
        let sketches = if_there!(transaction.open_table(self.sketches()));
        let numbers = if_there!(transaction.open_table(self.numbers()));
        let (Some(sketches), Some(numbers)) = (sketches, numbers) else {
            return Ok(Ok(vec![Archived::default(); keys.len()]));
        };
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let number = numbers.get(key.as_bytes())?.map(|there| there.value());
            let sketch = match sketches.get(key.as_bytes())?.map(|there| decode(there.value())) {
                Some(Err(error)) => return Ok(Err(error)),
                Some(Ok(sketch)) => Some(sketch),
                None => None,
            };
            found.push(Archived { sketch, number });
        }
        Ok(Ok(found))
    }

    /// Rows in the order of their keys, behind `after`.
    pub(super) fn scan(
        &self,
        transaction: &ReadTransaction,
        after: Option<&CountKey>,
        at_most: usize,
    ) -> Result<Result<Vec<(CountKey, Archived)>, PortError>, redb::Error> {
        let sketches = if_there!(transaction.open_table(self.sketches()));
        let numbers = if_there!(transaction.open_table(self.numbers()));
        let (Some(sketches), Some(numbers)) = (sketches, numbers) else { return Ok(Ok(Vec::new())) };
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_bytes()));
        let range = (from, Bound::<&[u8]>::Unbounded);
        let (mut sketches, mut numbers) = (sketches.range::<&[u8]>(range)?, numbers.range::<&[u8]>(range)?);
        let (mut sketch, mut number) = (sketches.next().transpose()?, numbers.next().transpose()?);
        let mut rows = Vec::new();
        while rows.len() < at_most {
            let key = match (&sketch, &number) {
                (None, None) => break,
                (Some((key, _)), None) | (None, Some((key, _))) => key.value().to_vec(),
                (Some((a, _)), Some((b, _))) => a.value().min(b.value()).to_vec(),
            };
            let mut row = Archived::default();
            if let Some((of, value)) = &sketch
                && of.value() == key
            {
                row.sketch = match decode(value.value()) {
                    Ok(sketch) => Some(sketch),
                    Err(error) => return Ok(Err(error)),
                };
                sketch = sketches.next().transpose()?;
            }
            if let Some((of, value)) = &number
                && of.value() == key
            {
                row.number = Some(value.value());
                number = numbers.next().transpose()?;
            }
            match CountKey::parse(Bytes::from(key)) {
                Ok(key) => rows.push((key, row)),
                Err(_) => return Ok(Err(damaged("a row's key is no key of a count"))),
            }
        }
        Ok(Ok(rows))
    }
}

fn newest_sketch(
    table: &Table<'_, &'static [u8], &'static [u8]>,
    key: &CountKey,
) -> Result<Option<i64>, redb::Error> {
    let there = table.get(key.as_bytes())?;
    // One that cannot be read holds nothing that would be worth keeping.
    Ok(there.and_then(|there| timestamp(there.value())))
}

fn timestamp(value: &[u8]) -> Option<i64> {
    value.get(1..HEAD).and_then(|t| t.try_into().ok()).map(i64::from_le_bytes)
}

fn decode(value: &[u8]) -> Result<(Bytes, i64), PortError> {
    match (value.first(), timestamp(value)) {
        (Some(&PLAIN), Some(t)) => Ok((Bytes::copy_from_slice(&value[HEAD..]), t)),
        (Some(codec), Some(_)) => Err(damaged(&format!("a sketch is in codec {codec}, which is unknown"))),
        _ => Err(damaged("a sketch's row is cut short")),
    }
}

fn damaged(what: &str) -> PortError {
    PortError::Failed { server: SERVER, detail: what.to_owned() }
}

/// An error of any step as one of the caller's.
pub(super) fn flatten<T>(result: Result<Result<T, PortError>, redb::Error>) -> Result<T, PortError> {
    result.map_err(port_error)?
}
