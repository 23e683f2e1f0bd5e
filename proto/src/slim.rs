//! Readers that borrow and allocate nothing, for the hot paths.
//!
//! They read what our own writers write, and say `None` about everything else: errors, but also valid encodings that
//! no writer of ours makes (groups, a field of another wire type). The caller then asks the full reader.

use crate::VERSION;
use onlooker_event::{ClientId, Digest128, Facts, ItemId, SiteId, ViewId, ViewerHash};

/// A record of `views`, checked as `decode_view` checks it. User agent and referrer are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewRef<'a> {
    /// Minted by the collector.
    pub view_id: ViewId,
    /// A valid site name.
    pub site: &'a str,
    /// A valid item id.
    pub item: &'a str,
    /// Who looked.
    pub viewer: ViewerHash,
    /// Milliseconds since 1970 (UTC).
    pub event_ms: i64,
    /// A valid client id.
    pub client_id: Option<&'a str>,
    /// What the collector saw.
    pub facts: Facts,
}

impl<'a> ViewRef<'a> {
    /// Reads a record's value. None: ask `decode_view`.
    pub fn read(payload: &'a [u8]) -> Option<Self> {
        let (mut version, mut event_ms, mut facts) = (0, 0, 0);
        let (mut view_id, mut viewer) = (&[][..], &[][..]);
        let (mut site, mut item, mut client_id) = ("", "", "");
        let mut fields = Fields(payload);
        while let Some(tag) = fields.tag()? {
            match tag {
                VARINT_1 => version = low32(fields.varint()?),
                BYTES_2 => view_id = fields.bytes()?,
                BYTES_3 => site = fields.text()?,
                BYTES_4 => item = fields.text()?,
                BYTES_5 => viewer = fields.bytes()?,
                VARINT_7 => event_ms = fields.varint()?.cast_signed(),
                BYTES_9 => client_id = fields.text()?,
                // Not needed, but text that is no UTF-8 makes a record malformed.
                BYTES_10 | BYTES_11 => _ = fields.text()?,
                VARINT_12 => facts = low32(fields.varint()?),
                // key_version, received_ms
                VARINT_6 | VARINT_8 => _ = fields.varint()?,
                other => fields.skip_unknown(other, 12)?,
            }
        }
        if version == 0 || version > VERSION {
            return None;
        }
        SiteId::check(site).ok()?;
        ItemId::check(item).ok()?;
        let client_id = (!client_id.is_empty()).then_some(client_id);
        if let Some(id) = client_id {
            ClientId::check(id).ok()?;
        }
        Some(Self {
            view_id: ViewId(view_id.try_into().ok()?),
            site,
            item,
            viewer: ViewerHash(viewer.try_into().ok()?),
            event_ms,
            client_id,
            facts: Facts(facts),
        })
    }
}

/// What counting needs of a record of `views.counted`, which is checked as `decode_counted` checks it, but for the ids:
/// who has met an item before need not check its ids again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedRef<'a> {
    /// A site's name, if [`has_valid_ids`](Self::has_valid_ids).
    pub site: &'a [u8],
    /// An item's id, likewise.
    pub item: &'a [u8],
    /// Who looked.
    pub viewer: ViewerHash,
    /// Milliseconds since 1970 (UTC).
    pub event_ms: i64,
    /// The view's offset in `views`, or [`CARRIED_OVER`](crate::CARRIED_OVER).
    pub source_offset: i64,
}

impl<'a> CountedRef<'a> {
    /// Reads a record's value. None: ask `decode_counted`.
    pub fn read(payload: &'a [u8]) -> Option<Self> {
        let (mut version, mut event_ms, mut source_offset) = (0, 0, 0);
        let (mut view_id, mut viewer, mut claim, mut id_claim) = (&[][..], &[][..], &[][..], &[][..]);
        let (mut site, mut item) = (&[][..], &[][..]);
        let mut fields = Fields(payload);
        while let Some(tag) = fields.tag()? {
            match tag {
                VARINT_1 => version = low32(fields.varint()?),
                BYTES_2 => view_id = fields.bytes()?,
                BYTES_3 => site = fields.bytes()?,
                BYTES_4 => item = fields.bytes()?,
                BYTES_5 => viewer = fields.bytes()?,
                VARINT_6 => event_ms = fields.varint()?.cast_signed(),
                VARINT_8 => source_offset = fields.varint()?.cast_signed(),
                VARINT_7 | VARINT_9 | VARINT_13 | VARINT_14 => _ = fields.varint()?,
                BYTES_10 => claim = fields.bytes()?,
                BYTES_11 => id_claim = fields.bytes()?,
                FIXED32_12 => _ = fields.fixed32()?,
                other => fields.skip_unknown(other, 14)?,
            }
        }
        let checked = (1..=VERSION).contains(&version)
            && view_id.len() == 16
            && claim.len() == 16
            && (id_claim.is_empty() || id_claim.len() == 16);
        if !checked {
            return None;
        }
        Some(Self { site, item, viewer: ViewerHash(viewer.try_into().ok()?), event_ms, source_offset })
    }

    /// Whether both ids are valid. If not, `decode_counted` says what is wrong.
    pub fn has_valid_ids(&self) -> bool {
        std::str::from_utf8(self.site).is_ok_and(|site| SiteId::check(site).is_ok())
            && std::str::from_utf8(self.item).is_ok_and(|item| ItemId::check(item).is_ok())
    }
}

/// What a rebuild of the dedup state needs of a record of `views.counted`. The other fields are skipped unchecked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimRef {
    /// Milliseconds since 1970 (UTC).
    pub event_ms: i64,
    /// The partition of `views` that the view stands in.
    pub source_partition: i32,
    /// The view's offset there.
    pub source_offset: i64,
    /// The append-time slice in which it was counted.
    pub slice: i64,
    /// The length of a slice then, in seconds.
    pub slice_s: u32,
    /// The claim: hash of (viewer, item).
    pub claim: Digest128,
    /// The claim of the client's id, with the item's fingerprint.
    pub id_claim: Option<(Digest128, u32)>,
}

impl ClaimRef {
    /// Reads a record's value. None: ask `decode_counted`.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let (mut version, mut event_ms, mut partition, mut offset, mut slice, mut slice_s) =
            (0, 0, 0, 0, 0, 0);
        let (mut claim, mut id_claim, mut fingerprint) = (&[][..], &[][..], 0);
        let mut fields = Fields(payload);
        while let Some(tag) = fields.tag()? {
            match tag {
                VARINT_1 => version = low32(fields.varint()?),
                BYTES_2 | BYTES_3 | BYTES_4 | BYTES_5 => _ = fields.bytes()?,
                VARINT_6 => event_ms = fields.varint()?.cast_signed(),
                VARINT_7 => partition = low32(fields.varint()?).cast_signed(),
                VARINT_8 => offset = fields.varint()?.cast_signed(),
                VARINT_9 => slice = fields.varint()?.cast_signed(),
                BYTES_10 => claim = fields.bytes()?,
                BYTES_11 => id_claim = fields.bytes()?,
                FIXED32_12 => fingerprint = fields.fixed32()?,
                VARINT_13 => _ = fields.varint()?,
                VARINT_14 => slice_s = low32(fields.varint()?),
                other => fields.skip_unknown(other, 14)?,
            }
        }
        if version == 0 || version > VERSION {
            return None;
        }
        let id_claim = match id_claim {
            [] => None,
            bytes => Some((Digest128(bytes.try_into().ok()?), fingerprint)),
        };
        Some(Self {
            event_ms,
            source_partition: partition,
            source_offset: offset,
            slice,
            slice_s,
            claim: Digest128(claim.try_into().ok()?),
            id_claim,
        })
    }
}

// A tag is the field's number, shifted left by three, and its wire type.
const VARINT_1: u64 = 1 << 3;
const BYTES_2: u64 = 2 << 3 | 2;
const BYTES_3: u64 = 3 << 3 | 2;
const BYTES_4: u64 = 4 << 3 | 2;
const BYTES_5: u64 = 5 << 3 | 2;
const VARINT_6: u64 = 6 << 3;
const VARINT_7: u64 = 7 << 3;
const VARINT_8: u64 = 8 << 3;
const VARINT_9: u64 = 9 << 3;
const BYTES_9: u64 = 9 << 3 | 2;
const BYTES_10: u64 = 10 << 3 | 2;
const BYTES_11: u64 = 11 << 3 | 2;
const VARINT_12: u64 = 12 << 3;
const FIXED32_12: u64 = 12 << 3 | 5;
const VARINT_13: u64 = 13 << 3;
const VARINT_14: u64 = 14 << 3;

/// An integer field of 32 bits keeps the low bits of what came, as every protobuf reader does.
#[expect(clippy::cast_possible_truncation, reason = "the format says so")]
fn low32(value: u64) -> u32 {
    value as u32
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The next field's tag; none at the end.
    #[inline]
    fn tag(&mut self) -> Option<Option<u64>> {
        if self.0.is_empty() { Some(None) } else { self.varint().map(Some) }
    }

    #[inline]
    fn varint(&mut self) -> Option<u64> {
        // Tags and lengths are a byte long.
        if let [byte @ 0..0x80, rest @ ..] = self.0 {
            self.0 = rest;
            return Some(u64::from(*byte));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for (i, byte) in self.0.iter().take(10).enumerate() {
            // The tenth byte has room for one bit.
            if i == 9 && *byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if *byte < 0x80 {
                self.0 = &self.0[i + 1..];
                return Some(value);
            }
        }
        None
    }

    #[inline]
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn fixed32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*bytes))
    }

    /// Skips a field that a later writer added. A known field of another wire type and a group are not for us.
    fn skip_unknown(&mut self, tag: u64, newest_known: u64) -> Option<()> {
        if tag >> 3 <= newest_known || tag > u64::from(u32::MAX) {
            return None;
        }
        match tag & 7 {
            0 => _ = self.varint()?,
            1 => self.0 = self.0.split_at_checked(8)?.1,
            2 => _ = self.bytes()?,
            5 => self.0 = self.0.split_at_checked(4)?.1,
            _ => return None,
        }
        Some(())
    }
}
