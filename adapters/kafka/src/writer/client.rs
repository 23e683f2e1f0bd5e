//! A producer with the thread that polls it.

use super::pending::Pending;
use crate::config::KafkaConfig;
use crate::error::{failed, from_kafka, unavailable};
use crate::health::{Health, Watched};
use crate::metrics::WriterMetrics;
use crate::native::{self, NativeTopic};
use crate::settings;
use onlooker_ports::{OutgoingBatch, PortError, Topic};
use rdkafka::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, Producer, ProducerContext};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the polling thread sleeps when nothing is acknowledged; it wakes at once when something is.
const POLL: Duration = Duration::from_millis(100);
const PROBE_EVERY: Duration = Duration::from_millis(500);

const TOPICS: [Topic; 4] = [Topic::Views, Topic::Counted, Topic::Ignored, Topic::Dead];

pub(super) struct Context(Watched);

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.0.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.error(error, reason);
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Arc<Pending>;

    fn delivery(&self, result: &DeliveryResult<'_>, pending: Arc<Pending>) {
        if let Err((error, _)) = result {
            pending.fail(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail));
        }
    }
}

/// One client with the thread that polls it.
pub(super) struct Client {
    pub(super) health: Arc<Health>,
    // Topics before the producer: they are dropped first.
    topics: Vec<NativeTopic>,
    #[cfg_attr(not(test), expect(dead_code, reason = "outlives the topics"))]
    pub(super) producer: Arc<BaseProducer<Context>>,
    stopped: Arc<AtomicBool>,
}

impl Client {
    pub(super) fn start(config: &KafkaConfig, metrics: &WriterMetrics) -> Result<Arc<Self>, PortError> {
        let health = Health::new("writer");
        let context = Context(Watched::new(config, &health));
        let producer = BaseProducer::from_config_and_context(&settings::writer(config), context)
            .map_err(|error| from_kafka(&error, "making a producer"))?;
        // Before the poller asks about one of them.
        let native =
            |topic| NativeTopic::spread(producer.client(), config.topics.get(topic), config.spread(topic));
        let topics = TOPICS.into_iter().map(native).collect::<Result<_, _>>()?;
        let producer = Arc::new(producer);
        let stopped = Arc::new(AtomicBool::new(false));
        let poller = Poller {
            producer: Arc::clone(&producer),
            health: Arc::clone(&health),
            stopped: Arc::clone(&stopped),
            topic: config.topics.views.clone(),
            metrics: metrics.clone(),
        };
        std::thread::Builder::new()
            .name("kafka-writer".into())
            .spawn(move || poller.run())
            .map_err(|error| failed(format_args!("cannot start a thread: {error}")))?;
        Ok(Arc::new(Self { health, topics, producer, stopped }))
    }

    /// What a fatal error means to the caller: the next append finds a new client.
    pub(super) fn or_renewed(&self, error: PortError) -> PortError {
        if self.health.is_fatal() {
            unavailable(format_args!("the producer is renewed: {error}"))
        } else {
            error
        }
    }

    pub(super) fn enqueue(&self, batch: &OutgoingBatch, pending: &Arc<Pending>) -> Result<(), PortError> {
        for (topic, native) in TOPICS.into_iter().zip(&self.topics) {
            let records: Vec<_> = batch.iter().filter(|record| record.topic == topic).collect();
            if records.is_empty() {
                continue;
            }
            let tag = || Arc::into_raw(Arc::clone(pending)).cast::<c_void>().cast_mut();
            // SAFETY: the pointer is one that `tag` made, and no delivery report will carry it.
            let untag = |tag: *mut c_void| drop(unsafe { Arc::from_raw(tag.cast_const().cast::<Pending>()) });
            if let Some((_, code)) = native::produce(native, &records, tag, untag) {
                pending.fail(code);
            }
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The polling thread holds the producer and drops it when it ends, so that nobody waits for it here.
        self.stopped.store(true, Ordering::Relaxed);
    }
}

struct Poller {
    producer: Arc<BaseProducer<Context>>,
    health: Arc<Health>,
    stopped: Arc<AtomicBool>,
    topic: String,
    metrics: WriterMetrics,
}

impl Poller {
    fn run(self) {
        let mut probed: Option<Instant> = None;
        while !self.stopped.load(Ordering::Relaxed) {
            self.producer.poll(POLL);
            self.metrics.queued.set(f64::from(self.producer.in_flight_count()));
            // When all is well the answers to appends say so. A question is only asked when none can come: at the
            // start, and when readiness keeps the traffic away because the brokers were down.
            let unknown = self.health.is_down() || !self.health.has_worked();
            if unknown && probed.is_none_or(|at| at.elapsed() > PROBE_EVERY) {
                let client = self.producer.client();
                self.health.probe(client.context().0.lifeline(), client, &self.topic, PROBE_EVERY);
                probed = Some(Instant::now());
            }
        }
    }
}
