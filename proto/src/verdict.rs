//! Writers that append straight to a buffer, for the filter's hot path. The bytes are those of `encode_counted` and
//! `encode_ignored`, whose first eight fields are the same.

use crate::{VERSION, ViewRef};
use onlooker_event::{Digest128, Reason};

/// Appends what a counted and an ignored view have in common.
pub fn put_verdict_head(out: &mut Vec<u8>, view: &ViewRef<'_>, source_partition: i32, source_offset: i64) {
    put_int(out, 1, VERSION.into());
    put_bytes(out, 2, &view.view_id.0);
    put_bytes(out, 3, view.site.as_bytes());
    put_bytes(out, 4, view.item.as_bytes());
    put_bytes(out, 5, &view.viewer.0);
    put_int(out, 6, view.event_ms);
    put_int(out, 7, source_partition.into());
    put_int(out, 8, source_offset);
}

/// Appends the rest of a counted view.
pub fn put_counted_tail(
    out: &mut Vec<u8>,
    (slice, slice_s): (i64, u32),
    claim: Digest128,
    id_claim: Option<(Digest128, u32)>,
    rule_version: u32,
) {
    put_int(out, 9, slice);
    put_bytes(out, 10, &claim.0);
    if let Some((id, fingerprint)) = id_claim {
        put_bytes(out, 11, &id.0);
        if fingerprint != 0 {
            out.push(12 << 3 | 5);
            out.extend_from_slice(&fingerprint.to_le_bytes());
        }
    }
    put_int(out, 13, rule_version.into());
    put_int(out, 14, slice_s.into());
}

/// Appends the rest of an ignored view.
pub fn put_ignored_tail(out: &mut Vec<u8>, reason: Reason, rule_version: u32, slice: i64) {
    put_int(out, 9, reason.code().into());
    put_int(out, 10, rule_version.into());
    put_int(out, 11, slice);
}

/// A field that is 0 is left out, as proto3 has it.
pub(crate) fn put_int(out: &mut Vec<u8>, field: u8, value: i64) {
    if value != 0 {
        out.push(field << 3);
        put_varint(out, value.cast_unsigned());
    }
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        out.push(field << 3 | 2);
        put_varint(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
