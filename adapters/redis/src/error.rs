//! What the client's errors mean for a caller.

use std::error::Error;

use onlooker_ports::PortError;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// What to do with the connection after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The connection is gone; a new one will do.
    Dropped,
    /// No answer in time; the connection may be good or not.
    TimedOut,
    /// The cluster is not the one that the client remembers, or a node of it cannot be found.
    Topology,
    /// The server answered: the connection is good.
    Nothing,
}

pub(crate) fn blame(error: &RedisError) -> Blame {
    if error.is_timeout() {
        return Blame::TimedOut;
    }
    match error.kind() {
        ErrorKind::Io | ErrorKind::Parse => Blame::Dropped,
        ErrorKind::ClusterConnectionNotFound => Blame::Topology,
        ErrorKind::Server(
            ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown,
        ) => Blame::Topology,
        // The client does not follow a slot that moved under a transaction: it sees an abort and no more.
        ErrorKind::Server(ServerErrorKind::ExecAbort)
            if mentions(error, &["MOVED", "READONLY", "CLUSTERDOWN"]) =>
        {
            Blame::Topology
        }
        _ => Blame::Nothing,
    }
}

fn mentions(error: &RedisError, codes: &[&str]) -> bool {
    let Some(errors) = error.clone().into_server_errors() else { return false };
    errors.iter().any(|(_, error)| codes.contains(&error.code()))
}

/// True if TLS itself failed: a certificate that is not trusted, a client certificate that is missing, or a
/// server that speaks no TLS.
fn tls_failed(error: &RedisError) -> bool {
    let mut source: Option<&(dyn Error + 'static)> = error.source();
    while let Some(inner) = source {
        if inner.is::<rustls::Error>() {
            return true;
        }
        // `io::Error` hides what it wraps from `source`.
        if let Some(wrapped) = inner.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref)
            && wrapped.is::<rustls::Error>()
        {
            return true;
        }
        source = inner.source();
    }
    // The client wraps errors in an `Arc`, or for a cluster in a text, which cannot be seen through.
    let text = error.to_string();
    text.contains("invalid peer certificate") || text.contains("received fatal alert")
}

/// True if the server, or a node of the cluster, did not let us in or not do this.
fn refused(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm))
        || mentions(error, &["NOAUTH", "WRONGPASS", "NOPERM"])
        || (error.kind() == ErrorKind::Io
            && ["AuthenticationFailed", "NOAUTH", "WRONGPASS"]
                .iter()
                .any(|code| error.to_string().contains(code)))
}

pub(crate) fn port_error(server: &'static str, error: &RedisError) -> PortError {
    let detail = error.to_string();
    match error.kind() {
        _ if tls_failed(error) || refused(error) => PortError::Denied { server, detail },
        // A server that cannot persist refuses writes as one without memory does; both pass.
        _ if mentions(error, &["OOM", "MISCONF"]) => PortError::Full { server, detail },
        _ if mentions(error, &["BUSY", "NOREPLICAS", "UNBLOCKED"]) => {
            PortError::Unavailable { server, detail }
        }
        ErrorKind::Io
        | ErrorKind::Parse
        | ErrorKind::ClusterConnectionNotFound
        | ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::NoScript
            | ServerErrorKind::ExecAbort,
        ) => PortError::Unavailable { server, detail },
        ErrorKind::InvalidClientConfig => PortError::Misconfigured { server, detail },
        _ => PortError::Failed { server, detail },
    }
}

/// An answer of another shape than the command has.
pub(crate) fn unexpected(server: &'static str, command: &str, value: &redis::Value) -> PortError {
    // The shape alone: a value may hold ids of people.
    let shape = match value {
        redis::Value::Nil => "nil",
        redis::Value::Int(_) => "an integer",
        redis::Value::BulkString(_) => "a string",
        redis::Value::Array(_) => "an array",
        redis::Value::Okay | redis::Value::SimpleString(_) => "a status",
        redis::Value::ServerError(_) => "an error",
        _ => "something",
    };
    PortError::Failed { server, detail: format!("{command} answered {shape}, which it never should") }
}
