//! An export of a system that goes on counting, exact as of one moment.
//!
//! Rows are read while the flusher writes, so each is of a moment of its own, and says of which: its timestamps. So the
//! log's ends are asked for *after* the rows were read, and each row is brought up to them with the log's own records:
//! those from its timestamp on. All of them stand at or above the offset that was durable *before* the rows were read,
//! and an item that has no row at all has no record below that.

use super::format::{About, Row};
use super::write::Writer;
use super::{Place, Slices};
use crate::clock::now_ms;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use onlooker_event::{CountKey, DayNumber, ItemKey, Scope};
use onlooker_filter::heart::Note;
use onlooker_ports::{Archive, Archived, Batch, VerdictHistory};
use onlooker_proto::{CARRIED_OVER, decode_counted, encode_counted};
use onlooker_sketch::Sketch;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, Write};
use tokio::sync::mpsc;

/// What was exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) rows: u64,
    pub(super) verdicts: u64,
    pub(super) about: About,
}

/// A number of views, and a sketch, each without a cell.
const NONE: i64 = i64::MIN;

/// Everything that an export needs, no longer in need of the system.
pub(super) struct Collected {
    about: About,
    /// Rows with their timestamps, as they were read.
    rows: File,
    /// Verdicts with their slices.
    verdicts: File,
    /// Records that a row may lack: offset and viewer, by key, in the order of their offsets.
    since: HashMap<CountKey, Vec<(i64, [u8; 16])>>,
}

/// Reads everything, while the system goes on.
pub(super) async fn collect<P: Place>(
    place: &P,
    slices: Slices,
    identity: Option<String>,
) -> Result<Collected> {
    let mut durable = Vec::new();
    for partition in (0..).take(place.partitions() as usize) {
        durable.push(place.archive().durable(partition).await?.unwrap_or(0));
    }
    let rows = spool_rows(place).await?;
    let ends = place.history().ends().await?;
    let made_ms = now_ms();
    let mut tail = read_tail(place, slices, made_ms, &durable, &ends).await?;
    let mut up_to = vec![0; place.partitions() as usize];
    for (partition, end) in ends {
        if let Some(slot) = usize::try_from(partition).ok().and_then(|at| up_to.get_mut(at)) {
            *slot = end;
        }
    }
    tail.verdicts.flush()?;
    let about = About {
        made_ms,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        from: place.kind().to_owned(),
        generation: place.generation().to_owned(),
        up_to,
        newest_ms: tail.newest_ms,
        slice: tail.slice,
        slice_s: slices.length_s,
        identity,
    };
    let verdicts = tail.verdicts.into_inner().map_err(|error| error.into_error())?;
    Ok(Collected { about, rows, verdicts, since: tail.since })
}

async fn spool_rows<P: Place>(place: &P) -> Result<File> {
    let (sink, mut batches) = mpsc::channel::<super::Rows>(4);
    let writing = async {
        let mut spool = BufWriter::new(tempfile::tempfile().context("making a temporary file")?);
        let mut line = Vec::new();
        while let Some(rows) = batches.recv().await {
            for (key, Archived { sketch, number }) in rows {
                let times = [sketch.as_ref().map_or(NONE, |(_, t)| *t), number.map_or(NONE, |(_, u)| u)];
                let row = Row { key, views: number.map(|(n, _)| n), sketch: sketch.map(|(bytes, _)| bytes) };
                line.clear();
                times.iter().for_each(|time| line.extend_from_slice(&time.to_le_bytes()));
                row.put(&mut line).context("a row is longer than the format allows")?;
                spool.write_all(&u32::try_from(line.len())?.to_le_bytes())?;
                spool.write_all(&line).context("writing a temporary file")?;
            }
        }
        spool.flush()?;
        anyhow::Ok(spool.into_inner().map_err(|error| error.into_error())?)
    };
    let ((), spool) = tokio::try_join!(place.scan(sink), writing)?;
    Ok(spool)
}

/// What the log says about the time since the rows were archived, and who was counted of late.
struct Tail {
    since: HashMap<CountKey, Vec<(i64, [u8; 16])>>,
    verdicts: BufWriter<File>,
    slice: i64,
    newest_ms: i64,
    /// Per partition: whether the reading began at or below the durable offset.
    reached: Vec<bool>,
}

async fn read_tail<P: Place>(
    place: &P,
    slices: Slices,
    now_ms: i64,
    durable: &[i64],
    ends: &[(i32, i64)],
) -> Result<Tail> {
    // Whoever comes next is in this slice at the earliest, and so meets nothing older than the one before it.
    let (length, skew) = (i64::from(slices.length_s.max(1)), i64::from(slices.skew_s));
    let oldest = (now_ms / 1_000 - skew).div_euclid(length) - 1;
    let from_ms = (oldest * length - skew).max(0) * 1_000;
    let tail = read_from(place, slices, from_ms, oldest, durable, ends).await?;
    let missing = |tail: &Tail| {
        let behind = ends.iter().filter_map(|(partition, end)| {
            let at = usize::try_from(*partition).ok()?;
            (*end > *durable.get(at)? && !*tail.reached.get(at)?).then_some(at)
        });
        behind.collect::<Vec<_>>()
    };
    if missing(&tail).is_empty() {
        return Ok(tail);
    }
    // The archive is further behind than the filter remembers: all that the log has is read.
    for (at, earliest) in place.earliest().await?.into_iter().enumerate() {
        if durable.get(at).is_some_and(|durable| *durable < earliest) && missing(&tail).contains(&at) {
            bail!(
                "partition {at} of the counted views begins at offset {earliest}, and the archive has those below {}: \
                 what is between them is nowhere",
                durable.get(at).copied().unwrap_or(0)
            );
        }
    }
    read_from(place, slices, 0, oldest, durable, ends).await
}

async fn read_from<P: Place>(
    place: &P,
    slices: Slices,
    from_ms: i64,
    oldest: i64,
    durable: &[i64],
    ends: &[(i32, i64)],
) -> Result<Tail> {
    let mut tail = Tail {
        since: HashMap::new(),
        verdicts: BufWriter::new(tempfile::tempfile().context("making a temporary file")?),
        slice: 0,
        newest_ms: 0,
        reached: vec![from_ms == 0; durable.len()],
    };
    if ends.iter().all(|(_, end)| *end == 0) {
        return Ok(tail);
    }
    let (sink, mut batches) = mpsc::channel(4);
    let reading = async { anyhow::Ok(place.history().read(from_ms, ends, sink).await?) };
    let noting = async {
        while let Some(batch) = batches.recv().await {
            tail.take(&batch, slices, oldest, durable, ends)?;
        }
        Ok(())
    };
    tokio::try_join!(reading, noting)?;
    Ok(tail)
}

impl Tail {
    fn take(
        &mut self,
        batch: &Batch,
        slices: Slices,
        oldest: i64,
        durable: &[i64],
        ends: &[(i32, i64)],
    ) -> Result<()> {
        let Ok(partition) = usize::try_from(batch.partition) else { return Ok(()) };
        let durable = durable.get(partition).copied().unwrap_or(0);
        let end = ends.iter().find(|(of, _)| *of == batch.partition).map_or(0, |(_, end)| *end);
        for record in batch.iter().filter(|record| record.offset < end) {
            if let Some(reached) = self.reached.get_mut(partition) {
                *reached |= record.offset <= durable;
            }
            // What the counter cannot read it sets aside; so it is in no count.
            let Ok(mut view) = decode_counted(record.payload) else { continue };
            let item = ItemKey::new(&view.site, &view.item);
            if record.key != Some(item.as_bytes()) {
                continue;
            }
            self.newest_ms = self.newest_ms.max(record.append_ms);
            if record.offset >= durable && view.source_offset >= 0 {
                for scope in [Scope::All, Scope::Day(DayNumber::of_ms(view.event_ms))] {
                    let key = CountKey::new(scope, item.as_bytes());
                    self.since.entry(key).or_default().push((record.offset, view.viewer.0));
                }
            }
            let slice_s = if view.slice_s == 0 { slices.length_s } else { view.slice_s };
            let slice = Note { slice: view.slice, slice_s }.in_slices_of(slices.length_s);
            self.slice = self.slice.max(slice);
            if slice >= oldest {
                (view.source_partition, view.source_offset) = (0, CARRIED_OVER);
                let mut message = Vec::new();
                encode_counted(&view, &mut message);
                self.verdicts.write_all(&u32::try_from(message.len())?.to_le_bytes())?;
                self.verdicts.write_all(&message).context("writing a temporary file")?;
            }
        }
        Ok(())
    }
}

impl Collected {
    /// Writes the file. Blocks.
    pub(super) fn write<W: Write>(self, out: W) -> Result<(W, Summary)> {
        let Self { about, mut rows, mut verdicts, mut since } = self;
        let mut writer = Writer::begin(out, &about)?;
        rows.rewind()?;
        let mut spool = BufReader::new(rows);
        while let Some(mut line) = next(&mut spool)? {
            let time = |line: &mut Bytes| super::format::array(line).map(i64::from_le_bytes);
            let (t, u) = (time(&mut line), time(&mut line));
            let row = Row::take(&mut line);
            let (Some(t), Some(u), Some(mut row)) = (t, u, row) else { bail!("a temporary file is damaged") };
            if let Some(records) = since.remove(&row.key) {
                bring_up(&mut row, t, u, &records)?;
            }
            writer.row(&row)?;
        }
        let mut new: Vec<_> = since.into_iter().collect();
        new.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (key, records) in new {
            let mut row = Row { key, views: None, sketch: None };
            bring_up(&mut row, NONE, NONE, &records)?;
            writer.row(&row)?;
        }
        verdicts.rewind()?;
        let mut spool = BufReader::new(verdicts);
        while let Some(message) = next(&mut spool)? {
            writer.verdict(&message)?;
        }
        let (out, rows, verdicts) = writer.finish()?;
        Ok((out, Summary { rows, verdicts, about }))
    }
}

/// Adds to a row what it lacks. The row stays as it is, byte for byte, if that is nothing.
fn bring_up(row: &mut Row, t: i64, u: i64, records: &[(i64, [u8; 16])]) -> Result<()> {
    let of_number = records.iter().filter(|(offset, _)| *offset >= u).count() as u64;
    if of_number > 0 {
        row.views = Some(row.views.unwrap_or(0).saturating_add(of_number));
    }
    let mut of_sketch = records.iter().filter(|(offset, _)| *offset >= t).peekable();
    if of_sketch.peek().is_none() {
        return Ok(());
    }
    let mut sketch = match &row.sketch {
        None => Sketch::new(),
        Some(bytes) => Sketch::from_redis(bytes).with_context(|| {
            let key = String::from_utf8_lossy(row.key.as_bytes()).into_owned();
            format!("the archived sketch of {key} is damaged: the counter's README says what to do")
        })?,
    };
    let mut raised = false;
    for (_, viewer) in of_sketch {
        raised |= sketch.add(viewer);
    }
    if raised || row.sketch.is_none() {
        row.sketch = Some(sketch.to_redis().into());
    }
    Ok(())
}

/// A length and so many bytes; none at the end.
fn next(spool: &mut impl Read) -> Result<Option<Bytes>> {
    let mut length = [0; 4];
    match spool.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error).context("reading a temporary file"),
    }
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    spool.read_exact(&mut bytes).context("reading a temporary file")?;
    Ok(Some(bytes.into()))
}
