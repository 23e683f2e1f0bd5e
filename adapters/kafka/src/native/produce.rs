//! Handing over records.

use super::{error_of, last_error};
use crate::error::{failed, from_code};
use onlooker_ports::{OutgoingRef, PortError};
use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka_sys as sys;
use rdkafka_sys::types::{RDKafkaMessage, RDKafkaRespErr, RDKafkaTopic};
use std::ffi::{CString, c_void};
use std::ptr;

/// Lets the partitioner choose.
const ANY_PARTITION: i32 = -1;

/// A topic of one client. It must be dropped before the client: keep it in a field above the client's.
#[derive(Debug)]
pub(crate) struct NativeTopic(*mut RDKafkaTopic);

// SAFETY: the library allows every function on a topic from any thread at any time.
unsafe impl Send for NativeTopic {}
unsafe impl Sync for NativeTopic {}

impl NativeTopic {
    pub(crate) fn new<C: ClientContext>(client: &Client<C>, name: &str) -> Result<Self, PortError> {
        let c_name = CString::new(name).map_err(|_| failed("a topic's name has a NUL"))?;
        // SAFETY: the client lives, the name ends with NUL, and null takes the client's own topic settings.
        let topic = unsafe { sys::rd_kafka_topic_new(client.native_ptr(), c_name.as_ptr(), ptr::null_mut()) };
        if topic.is_null() {
            return Err(from_code(last_error(), format_args!("topic {name}")));
        }
        Ok(Self(topic))
    }

    pub(crate) fn ptr(&self) -> *mut RDKafkaTopic {
        self.0
    }
}

impl Drop for NativeTopic {
    fn drop(&mut self) {
        // SAFETY: made by `new` and destroyed once.
        unsafe { sys::rd_kafka_topic_destroy(self.0) }
    }
}

/// Hands over a run of records of one topic; the library copies them and chooses the partition by the key.
/// `tag` makes what the record's delivery report will carry, `untag` gets it back if there will be no report.
///
/// Returns the records that were not taken, as indices, and why the last of them was not.
pub(crate) fn produce<'a>(
    topic: &NativeTopic,
    records: impl ExactSizeIterator<Item = OutgoingRef<'a>>,
    mut tag: impl FnMut() -> *mut c_void,
    mut untag: impl FnMut(*mut c_void),
) -> Option<(Vec<usize>, RDKafkaErrorCode)> {
    let mut messages: Vec<RDKafkaMessage> = records
        .map(|record| RDKafkaMessage {
            err: RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR,
            rkt: ptr::null_mut(),
            partition: ANY_PARTITION,
            payload: record.payload.as_ptr().cast::<c_void>().cast_mut(),
            len: record.payload.len(),
            // A null key goes to any partition, an empty one always to the same.
            key: if record.key.is_empty() {
                ptr::null_mut()
            } else {
                record.key.as_ptr().cast::<c_void>().cast_mut()
            },
            key_len: record.key.len(),
            offset: 0,
            _private: tag(),
        })
        .collect();
    let count = i32::try_from(messages.len()).unwrap_or(i32::MAX);
    // SAFETY: the topic lives, and the library reads keys and payloads during the call only (F_COPY).
    let taken = unsafe {
        sys::rd_kafka_produce_batch(
            topic.ptr(),
            ANY_PARTITION,
            sys::RD_KAFKA_MSG_F_COPY,
            messages.as_mut_ptr(),
            count,
        )
    };
    let taken = usize::try_from(taken).unwrap_or(0);
    if taken == messages.len() {
        return None;
    }
    let mut left = Vec::new();
    let mut reason = RDKafkaErrorCode::Fail;
    for (index, message) in messages.iter().enumerate() {
        if let Some(code) = error_of(message) {
            reason = code;
            left.push(index);
            untag(message._private);
        }
    }
    Some((left, reason))
}
