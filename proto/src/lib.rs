#![doc = include_str!("../README.md")]

use bytes::Bytes;
use onlooker_event::{
    ClientId, DeadReason, Digest128, Facts, IdError, ItemId, Reason, SiteId, View, ViewId, ViewerHash,
};
use prost::Message;

mod mark;
mod slim;
mod verdict;
mod view;

pub use mark::{DeadEntry, DeadMark, MarkStep, decode_dead_entry, encode_dead_mark};
pub use slim::{ClaimRef, CountedRef, ViewRef};
pub use verdict::{put_counted_tail, put_ignored_tail, put_verdict_head};
pub use view::NewView;

mod wire {
    #![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
    include!("generated.rs");
}

/// The version that this program writes, and the newest that it reads.
pub const VERSION: u32 = 1;

/// The `source_offset` of a verdict that was carried over from another log: its view was counted there, and is in the
/// history that came with it. It claims, so that its viewer is known, and is never counted again.
pub const CARRIED_OVER: i64 = -1;

/// Why a record's value could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// No value, or an empty one.
    #[error("the record has no value")]
    Empty,
    /// No message of ours, or one without a version.
    #[error("not a readable message: {0}")]
    Malformed(String),
    /// Written by a newer program.
    #[error("version {0} is newer than {VERSION}, the newest that this program reads")]
    NewerVersion(u32),
    /// A field breaks its limit.
    #[error("field {field} {problem}")]
    InvalidField {
        /// The field's name on the wire.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

impl DecodeError {
    /// The reason under which the record goes to `views.dead`.
    pub fn reason(&self) -> DeadReason {
        match self {
            DecodeError::Empty => DeadReason::Empty,
            DecodeError::Malformed(_) => DeadReason::Malformed,
            DecodeError::NewerVersion(_) => DeadReason::NewerVersion,
            DecodeError::InvalidField { .. } => DeadReason::InvalidField,
        }
    }
}

fn malformed(error: prost::DecodeError) -> DecodeError {
    DecodeError::Malformed(error.to_string())
}

/// Only the version, so that a newer message whose fields we cannot read is still told from garbage.
#[derive(Clone, PartialEq, Message)]
struct VersionOnly {
    #[prost(uint32, tag = "1")]
    version: u32,
}

fn decode<M: Message + Default>(payload: Option<&[u8]>, version: fn(&M) -> u32) -> Result<M, DecodeError> {
    let payload = payload.filter(|p| !p.is_empty()).ok_or(DecodeError::Empty)?;
    match M::decode(payload) {
        Ok(message) => match version(&message) {
            0 => Err(DecodeError::Malformed("no version".into())),
            v if v > VERSION => Err(DecodeError::NewerVersion(v)),
            _ => Ok(message),
        },
        Err(error) => match VersionOnly::decode(payload) {
            Ok(v) if v.version > VERSION => Err(DecodeError::NewerVersion(v.version)),
            _ => Err(malformed(error)),
        },
    }
}

fn sixteen(field: &'static str, bytes: &[u8]) -> Result<[u8; 16], DecodeError> {
    bytes.try_into().map_err(|_| DecodeError::InvalidField {
        field,
        problem: format!("is {} bytes long, not 16", bytes.len()),
    })
}

fn id<T>(field: &'static str, result: Result<T, IdError>) -> Result<T, DecodeError> {
    result.map_err(|e| DecodeError::InvalidField { field, problem: e.to_string() })
}

fn some(text: String) -> Option<Box<str>> {
    (!text.is_empty()).then(|| text.into_boxed_str())
}

/// Appends the wire form of a view (topic `views`) to `out`.
pub fn encode_view(view: &View, out: &mut Vec<u8>) {
    let view = NewView {
        view_id: view.view_id,
        site: view.site.as_str(),
        item: view.item.as_str(),
        viewer: view.viewer,
        key_version: view.key_version,
        event_ms: view.event_ms,
        received_ms: view.received_ms,
        client_id: view.client_id.as_ref().map(ClientId::as_str),
        user_agent: view.user_agent.as_deref(),
        referrer: view.referrer.as_deref(),
        facts: view.facts,
    };
    view.put(out);
}

/// Reads a record of `views`.
pub fn decode_view(payload: Option<&[u8]>) -> Result<View, DecodeError> {
    let m = decode(payload, |m: &wire::View| m.version)?;
    Ok(View {
        view_id: ViewId(sixteen("view_id", &m.view_id)?),
        site: id("site", SiteId::new(&m.site))?,
        item: id("item", ItemId::new(&m.item))?,
        viewer: ViewerHash(sixteen("viewer", &m.viewer)?),
        key_version: m.key_version,
        event_ms: m.event_ms,
        received_ms: m.received_ms,
        client_id: if m.client_id.is_empty() {
            None
        } else {
            Some(id("client_id", ClientId::new(&m.client_id))?)
        },
        user_agent: some(m.user_agent),
        referrer: some(m.referrer),
        facts: Facts(m.facts),
    })
}

/// A counted view with what a rebuild of the dedup state needs (topic `views.counted`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The view's id.
    pub view_id: ViewId,
    /// The view's site.
    pub site: SiteId,
    /// The view's item.
    pub item: ItemId,
    /// Who looked.
    pub viewer: ViewerHash,
    /// Milliseconds since 1970 (UTC).
    pub event_ms: i64,
    /// The partition of `views` that the view stands in.
    pub source_partition: i32,
    /// The view's offset there, or [`CARRIED_OVER`].
    pub source_offset: i64,
    /// The append-time slice in which it was counted.
    pub slice: i64,
    /// The length of a slice then, in seconds.
    pub slice_s: u32,
    /// The claim: hash of (viewer, item).
    pub claim: Digest128,
    /// The claim of the client's id, with the item's fingerprint.
    pub id_claim: Option<(Digest128, u32)>,
    /// The rule set that judged it.
    pub rule_version: u32,
}

/// Appends the wire form of a counted view to `out`.
pub fn encode_counted(c: &Counted, out: &mut Vec<u8>) {
    let message = wire::Counted {
        version: VERSION,
        view_id: c.view_id.0.to_vec(),
        site: c.site.as_str().into(),
        item: c.item.as_str().into(),
        viewer: c.viewer.0.to_vec(),
        event_ms: c.event_ms,
        source_partition: c.source_partition,
        source_offset: c.source_offset,
        slice: c.slice,
        claim: c.claim.0.to_vec(),
        id_claim: c.id_claim.map(|(d, _)| d.0.to_vec()).unwrap_or_default(),
        id_fingerprint: c.id_claim.map_or(0, |(_, f)| f),
        rule_version: c.rule_version,
        slice_s: c.slice_s,
    };
    message.encode_raw(out);
}

/// Reads a record of `views.counted`.
pub fn decode_counted(payload: Option<&[u8]>) -> Result<Counted, DecodeError> {
    let m = decode(payload, |m: &wire::Counted| m.version)?;
    let id_claim = if m.id_claim.is_empty() {
        None
    } else {
        Some((Digest128(sixteen("id_claim", &m.id_claim)?), m.id_fingerprint))
    };
    Ok(Counted {
        view_id: ViewId(sixteen("view_id", &m.view_id)?),
        site: id("site", SiteId::new(&m.site))?,
        item: id("item", ItemId::new(&m.item))?,
        viewer: ViewerHash(sixteen("viewer", &m.viewer)?),
        event_ms: m.event_ms,
        source_partition: m.source_partition,
        source_offset: m.source_offset,
        slice: m.slice,
        claim: Digest128(sixteen("claim", &m.claim)?),
        id_claim,
        rule_version: m.rule_version,
        slice_s: m.slice_s,
    })
}

/// An ignored view (topic `views.ignored`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    /// The view's id.
    pub view_id: ViewId,
    /// The view's site.
    pub site: SiteId,
    /// The view's item.
    pub item: ItemId,
    /// Who looked.
    pub viewer: ViewerHash,
    /// Milliseconds since 1970 (UTC).
    pub event_ms: i64,
    /// The partition of `views` that the view stands in.
    pub source_partition: i32,
    /// The view's offset there.
    pub source_offset: i64,
    /// Why it does not count.
    pub reason: Reason,
    /// The rule set that judged it.
    pub rule_version: u32,
    /// The append-time slice in which it was judged.
    pub slice: i64,
}

/// Appends the wire form of an ignored view to `out`.
pub fn encode_ignored(i: &Ignored, out: &mut Vec<u8>) {
    let message = wire::Ignored {
        version: VERSION,
        view_id: i.view_id.0.to_vec(),
        site: i.site.as_str().into(),
        item: i.item.as_str().into(),
        viewer: i.viewer.0.to_vec(),
        event_ms: i.event_ms,
        source_partition: i.source_partition,
        source_offset: i.source_offset,
        reason: i.reason.code(),
        rule_version: i.rule_version,
        slice: i.slice,
    };
    message.encode_raw(out);
}

/// Reads a record of `views.ignored`.
pub fn decode_ignored(payload: Option<&[u8]>) -> Result<Ignored, DecodeError> {
    let m = decode(payload, |m: &wire::Ignored| m.version)?;
    Ok(Ignored {
        view_id: ViewId(sixteen("view_id", &m.view_id)?),
        site: id("site", SiteId::new(&m.site))?,
        item: id("item", ItemId::new(&m.item))?,
        viewer: ViewerHash(sixteen("viewer", &m.viewer)?),
        event_ms: m.event_ms,
        source_partition: m.source_partition,
        source_offset: m.source_offset,
        reason: Reason::from_code(m.reason).ok_or_else(|| DecodeError::InvalidField {
            field: "reason",
            problem: format!("has the unknown number {}", m.reason),
        })?,
        rule_version: m.rule_version,
        slice: m.slice,
    })
}

/// A record that could not be judged, with its original coordinates and bytes (topic `views.dead`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    /// Why.
    pub reason: DeadReason,
    /// The same for people.
    pub detail: String,
    /// The topic that it was read from.
    pub source_topic: String,
    /// The partition there.
    pub source_partition: i32,
    /// The offset there.
    pub source_offset: i64,
    /// Its append time, milliseconds since 1970 (UTC).
    pub source_append_ms: i64,
    /// The original key; none and empty are one.
    pub key: Bytes,
    /// The original value; none and empty are one.
    pub payload: Bytes,
}

/// Appends the wire form of a dead record to `out`.
pub fn encode_dead(d: &Dead, out: &mut Vec<u8>) {
    let message = wire::Dead {
        version: VERSION,
        reason: d.reason.code(),
        detail: d.detail.clone(),
        source_topic: d.source_topic.clone(),
        source_partition: d.source_partition,
        source_offset: d.source_offset,
        source_append_ms: d.source_append_ms,
        key: d.key.to_vec(),
        payload: d.payload.to_vec(),
    };
    message.encode_raw(out);
}

/// Reads a record of `views.dead`.
pub fn decode_dead(payload: Option<&[u8]>) -> Result<Dead, DecodeError> {
    let m = decode(payload, |m: &wire::Dead| m.version)?;
    Ok(Dead {
        reason: DeadReason::from_code(m.reason).ok_or_else(|| DecodeError::InvalidField {
            field: "reason",
            problem: format!("has the unknown number {}", m.reason),
        })?,
        detail: m.detail,
        source_topic: m.source_topic,
        source_partition: m.source_partition,
        source_offset: m.source_offset,
        source_append_ms: m.source_append_ms,
        key: m.key.into(),
        payload: m.payload.into(),
    })
}
