//! The member of the group: a client that joins, beats, hands over, and fetches nothing.

use super::membership::KafkaMembership;
use super::shared::{Order, Shared};
use crate::error::{from_kafka, is_missing_topic};
use crate::fetcher::FetchClient;
use crate::health::{Health, Watched};
use crate::metrics::ReaderMetrics;
use crate::native;
use onlooker_ports::Topic;
use rdkafka::ClientContext;
use rdkafka::TopicPartitionList;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::types::RDKafkaRespErr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(100);
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// Questions that are under way at the end hold the client; they are bounded by the request time-out.
const LAST_QUESTIONS: Duration = Duration::from_secs(10);

pub(crate) struct MemberContext {
    pub(crate) watched: Watched,
    pub(crate) group: String,
    pub(crate) topic: String,
    pub(crate) role: Topic,
    pub(crate) shared: Arc<Shared>,
    pub(crate) fetch: Arc<FetchClient>,
    pub(crate) metrics: ReaderMetrics,
}

impl ClientContext for MemberContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.watched.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.watched.error(error, reason);
    }
}

impl ConsumerContext for MemberContext {
    // Runs on the member's own thread, in `poll`.
    fn rebalance(&self, consumer: &BaseConsumer<Self>, what: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let all = list.elements();
        let partitions: Vec<i32> = all
            .iter()
            .filter(|element| element.topic() == self.topic)
            .map(|element| element.partition())
            .collect();
        let outcome = if what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.assigned(consumer, partitions);
            // The assignment is taken note of and left empty: this client fetches nothing.
            consumer.assign(&TopicPartitionList::new())
        } else {
            self.revoked(partitions);
            consumer.unassign()
        };
        if let Err(error) = outcome {
            self.shared.fail(from_kafka(&error, "taking over an assignment"));
        }
    }
}

impl MemberContext {
    fn assigned(&self, consumer: &BaseConsumer<Self>, partitions: Vec<i32>) {
        // Captured here, while the group waits for us to take the assignment over: later it could be the metadata of
        // a generation that has given the partitions to somebody else.
        let membership = match native::generation(consumer.client()) {
            Some((generation, member)) if generation >= 0 && !member.is_empty() => {
                KafkaMembership { group: self.group.clone(), generation, member }
            }
            // The group has dropped us in this moment. A transaction without generation would pass every check, so
            // this assignment is not told at all; the next one follows.
            _ => {
                tracing::warn!(group = self.group, "assignment is void before it began");
                return;
            }
        };
        tracing::info!(
            group = self.group,
            topic = self.topic,
            ?partitions,
            generation = membership.generation,
            "partitions assigned"
        );
        self.metrics.assignments.increment(1);
        self.shared.state().buffer.assign(partitions, membership);
        self.shared.announce();
    }

    fn revoked(&self, partitions: Vec<i32>) {
        tracing::info!(group = self.group, topic = self.topic, ?partitions, "partitions revoked");
        let mut state = self.shared.state();
        for partition in &partitions {
            state.orders.push_back(Order::Halt { partition: *partition });
            // Or the last value is shown beside the next owner's for ever.
            if let Some(lag) = self.metrics.lag(self.role) {
                lag.clear(*partition);
            }
        }
        state.buffer.revoke(partitions);
        drop(state);
        self.shared.announce();
        self.shared.your_turn();
        self.fetch.wake();
    }
}

/// The member's thread. Returns when the group has been left.
pub(crate) fn run(consumer: Arc<BaseConsumer<MemberContext>>, shared: &Shared, health: &Health, topic: &str) {
    let mut probed: Option<Instant> = None;
    while !shared.state().closing {
        // Nothing is assigned, so nothing but errors comes out.
        if let Some(Err(error)) = consumer.poll(POLL) {
            // A handshake that was disturbed looks like a wrong certificate. The health was told as well, and says when
            // it is to be believed.
            let disturbed = error.rdkafka_error_code() == Some(RDKafkaErrorCode::SSL);
            // One broker of several that went away is no news to the room; a topic that is not there is.
            let missing = error.rdkafka_error_code().is_some_and(is_missing_topic);
            let error = from_kafka(&error, format_args!("reading {topic}"));
            if disturbed || (error.is_transient() && !missing) {
                tracing::debug!(%error, topic, "group reports");
            } else {
                shared.fail(error);
            }
        }
        let lifeline = consumer.context().watched.lifeline();
        if (health.is_down() || lifeline.wants_mending())
            && probed.is_none_or(|at| at.elapsed() > PROBE_EVERY)
        {
            health.probe(lifeline, consumer.client(), topic, PROBE_EVERY);
            probed = Some(Instant::now());
        }
    }
    consumer.unsubscribe();
    let begun = Instant::now();
    while Arc::strong_count(&consumer) > 1 && begun.elapsed() < LAST_QUESTIONS {
        consumer.poll(POLL);
    }
    // Hands over and leaves the group, so that others need not wait for the session to expire.
    drop(consumer);
}
