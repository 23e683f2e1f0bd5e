//! What has to be true of the outputs.

use super::reference;
use super::world::{Violation, World};
use super::{SLICE_S, WINDOW_S};
use onlooker_event::Verdict;
use onlooker_ports::Topic;
use onlooker_proto::{decode_counted, decode_dead, decode_ignored};
use std::collections::BTreeMap;

impl World {
    /// Every written verdict is the reference's, and the only one of its record; at the end every record has one.
    pub(super) fn check(&self, all: bool) -> Result<(), Violation> {
        let mut written: BTreeMap<(i32, i64), Verdict> = BTreeMap::new();
        let right: Vec<Vec<(Verdict, i64)>> = self
            .log
            .views
            .iter()
            .map(|log| reference::verdicts(log, WINDOW_S.into(), SLICE_S.into()))
            .collect();
        for (topic, key, payload) in self.log.written() {
            let (place, verdict, slice) = parse(topic, key, payload)?;
            if written.insert(place, verdict).is_some() {
                return Err(format!("twice: {place:?}"));
            }
            let (expected, expected_slice) =
                right[usize::try_from(place.0).unwrap()][usize::try_from(place.1).unwrap()];
            if verdict != expected {
                return Err(format!("{place:?} is {verdict:?}, not {expected:?}"));
            }
            if slice.is_some_and(|slice| slice != expected_slice) {
                return Err(format!("{place:?} lies in slice {slice:?}, not {expected_slice}"));
            }
        }
        let records: usize = right.iter().map(Vec::len).sum();
        if all && written.len() != records {
            return Err(format!("{} of {records} records have a verdict", written.len()));
        }
        Ok(())
    }
}

type Place = (i32, i64);

/// Where a written record comes from, what it says, and its slice.
fn parse(topic: Topic, key: &[u8], payload: &[u8]) -> Result<(Place, Verdict, Option<i64>), Violation> {
    let text = |error: onlooker_proto::DecodeError| error.to_string();
    match topic {
        Topic::Counted => {
            let c = decode_counted(Some(payload)).map_err(text)?;
            let expected = format!("{}:{}", c.site, c.item);
            if key != expected.as_bytes() {
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
