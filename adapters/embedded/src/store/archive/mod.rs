//! The archive: counts and durable offsets in one file.

mod database;
mod error;
mod rows;
#[cfg(any(test, feature = "simulation"))]
mod sim;
#[cfg(test)]
mod tests;
mod worker;

use bytes::Bytes;
use database::{Open, Reopening};
use error::{gone, io_error, port_error};
use onlooker_event::CountKey;
use onlooker_ports::{Archive, ArchiveCell, Archived, PortError};
use redb::ReadableDatabase;
use redb::backends::FileBackend;
use rows::Tables;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use worker::{Job, Worker};

#[cfg(any(test, feature = "simulation"))]
pub use sim::SimulatedDisk;

/// Bytes of a cached key and value that a caller of `scan` gets at once, at most, about; see there.
const SCAN_ROWS: usize = 4_096;

/// Counts and durable offsets in a redb file.
///
/// What was acknowledged survives `kill -9` and power loss: each commit is synced. Writes that come while one is under
/// way share the next commit. After an I/O error, a full disk included, the file is opened again by the next call, and
/// what was acknowledged is there.
#[derive(Debug)]
pub struct RedbArchive {
    shared: Arc<Shared>,
    worker: Worker,
}

struct Shared {
    database: Reopening,
    tables: Tables,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("tables", &self.tables).finish_non_exhaustive()
    }
}

impl RedbArchive {
    /// Opens the file, or makes it. `generation` names the log that offsets belong to: another log's rows are out of
    /// sight. The database keeps up to `cache_bytes` of the file in memory.
    ///
    /// # Errors
    /// If the file cannot be read and written, is no archive, or one of a version that is not known.
    pub fn open(path: &Path, generation: &str, cache_bytes: usize) -> Result<Self, PortError> {
        let path = path.to_owned();
        create(&path, cache_bytes)?;
        let open = move || {
            let file = open_file(&path).map_err(|error| io_error(&error))?;
            let backend = FileBackend::new(file).map_err(|error| port_error(error.into()))?;
            let mut builder = redb::Builder::new();
            builder.set_cache_size(cache_bytes);
            builder.create_with_backend(backend).map_err(|error| port_error(error.into()))
        };
        Self::with(Box::new(open), generation)
    }

    /// Opens the archive on a simulated disk, or makes it.
    ///
    /// # Errors
    /// As `open`.
    #[cfg(any(test, feature = "simulation"))]
    pub fn open_on(disk: &SimulatedDisk, generation: &str, cache_bytes: usize) -> Result<Self, PortError> {
        let disk = disk.clone();
        let open = move || {
            let mut builder = redb::Builder::new();
            builder.set_cache_size(cache_bytes);
            builder.create_with_backend(disk.clone()).map_err(|error| port_error(error.into()))
        };
        Self::with(Box::new(open), generation)
    }

    fn with(open: Open, generation: &str) -> Result<Self, PortError> {
        let shared = Arc::new(Shared { database: Reopening::new(open)?, tables: Tables::new(generation) });
        let worker = Worker::start(Arc::clone(&shared)).map_err(|error| io_error(&error))?;
        Ok(Self { shared, worker })
    }

    /// Rows of all keys that have a sketch or a number, in the order of the keys' bytes, behind `after`; at most
    /// `at_most` and a few thousand. An empty answer is the end. Each call sees the archive of its own moment, so a scan
    /// of many calls sees each row at some moment between its first call and its last.
    ///
    /// # Errors
    /// If the file cannot be read, or a row makes no sense.
    pub async fn scan(
        &self,
        after: Option<&CountKey>,
        at_most: usize,
    ) -> Result<Vec<(CountKey, Archived)>, PortError> {
        let after = after.cloned();
        let rows = at_most.min(SCAN_ROWS);
        self.blocking(move |shared| {
            shared.database.with(|db| shared.tables.scan(&db.begin_read()?, after.as_ref(), rows))
        })
        .await
    }

    /// The durable offset of every partition that has one, in the order of the partitions.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn all_durable(&self) -> Result<Vec<(i32, i64)>, PortError> {
        self.blocking(|shared| {
            shared.database.with(|db| Ok(Ok(shared.tables.all_durable(&db.begin_read()?)?)))
        })
        .await
    }

    /// Reading waits for the disk, too, and must not hold up the executor.
    async fn blocking<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Shared) -> Result<T, PortError> + Send + 'static,
    ) -> Result<T, PortError> {
        let shared = Arc::clone(&self.shared);
        tokio::task::spawn_blocking(move || act(&shared)).await.map_err(|_| gone())?
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Makes a file that is not there under another name first: a power loss leaves none, or a whole one.
fn create(path: &Path, cache_bytes: usize) -> Result<(), PortError> {
    let at = |error: io::Error| io_error(&error);
    if path.try_exists().map_err(at)? {
        return Ok(());
    }
    let new = path.with_extension("redb.new");
    let file = open_file(&new).map_err(at)?;
    file.set_len(0).map_err(at)?;
    let backend = FileBackend::new(file).map_err(|error| port_error(error.into()))?;
    let mut builder = redb::Builder::new();
    builder.set_cache_size(cache_bytes);
    let database = builder.create_with_backend(backend).map_err(|error| port_error(error.into()))?;
    database.close().map_err(|error| port_error(error.into()))?;
    open_file(&new).and_then(|file| file.sync_all()).map_err(at)?;
    std::fs::rename(&new, path).map_err(at)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()).map_err(at)
}

impl Archive for RedbArchive {
    async fn read(&self, keys: &[CountKey]) -> Result<Vec<Archived>, PortError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let keys = keys.to_vec();
        self.blocking(move |shared| shared.database.with(|db| shared.tables.read(&db.begin_read()?, &keys)))
            .await
    }

    async fn write(&self, cells: &[ArchiveCell]) -> Vec<Result<(), PortError>> {
        if cells.is_empty() {
            return Vec::new();
        }
        // One transaction: all of them or none.
        let result = self.worker.ask(|reply| Job::Write { cells: cells.to_vec(), reply }).await;
        vec![result; cells.len()]
    }

    async fn durable(&self, partition: i32) -> Result<Option<i64>, PortError> {
        let all = self.all_durable().await?;
        Ok(all.into_iter().find(|(of, _)| *of == partition).map(|(_, offset)| offset))
    }

    async fn set_durable(&self, partition: i32, offset: i64) -> Result<(), PortError> {
        self.worker.ask(|reply| Job::SetDurable { partition, offset, reply }).await
    }
}

/// What a job holds in memory, about.
fn cell_bytes(cell: &ArchiveCell) -> usize {
    let value = match cell {
        ArchiveCell::Sketch { bytes, .. } => Bytes::len(bytes),
        ArchiveCell::Number { .. } => 16,
    };
    cell.key().as_bytes().len() + value
}
