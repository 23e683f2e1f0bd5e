//! Taking fetched messages, many at a time.

use super::{NativeTopic, TRACE_HEADER, error_of, last_error, millis};
use crate::error::from_code;
use onlooker_event::TraceParent;
use onlooker_ports::PortError;
use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka_sys as sys;
use rdkafka_sys::types::{RDKafka, RDKafkaMessage, RDKafkaQueue, RDKafkaRespErr};
use std::ffi::{CString, c_void};
use std::ptr;
use std::time::Duration;

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

    /// The trace that its header `traceparent` names; none if there is none, or one that says nothing.
    pub(crate) fn trace(self) -> Option<TraceParent> {
        let ok = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR;
        let (mut headers, mut value, mut size) = (ptr::null_mut(), ptr::null(), 0);
        // SAFETY: the message lives, and is a record that was fetched. It keeps the headers, which this thread alone reads.
        if unsafe { sys::rd_kafka_message_headers(self.0, &mut headers) } != ok {
            return None;
        }
        // SAFETY: the headers live as long as the message, and the name ends with NUL.
        if unsafe { sys::rd_kafka_header_get_last(headers, TRACE_HEADER.as_ptr(), &mut value, &mut size) }
            != ok
        {
            return None;
        }
        TraceParent::parse(bytes(value, size)?)
    }
}

fn bytes<'a>(start: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: the library's pointer and length, valid for as long as the message.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast(), len) })
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
