//! Between keys and cells on one side, rows and statements on the other.

use crate::error::failed;
use bytes::Bytes;
use onlooker_event::CountKey;
use onlooker_ports::{ArchiveCell, Archived, PortError};
use scylla::deserialize::row::DeserializeRow;
use scylla::response::query_result::QueryResult;
use scylla::serialize::SerializationError;
use scylla::serialize::row::{RowSerializationContext, SerializeRow};
use scylla::serialize::writers::RowWriter;
use std::collections::HashMap;
use std::ops::Range;

/// Rows that one read may ask for. A row is at most about 12 KB, so an answer stays well below a megabyte; ScyllaDB
/// refuses more than 100 values in an IN.
const ROWS_AT_ONCE: usize = 32;

/// Bytes that a batch of one item may carry: to the server it is one mutation, however large.
const ITEM_BYTES: usize = 256 * 1024;

/// Items and bytes of a batch of several. A request costs the server more than a small write, so that small writes of
/// several items share one. Above 10 items or 5 KiB Cassandra warns, above 50 KiB it refuses.
const ITEMS_AT_ONCE: usize = 10;
const SHARED_BYTES: usize = 4 * 1024;

/// Items that are asked for in the same scopes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group<'a> {
    pub(crate) items: Vec<&'a [u8]>,
    pub(crate) scopes: Vec<&'a [u8]>,
}

/// Puts keys together so that few reads fetch exactly them: items in the same set of scopes share a read.
pub(crate) fn groups(keys: &[CountKey]) -> Vec<Group<'_>> {
    let mut scopes_of: HashMap<&[u8], Vec<&[u8]>> = HashMap::with_capacity(keys.len());
    let mut order = Vec::with_capacity(keys.len());
    for key in keys {
        let scopes = scopes_of.entry(key.item_bytes()).or_insert_with(|| {
            order.push(key.item_bytes());
            Vec::with_capacity(2)
        });
        if !scopes.contains(&key.scope_bytes()) {
            scopes.push(key.scope_bytes());
        }
    }
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut open: HashMap<Vec<&[u8]>, usize> = HashMap::new();
    for item in order {
        let mut scopes = scopes_of.remove(item).unwrap_or_default();
        scopes.sort_unstable();
        // An item in more scopes than a read may have rows is read in several.
        for part in scopes.chunks(ROWS_AT_ONCE) {
            match open.get(part).copied() {
                Some(at) if (groups[at].items.len() + 1) * part.len() <= ROWS_AT_ONCE => {
                    groups[at].items.push(item)
                }
                _ => {
                    open.insert(part.to_vec(), groups.len());
                    groups.push(Group { items: vec![item], scopes: part.to_vec() });
                }
            }
        }
    }
    groups
}

/// One row as it is read: item, scope, the two cells and the timestamp of each.
type CountRow<'a> = (&'a [u8], &'a [u8], Option<&'a [u8]>, Option<i64>, Option<i64>, Option<i64>);

/// Adds an answer's rows to what was found, by the key's bytes.
pub(crate) fn collect(answer: QueryResult, found: &mut HashMap<Vec<u8>, Archived>) -> Result<(), PortError> {
    let rows = answer.into_rows_result().map_err(failed)?;
    for row in rows.rows::<CountRow<'_>>().map_err(failed)? {
        let (item, scope, blob, blob_ts, views, views_ts) = row.map_err(failed)?;
        let mut key = Vec::with_capacity(scope.len() + 1 + item.len());
        key.extend_from_slice(scope);
        key.push(b':');
        key.extend_from_slice(item);
        found.insert(key, archived(blob.zip(blob_ts), views.zip(views_ts))?);
    }
    Ok(())
}

/// A row as it is scanned: the log's name between the others.
type ScanRow<'a> = (&'a [u8], &'a [u8], &'a str, Option<&'a [u8]>, Option<i64>, Option<i64>, Option<i64>);

/// An answer's rows of one log.
pub(crate) fn of_log(answer: QueryResult, log: &str) -> Result<Vec<(CountKey, Archived)>, PortError> {
    let rows = answer.into_rows_result().map_err(failed)?;
    let mut found = Vec::new();
    for row in rows.rows::<ScanRow<'_>>().map_err(failed)? {
        let (item, scope, of, blob, blob_ts, views, views_ts) = row.map_err(failed)?;
        if of == log {
            let key = CountKey::parse([scope, b":", item].concat().into())
                .map_err(|_| failed("a row's key is no key of a count"))?;
            found.push((key, archived(blob.zip(blob_ts), views.zip(views_ts))?));
        }
    }
    Ok(found)
}

/// Copied, for a shared slice would keep the whole answer in memory.
fn archived(sketch: Option<(&[u8], i64)>, views: Option<(i64, i64)>) -> Result<Archived, PortError> {
    let sketch = sketch.map(|(bytes, t)| (Bytes::copy_from_slice(bytes), t));
    let number = match views {
        Some((n, u)) => {
            Some((u64::try_from(n).map_err(|_| failed("a stored number of views is negative"))?, u))
        }
        None => None,
    };
    Ok(Archived { sketch, number })
}

/// The first row of an answer, if it has one.
pub(crate) fn first<R>(answer: QueryResult) -> Result<Option<R>, PortError>
where
    R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
{
    answer.into_rows_result().map_err(failed)?.maybe_first_row::<R>().map_err(failed)
}

/// Which cells travel together: neighbours of one item, and small neighbours of several.
pub(crate) fn batches(cells: &[ArchiveCell]) -> Vec<Range<usize>> {
    let mut batches: Vec<Range<usize>> = Vec::new();
    let (mut items, mut bytes) = (0, 0);
    for (run, size) in runs(cells) {
        match batches.last_mut() {
            Some(batch) if items < ITEMS_AT_ONCE && bytes + size <= SHARED_BYTES => {
                batch.end = run.end;
                items += 1;
                bytes += size;
            }
            _ => {
                batches.push(run);
                (items, bytes) = (1, size);
            }
        }
    }
    batches
}

/// Neighbours of one item, and how many bytes they take.
fn runs(cells: &[ArchiveCell]) -> Vec<(Range<usize>, usize)> {
    let mut runs: Vec<(Range<usize>, usize)> = Vec::new();
    for (i, cell) in cells.iter().enumerate() {
        let size = size_of_cell(cell);
        let same_item = i > 0 && cells[i - 1].key().item_bytes() == cell.key().item_bytes();
        match runs.last_mut() {
            Some((run, bytes)) if same_item && *bytes + size <= ITEM_BYTES => {
                run.end = i + 1;
                *bytes += size;
            }
            _ => runs.push((i..i + 1, size)),
        }
    }
    runs
}

fn size_of_cell(cell: &ArchiveCell) -> usize {
    let content = match cell {
        ArchiveCell::Sketch { bytes, .. } => bytes.len(),
        // More than the column holds: it goes alone, so that nothing else fails with it.
        ArchiveCell::Number { n, .. } if i64::try_from(*n).is_err() => ITEM_BYTES,
        ArchiveCell::Number { .. } => 8,
    };
    cell.key().as_bytes().len() + content + 32
}

/// The values of one write.
pub(crate) enum CellRow<'a> {
    Sketch((&'a [u8], &'a [u8], &'a str, &'a [u8], i64)),
    Number((&'a [u8], &'a [u8], &'a str, i64, i64)),
}

impl<'a> CellRow<'a> {
    pub(crate) fn new(cell: &'a ArchiveCell, log: &'a str) -> Result<Self, PortError> {
        let (item, scope) = (cell.key().item_bytes(), cell.key().scope_bytes());
        Ok(match cell {
            ArchiveCell::Sketch { bytes, t, .. } => CellRow::Sketch((item, scope, log, bytes, *t)),
            ArchiveCell::Number { n, u, .. } => {
                CellRow::Number((item, scope, log, i64::try_from(*n).map_err(failed)?, *u))
            }
        })
    }
}

impl SerializeRow for CellRow<'_> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        match self {
            CellRow::Sketch(values) => values.serialize(context, writer),
            CellRow::Number(values) => values.serialize(context, writer),
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_event::{DayNumber, Scope};

    fn key(day: Option<i32>, item: &str) -> CountKey {
        let scope = day.map_or(Scope::All, |d| Scope::Day(DayNumber(d)));
        CountKey::new(scope, format!("s:{item}").as_bytes())
    }

    #[test]
    fn a_read_fetches_the_asked_keys_and_no_others() {
        let mut keys = Vec::new();
        for i in 0..100 {
            keys.push(key(None, &i.to_string()));
            if i % 2 == 0 {
                keys.push(key(Some(1), &i.to_string()));
            }
        }
        keys.extend((0..70).map(|day| key(Some(day), "wide")));
        keys.push(key(None, "3"));
        let groups = groups(&keys);
        let mut asked: Vec<Vec<u8>> = Vec::new();
        for group in &groups {
            assert!(group.items.len() * group.scopes.len() <= ROWS_AT_ONCE, "{group:?}");
            for item in &group.items {
                asked.extend(group.scopes.iter().map(|scope| [*scope, b":", *item].concat()));
            }
        }
        asked.sort();
        let mut wanted: Vec<Vec<u8>> = keys.iter().map(|k| k.as_bytes().to_vec()).collect();
        wanted.sort();
        wanted.dedup();
        assert_eq!(asked, wanted);
        // 50 items in two scopes, 50 in one, one in 70.
        assert_eq!(groups.len(), 4 + 2 + 3);
    }

    #[test]
    fn neighbours_travel_together_within_the_size() {
        let number = |item: &str| ArchiveCell::Number { key: key(None, item), n: 1, u: 1 };
        let sketch = |item: &str, size| {
            let bytes = vec![0; size].into();
            ArchiveCell::Sketch { key: key(None, item), bytes, t: 1 }
        };
        let large = |item: &str| sketch(item, 100_000);
        let cells = [number("a"), large("a"), number("b"), large("a"), large("a"), large("a"), number("a")];
        assert_eq!(batches(&cells), [0..2, 2..3, 3..5, 5..7]);
        assert!(batches(&[]).is_empty());

        // Small ones of up to ten items, a large one alone.
        let many: Vec<_> =
            (0..25).flat_map(|i| [number(&i.to_string()), sketch(&i.to_string(), 100)]).collect();
        assert_eq!(batches(&many), [0..20, 20..40, 40..50]);
        let mixed = [
            number("a"),
            number("b"),
            sketch("c", 12_304),
            number("d"),
            sketch("d", 3_000),
            sketch("e", 1_500),
        ];
        assert_eq!(batches(&mixed), [0..2, 2..3, 3..5, 5..6]);
    }
}
