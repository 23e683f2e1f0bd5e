//! Why the log does not open, and what a room is told when it fails later.

use onlooker_ports::PortError;
use std::io;
use std::path::{Path, PathBuf};

/// How `PortError` names the log.
const SERVER: &str = "embedded log";

/// Why a folder's log was not opened. Nothing in the folder was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{} is in use by another process", .0.display())]
    Locked(PathBuf),
    /// A file says what this program cannot know.
    #[error("{} has format version {found}, and this program knows up to {known}: use a newer program", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u16,
        /// The newest that is known.
        known: u16,
    },
    /// The number of partitions is part of where every key's records are, and cannot change.
    #[error("the log in {} has {found} partitions and was to be opened with {wanted}: set {found}", path.display())]
    Partitions {
        /// The folder.
        path: PathBuf,
        /// As the files say.
        found: u32,
        /// As configured.
        wanted: u32,
    },
    /// Something is missing or overwritten in the middle of the log, which no crash does.
    #[error(
        "{} is damaged at byte {position} ({detail}); what is before and behind it was left as it is. Restore the file \
         from a copy of the folder",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damage begins. Bytes from the file's start.
        position: u64,
        /// What is wrong there, and which offsets it holds.
        detail: String,
    },
    /// A limit cannot be kept.
    #[error("{key} {problem}")]
    Config {
        /// The configuration's key.
        key: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> OpenError {
        move |source| OpenError::Io { path: path.to_owned(), source }
    }

    pub(crate) fn damaged(path: &Path, position: u64, detail: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), position, detail: detail.into() }
    }
}

/// What a failed write or sync means for whoever asked for it.
pub(crate) fn from_io(error: &io::Error, what: &str) -> PortError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => full(format!("{what}: {error}")),
        _ => PortError::Unavailable { server: SERVER, detail: format!("{what}: {error}") },
    }
}

pub(crate) fn full(detail: impl Into<String>) -> PortError {
    PortError::Full { server: SERVER, detail: detail.into() }
}

pub(crate) fn closed() -> PortError {
    PortError::Unavailable { server: SERVER, detail: "the log is closed".into() }
}

pub(crate) fn failed(detail: impl Into<String>) -> PortError {
    PortError::Failed { server: SERVER, detail: detail.into() }
}
