//! What the log asks of a file system and of a clock; the real ones, and simulated ones for tests.

mod disk;
#[cfg(any(test, feature = "simulation"))]
mod simulated;

pub use disk::Disk;
#[cfg(any(test, feature = "simulation"))]
pub use simulated::{Faults, Simulated};

use std::fmt::Debug;
use std::io;
use std::path::Path;

/// A file system and a clock. Chosen when compiling, so that the real one costs nothing.
pub trait FileLayer: Clone + Debug + Send + Sync + 'static {
    /// An open file.
    type File: LogFile;
    /// Keeps other processes out of a folder while it lives.
    type Lock: Debug + Send + Sync + 'static;

    /// Makes the folder and those above it, durably.
    ///
    /// # Errors
    /// Whatever the system says.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Opens a file to be read and written. `create`: makes it, empty, if it is not there; it survives a power loss
    /// only after `sync_dir`.
    ///
    /// # Errors
    /// Whatever the system says; `NotFound` without `create`.
    fn open(&self, path: &Path, create: bool) -> io::Result<Self::File>;

    /// The names of a folder's files, in any order.
    ///
    /// # Errors
    /// Whatever the system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Removes a file; certain only after `sync_dir`.
    ///
    /// # Errors
    /// Whatever the system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the folder's entries durable.
    ///
    /// # Errors
    /// Whatever the system says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the lock on this file; none if another process (or value) has it.
    ///
    /// # Errors
    /// Whatever the system says.
    fn lock(&self, path: &Path) -> io::Result<Option<Self::Lock>>;

    /// Milliseconds since 1970 (UTC).
    fn now_ms(&self) -> i64;
}

/// A file that is read and written by position.
pub trait LogFile: Debug + Send + Sync + 'static {
    /// Writes some of `bytes` and says how many.
    ///
    /// # Errors
    /// Whatever the system says.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize>;

    /// Reads some bytes; 0 at the end.
    ///
    /// # Errors
    /// Whatever the system says.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// Cuts the file off, or lengthens it with zeros.
    ///
    /// # Errors
    /// Whatever the system says.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// The length in bytes.
    ///
    /// # Errors
    /// Whatever the system says.
    fn length(&self) -> io::Result<u64>;

    /// Makes content and length durable.
    ///
    /// # Errors
    /// Whatever the system says. The state of what was written since the last success is unknown then: a second call
    /// that succeeds proves nothing.
    fn sync_data(&self) -> io::Result<()>;
}

/// Writes all of `bytes`.
pub(crate) fn write_all(file: &impl LogFile, mut bytes: &[u8], mut position: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, position) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                position += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends; says how much.
pub(crate) fn read_full(file: &impl LogFile, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], position + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads so many bytes, or fails with `UnexpectedEof`.
pub(crate) fn read_exact(file: &impl LogFile, length: usize, position: u64) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; length];
    if read_full(file, &mut buffer, position)? < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(buffer)
}
