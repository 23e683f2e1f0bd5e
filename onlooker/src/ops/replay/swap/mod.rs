//! `onlooker rebuild --swap`: live counts that are not what the log gives are replaced by what it gives.
//!
//! A swap is no second writer beside the counter. For a moment it holds a partition ([`CountRepair`]): the counter meets
//! that as it meets a total loss, forgets what it knew, and waits. Meanwhile what the shadow has is brought by the log's own
//! records to just the offset where the counters stand, put in place of what there is, and marked as changed. So whatever
//! stands there afterwards is again the log's below that offset, and the flusher archives it as anything else; of two cells
//! of the archive the one of the higher offset wins. Readers see the old count or the new one, and no loss.
//!
//! [`CountRepair`]: onlooker_ports::CountRepair

mod change;
mod compare;
mod count;
mod kept;
mod run;
mod stored;
mod whole;
mod wire;

pub(super) use change::show_changes;
pub(super) use run::{Swapping, confirm};
pub(crate) use stored::answer;
pub(super) use whole::refuse_replay;
pub(crate) use wire::Ask;

use super::plan::{Kind, Shadow};
use anyhow::{Context, Result};
use onlooker_event::{CountKey, ItemKey};

fn item(key: &CountKey) -> Result<ItemKey> {
    ItemKey::parse(bytes::Bytes::copy_from_slice(key.item_bytes())).context("a key that is none")
}
