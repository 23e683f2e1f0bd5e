//! Handing over records.

use super::{TRACE_HEADER, code_of, error_of, last_error};
use crate::error::{failed, from_code};
use onlooker_event::{TraceParent, partition_of};
use onlooker_ports::{OutgoingRef, PortError};
use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka_sys as sys;
use rdkafka_sys::types::{RDKafka, RDKafkaMessage, RDKafkaRespErr, RDKafkaTopic};
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Lets the partitioner choose; and what the partitioner says if there is none.
const ANY_PARTITION: i32 = -1;

/// A topic of one client. It must be dropped before the client: keep it in a field above the client's.
#[derive(Debug)]
pub(crate) struct NativeTopic {
    topic: *mut RDKafkaTopic,
    client: *mut RDKafka,
}

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
        Ok(Self { topic, client: client.native_ptr() })
    }

    /// To be written to. Keys are spread over this many partitions, or 0: over as many as the topic has when the first
    /// record is sent, however many it gets later. Else a key would move when somebody adds partitions. Only the first topic
    /// of a name that the client hears of is made as told, so before any question about it.
    pub(crate) fn spread<C: ClientContext>(
        client: &Client<C>,
        name: &str,
        partitions: u32,
    ) -> Result<Self, PortError> {
        let c_name = CString::new(name).map_err(|_| failed("a topic's name has a NUL"))?;
        // For ever: records that still wait for the topic's metadata are given a partition as long as the client lives,
        // which outlasts this handle. Four bytes for each client that is made.
        let spread: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(partitions)));
        // SAFETY: the client lives; the settings are ours until the topic takes them over; the number is never freed.
        let topic = unsafe {
            let settings = sys::rd_kafka_default_topic_conf_dup(client.native_ptr());
            sys::rd_kafka_topic_conf_set_partitioner_cb(settings, Some(partition));
            let number = ptr::from_ref(spread);
            sys::rd_kafka_topic_conf_set_opaque(settings, number.cast::<c_void>().cast_mut());
            sys::rd_kafka_topic_new(client.native_ptr(), c_name.as_ptr(), settings)
        };
        if topic.is_null() {
            return Err(from_code(last_error(), format_args!("topic {name}")));
        }
        Ok(Self { topic, client: client.native_ptr() })
    }

    pub(crate) fn ptr(&self) -> *mut RDKafkaTopic {
        self.topic
    }
}

impl Drop for NativeTopic {
    fn drop(&mut self) {
        // SAFETY: made by `new` and destroyed once.
        unsafe { sys::rd_kafka_topic_destroy(self.topic) }
    }
}

/// Where a record goes: Kafka's own arithmetic, over a number of partitions that does not change.
unsafe extern "C" fn partition(
    topic: *const RDKafkaTopic,
    key: *const c_void,
    length: usize,
    partitions: i32,
    spread: *mut c_void,
    record: *mut c_void,
) -> i32 {
    if key.is_null() {
        // SAFETY: as we were called.
        return unsafe {
            sys::rd_kafka_msg_partitioner_random(topic, key, length, partitions, spread, record)
        };
    }
    // SAFETY: the library gives what `spread` gave it, and the record's key.
    let (spread, key) =
        unsafe { (&*spread.cast::<AtomicU32>(), std::slice::from_raw_parts(key.cast::<u8>(), length)) };
    let now = partitions.cast_unsigned();
    let first = spread.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    let of = first.map_or_else(|known| known, |_| now);
    let chosen = partition_of(key, of);
    // Not there: the record fails.
    if chosen < partitions { chosen } else { ANY_PARTITION }
}

/// Hands over a run of records of one topic; the library copies them and chooses the partition by the key.
/// `tag` makes what the record's delivery report will carry, `untag` gets it back if there will be no report.
///
/// Returns the records that were not taken, as indices, and why the last of them was not.
pub(crate) fn produce(
    topic: &NativeTopic,
    records: &[OutgoingRef<'_>],
    mut tag: impl FnMut() -> *mut c_void,
    mut untag: impl FnMut(*mut c_void),
) -> Option<(Vec<usize>, RDKafkaErrorCode)> {
    let mut first = 0;
    // The call for many records knows no headers. Nearly always all of them have none, and there is one run.
    for run in records.chunk_by(|a, b| a.trace.is_none() && b.trace.is_none()) {
        let refused = match run {
            [OutgoingRef { trace: Some(trace), .. }] => {
                let tag = tag();
                let outcome = produce_traced(topic, &run[0], trace, tag);
                outcome.err().map(|code| {
                    untag(tag);
                    (vec![0], code)
                })
            }
            _ => produce_plain(topic, run, &mut tag, &mut untag),
        };
        if let Some((left, code)) = refused {
            // What comes behind must not overtake.
            let behind = first + run.len()..records.len();
            return Some((left.into_iter().map(|index| first + index).chain(behind).collect(), code));
        }
        first += run.len();
    }
    None
}

/// A null key goes to any partition, an empty one always to the same.
fn key_ptr(record: &OutgoingRef<'_>) -> *mut c_void {
    if record.key.is_empty() { ptr::null_mut() } else { record.key.as_ptr().cast::<c_void>().cast_mut() }
}

fn produce_plain(
    topic: &NativeTopic,
    records: &[OutgoingRef<'_>],
    tag: &mut impl FnMut() -> *mut c_void,
    untag: &mut impl FnMut(*mut c_void),
) -> Option<(Vec<usize>, RDKafkaErrorCode)> {
    let mut messages: Vec<RDKafkaMessage> = records
        .iter()
        .map(|record| RDKafkaMessage {
            err: RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR,
            rkt: ptr::null_mut(),
            partition: ANY_PARTITION,
            payload: record.payload.as_ptr().cast::<c_void>().cast_mut(),
            len: record.payload.len(),
            key: key_ptr(record),
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

/// One record with its header `traceparent`.
fn produce_traced(
    topic: &NativeTopic,
    record: &OutgoingRef<'_>,
    trace: &TraceParent,
    tag: *mut c_void,
) -> Result<(), RDKafkaErrorCode> {
    use rd_kafka_vtype_t::*;
    use rd_kafka_vu_s__bindgen_ty_1 as Part;
    use sys::bindings::*;
    let text = trace.text();
    let mem = |ptr: *mut c_void, size| Part { mem: rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr, size } };
    let header = rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_2 {
        name: TRACE_HEADER.as_ptr(),
        val: text.as_ptr().cast::<c_void>(),
        size: text.len().cast_signed(),
    };
    let parts = [
        (RD_KAFKA_VTYPE_RKT, Part { rkt: topic.ptr() }),
        (RD_KAFKA_VTYPE_MSGFLAGS, Part { i: sys::RD_KAFKA_MSG_F_COPY }),
        (RD_KAFKA_VTYPE_KEY, mem(key_ptr(record), record.key.len())),
        (
            RD_KAFKA_VTYPE_VALUE,
            mem(record.payload.as_ptr().cast::<c_void>().cast_mut(), record.payload.len()),
        ),
        (RD_KAFKA_VTYPE_HEADER, Part { header }),
        (RD_KAFKA_VTYPE_OPAQUE, Part { ptr: tag }),
    ];
    let parts = parts.map(|(vtype, u)| rd_kafka_vu_t { vtype, u });
    // SAFETY: client and topic live, and the library copies what the parts point to during the call (F_COPY; a header
    // always).
    let error = unsafe { rd_kafka_produceva(topic.client, parts.as_ptr(), parts.len()) };
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the error is ours, and destroyed once. Its code is read as a number: `code_of` knows which there are.
    let raw = unsafe {
        let code = rd_kafka_error_code(error) as i32;
        rd_kafka_error_destroy(error);
        code
    };
    Err(code_of(raw))
}
