//! Questions to the cluster that the wrapper lacks.

use super::{code_of, millis};
use crate::error::{failed, from_code, unavailable};
use onlooker_ports::PortError;
use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka_sys as sys;
use std::ffi::{CStr, CString, c_char};
use std::ptr::NonNull;
use std::slice;
use std::time::Duration;

/// Frees a C object when it goes out of scope.
pub(super) struct Owned<T>(NonNull<T>, unsafe extern "C" fn(*mut T));

impl<T> Owned<T> {
    fn new(object: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Result<Self, PortError> {
        NonNull::new(object)
            .map(|object| Self(object, destroy))
            .ok_or_else(|| failed("librdkafka gave nothing"))
    }

    pub(super) fn ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the object is ours, and `destroy` is what the library has for it.
        unsafe { (self.1)(self.ptr()) }
    }
}

type Options = Owned<sys::rd_kafka_AdminOptions_t>;
type Queue = Owned<sys::rd_kafka_queue_t>;
type Event = Owned<sys::rd_kafka_event_t>;

pub(super) fn options<C: ClientContext>(
    client: &Client<C>,
    of: sys::rd_kafka_admin_op_t,
    wait: Duration,
) -> Result<Options, PortError> {
    // SAFETY: the client lives, and so do the options during the call; without a buffer no text is written.
    unsafe {
        let made = sys::rd_kafka_AdminOptions_new(client.native_ptr(), of);
        let options = Owned::new(made, sys::rd_kafka_AdminOptions_destroy)?;
        sys::rd_kafka_AdminOptions_set_request_timeout(options.ptr(), millis(wait), std::ptr::null_mut(), 0);
        Ok(options)
    }
}

pub(super) fn queue<C: ClientContext>(client: &Client<C>) -> Result<Queue, PortError> {
    // SAFETY: the client lives.
    Owned::new(unsafe { sys::rd_kafka_queue_new(client.native_ptr()) }, sys::rd_kafka_queue_destroy)
}

/// Waits for the answer; an error of the request as a whole becomes one.
pub(super) fn answer(queue: &Queue, wait: Duration, what: &str) -> Result<Event, PortError> {
    // SAFETY: the queue lives; the event is ours.
    let event = unsafe { sys::rd_kafka_queue_poll(queue.ptr(), millis(wait)) };
    let event = NonNull::new(event).ok_or_else(|| unavailable(format_args!("{what}: no answer")))?;
    let event = Owned(event, sys::rd_kafka_event_destroy);
    // SAFETY: the event lives, and its text as long.
    let (code, text) = unsafe {
        (sys::rd_kafka_event_error(event.ptr()) as i32, sys::rd_kafka_event_error_string(event.ptr()))
    };
    if code != 0 {
        return Err(from_code(code_of(code), format_args!("{what}: {}", text_of(text))));
    }
    Ok(event)
}

pub(super) fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the library's texts end with NUL and live as long as the object that the caller holds.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

pub(super) fn c_text(text: &str) -> Result<CString, PortError> {
    CString::new(text).map_err(|_| failed("a name has a NUL"))
}

/// The id that the cluster gave the topic when it was created, in Kafka's own base64. Blocks.
pub(crate) fn topic_id<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    wait: Duration,
) -> Result<String, PortError> {
    let what = format!("describing topic {topic}");
    let options = options(client, sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, wait)?;
    let queue = queue(client)?;
    let name = c_text(topic)?;
    let mut names = [name.as_ptr()];
    // SAFETY: names, options and queue live during the call, which copies what it keeps.
    let event = unsafe {
        let made = sys::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
        let topics = Owned::new(made, sys::rd_kafka_TopicCollection_destroy)?;
        sys::rd_kafka_DescribeTopics(client.native_ptr(), topics.ptr(), options.ptr(), queue.ptr());
        answer(&queue, wait, &what)?
    };
    // SAFETY: everything read here belongs to the event, which lives until the end of the function.
    unsafe {
        let result = sys::rd_kafka_event_DescribeTopics_result(event.ptr());
        let mut count = 0;
        let described = sys::rd_kafka_DescribeTopics_result_topics(result, &mut count);
        let (false, Some(first)) = (described.is_null(), slice_of(described, count).first()) else {
            return Err(failed(format_args!("{what}: an empty answer")));
        };
        let error = sys::rd_kafka_TopicDescription_error(*first);
        if !error.is_null() && sys::rd_kafka_error_code(error) as i32 != 0 {
            return Err(from_code(sys::rd_kafka_error_code(error).into(), what));
        }
        let id = sys::rd_kafka_TopicDescription_topic_id(*first);
        Ok(text_of(sys::rd_kafka_Uuid_base64str(id)))
    }
}

/// Sets one setting of a topic and leaves all others as they are. Blocks.
pub(crate) fn alter<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    setting: &str,
    value: &str,
    wait: Duration,
) -> Result<(), PortError> {
    let what = format!("setting {setting} of topic {topic}");
    let options = options(client, sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_INCREMENTALALTERCONFIGS, wait)?;
    let queue = queue(client)?;
    let (name, key, value) = (c_text(topic)?, c_text(setting)?, c_text(value)?);
    // SAFETY: texts, options and queue live during the calls, which copy what they keep; the error is ours.
    let event = unsafe {
        let made = sys::rd_kafka_ConfigResource_new(
            sys::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC,
            name.as_ptr(),
        );
        let resource = Owned::new(made, sys::rd_kafka_ConfigResource_destroy)?;
        let error = sys::rd_kafka_ConfigResource_add_incremental_config(
            resource.ptr(),
            key.as_ptr(),
            sys::rd_kafka_AlterConfigOpType_t::RD_KAFKA_ALTER_CONFIG_OP_TYPE_SET,
            value.as_ptr(),
        );
        if !error.is_null() {
            let text = text_of(sys::rd_kafka_error_string(error));
            sys::rd_kafka_error_destroy(error);
            return Err(failed(format_args!("{what}: {text}")));
        }
        let mut resources = [resource.ptr()];
        sys::rd_kafka_IncrementalAlterConfigs(
            client.native_ptr(),
            resources.as_mut_ptr(),
            resources.len(),
            options.ptr(),
            queue.ptr(),
        );
        answer(&queue, wait, &what)?
    };
    // SAFETY: everything read here belongs to the event, which lives until the end of the function.
    unsafe {
        let result = sys::rd_kafka_event_IncrementalAlterConfigs_result(event.ptr());
        let mut count = 0;
        let altered = sys::rd_kafka_IncrementalAlterConfigs_result_resources(result, &mut count);
        if altered.is_null() {
            return Err(failed(format_args!("{what}: an empty answer")));
        }
        for resource in slice_of(altered, count) {
            let code = sys::rd_kafka_ConfigResource_error(*resource) as i32;
            if code != 0 {
                let text = text_of(sys::rd_kafka_ConfigResource_error_string(*resource));
                return Err(from_code(code_of(code), format_args!("{what}: {text}")));
            }
        }
    }
    Ok(())
}

/// # Safety
/// `start` points to `count` values, or `count` is 0.
pub(super) unsafe fn slice_of<'a, T>(start: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(start, count) }
}
