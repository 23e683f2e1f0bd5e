//! From what the driver says to what a caller can do about it.

use onlooker_ports::PortError;
use scylla::errors::{
    BrokenConnectionError, ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError,
    ExecutionError, MetadataError, MetadataFetchErrorKind, NewSessionError, PrepareError,
    RequestAttemptError,
};
use std::fmt::Display;

/// What the archive is called in errors.
pub(crate) const SERVER: &str = "archive";

pub(crate) fn unavailable(detail: impl Display) -> PortError {
    PortError::Unavailable { server: SERVER, detail: detail.to_string() }
}

pub(crate) fn misconfigured(detail: impl Display) -> PortError {
    PortError::Misconfigured { server: SERVER, detail: detail.to_string() }
}

pub(crate) fn failed(detail: impl Display) -> PortError {
    PortError::Failed { server: SERVER, detail: detail.to_string() }
}

fn denied(detail: impl Display) -> PortError {
    PortError::Denied { server: SERVER, detail: detail.to_string() }
}

/// The server's own answer.
fn from_db(error: &DbError, said: &str) -> PortError {
    match error {
        DbError::AuthenticationError | DbError::Unauthorized => denied(said),
        // Everything here passes when nodes come back or load falls. An overloaded node may have written before it said
        // so, hence not `Full`, which promises that nothing changed.
        DbError::Unavailable { .. }
        | DbError::Overloaded
        | DbError::IsBootstrapping
        | DbError::ReadTimeout { .. }
        | DbError::WriteTimeout { .. }
        | DbError::ReadFailure { .. }
        | DbError::WriteFailure { .. }
        | DbError::RateLimitReached { .. }
        | DbError::Unprepared { .. }
        | DbError::ServerError
        | DbError::TruncateError => unavailable(format!("{error}: {said}")),
        // A missing keyspace, table or column.
        DbError::Invalid | DbError::ConfigError => {
            misconfigured(format!("{said}; create or check the tables with `onlooker schema apply`"))
        }
        other => failed(format!("{other}: {said}")),
    }
}

fn from_io(error: &std::io::Error) -> PortError {
    // A certificate that does not verify comes as an I/O error around the TLS library's own.
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(tls) => denied(format!("TLS: {tls}")),
        None => unavailable(error),
    }
}

fn from_broken(error: &BrokenConnectionError) -> PortError {
    unavailable(error)
}

fn from_connection(error: &ConnectionError) -> PortError {
    match error {
        ConnectionError::IoError(io) => from_io(io),
        ConnectionError::BrokenConnection(broken) => from_broken(broken),
        ConnectionError::ConnectionSetupRequestError(setup) => match setup.get_error() {
            ConnectionSetupRequestErrorKind::DbError(db, said) => from_db(db, said),
            ConnectionSetupRequestErrorKind::MissingAuthentication => {
                denied("it wants a user and a password, and none is configured")
            }
            ConnectionSetupRequestErrorKind::BrokenConnection(broken) => from_broken(broken),
            other => failed(other),
        },
        other => unavailable(other),
    }
}

pub(crate) fn from_pool(error: &ConnectionPoolError) -> PortError {
    match error {
        ConnectionPoolError::Broken { last_connection_error } => from_connection(last_connection_error),
        other => unavailable(other),
    }
}

fn from_attempt(error: &RequestAttemptError) -> PortError {
    match error {
        RequestAttemptError::DbError(db, said) => from_db(db, said),
        RequestAttemptError::BrokenConnectionError(broken) => from_broken(broken),
        RequestAttemptError::UnableToAllocStreamId => unavailable(error),
        other => failed(other),
    }
}

pub(crate) fn from_prepare(error: &PrepareError) -> PortError {
    match error {
        PrepareError::ConnectionPoolError(pool) => from_pool(pool),
        PrepareError::AllAttemptsFailed { first_attempt } => from_attempt(first_attempt),
        other => failed(other),
    }
}

pub(crate) fn from_execution(error: &ExecutionError) -> PortError {
    match error {
        ExecutionError::LastAttemptError(attempt) => from_attempt(attempt),
        ExecutionError::ConnectionPoolError(pool) => from_pool(pool),
        ExecutionError::PrepareError(prepare) => from_prepare(prepare),
        ExecutionError::RequestTimeout(after) => {
            unavailable(format!("no answer within {} ms", after.as_millis()))
        }
        ExecutionError::EmptyPlan => unavailable("no node to ask"),
        ExecutionError::SchemaAgreementError(agreement) => unavailable(agreement),
        other => failed(other),
    }
}

fn from_metadata(error: &MetadataError) -> PortError {
    match error {
        MetadataError::ConnectionPoolError(pool) => from_pool(pool),
        MetadataError::FetchError(fetch) => match &fetch.error {
            MetadataFetchErrorKind::PrepareError(attempt) => from_attempt(attempt),
            other => unavailable(other),
        },
        other => unavailable(other),
    }
}

pub(crate) fn from_new_session(error: &NewSessionError) -> PortError {
    match error {
        NewSessionError::MetadataError(metadata) => from_metadata(metadata),
        // Names may resolve later: a node that is being replaced has none for a while.
        NewSessionError::FailedToResolveAnyHostname(names) => {
            unavailable(format!("none of these names resolves: {}", names.join(", ")))
        }
        NewSessionError::EmptyKnownNodesList => misconfigured("no node is configured"),
        other => failed(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scylla::errors::WriteType;
    use scylla::statement::Consistency;

    #[test]
    fn answers_tell_whether_waiting_helps() {
        let timeout = DbError::WriteTimeout {
            consistency: Consistency::LocalQuorum,
            received: 1,
            required: 2,
            write_type: WriteType::Simple,
        };
        assert!(from_db(&timeout, "late").is_transient());
        assert!(from_db(&DbError::Overloaded, "busy").is_transient());
        let login = from_db(&DbError::AuthenticationError, "bad credentials");
        assert_eq!(login.to_string(), "archive refused the login: bad credentials");
        let table = from_db(&DbError::Invalid, "unconfigured table counts");
        assert!(table.to_string().contains("onlooker schema apply") && !table.is_transient(), "{table}");
        assert!(!from_db(&DbError::SyntaxError, "no viable alternative").is_transient());
    }

    #[test]
    fn an_untrusted_certificate_is_no_outage() {
        let tls = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let error =
            from_connection(&ConnectionError::IoError(std::sync::Arc::new(std::io::Error::other(tls))));
        assert!(error.to_string().contains("refused the login: TLS: invalid peer certificate"), "{error}");
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(from_connection(&ConnectionError::IoError(std::sync::Arc::new(refused))).is_transient());
    }
}
