//! What an error of the database means to the caller.

use onlooker_ports::PortError;
use std::io;

pub(super) const SERVER: &str = "archive";

pub(super) fn port_error(error: redb::Error) -> PortError {
    let detail = error.to_string();
    match error {
        redb::Error::Io(error) => io_error(&error),
        redb::Error::PreviousIo | redb::Error::DatabaseClosed => {
            PortError::Unavailable { server: SERVER, detail }
        }
        redb::Error::DatabaseAlreadyOpen => PortError::Misconfigured { server: SERVER, detail },
        _ => PortError::Failed { server: SERVER, detail },
    }
}

pub(super) fn io_error(error: &io::Error) -> PortError {
    let detail = error.to_string();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            PortError::Full { server: SERVER, detail }
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            PortError::Denied { server: SERVER, detail }
        }
        // What redb says of a file that is none of its own.
        io::ErrorKind::InvalidData => PortError::Misconfigured { server: SERVER, detail },
        _ => PortError::Unavailable { server: SERVER, detail },
    }
}

/// The archive's thread is gone: only while the process ends.
pub(super) fn gone() -> PortError {
    PortError::Unavailable { server: SERVER, detail: "the archive is being closed".into() }
}
