//! Reading one topic as a member of a group.
//!
//! Two clients, each with a thread of its own: `member` belongs to the group and fetches nothing, `fetch` fetches and
//! belongs to no group. What they tell meets in `buffer`, under one lock, from which the room takes.

mod buffer;
mod fetch;
mod incarnation;
mod member;
mod membership;
mod shared;

pub use membership::KafkaMembership;

use crate::config::KafkaConfig;
use crate::error::{failed, from_code, from_kafka, misconfigured, unavailable};
use crate::fetcher::{FetchClient, Fetcher};
use crate::health::{Health, Watched};
use crate::metrics::ReaderMetrics;
use crate::settings;
use buffer::Buffer;
use fetch::FetchThread;
use incarnation::Incarnation;
use member::MemberContext;
use onlooker_ports::{Committed, GroupEvent, GroupReader, PortError, Position, Topic};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};
use shared::{Order, Shared};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A member of a consumer group.
///
/// `next` gives a transient error while no broker can be reached, once for every wait; the reader goes on by itself when
/// one is back. Dropped without `close` it leaves the group all the same, in the background.
pub struct KafkaReader {
    shared: Arc<Shared>,
    /// Both none once closed: dropping a client blocks, so that the threads have to be the last that hold them.
    fetch: Option<Arc<FetchClient>>,
    member: Option<Arc<BaseConsumer<MemberContext>>>,
    health: Arc<Health>,
    topic: String,
    request_timeout: Duration,
    incarnation: Arc<Incarnation>,
    closed: Option<oneshot::Receiver<()>>,
}

impl KafkaReader {
    /// Joins the group in the background.
    ///
    /// # Errors
    /// The configuration is not one that the client library takes.
    pub fn open(config: &KafkaConfig, topic: Topic, group: &str) -> Result<Self, PortError> {
        let name = config.topics.get(topic).to_owned();
        let health = Health::new("reader");
        let metrics = ReaderMetrics::register();
        let shared = Arc::new(Shared::new(Buffer::new(config.buffer_bytes, config.batch_records)));
        let fetcher = Fetcher::open(config, &name, true, Arc::clone(&health))?;
        let fetch = Arc::clone(fetcher.shared());
        let context = MemberContext {
            watched: Watched::new(config, &health),
            group: group.to_owned(),
            topic: name.clone(),
            role: topic,
            shared: Arc::clone(&shared),
            fetch: Arc::clone(&fetch),
            metrics: metrics.clone(),
        };
        let member = BaseConsumer::from_config_and_context(&settings::member(config, group), context)
            .map_err(|error| from_kafka(&error, "making a group's member"))?;
        member.subscribe(&[&name]).map_err(|error| from_kafka(&error, "joining the group"))?;
        let member = Arc::new(member);
        let thread = FetchThread::new(
            fetcher,
            Arc::clone(&shared),
            Arc::clone(&health),
            metrics,
            topic,
            config.stall_timeout(),
        );
        spawn("kafka-fetch", move || thread.run())?;
        let (left, closed) = oneshot::channel();
        {
            let (member, shared) = (Arc::clone(&member), Arc::clone(&shared));
            let (health, name) = (Arc::clone(&health), name.clone());
            spawn("kafka-member", move || {
                member::run(member, &shared, &health, &name);
                let _gone = left.send(());
            })?;
        }
        Ok(Self {
            shared,
            fetch: Some(fetch),
            member: Some(member),
            health,
            topic: name,
            request_timeout: config.request_timeout(),
            incarnation: Arc::default(),
            closed: Some(closed),
        })
    }

    async fn order(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<(), PortError>>) -> Order,
    ) -> Result<(), PortError> {
        let (done, outcome) = oneshot::channel();
        {
            let mut state = self.shared.state();
            if state.closing {
                return Err(failed("the reader is closed"));
            }
            state.orders.push_back(order(done));
        }
        self.wake_fetch();
        outcome.await.unwrap_or_else(|_| Err(failed("the reader is closed")))
    }

    /// Asks the member's client something that blocks.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&BaseConsumer<MemberContext>, &str, Duration) -> Result<T, PortError>
        + Send
        + 'static,
    ) -> Result<T, PortError> {
        let Some(member) = self.member.clone() else { return Err(failed("the reader is closed")) };
        let (topic, wait) = (self.topic.clone(), self.request_timeout);
        let answer = tokio::task::spawn_blocking(move || question(&member, &topic, wait)).await;
        let answer = answer.map_err(|error| failed(format_args!("a question ended early: {error}")))?;
        answer.map_err(|error| self.health.permanent().unwrap_or(error))
    }

    fn begin_close(&mut self) {
        self.shared.state().closing = true;
        self.wake_fetch();
        self.fetch = None;
        self.member = None;
    }

    fn wake_fetch(&self) {
        self.shared.your_turn();
        if let Some(fetch) = &self.fetch {
            fetch.wake();
        }
    }
}

impl Drop for KafkaReader {
    fn drop(&mut self) {
        self.begin_close();
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), PortError> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map(drop).map_err(|error| failed(format_args!("cannot start a thread: {error}")))
}

impl GroupReader for KafkaReader {
    type Membership = KafkaMembership;

    async fn next(&mut self, wait: Duration) -> Result<Option<GroupEvent<KafkaMembership>>, PortError> {
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            {
                let mut state = self.shared.state();
                let was_full = state.buffer.is_full();
                let event = state.buffer.take();
                let room_again = was_full && !state.buffer.is_full();
                // Events first: they happened before the failure.
                let failure = if event.is_none() { state.failure.take() } else { None };
                drop(state);
                if room_again {
                    self.shared.your_turn();
                }
                if let Some(event) = event {
                    return Ok(Some(event));
                }
                if let Some(error) = failure.or_else(|| self.health.permanent()) {
                    return Err(error);
                }
            }
            tokio::select! {
                () = self.shared.announced() => {}
                error = self.health.until_permanent() => return Err(error),
                () = tokio::time::sleep_until(deadline) => {
                    return self.health.problem().map_or(Ok(None), Err);
                }
            }
        }
    }

    async fn start(&mut self, partition: i32, offset: i64) -> Result<(), PortError> {
        self.order(|done| Order::Start { partition, offset, done }).await
    }

    async fn stop(&mut self, partition: i32) -> Result<(), PortError> {
        self.order(|done| Order::Stop { partition, done }).await
    }

    async fn committed(&mut self, partition: i32) -> Result<Option<Committed>, PortError> {
        self.ask(move |member, topic, wait| {
            let mut list = TopicPartitionList::new();
            list.add_partition(topic, partition);
            let list = member.committed_offsets(list, wait).map_err(|error| {
                from_kafka(&error, format_args!("committed offset of partition {partition}"))
            })?;
            committed_of(&list, partition)
        })
        .await
    }

    async fn bounds(&mut self, partition: i32) -> Result<(i64, i64), PortError> {
        let Some(fetch) = self.fetch.clone() else { return Err(failed("the reader is closed")) };
        let incarnation = Arc::clone(&self.incarnation);
        self.ask(move |member, topic, wait| {
            // In this order: bounds of a topic that was made anew in between do no harm, since the next question tells.
            let bounds = fetch.bounds(partition, wait);
            incarnation.check(member.client(), topic, wait)?;
            bounds
        })
        .await
    }

    async fn commit(&mut self, positions: &[Position]) -> Result<(), PortError> {
        if positions.is_empty() {
            return Ok(());
        }
        let positions = positions.to_vec();
        self.ask(move |member, topic, _| {
            let list = list_of(topic, &positions)?;
            member.commit(&list, CommitMode::Sync).map_err(|error| from_kafka(&error, "committing positions"))
        })
        .await
    }

    async fn partitions(&mut self) -> Result<u32, PortError> {
        self.ask(|member, topic, wait| {
            let metadata = member
                .fetch_metadata(Some(topic), wait)
                .map_err(|error| from_kafka(&error, format_args!("metadata of {topic}")))?;
            partition_count(&metadata, topic)
        })
        .await
    }

    async fn close(&mut self, wait: Duration) {
        self.begin_close();
        if let Some(closed) = self.closed.take()
            && tokio::time::timeout(wait, closed).await.is_err()
        {
            tracing::warn!(
                topic = self.topic,
                "group was not left in time; it waits for the session to expire"
            );
        }
    }
}

/// Positions as the library wants them.
pub(crate) fn list_of(topic: &str, positions: &[Position]) -> Result<TopicPartitionList, PortError> {
    let mut list = TopicPartitionList::with_capacity(positions.len());
    for position in positions {
        let mut element = list.add_partition(topic, position.partition);
        element.set_metadata(&position.note);
        element
            .set_offset(Offset::Offset(position.offset))
            .map_err(|error| from_kafka(&error, format_args!("offset {}", position.offset)))?;
    }
    Ok(list)
}

fn committed_of(list: &TopicPartitionList, partition: i32) -> Result<Option<Committed>, PortError> {
    let Some(element) = list.elements().into_iter().find(|element| element.partition() == partition) else {
        return Ok(None);
    };
    if let Err(error) = element.error() {
        return Err(from_kafka(&error, format_args!("committed offset of partition {partition}")));
    }
    let note = element.metadata().to_owned();
    Ok(match element.offset() {
        Offset::Offset(offset) => Some(Committed { offset, note }),
        _ => None,
    })
}

pub(crate) fn partition_count(metadata: &rdkafka::metadata::Metadata, name: &str) -> Result<u32, PortError> {
    let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else {
        return Err(unavailable(format_args!("no metadata of {name}")));
    };
    if let Some(code) = topic.error() {
        return Err(from_code(RDKafkaErrorCode::from(code), format_args!("topic {name}")));
    }
    match u32::try_from(topic.partitions().len()) {
        Ok(0) | Err(_) => Err(misconfigured(format_args!("topic {name} has no partitions"))),
        Ok(partitions) => Ok(partitions),
    }
}
