//! What has to be true of the outputs.

use super::Violation;
use super::reference::Memory;
use super::world::World;
use onlooker_event::Verdict;
use onlooker_ports::{Applied, Topic};
use onlooker_proto::{CARRIED_OVER, decode_counted, decode_dead, decode_ignored};

impl World<'_> {
    /// Every verdict that was committed since the last look is the reference's, and the only one of its record.
    pub(super) fn check(&mut self) -> Result<(), Violation> {
        for txn in self.log.take_committed() {
            for (topic, key, payload) in self.log.written_by(txn) {
                let (place, verdict, slice) = parse(topic, key, payload)?;
                let (partition, offset) =
                    (usize::try_from(place.0).unwrap(), usize::try_from(place.1).unwrap());
                let right = &mut self.right[partition][offset];
                if std::mem::replace(&mut right.written, true) {
                    return Err(format!("twice: {place:?}"));
                }
                let (expected, expected_slice) = right.verdict;
                if verdict != expected {
                    return Err(format!("{place:?} is {verdict:?}, not {expected:?}"));
                }
                if slice.is_some_and(|slice| slice != expected_slice) {
                    return Err(format!("{place:?} lies in slice {slice:?}, not {expected_slice}"));
                }
            }
        }
        Ok(())
    }

    /// What the store holds at an offset is what the log below it says, and nothing else.
    pub(super) fn check_memory(&self, copy: usize, partition: i32) -> Result<(), Violation> {
        let place = usize::try_from(partition).unwrap();
        let store = &self.stores[copy][place];
        let Some(at) = store.applied else { return Ok(()) };
        let right = self.references[place].memory(at.offset, at.slice);
        let mut held = Memory::new();
        for (slice, fields) in &store.slices {
            let sorted = fields.iter().map(|(key, values)| {
                let mut values = values.clone();
                values.sort_unstable();
                ((*slice, *key), values)
            });
            held.extend(sorted);
        }
        if held != right {
            let (held, right) = (held.len(), right.len());
            let Applied { offset, slice } = at;
            return Err(format!(
                "the store is not the log below {offset} in slice {slice} ({partition}): {held} keys, not {right}"
            ));
        }
        Ok(())
    }

    /// At the end every record has a verdict.
    pub(super) fn check_all(&self) -> Result<(), Violation> {
        let all = self.right.iter().flatten();
        let (records, written) = (all.clone().count(), all.filter(|right| right.written).count());
        if written != records {
            return Err(format!("{written} of {records} records have a verdict"));
        }
        Ok(())
    }
}

/// What a record's verdict has to be, and whether it is written.
#[derive(Debug)]
pub(super) struct Right {
    pub(super) verdict: (Verdict, i64),
    pub(super) written: bool,
}

type Place = (i32, i64);

/// Where a written record comes from, what it says, and its slice.
fn parse(topic: Topic, key: &[u8], payload: &[u8]) -> Result<(Place, Verdict, Option<i64>), Violation> {
    let text = |error: onlooker_proto::DecodeError| error.to_string();
    match topic {
        Topic::Counted => {
            let c = decode_counted(Some(payload)).map_err(text)?;
            let expected = format!("{}:{}", c.site, c.item);
            if key != expected.as_bytes() || c.source_offset == CARRIED_OVER {
                return Err(format!("the key of {expected} is {key:?}"));
            }
            Ok(((c.source_partition, c.source_offset), Verdict::Counted, Some(c.slice)))
        }
        Topic::Ignored => {
            let i = decode_ignored(Some(payload)).map_err(text)?;
            Ok(((i.source_partition, i.source_offset), Verdict::Ignored(i.reason), Some(i.slice)))
        }
        _ => {
            let d = decode_dead(Some(payload)).map_err(text)?;
            Ok(((d.source_partition, d.source_offset), Verdict::Dead(d.reason), None))
        }
    }
}
