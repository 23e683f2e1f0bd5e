//! What a part of a file that cannot be read means, and what it held.

use super::chunk::{ChunkError, ChunkPlace};
use super::error::{failed, from_io};
use super::journal::Journal;
use onlooker_ports::PortError;

/// What a failed read means. `Ok` if retention removed the file meanwhile: whoever looks again is told.
pub(crate) fn chunk_failure<F>(
    journal: &Journal<F>,
    place: &ChunkPlace,
    error: ChunkError,
) -> Result<(), PortError> {
    let gone = matches!(&error, ChunkError::Io(error) if error.kind() == std::io::ErrorKind::NotFound);
    let kept = journal.state().segments.front().is_some_and(|first| first.number <= place.number);
    if gone && !kept {
        return Ok(());
    }
    let file = place.path.display();
    match error {
        ChunkError::Io(error) if gone => Err(from_io(&error, &format!("reading {file}"))),
        ChunkError::Io(error) => {
            tracing::error!(%file, position = place.from, %error, "log was not read");
            Err(from_io(&error, &format!("reading {file}")))
        }
        ChunkError::Damaged(position) => {
            let offsets = offsets_at(journal, place);
            tracing::error!(%file, position, ?offsets, "log is damaged: restore the file from a copy of the folder");
            Err(failed(format!(
                "{file} is damaged at byte {position}, in offsets {offsets:?}; restore it from a copy of the folder"
            )))
        }
    }
}

/// The offsets that a chunk begins with and ends before, of each slot that it holds.
fn offsets_at<F>(journal: &Journal<F>, place: &ChunkPlace) -> Vec<(&'static str, u32, i64, i64)> {
    let state = journal.state();
    let Some(at) = state.segments.iter().position(|segment| segment.number == place.number) else {
        return Vec::new();
    };
    let segment = &state.segments[at];
    let chunk = segment.marks.partition_point(|mark| mark.position <= place.from).saturating_sub(1);
    let range = |slot: usize| {
        let from = segment.marks.get(chunk).map_or(0, |mark| mark.ends[slot]);
        let next = segment.marks.get(chunk + 1).map(|mark| mark.ends[slot]);
        let next = next.or_else(|| state.segments.get(at + 1).map(|next| next.start(slot)));
        (from, next.unwrap_or(state.slots[slot].end))
    };
    let slots = 0..state.slots.len();
    slots
        .map(|slot| {
            let topic = journal.kind.topics()[slot / journal.partitions as usize];
            let (from, to) = range(slot);
            (super::config::topic_name(topic), slot as u32 % journal.partitions, from, to)
        })
        .filter(|(.., from, to)| from < to)
        .collect()
}
