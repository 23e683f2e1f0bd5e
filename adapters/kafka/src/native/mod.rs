//! The few calls that go to the C library directly, because the wrapper costs too much for each record or lacks them.
//!
//! All of the crate's unsafe code stands here, each call behind a safe function.

pub(crate) mod admin;
mod fetch;
pub(crate) mod group;
mod produce;
mod transaction;

pub(crate) use fetch::{Message, MessageBatch, NativeQueue, cached_end};
pub(crate) use produce::{NativeTopic, produce};
pub(crate) use transaction::{NativeError, commit_transaction, generation, send_offsets};

use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka_sys as sys;
use rdkafka_sys::types::{RDKafkaMessage, RDKafkaRespErr};
use std::ffi::{CStr, CString};
use std::ptr;
use std::time::Duration;

/// The header that carries a record's trace, as other tools know it (W3C Trace Context).
const TRACE_HEADER: &CStr = c"traceparent";

/// A message's error. The field is read as a number: a newer broker may send one that the enum does not know, and
/// an enum with such a value must never exist.
fn error_of(message: &RDKafkaMessage) -> Option<RDKafkaErrorCode> {
    // SAFETY: the field is four bytes that the library has written.
    let raw = unsafe { ptr::addr_of!(message.err).cast::<i32>().read() };
    (raw != 0).then(|| code_of(raw))
}

pub(crate) fn code_of(raw: i32) -> RDKafkaErrorCode {
    RDKafkaRespErr::try_from(raw).map_or(RDKafkaErrorCode::Unknown, RDKafkaErrorCode::from)
}

fn last_error() -> RDKafkaErrorCode {
    // SAFETY: reads a variable of this thread.
    unsafe { sys::rd_kafka_last_error() }.into()
}

/// Tells a client of brokers (as in `bootstrap.servers`) that it may have forgotten; those that it knows stay.
pub(crate) fn add_brokers<C: ClientContext>(client: &Client<C>, brokers: &str) {
    // A list with a NUL in it was refused when the client was made.
    let Ok(brokers) = CString::new(brokers) else { return };
    // SAFETY: the client lives as long as the reference, and the library copies the text.
    unsafe { sys::rd_kafka_brokers_add(client.native_ptr(), brokers.as_ptr()) };
}

fn millis(wait: Duration) -> i32 {
    i32::try_from(wait.as_millis()).unwrap_or(i32::MAX)
}
