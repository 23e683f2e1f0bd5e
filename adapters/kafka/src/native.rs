//! The few calls that go to the C library directly, because the wrapper costs too much for each record or lacks them.

use crate::error::{failed, from_code};
use crate::reader::KafkaMembership;
use onlooker_ports::{OutgoingRef, PortError};
use rdkafka::client::Client;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{ClientContext, TopicPartitionList};
use rdkafka_sys as sys;
use rdkafka_sys::types::{RDKafka, RDKafkaMessage, RDKafkaQueue, RDKafkaRespErr, RDKafkaTopic};
use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::time::Duration;

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

/// A message's error. The field is read as a number: a newer broker may send one that the enum does not know, and
/// an enum with such a value must never exist.
pub(crate) fn error_of(message: &RDKafkaMessage) -> Option<RDKafkaErrorCode> {
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

/// A queue of fetched messages of one client. It must be dropped before the client.
#[derive(Debug)]
pub(crate) struct NativeQueue(*mut RDKafkaQueue);

// SAFETY: the library allows every function on a queue from any thread at any time.
unsafe impl Send for NativeQueue {}
unsafe impl Sync for NativeQueue {}

impl NativeQueue {
    pub(crate) fn new(client: *mut RDKafka) -> Self {
        // SAFETY: the caller's client lives; the call does not fail.
        Self(unsafe { sys::rd_kafka_queue_new(client) })
    }

    /// Ends a wait in [`MessageBatch::fetch`], now or the next one.
    pub(crate) fn wake(&self) {
        // SAFETY: the queue lives.
        unsafe { sys::rd_kafka_queue_yield(self.0) }
    }

    /// Delivers a partition's records from `offset` on into this queue.
    pub(crate) fn start(&self, topic: &NativeTopic, partition: i32, offset: i64) -> Result<(), PortError> {
        // SAFETY: topic and queue live.
        let outcome = unsafe { sys::rd_kafka_consume_start_queue(topic.ptr(), partition, offset, self.0) };
        if outcome != 0 {
            return Err(from_code(last_error(), format_args!("starting partition {partition} at {offset}")));
        }
        Ok(())
    }

    /// Ends the delivery; nothing of it comes out of the queue any more.
    pub(crate) fn stop(topic: &NativeTopic, partition: i32) -> Result<(), PortError> {
        // SAFETY: the topic lives.
        let outcome = unsafe { sys::rd_kafka_consume_stop(topic.ptr(), partition) };
        if outcome != 0 {
            return Err(from_code(last_error(), format_args!("stopping partition {partition}")));
        }
        Ok(())
    }
}

impl Drop for NativeQueue {
    fn drop(&mut self) {
        // SAFETY: made by `new` and destroyed once.
        unsafe { sys::rd_kafka_queue_destroy(self.0) }
    }
}

/// Messages that were taken from a queue, until the next call.
pub(crate) struct MessageBatch {
    room: Vec<*mut RDKafkaMessage>,
    filled: usize,
}

// SAFETY: messages belong to whoever took them from the queue, on any thread.
unsafe impl Send for MessageBatch {}

impl MessageBatch {
    pub(crate) fn with_room(messages: usize) -> Self {
        Self { room: vec![ptr::null_mut(); messages.max(2)], filled: 0 }
    }

    /// Waits for one message, and takes all that are there then. Whatever was taken before is freed.
    pub(crate) fn fetch(&mut self, queue: &NativeQueue, wait: Duration) {
        self.free();
        // SAFETY: the queue lives. The batch call alone would wait until its room is full, hence the first call.
        let first = unsafe { sys::rd_kafka_consume_queue(queue.0, millis(wait)) };
        let (Some((head, tail)), false) = (self.room.split_first_mut(), first.is_null()) else { return };
        *head = first;
        // SAFETY: the library writes at most `len` pointers, each to a message that is then ours.
        let more = unsafe { sys::rd_kafka_consume_batch_queue(queue.0, 0, tail.as_mut_ptr(), tail.len()) };
        self.filled = 1 + usize::try_from(more).unwrap_or(0);
    }

    pub(crate) fn len(&self) -> usize {
        self.filled
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Message<'_>> {
        // SAFETY: the first `filled` pointers are messages that are ours and live until `free`, which takes `&mut`.
        self.room.iter().take(self.filled).map(|message| Message(unsafe { &**message }))
    }

    fn free(&mut self) {
        for message in self.room.iter_mut().take(self.filled) {
            // SAFETY: ours, and forgotten here.
            unsafe { sys::rd_kafka_message_destroy(*message) };
            *message = ptr::null_mut();
        }
        self.filled = 0;
    }
}

impl Drop for MessageBatch {
    fn drop(&mut self) {
        self.free();
    }
}

/// A record, or an event of a partition.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a>(&'a RDKafkaMessage);

impl<'a> Message<'a> {
    pub(crate) fn partition(self) -> i32 {
        self.0.partition
    }

    pub(crate) fn offset(self) -> i64 {
        self.0.offset
    }

    pub(crate) fn error(self) -> Option<RDKafkaErrorCode> {
        error_of(self.0)
    }

    /// When the broker took it, in milliseconds since 1970; 0 if it does not say.
    pub(crate) fn timestamp_ms(self) -> i64 {
        let mut kind = sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message lives.
        unsafe { sys::rd_kafka_message_timestamp(self.0, &mut kind) }.max(0)
    }

    pub(crate) fn key(self) -> Option<&'a [u8]> {
        bytes(self.0.key, self.0.key_len)
    }

    /// The value; for an error its text.
    pub(crate) fn payload(self) -> Option<&'a [u8]> {
        bytes(self.0.payload, self.0.len)
    }
}

fn bytes<'a>(start: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: the library's pointer and length, valid for as long as the message.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast(), len) })
}

pub(crate) fn millis(wait: Duration) -> i32 {
    i32::try_from(wait.as_millis()).unwrap_or(i32::MAX)
}

/// The end of a partition as the last fetch saw it.
pub(crate) fn cached_end<C: ClientContext>(client: &Client<C>, topic: &str, partition: i32) -> Option<i64> {
    let name = CString::new(topic).ok()?;
    let (mut low, mut high) = (0, 0);
    // SAFETY: the client lives, and both numbers are written before the call returns.
    let outcome = unsafe {
        sys::rd_kafka_get_watermark_offsets(
            client.native_ptr(),
            name.as_ptr(),
            partition,
            &mut low,
            &mut high,
        )
    };
    (outcome == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR && high >= 0).then_some(high)
}
