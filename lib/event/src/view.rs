//! One view, as the collector stamps it.

use crate::{ClientId, ItemId, SiteId, ViewId, ViewerHash};

/// One view, complete: everything that later verdicts need, nothing raw about the viewer's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Minted by the collector.
    pub view_id: ViewId,
    /// A configured site.
    pub site: SiteId,
    /// What was looked at.
    pub item: ItemId,
    /// Who looked: a keyed hash.
    pub viewer: ViewerHash,
    /// The version of the key that `viewer` was made with.
    pub key_version: u32,
    /// *The* time of the view for every later decision: when it was received, or a past time that a trusted back end
    /// named. Milliseconds since 1970 (UTC).
    pub event_ms: i64,
    /// When the collector received it. Milliseconds since 1970 (UTC).
    pub received_ms: i64,
    /// The client's own id for this view, if it sent one.
    pub client_id: Option<ClientId>,
    /// The user agent, shortened to 512 bytes; kept in `views` alone, for its retention.
    pub user_agent: Option<Box<str>>,
    /// The referrer, shortened to 1,024 bytes.
    pub referrer: Option<Box<str>>,
    /// What the collector saw and a partition's log alone cannot tell.
    pub facts: Facts,
}

/// Facts that the collector stamps on a view, as bits on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Facts(pub u32);

impl Facts {
    /// The request's headers say that it was made ahead of anybody looking (prefetch or prerender).
    pub const PREFETCH: Facts = Facts(1);
    /// A trusted back end says that the viewer owns the item.
    pub const SELF_VIEW: Facts = Facts(2);
    /// A viewer id was sent and could not be used, so the viewer counts as anonymous.
    pub const BAD_VIEWER: Facts = Facts(4);
    /// A trusted back end sent it.
    pub const TRUSTED: Facts = Facts(8);

    /// True if every bit of `other` is set.
    pub fn has(self, other: Facts) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the bits of `other` set.
    #[must_use]
    pub fn with(self, other: Facts) -> Facts {
        Facts(self.0 | other.0)
    }
}
