#![doc = include_str!("../README.md")]

mod archive;
#[cfg(feature = "conformance")]
pub mod conformance;
mod counts;
mod dedup;
mod log;
mod observe;
mod repair;
mod secret;
mod traces;

pub use archive::{Archive, ArchiveCell, Archived};
pub use counts::{
    Apply, ApplyOutcome, Base, CountLookup, CountReader, CountStore, Dirty, Held, Members, Number,
    NumberRead, PartitionState, ReadCount, SketchAdd, SketchRead, SketchValue,
};
pub use dedup::{Applied, Claim, ClaimOutcome, DedupStore, InstallOutcome, Lookup, Remembered, Values};
pub use log::{
    Batch, BatchBuilder, CommitError, Committed, GroupEvent, GroupReader, LogWriter, OutgoingBatch,
    OutgoingRef, Position, RecordRef, SharedBatchBuilder, Topic, Transactor, VerdictHistory,
};
pub use observe::{Bounds, CountObserver, GroupState, GroupView, KeyView, LogObserver};
pub use repair::{CountRepair, Hold, Put};
pub use secret::Secret;

/// Why a port could not do what was asked. The caller chooses: wait and try again, or stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The server cannot be reached, or did not answer in time. The write may have happened. Try again.
    #[error("{server} is unavailable: {detail}")]
    Unavailable {
        /// Which server, as the configuration names it.
        server: &'static str,
        /// What the client saw; no secrets.
        detail: String,
    },
    /// The server refuses for lack of memory or space; nothing was changed. Try again later.
    #[error("{server} is full: {detail}")]
    Full {
        /// Which server.
        server: &'static str,
        /// What the server said.
        detail: String,
    },
    /// Credentials, certificates or rights are wrong. Trying again will not help.
    #[error("{server} refused the login: {detail}")]
    Denied {
        /// Which server.
        server: &'static str,
        /// What the server said; no secrets.
        detail: String,
    },
    /// The server's state or settings contradict what the protocol rests on. A person has to look.
    #[error("{server}: {detail}")]
    Misconfigured {
        /// Which server.
        server: &'static str,
        /// What is wrong and what would put it right.
        detail: String,
    },
    /// Anything else; trying again will not help.
    #[error("{server} failed: {detail}")]
    Failed {
        /// Which server.
        server: &'static str,
        /// What happened.
        detail: String,
    },
}

impl PortError {
    /// True if waiting can put it right.
    pub fn is_transient(&self) -> bool {
        matches!(self, PortError::Unavailable { .. } | PortError::Full { .. })
    }
}
