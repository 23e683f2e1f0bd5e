//! The portable file, byte for byte; see docs/export-format.md, which says the same for other programs.
//!
//! ```text
//! file      magic, version u32, then frames, the last of which is the end; nothing behind it
//! frame     kind u8, codec u8, 0 u16, number u32, length u32, stored u32, crc u32, then `stored` bytes
//! ```
//! Numbers are little-endian. Frames are numbered from 0. `length` is that of the content, `stored` that of its packed
//! form. The CRC-32 is of the 16 bytes before it and of the stored bytes.

use onlooker_event::CountKey;
use serde::{Deserialize, Serialize};

/// Like PNG's: a transfer as text, or one that cuts the eighth bit, breaks it.
pub(super) const MAGIC: [u8; 8] = *b"\x89OLX\r\n\x1a\n";
/// The version that this program writes, and the newest that it reads.
pub(super) const VERSION: u32 = 1;
pub(super) const FRAME_HEAD: usize = 20;
/// A longer frame is damage: a reader never takes more memory than that for one.
pub(super) const MAX_FRAME: u32 = 16 << 20;
/// Content of one frame, about.
pub(super) const FRAME_BYTES: usize = 1 << 20;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// JSON; the first frame and no other.
    About = 1,
    /// Rows.
    Rows = 2,
    /// Verdicts.
    Verdicts = 3,
    /// How many rows and verdicts there were; the last frame.
    End = 4,
}

impl Kind {
    pub(super) fn of(byte: u8) -> Option<Self> {
        [Self::About, Self::Rows, Self::Verdicts, Self::End].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// How a frame's content is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Codec {
    /// As it is.
    Plain = 0,
    /// Deflate (RFC 1951), without a header of its own.
    Deflate = 1,
}

/// Whence and from when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    /// When the export was made. Milliseconds since 1970 (UTC).
    pub(super) made_ms: i64,
    /// Of the program that made it.
    pub(super) program: String,
    /// `embedded` or `cluster`.
    pub(super) from: String,
    /// The log's generation there.
    pub(super) generation: String,
    /// Per partition of `views.counted`: every record below this offset is in, and no other.
    pub(super) up_to: Vec<i64>,
    /// When the log took the newest of these records. Milliseconds since 1970 (UTC); 0: there was none.
    pub(super) newest_ms: i64,
    /// The newest append-time slice of the filter; 0: there was none.
    pub(super) slice: i64,
    /// The length of a slice, in seconds.
    pub(super) slice_s: u32,
    /// Tells whether viewers are hashed with the same key; none: whoever exported did not know it.
    pub(super) identity: Option<String>,
}

/// One row: what the archive has for one item and scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Scope and item.
    pub(crate) key: CountKey,
    /// Views.
    pub(crate) views: Option<u64>,
    /// Redis's format, as archived.
    pub(crate) sketch: Option<bytes::Bytes>,
}

const HAS_VIEWS: u8 = 1;
const HAS_SKETCH: u8 = 2;

impl Row {
    /// key length u16, key, what there is u8 (1: views, 2: a sketch), views u64, sketch length u32, sketch
    pub(super) fn put(&self, out: &mut Vec<u8>) -> Option<()> {
        let key = self.key.as_bytes();
        out.extend_from_slice(&u16::try_from(key.len()).ok()?.to_le_bytes());
        out.extend_from_slice(key);
        let views = if self.views.is_some() { HAS_VIEWS } else { 0 };
        out.push(views | if self.sketch.is_some() { HAS_SKETCH } else { 0 });
        if let Some(views) = self.views {
            out.extend_from_slice(&views.to_le_bytes());
        }
        if let Some(sketch) = &self.sketch {
            out.extend_from_slice(&u32::try_from(sketch.len()).ok()?.to_le_bytes());
            out.extend_from_slice(sketch);
        }
        Some(())
    }

    /// Takes the next row off the front.
    pub(super) fn take(from: &mut bytes::Bytes) -> Option<Self> {
        let length = u16::from_le_bytes(array(from)?);
        let key = CountKey::parse(part(from, length.into())?).ok()?;
        let [there] = array(from)?;
        if there & !(HAS_VIEWS | HAS_SKETCH) != 0 {
            return None;
        }
        let views = if there & HAS_VIEWS != 0 { Some(u64::from_le_bytes(array(from)?)) } else { None };
        let sketch = if there & HAS_SKETCH != 0 {
            let length = u32::from_le_bytes(array(from)?);
            Some(part(from, length as usize)?)
        } else {
            None
        };
        Some(Self { key, views, sketch })
    }
}

pub(super) fn array<const N: usize>(from: &mut bytes::Bytes) -> Option<[u8; N]> {
    part(from, N)?.as_ref().try_into().ok()
}

pub(super) fn part(from: &mut bytes::Bytes, length: usize) -> Option<bytes::Bytes> {
    (from.len() >= length).then(|| from.split_to(length))
}
