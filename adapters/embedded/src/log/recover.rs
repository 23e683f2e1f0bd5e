//! Opening a journal: what is there, what a crash left behind, and what no crash explains.

use super::config::Kind;
use super::error::OpenError;
use super::files::{FileLayer, LogFile, read_exact, read_full, write_all};
use super::format::{ENTRY_MAGIC, Entry, HeaderFault, Kept, Place, SEGMENT_HEADER, SegmentHeader, VERSION};
use super::segment::{Mark, Segment, number_of, segment_path};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// The end of a file that was being written when the process or the power went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The file.
    pub path: PathBuf,
    /// Where it was cut: bytes that remain.
    pub position: u64,
    /// Bytes that were cut off. None of them was acknowledged as durable.
    pub bytes: u64,
}

/// A journal as its files say.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) folder: u64,
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) ends: Vec<i64>,
    pub(crate) positions: Vec<Kept>,
    pub(crate) torn: Vec<TornTail>,
    /// Segments without a usable index, that were read instead.
    pub(crate) indexed_anew: usize,
}

struct Scanned {
    length: u64,
    last_ms: i64,
    marks: Vec<Mark>,
    ends: Vec<i64>,
    positions: Vec<Kept>,
    /// What some entry says was durable when it was written.
    vouched: u64,
    /// Why it ended before the file did.
    fault: Option<String>,
}

/// Reads all headers, the last segment, and others that have no index. None: there is no segment.
pub(crate) fn recover<F: FileLayer>(
    files: &F,
    dir: &Path,
    kind: Kind,
    partitions: u32,
) -> Result<Option<Recovered>, OpenError> {
    let names = files.list(dir).map_err(OpenError::io(dir))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name)).collect();
    numbers.sort_unstable();
    let mut headers: Vec<(PathBuf, SegmentHeader, u64)> = Vec::new();
    let mut torn = Vec::new();
    for (index, number) in numbers.iter().enumerate() {
        let path = segment_path(dir, *number);
        if index > 0 && numbers[index - 1] + 1 != *number {
            return Err(OpenError::damaged(&segment_path(dir, number - 1), 0, "the file is missing"));
        }
        match read_header(files, &path, kind, partitions, *number)? {
            Some((header, length)) => {
                let folder = headers.first().map_or(header.folder, |(_, first, _)| first.folder);
                if header.folder != folder {
                    return Err(OpenError::damaged(&path, 0, "the file belongs to another folder"));
                }
                headers.push((path, header, length));
            }
            // The process or the power went while it was made, so that nothing was written to it yet.
            None if index + 1 == numbers.len() => {
                let file = files.open(&path, false).map_err(OpenError::io(&path))?;
                let bytes = file.length().map_err(OpenError::io(&path))?;
                drop(file);
                files.remove(&path).map_err(OpenError::io(&path))?;
                files.sync_dir(dir).map_err(OpenError::io(dir))?;
                torn.push(TornTail { path, position: 0, bytes });
            }
            None => return Err(OpenError::damaged(&path, 0, "the file's header is not what was written")),
        }
    }
    let Some((_, last, _)) = headers.last() else { return Ok(None) };
    let (folder, mut positions) = (last.folder, last.positions.clone());
    let mut segments = VecDeque::new();
    let mut ends = Vec::new();
    let mut indexed_anew = 0;
    for (index, (path, header, header_length)) in headers.iter().enumerate() {
        let first =
            Mark { position: *header_length, before_ms: header.last_ms, ends: header.ends.as_slice().into() };
        let next = headers.get(index + 1).map(|(_, next, _)| next);
        let mut segment = Segment {
            version: header.version,
            number: header.number,
            path: path.clone(),
            made_ms: header.made_ms,
            length: next.map_or(0, |next| next.previous_length),
            last_ms: header.last_ms,
            marks: vec![first],
        };
        let file = files.open(path, false).map_err(OpenError::io(path))?;
        let length = file.length().map_err(OpenError::io(path))?;
        if let Some(next) = next {
            if length < segment.length {
                let detail = format!("the file ends here, and ended at {}", segment.length);
                return Err(OpenError::damaged(path, length, detail));
            }
            if !segment.read_index(files) {
                let scanned = scan(&file, &segment, folder, segment.length)?;
                if let Some(fault) = scanned.fault {
                    return Err(OpenError::damaged(path, scanned.length, fault));
                }
                // It may leave offsets out, and never gives one again.
                if scanned.ends.iter().zip(&next.ends).any(|(end, start)| end > start) {
                    let detail = "the next file does not go on where this one ends";
                    return Err(OpenError::damaged(path, scanned.length, detail));
                }
                (segment.last_ms, segment.marks) = (scanned.last_ms, scanned.marks);
                indexed_anew += 1;
                if let Err(error) = segment.write_index(files) {
                    tracing::warn!(file = %path.display(), %error, "index was not written");
                }
            }
        } else {
            let scanned = scan(&file, &segment, folder, length)?;
            if scanned.length < length {
                let fault = scanned.fault.unwrap_or_default();
                let bytes = check_torn(&file, &segment, folder, scanned.length, length, &fault)?;
                file.set_len(scanned.length).map_err(OpenError::io(path))?;
                if bytes > 0 {
                    torn.push(TornTail { path: path.clone(), position: scanned.length, bytes });
                }
            }
            make_durable(&file, scanned.vouched, scanned.length).map_err(OpenError::io(path))?;
            (segment.length, segment.last_ms, segment.marks) =
                (scanned.length, scanned.last_ms, scanned.marks);
            ends = scanned.ends;
            positions.extend(scanned.positions);
        }
        segments.push_back(segment);
    }
    files.sync_dir(dir).map_err(OpenError::io(dir))?;
    Ok(Some(Recovered { folder, segments, ends, positions, torn, indexed_anew }))
}

/// The header and its length; none if it is not whole although the file says nothing beyond it.
fn read_header<F: FileLayer>(
    files: &F,
    path: &Path,
    kind: Kind,
    partitions: u32,
    number: u64,
) -> Result<Option<(SegmentHeader, u64)>, OpenError> {
    let file = files.open(path, false).map_err(OpenError::io(path))?;
    let length = file.length().map_err(OpenError::io(path))?;
    let mut fixed = [0; SEGMENT_HEADER];
    let read = read_full(&file, &mut fixed, 0).map_err(OpenError::io(path))?;
    let newer = |found| OpenError::Newer { path: path.to_owned(), found, known: VERSION };
    let whole = match SegmentHeader::length(&fixed[..read]) {
        Err(HeaderFault::Newer(found)) => return Err(newer(found)),
        Err(HeaderFault::Broken) => None,
        Ok(wanted) if (wanted as u64) > length => None,
        Ok(wanted) => Some(read_exact(&file, wanted, 0).map_err(OpenError::io(path))?),
    };
    let decoded = whole.as_deref().map(SegmentHeader::decode);
    let header = match decoded {
        Some(Ok(header)) => header,
        Some(Err(HeaderFault::Newer(found))) => return Err(newer(found)),
        _ => {
            // The header is durable before the first entry is written.
            let rest = usize::try_from(length).unwrap_or(usize::MAX);
            let bytes = read_exact(&file, rest, 0).map_err(OpenError::io(path))?;
            if bytes.chunks_exact(8).any(|eight| &eight[..4] == ENTRY_MAGIC) {
                return Err(OpenError::damaged(path, 0, "the file's header is not what was written"));
            }
            return Ok(None);
        }
    };
    if header.kind != kind || header.number != number {
        return Err(OpenError::damaged(path, 0, "the file belongs elsewhere"));
    }
    if header.partitions != partitions {
        let (path, found) = (path.to_owned(), header.partitions);
        return Err(OpenError::Partitions { path, found, wanted: partitions });
    }
    let header_length = whole.map_or(0, |whole| whole.len() as u64);
    Ok(Some((header, header_length)))
}

/// Reads entries from the first mark on, up to `length` or to what is no entry.
fn scan(file: &impl LogFile, segment: &Segment, folder: u64, length: u64) -> Result<Scanned, OpenError> {
    let path = &segment.path;
    let mut so_far = segment.clone();
    so_far.length = segment.header_length();
    let mut ends = segment.marks[0].ends.to_vec();
    let mut positions = Vec::new();
    let mut vouched = so_far.length;
    let mut fault = None;
    let mut buffer: Vec<u8> = Vec::new();
    let mut at = 0;
    while so_far.length < length {
        let place = Place { folder, segment: segment.number, position: so_far.length };
        let left = usize::try_from(length - so_far.length).unwrap_or(usize::MAX);
        // The entry's head, once it is read, says how much more it takes.
        loop {
            let claimed = Entry::length(&buffer[at..]).unwrap_or(0);
            let (here, wanted) = (buffer.len() - at, claimed.max(2 * CHUNK).min(left));
            if here >= wanted || claimed > 0 && here >= claimed {
                break;
            }
            buffer = read_exact(file, wanted, so_far.length).map_err(OpenError::io(path))?;
            at = 0;
        }
        let Some(entry) = Entry::parse(&buffer[at..], place) else {
            fault = Some(format!("no whole entry; the offsets from here on are {ends:?}"));
            break;
        };
        so_far.mark(&ends);
        for section in entry.sections() {
            let slot = segment_slot(section.topic, section.partition, ends.len(), segment)?;
            if section.base != ends[slot] {
                let detail = format!("offset {} where {} was to follow", section.base, ends[slot]);
                return Err(OpenError::damaged(path, so_far.length, detail));
            }
            ends[slot] += i64::from(section.count);
        }
        let Some(kept) = entry.positions() else {
            return Err(OpenError::damaged(path, so_far.length, "positions that cannot be read"));
        };
        positions.extend(kept);
        vouched = vouched.max(entry.header.synced);
        so_far.length += entry.header.length as u64;
        so_far.last_ms = entry.header.append_ms;
        at += entry.header.length;
    }
    let Segment { length, last_ms, marks, .. } = so_far;
    Ok(Scanned { length, last_ms, marks, ends, positions, vouched, fault })
}

/// What a killed process wrote may be in the system's memory alone, and is shown to readers from now on. If a sync of
/// it had failed, another one would do nothing: it is written again.
fn make_durable(file: &impl LogFile, from: u64, to: u64) -> std::io::Result<()> {
    let mut at = from;
    while at < to {
        let bytes = read_exact(file, CHUNK.min(usize::try_from(to - at).unwrap_or(CHUNK)), at)?;
        write_all(file, &bytes, at)?;
        at += bytes.len() as u64;
    }
    file.sync_data()
}

const CHUNK: usize = super::segment::CHUNK_BYTES as usize;

fn segment_slot(
    topic: onlooker_ports::Topic,
    partition: u32,
    slots: usize,
    segment: &Segment,
) -> Result<usize, OpenError> {
    let kind = Kind::of(topic);
    let partitions = (slots / kind.topics().len()) as u32;
    let slot = kind.slot(topic, partition, partitions);
    if partition >= partitions || slot >= slots {
        let detail = format!("records of partition {partition}");
        return Err(OpenError::damaged(&segment.path, segment.length, detail));
    }
    Ok(slot)
}

/// Whether what is wrong at `position` can be what a crash left: no whole entry behind it says that it was durable. Gives
/// the bytes of it that were written: zeros at the end are room that was made ahead.
fn check_torn(
    file: &impl LogFile,
    segment: &Segment,
    folder: u64,
    position: u64,
    length: u64,
    fault: &str,
) -> Result<u64, OpenError> {
    let rest = usize::try_from(length - position).unwrap_or(usize::MAX);
    let bytes = read_exact(file, rest, position).map_err(OpenError::io(&segment.path))?;
    for at in (0..bytes.len()).step_by(8) {
        if !bytes[at..].starts_with(ENTRY_MAGIC) {
            continue;
        }
        let place = Place { folder, segment: segment.number, position: position + at as u64 };
        if let Some(entry) = Entry::parse(&bytes[at..], place)
            && entry.header.synced > position
        {
            let detail = format!("{fault}; what follows at {} was written after it", place.position);
            return Err(OpenError::damaged(&segment.path, position, detail));
        }
    }
    Ok(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1))
}
