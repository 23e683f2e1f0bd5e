//! The partitioned log in one folder.
//!
//! Two *journals*, `views` and `verdicts`, each a row of append-only files (segments) with one thread that writes. What
//! waits is written as one *entry*: one checksum, one sync, any number of appends or transactions, records of any number
//! of partitions, and committed positions. So a transaction is whole or not there, and one sync serves all that came
//! meanwhile. Readers get the newest entries from memory as they were written; older ones are read from the files in
//! chunks, a chunk for all partitions at once.
//!
//! # What survives what
//! See [`Durability`]. Nothing is shown to a reader before it is as durable as configured, except positions that are
//! committed outside a transaction: they reach the disk with the next synced entry.
//!
//! # What a crash leaves behind, and what is damage
//! The last segment may end in a torn entry, which is cut off and reported, and in zeros, which are room that was made
//! ahead (a sync within it takes half as long) and are cut off in silence. An entry that is not whole
//! although a whole one behind it says that all before it was durable is damage, as is anything wrong in an earlier
//! segment: the log then refuses to open (or, found by a reader, fails the read), names file, position and offsets, and
//! changes nothing. Nothing is ever skipped. A segment that is read through its index is verified when it is read.
//!
//! # When the disk is full or fails
//! What was written of an entry is cut off again, and the append fails with `Full` or `Unavailable`; the next one tries
//! anew. After a failed sync nothing since the last good one is trusted, whatever a second sync says: what was waiting
//! for it fails, the file is left as it was up to the last good sync, and a new one is begun. While that fails too,
//! nothing is acknowledged; a journal that nobody appends to tries by itself once a second.
//!
//! # Retention
//! Whole segments, the oldest first, by the age of their newest record or by the journal's size, as soon as every group
//! has durably read them; a group that is behind pins them, which is logged and measured. A group that will never come
//! back is forgotten by [`EmbeddedLog::forget_group`]. A journal that reaches its hard limit refuses appends rather than
//! drop what was not read.

mod append;
mod chunk;
mod chunk_failure;
mod config;
mod encode;
mod error;
pub mod files;
mod folder;
mod format;
mod groups;
mod history;
mod journal;
mod metrics;
mod observer;
mod open;
mod queue;
mod reader;
mod recover;
mod retention;
mod segment;
mod shared;
mod walk;
mod writer;

pub use append::{EmbeddedTransactor, EmbeddedWriter};
pub use config::{Durability, LogConfig};
pub use error::OpenError;
pub use groups::EmbeddedMembership;
pub use history::EmbeddedHistory;
pub use metrics::described_metrics;
pub use observer::EmbeddedObserver;
pub use open::{EmbeddedLog, OpenReport};
pub use reader::EmbeddedReader;
pub use recover::TornTail;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
