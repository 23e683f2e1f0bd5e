//! What became of a letter in `views.dead`.

use crate::{Dead, DecodeError, VERSION, decode, decode_dead, sixteen, wire};
use prost::Message;

/// What was done with a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MarkStep {
    /// Somebody is about to append its record to `views` again.
    Begun,
    /// The record is in `views` again, and is judged as a new one.
    Retried,
    /// It is to be left as it is.
    Discarded,
}

impl MarkStep {
    /// The number on the wire. Numbers are never reused.
    fn code(self) -> u32 {
        match self {
            MarkStep::Begun => 1,
            MarkStep::Retried => 2,
            MarkStep::Discarded => 3,
        }
    }

    fn from_code(code: u32) -> Option<Self> {
        [MarkStep::Begun, MarkStep::Retried, MarkStep::Discarded].into_iter().find(|step| step.code() == code)
    }

    /// As a word.
    pub fn as_str(self) -> &'static str {
        match self {
            MarkStep::Begun => "begun",
            MarkStep::Retried => "retried",
            MarkStep::Discarded => "discarded",
        }
    }
}

/// A mark behind a letter, in the letter's partition of `views.dead`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadMark {
    /// What was done.
    pub step: MarkStep,
    /// Where the letter stands in `views.dead`.
    pub letter_partition: i32,
    /// Its offset there.
    pub letter_offset: i64,
    /// Names the attempt: what was begun and what is done are of the same one.
    pub attempt: [u8; 16],
    /// The attempt whose outcome was unknown and which this one takes over.
    pub replaces: Option<[u8; 16]>,
}

/// A record of `views.dead`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadEntry {
    /// A record that could not be judged.
    Letter(Dead),
    /// What became of one.
    Mark(DeadMark),
}

/// Appends the wire form of a mark (topic `views.dead`) to `out`.
pub fn encode_dead_mark(mark: &DeadMark, out: &mut Vec<u8>) {
    let message = wire::DeadMark {
        version: VERSION,
        step: mark.step.code(),
        letter_partition: mark.letter_partition,
        letter_offset: mark.letter_offset,
        attempt: mark.attempt.to_vec(),
        replaces: mark.replaces.map(Vec::from).unwrap_or_default(),
    };
    message.encode_raw(out);
}

/// Reads a record of `views.dead`, letter or mark.
pub fn decode_dead_entry(payload: Option<&[u8]>) -> Result<DeadEntry, DecodeError> {
    // A letter has no such field, and a mark always has.
    let step = payload.and_then(|payload| wire::DeadMark::decode(payload).ok()).map_or(0, |mark| mark.step);
    if step == 0 {
        return decode_dead(payload).map(DeadEntry::Letter);
    }
    let mark = decode(payload, |mark: &wire::DeadMark| mark.version)?;
    Ok(DeadEntry::Mark(DeadMark {
        step: MarkStep::from_code(mark.step).ok_or_else(|| DecodeError::InvalidField {
            field: "step",
            problem: format!("has the unknown number {}", mark.step),
        })?,
        letter_partition: mark.letter_partition,
        letter_offset: mark.letter_offset,
        attempt: sixteen("attempt", &mark.attempt)?,
        replaces: match mark.replaces.is_empty() {
            true => None,
            false => Some(sixteen("replaces", &mark.replaces)?),
        },
    }))
}
