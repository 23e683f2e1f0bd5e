#![doc = include_str!("../README.md")]

mod id;
mod key;
mod mode;
mod partition;
mod trace;
mod verdict;
mod view;

pub use id::{
    ClientId, IdError, ItemId, MAX_CLIENT_ID_BYTES, MAX_ITEM_BYTES, MAX_SITE_BYTES, SiteId, ViewId,
    ViewerHash, usable_viewer,
};
pub use key::{
    CountKey, CountKeys, DayNumber, Digest128, ItemKey, KeyError, Scope, client_id_key, dedup_key,
};
pub use mode::{ItemMode, canonical_path};
pub use partition::{murmur2, partition_of};
pub use trace::{TraceId, TraceIdError, TraceParent};
pub use verdict::{DeadReason, Reason, Verdict};
pub use view::{Facts, View};
