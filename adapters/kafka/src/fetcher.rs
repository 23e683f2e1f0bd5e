//! Fetches partitions of one topic, each from where it is told, into one queue.
//!
//! A client of its own that belongs to no group: group membership is another client's work (`reader/member.rs`). So a
//! rebalance, a commit or a slow coordinator never touches what is being fetched, and a partition is started and
//! stopped by two plain calls at any time, where a group's consumer has to seek in an assignment that may just change.

use crate::config::KafkaConfig;
use crate::error::from_kafka;
use crate::health::{Health, Watched, serve};
use crate::native::{Message, MessageBatch, NativeQueue, NativeTopic};
use crate::settings;
use onlooker_ports::PortError;
use rdkafka::client::Client;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Messages taken from the queue at once.
const ROOM: usize = 1_024;
const SERVE_EVERY: Duration = Duration::from_millis(100);
/// How long a question may keep from fetching while brokers are away.
const MEND_WAIT: Duration = Duration::from_millis(250);

/// The part that other threads may hold.
pub(crate) struct FetchClient {
    // Queue and topic before the client: they are dropped first.
    queue: NativeQueue,
    topic: NativeTopic,
    consumer: BaseConsumer<Watched>,
    name: String,
}

impl FetchClient {
    /// Ends a wait in [`Fetcher::fetch`].
    pub(crate) fn wake(&self) {
        self.queue.wake();
    }

    pub(crate) fn client(&self) -> &Client<Watched> {
        self.consumer.client()
    }

    /// First offset and end of a partition; for committed readers the end of what is decided. Blocks.
    pub(crate) fn bounds(&self, partition: i32, wait: Duration) -> Result<(i64, i64), PortError> {
        let found = self.consumer.fetch_watermarks(&self.name, partition, wait);
        if found.is_err() {
            self.client().context().lifeline().cut();
        }
        found.map_err(|e| from_kafka(&e, format_args!("bounds of {} [{partition}]", self.name)))
    }

    /// The partition's end as the last fetch saw it, without asking.
    pub(crate) fn known_end(&self, partition: i32) -> Option<i64> {
        crate::native::cached_end(self.client(), &self.name, partition)
    }
}

/// What came from a partition.
pub(crate) enum Fetched<'a> {
    /// A record.
    Record(Message<'a>),
    /// Nothing that this reader may see is left below the offset.
    End {
        /// The next offset.
        offset: i64,
    },
    /// The offset that was asked for is not in the log; nothing more comes until the next start.
    OutOfRange,
    /// The broker said something else.
    Error {
        /// What.
        code: RDKafkaErrorCode,
        /// In words.
        text: String,
    },
}

/// One thread's hold on a [`FetchClient`].
pub(crate) struct Fetcher {
    messages: MessageBatch,
    started: BTreeSet<i32>,
    served: Option<Instant>,
    shared: Arc<FetchClient>,
}

impl Fetcher {
    pub(crate) fn open(
        config: &KafkaConfig,
        topic: &str,
        committed: bool,
        health: Arc<Health>,
    ) -> Result<Self, PortError> {
        let settings = settings::fetcher(config, committed);
        let consumer = BaseConsumer::from_config_and_context(&settings, Watched::new(config, &health))
            .map_err(|error| from_kafka(&error, "making a consumer"))?;
        let native = NativeTopic::new(consumer.client(), topic)?;
        let queue = NativeQueue::new(consumer.client().native_ptr());
        let shared = Arc::new(FetchClient { queue, topic: native, consumer, name: topic.to_owned() });
        Ok(Self { messages: MessageBatch::with_room(ROOM), started: BTreeSet::new(), served: None, shared })
    }

    pub(crate) fn shared(&self) -> &Arc<FetchClient> {
        &self.shared
    }

    /// Delivers from `offset` on; what was fetched of the partition before does not come any more.
    pub(crate) fn start(&mut self, partition: i32, offset: i64) -> Result<(), PortError> {
        self.stop(partition)?;
        self.shared.queue.start(&self.shared.topic, partition, offset)?;
        self.started.insert(partition);
        Ok(())
    }

    /// Ends the delivery. No error if it was not started.
    pub(crate) fn stop(&mut self, partition: i32) -> Result<(), PortError> {
        if !self.started.remove(&partition) {
            return Ok(());
        }
        NativeQueue::stop(&self.shared.topic, partition)
    }

    /// Waits for messages; true if some came.
    pub(crate) fn fetch(&mut self, wait: Duration) -> bool {
        // Log lines and errors of the client come by another queue, which grows if nobody empties it.
        if self.served.is_none_or(|at| at.elapsed() >= SERVE_EVERY) {
            serve(&self.shared.consumer);
            self.served = Some(Instant::now());
            let client = self.shared.client();
            let lifeline = client.context().lifeline();
            if lifeline.wants_mending() {
                lifeline.mend(client, &self.shared.name, MEND_WAIT);
            }
        }
        self.messages.fetch(&self.shared.queue, wait);
        self.messages.len() > 0
    }

    /// What came, in order within each partition.
    pub(crate) fn fetched(&self) -> impl Iterator<Item = (i32, Fetched<'_>)> {
        self.messages.iter().map(|message| {
            let fetched = match message.error() {
                None => Fetched::Record(message),
                Some(RDKafkaErrorCode::PartitionEOF) => Fetched::End { offset: message.offset() },
                Some(RDKafkaErrorCode::AutoOffsetReset) => Fetched::OutOfRange,
                Some(code) => Fetched::Error {
                    code,
                    text: String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned(),
                },
            };
            (message.partition(), fetched)
        })
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        for partition in std::mem::take(&mut self.started) {
            // The client goes away next; there is nothing to be done about a partition that does not stop.
            let _stuck = NativeQueue::stop(&self.shared.topic, partition);
        }
    }
}
