//! The archive: what every count can be restored from.

use crate::PortError;
use bytes::Bytes;
use onlooker_event::CountKey;
use std::future::Future;
use std::sync::Arc;

/// What the archive holds for one key, of the current log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Archived {
    /// The sketch and its timestamp: it holds exactly the log's records below that offset.
    pub sketch: Option<(Bytes, i64)>,
    /// The number of views and its timestamp, likewise.
    pub number: Option<(u64, i64)>,
}

/// One cell to write. The offset is the cell's timestamp: of two writes the more complete one wins, whoever comes last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveCell {
    /// A sketch.
    Sketch {
        /// Which.
        key: CountKey,
        /// Redis's format, validated.
        bytes: Bytes,
        /// It holds exactly the records below this offset.
        t: i64,
    },
    /// A number of views.
    Number {
        /// Which.
        key: CountKey,
        /// The views.
        n: u64,
        /// They are those below this offset.
        u: i64,
    },
}

impl ArchiveCell {
    /// Which item and scope it belongs to.
    pub fn key(&self) -> &CountKey {
        match self {
            ArchiveCell::Sketch { key, .. } | ArchiveCell::Number { key, .. } => key,
        }
    }
}

/// Sketches and numbers of one log (a topic's generation), durable, with quorum writes and quorum reads.
///
/// Every statement is idempotent and carries its timestamp. After a time-out the identical write is repeated or the
/// round given up.
pub trait Archive: Send + Sync + 'static {
    /// Reads the current log's row of each key, in order.
    fn read(&self, keys: &[CountKey]) -> impl Future<Output = Result<Vec<Archived>, PortError>> + Send;

    /// Writes cells. Returns, in order, which of them were acknowledged; the others may or may not have been written.
    /// Cells of one item that stand next to each other travel together.
    fn write(&self, cells: &[ArchiveCell]) -> impl Future<Output = Vec<Result<(), PortError>>> + Send;

    /// The offset below which everything of the partition is in the archive; none before the first round.
    fn durable(&self, partition: i32) -> impl Future<Output = Result<Option<i64>, PortError>> + Send;

    /// Notes that everything below `offset` is in the archive. A lower one, written later, loses.
    fn set_durable(&self, partition: i32, offset: i64) -> impl Future<Output = Result<(), PortError>> + Send;
}

impl<A: Archive> Archive for Arc<A> {
    async fn read(&self, keys: &[CountKey]) -> Result<Vec<Archived>, PortError> {
        A::read(self, keys).await
    }

    async fn write(&self, cells: &[ArchiveCell]) -> Vec<Result<(), PortError>> {
        A::write(self, cells).await
    }

    async fn durable(&self, partition: i32) -> Result<Option<i64>, PortError> {
        A::durable(self, partition).await
    }

    async fn set_durable(&self, partition: i32, offset: i64) -> Result<(), PortError> {
        A::set_durable(self, partition, offset).await
    }
}
