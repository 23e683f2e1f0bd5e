//! What a log's folder holds beside its segments, and what makes two journals one log.

use super::config::Kind;
use super::error::OpenError;
use super::files::{FileLayer, LogFile, read_exact, write_all};
use super::format::{LOG_START, SegmentHeader, VERSION};
use super::groups::Groups;
use super::journal::Journal;
use super::recover::Recovered;
use super::writer::{Writer, begin};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

/// Says that both journals have been made: one that is missing later was lost.
pub(super) const COMPLETE: &str = "complete";

/// A number that no other log has.
pub(crate) fn new_id<F: FileLayer>(files: &F) -> u64 {
    RandomState::new().hash_one((files.now_ms(), std::process::id()))
}

pub(crate) fn first_segment<F: FileLayer>(
    files: &F,
    dir: &Path,
    kind: Kind,
    partitions: u32,
    folder: u64,
) -> std::io::Result<Recovered> {
    let ends = vec![0; kind.topics().len() * partitions as usize];
    let header = SegmentHeader {
        version: VERSION,
        kind,
        partitions,
        folder,
        number: 0,
        made_ms: files.now_ms(),
        previous_length: 0,
        last_ms: 0,
        ends: ends.clone(),
        positions: Vec::new(),
    };
    let (_, segment) = begin(files, dir, &header)?;
    Ok(Recovered {
        folder,
        segments: VecDeque::from([segment]),
        ends,
        positions: Vec::new(),
        torn: Vec::new(),
        indexed_anew: 0,
    })
}

/// Leaves out the offsets that groups have read and the journal has not got any more.
pub(crate) fn leave_out<F: FileLayer>(writer: &mut Writer<F>) -> std::io::Result<bool> {
    let journal = Arc::clone(&writer.journal);
    let mut floors = Vec::new();
    for kept in journal.groups.snapshot() {
        if Kind::of(kept.topic) == journal.kind && kept.partition < journal.partitions {
            let slot = journal.kind.slot(kept.topic, kept.partition, journal.partitions);
            if kept.offset > journal.state().slots[slot].end {
                floors.push((slot, kept.offset));
            }
        }
    }
    writer.raise(&floors)?;
    Ok(!floors.is_empty())
}

pub(crate) fn is_complete<F: FileLayer>(files: &F, dir: &Path) -> Result<bool, OpenError> {
    let path = dir.join(COMPLETE);
    let content = files.open(&path, false).and_then(|file| {
        let length = file.length()?;
        read_exact(&file, usize::try_from(length).unwrap_or(0), 0)
    });
    match content {
        Ok(content) => Ok(content == COMPLETE.as_bytes()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(OpenError::Io { path, source }),
    }
}

pub(crate) fn make_complete<F: FileLayer>(files: &F, dir: &Path) -> std::io::Result<()> {
    let file = files.open(&dir.join(COMPLETE), true)?;
    write_all(&file, COMPLETE.as_bytes(), 0)?;
    file.sync_data()?;
    files.sync_dir(dir)
}

pub(crate) fn raise_starts<F>(journals: &[Arc<Journal<F>>; 2], groups: &Groups, partitions: u32) {
    for journal in journals {
        let mut state = journal.state();
        for topic in journal.kind.topics() {
            for partition in 0..partitions {
                if let Some(start) = groups.committed(*topic, LOG_START, partition) {
                    state.raise_start(journal.kind.slot(*topic, partition, partitions), start.offset);
                }
            }
        }
    }
}
