//! Questions to the system whose counts are replaced, and its answers.

use super::count::Count;
use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use onlooker_event::CountKey;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "swap", rename_all = "snake_case")]
pub(crate) enum Ask {
    /// What is stored of these keys; answered by a `Found`.
    Look { partition: i32, keys: Vec<Key> },
    /// Puts these counts, which hold the log's records below `at`, with what the log has behind that; answered by a
    /// `Placed`.
    Put { partition: i32, at: i64, counts: Vec<Built> },
}

/// A key on the wire.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Key(pub(super) CountKey);

impl TryFrom<String> for Key {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        CountKey::parse(Bytes::from(text)).map(Self).map_err(|error| error.to_string())
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        String::from_utf8_lossy(key.0.as_bytes()).into_owned()
    }
}

/// A sketch's bytes on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Blob(pub(super) Bytes);

impl TryFrom<String> for Blob {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        BASE64.decode(text).map(|bytes| Self(bytes.into()))
    }
}

impl From<Blob> for String {
    fn from(blob: Blob) -> Self {
        BASE64.encode(blob.0)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Built {
    pub(super) key: Key,
    pub(super) views: u64,
    pub(super) sketch: Blob,
}

/// Counts are in place.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Placed {
    /// They are of the records below this offset, where the counters stood then.
    pub(super) at: i64,
    /// For so long nothing of the partition was counted.
    pub(super) held_ms: u64,
}

/// What is stored of some keys.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Found {
    /// Everything below it was in the archive before that was read.
    pub(super) durable: i64,
    /// Where the counters stand; none: nowhere.
    pub(super) applied: Option<i64>,
    /// In the order of the keys.
    pub(super) counts: Vec<Stored>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) archive: Held,
    /// None if they stand nowhere.
    pub(super) counters: Option<Held>,
    /// The counters' sketch is marked as changed and is not there: nothing of the partition becomes durable.
    pub(super) stuck: bool,
    pub(super) number: Written,
    pub(super) members: Written,
}

/// How far the archive is with what changed.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Written {
    /// The cell holds the records below this offset.
    pub(super) below: i64,
    /// The counters have another one for it.
    pub(super) waits: bool,
}

impl Written {
    /// Whether what was put at an offset has been archived.
    fn has(self, at: i64) -> bool {
        !self.waits || self.below > at
    }
}

impl Stored {
    /// Whether what was put at an offset has been archived. An older cell may be of the same offset: so what still waits is
    /// what tells.
    pub(super) fn has(&self, at: i64) -> bool {
        self.number.has(at) && self.members.has(at)
    }
}

/// What one place has of a count.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) views: Option<u64>,
    /// They are of the records below this offset.
    pub(super) views_below: i64,
    /// Whatever stands in the sketch's place.
    pub(super) sketch: Option<Blob>,
    pub(super) sketch_below: i64,
}

impl Held {
    pub(super) fn count(&self) -> Result<Count> {
        Count::of(self.views, self.sketch.as_ref().map(|blob| &blob.0))
    }
}
