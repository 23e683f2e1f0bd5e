//! From what the client library says to what a caller can do about it.

use onlooker_ports::PortError;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use std::fmt::Display;

/// What Kafka is called in errors.
pub(crate) const SERVER: &str = "kafka";

pub(crate) fn unavailable(detail: impl Display) -> PortError {
    PortError::Unavailable { server: SERVER, detail: detail.to_string() }
}

pub(crate) fn denied(detail: impl Display) -> PortError {
    PortError::Denied { server: SERVER, detail: detail.to_string() }
}

pub(crate) fn misconfigured(detail: impl Display) -> PortError {
    PortError::Misconfigured { server: SERVER, detail: detail.to_string() }
}

pub(crate) fn failed(detail: impl Display) -> PortError {
    PortError::Failed { server: SERVER, detail: detail.to_string() }
}

pub(crate) fn full(detail: impl Display) -> PortError {
    PortError::Full { server: SERVER, detail: detail.to_string() }
}

/// True if the broker, or the TLS layer before it, turned this client away.
pub(crate) fn is_refusal(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::Authentication
            | Code::SSL
            | Code::SaslAuthenticationFailed
            | Code::UnsupportedSASLMechanism
            | Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::TransactionalIdAuthorizationFailed
    )
}

/// True if a topic is not there (yet).
pub(crate) fn is_missing_topic(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(code, Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition)
}

/// `what` says what was being done.
pub(crate) fn from_code(code: RDKafkaErrorCode, what: impl Display) -> PortError {
    use RDKafkaErrorCode as Code;
    if is_refusal(code) {
        return denied(format_args!("{what}: {code}"));
    }
    if is_missing_topic(code) {
        // A topic that is new, or a broker that is just back, looks like this for a moment; and a room that waits goes on
        // by itself when somebody has created the topics.
        return unavailable(format_args!("{what}: {code}; `onlooker topics apply` creates the topics"));
    }
    match code {
        Code::QueueFull => full(what),
        Code::InvalidTopic
        | Code::PolicyViolation
        | Code::InvalidConfig
        | Code::InvalidReplicationFactor
        | Code::InvalidPartitions
        | Code::InvalidTransactionTimeout
        | Code::InvalidSessionTimeout => misconfigured(format_args!("{what}: {code}")),
        Code::MessageSizeTooLarge
        | Code::BadMessage
        | Code::InvalidMessage
        | Code::BadCompression
        | Code::InvalidRecord
        | Code::InvalidArgument
        | Code::Fatal
        | Code::UnsupportedVersion
        | Code::UnsupportedFeature
        | Code::NotImplemented => failed(format_args!("{what}: {code}")),
        // Brokers that are away, moving, electing or loading: all of it passes.
        _ => unavailable(format_args!("{what}: {code}")),
    }
}

/// The same for the library's error type.
pub(crate) fn from_kafka(error: &KafkaError, what: impl Display) -> PortError {
    let code = match error {
        KafkaError::AdminOp(code) => Some(*code),
        _ => error.rdkafka_error_code(),
    };
    match code {
        Some(code) => from_code(code, what),
        // No code: a client that could not be made, or a value that it does not take.
        None => failed(format_args!("{what}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_learn_whether_to_wait() {
        let transient = |code| from_code(code, "x").is_transient();
        assert!(transient(RDKafkaErrorCode::AllBrokersDown));
        assert!(transient(RDKafkaErrorCode::MessageTimedOut));
        assert!(transient(RDKafkaErrorCode::NotEnoughReplicas));
        assert!(transient(RDKafkaErrorCode::QueueFull));
        assert!(!transient(RDKafkaErrorCode::MessageSizeTooLarge));
        assert!(transient(RDKafkaErrorCode::UnknownTopicOrPartition));
        let timed_out = KafkaError::AdminOp(RDKafkaErrorCode::OperationTimedOut);
        assert!(from_kafka(&timed_out, "x").is_transient());
        let refused = from_code(RDKafkaErrorCode::Authentication, "appending");
        assert_eq!(refused, denied("appending: Authentication (Local: Authentication failure)"));
    }
}
