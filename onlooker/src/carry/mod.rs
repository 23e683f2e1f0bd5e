//! Carrying counts from one log to another: `onlooker export`, `onlooker restore`, `onlooker promote`.
//!
//! What makes it simple: **history is a cell at offset 0.** What the archive holds with timestamp T is exactly what was
//! counted from the log's records below T. With T = 0 it is none of this log's records, and so whatever else it holds was
//! counted before. A counter that meets an item for the first time finds it absent in its store, reads the archive and
//! goes on from there; a cell with a higher offset wins over it; writing it twice changes nothing. No room has to know.
//!
//! What follows from it: a restore is refused where the log has counted something already. The counter would then have
//! numbers in its memory, or rows in the archive, that history would no longer get below.

mod collect;
mod export;
mod format;
mod mark;
#[cfg(feature = "cluster")]
mod promote;
mod read;
mod restore;
#[cfg(feature = "cluster")]
mod route;
mod source;
#[cfg(feature = "cluster")]
mod switch;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use export::{ExportArgs, export, is_bearer, route};
pub(crate) use mark::Mark;
#[cfg(feature = "cluster")]
pub(crate) use promote::{PromoteArgs, promote};
pub(crate) use restore::{RestoreArgs, restore};
#[cfg(feature = "cluster")]
pub(crate) use route::route as promote_route;
#[cfg(feature = "cluster")]
pub(crate) use switch::Door;

use anyhow::Result;
use onlooker_event::CountKey;
use onlooker_ports::{Archive, Archived, LogWriter, VerdictHistory};
use std::future::Future;
use tokio::sync::mpsc;

/// Rows of an archive, each with its timestamps.
pub(crate) type Rows = Vec<(CountKey, Archived)>;

/// A system that counts can be taken from and put into: a folder, or a cluster.
pub(crate) trait Place: Send + Sync {
    type Archive: Archive;
    type History: VerdictHistory;
    type Writer: LogWriter;

    /// `embedded` or `cluster`.
    fn kind(&self) -> &'static str;
    /// The log's generation.
    fn generation(&self) -> &str;
    /// Partitions of `views` and of `views.counted`.
    fn partitions(&self) -> u32;
    fn archive(&self) -> &Self::Archive;
    /// Of `views.counted`.
    fn history(&self) -> &Self::History;
    fn writer(&self) -> &Self::Writer;
    /// Per partition of `views.counted`: the first offset that the log still has.
    fn earliest(&self) -> impl Future<Output = Result<Vec<i64>>> + Send;
    /// All rows of the archive that belong to this log.
    fn scan(&self, sink: mpsc::Sender<Rows>) -> impl Future<Output = Result<()>> + Send;
    /// Fails, and says why, if a room has begun to work here: it may remember that there was no history.
    fn untouched(&self) -> impl Future<Output = Result<()>> + Send;
    /// From here until `begin` no filter goes to work.
    fn hold(&self) -> impl Future<Output = Result<()>> + Send;
    /// Lets the filter begin with this note, at the beginning of its log.
    fn begin(&self, note: &str) -> impl Future<Output = Result<()>> + Send;
}

/// What the filter's memory goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slices {
    /// The length of a slice, in seconds.
    pub(crate) length_s: u32,
    /// How far clocks may be apart, in seconds.
    pub(crate) skew_s: u32,
}
