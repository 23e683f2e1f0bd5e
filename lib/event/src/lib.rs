#![doc = include_str!("../README.md")]

mod id;
mod key;
mod partition;
mod verdict;
mod view;

pub use id::{usable_viewer, ClientId, IdError, ItemId, SiteId, ViewId, ViewerHash, MAX_CLIENT_ID_BYTES, MAX_ITEM_BYTES, MAX_SITE_BYTES};
pub use key::{client_id_key, dedup_key, CountKey, DayNumber, Digest128, ItemKey, KeyError, Scope};
pub use partition::{murmur2, partition_of};
pub use verdict::{DeadReason, Reason, Verdict};
pub use view::{Facts, View};
