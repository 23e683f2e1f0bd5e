//! Steps of a transaction.

use super::millis;
use crate::reader::KafkaMembership;
use rdkafka::client::Client;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{ClientContext, TopicPartitionList};
use rdkafka_sys as sys;
use std::ffi::{CStr, CString};
use std::ptr;
use std::time::Duration;

/// Sends what is left of the transaction and commits it. Blocks; the client's queue must be polled by another thread.
///
/// The wrapper's function of this name looks every 100 ms whether everything has been sent, which would be the least
/// time that a transaction takes.
pub(crate) fn commit_transaction<C: ClientContext>(
    client: &Client<C>,
    wait: Duration,
) -> Result<(), NativeError> {
    // SAFETY: the client lives; the error, if any, is ours.
    NativeError::take(unsafe { sys::rd_kafka_commit_transaction(client.native_ptr(), millis(wait)) })
}

/// Adds consumed positions to the transaction, on behalf of a member in one generation of its group. Blocks.
pub(crate) fn send_offsets<C: ClientContext>(
    client: &Client<C>,
    positions: &TopicPartitionList,
    membership: &KafkaMembership,
    wait: Duration,
) -> Result<(), NativeError> {
    let text = |text: &str| CString::new(text).unwrap_or_default();
    let (group, member) = (text(&membership.group), text(&membership.member));
    // SAFETY: client, list and texts live; the metadata is ours and destroyed once.
    unsafe {
        let metadata = sys::rd_kafka_consumer_group_metadata_new_with_genid(
            group.as_ptr(),
            membership.generation,
            member.as_ptr(),
            ptr::null(),
        );
        let error = sys::rd_kafka_send_offsets_to_transaction(
            client.native_ptr(),
            positions.ptr(),
            metadata,
            millis(wait),
        );
        sys::rd_kafka_consumer_group_metadata_destroy(metadata);
        NativeError::take(error)
    }
}

/// An error with what the library says about going on.
#[derive(Debug, Clone)]
pub(crate) struct NativeError {
    pub(crate) code: RDKafkaErrorCode,
    pub(crate) text: String,
    pub(crate) fatal: bool,
    pub(crate) retriable: bool,
    pub(crate) requires_abort: bool,
}

impl NativeError {
    fn take(error: *mut sys::rd_kafka_error_t) -> Result<(), Self> {
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: not null, read before it is destroyed, and destroyed once.
        let taken = unsafe {
            let taken = Self {
                code: sys::rd_kafka_error_code(error).into(),
                text: CStr::from_ptr(sys::rd_kafka_error_string(error)).to_string_lossy().into_owned(),
                fatal: sys::rd_kafka_error_is_fatal(error) != 0,
                retriable: sys::rd_kafka_error_is_retriable(error) != 0,
                requires_abort: sys::rd_kafka_error_txn_requires_abort(error) != 0,
            };
            sys::rd_kafka_error_destroy(error);
            taken
        };
        Err(taken)
    }
}

impl From<rdkafka::error::RDKafkaError> for NativeError {
    fn from(error: rdkafka::error::RDKafkaError) -> Self {
        Self {
            code: error.code(),
            text: error.string(),
            fatal: error.is_fatal(),
            retriable: error.is_retriable(),
            requires_abort: error.txn_requires_abort(),
        }
    }
}

/// Generation and member id of a group's member. Blocks for as long as the client's own thread takes.
///
/// The wrapper's metadata hides both, and one with generation -1 would pass every check of the broker.
pub(crate) fn generation<C: ClientContext>(client: &Client<C>) -> Option<(i32, String)> {
    // SAFETY: the client lives; the metadata is ours and destroyed once, after its texts were copied.
    unsafe {
        let metadata = sys::rd_kafka_consumer_group_metadata(client.native_ptr());
        if metadata.is_null() {
            return None;
        }
        let generation = sys::rd_kafka_consumer_group_metadata_generation_id(metadata);
        let member = sys::rd_kafka_consumer_group_metadata_member_id(metadata);
        let member = if member.is_null() {
            String::new()
        } else {
            CStr::from_ptr(member).to_string_lossy().into_owned()
        };
        sys::rd_kafka_consumer_group_metadata_destroy(metadata);
        Some((generation, member))
    }
}
