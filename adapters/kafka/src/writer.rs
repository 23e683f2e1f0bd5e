//! Appending with an acknowledgement.

use crate::config::KafkaConfig;
use crate::error::{failed, from_code, from_kafka, full, unavailable};
use crate::health::{Health, Watched};
use crate::metrics::WriterMetrics;
use crate::native::{self, NativeTopic};
use crate::settings;
use onlooker_ports::{LogWriter, OutgoingBatch, PortError, Topic};
use rdkafka::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, Producer, ProducerContext};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// How long the polling thread sleeps when nothing is acknowledged; it wakes at once when something is.
const POLL: Duration = Duration::from_millis(100);
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// The library reports every record within the delivery time-out; this is for the case that it does not.
const REPORT_LATE: Duration = Duration::from_secs(5);

const TOPICS: [Topic; 4] = [Topic::Views, Topic::Counted, Topic::Ignored, Topic::Dead];

/// Appends to the topics, each record durable on every in-sync replica (`acks=all`, idempotent) before it is reported
/// as such.
///
/// Costs one wake-up a batch, however many records it has. Survives the loss of brokers by itself; a client that is
/// beyond repair is replaced at the next append.
pub struct KafkaWriter {
    config: KafkaConfig,
    queue: Arc<Queue>,
    current: Mutex<Arc<Client>>,
    metrics: WriterMetrics,
}

impl KafkaWriter {
    /// Makes the client, which then connects in the background.
    ///
    /// # Errors
    /// The configuration is not one that the client library takes, for example a certificate that is no file.
    pub fn open(config: &KafkaConfig) -> Result<Self, PortError> {
        let metrics = WriterMetrics::register();
        let queue = Arc::new(Queue {
            max_records: config.queue_records,
            max_bytes: config.queue_bytes,
            records: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            drained: Notify::new(),
        });
        let current = Mutex::new(Client::start(config, &metrics)?);
        Ok(Self { config: config.clone(), queue, current, metrics })
    }

    fn client(&self) -> Result<Arc<Client>, PortError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.health.is_fatal() {
            *current = Client::start(&self.config, &self.metrics)?;
        }
        Ok(Arc::clone(&current))
    }
}

impl LogWriter for KafkaWriter {
    async fn append(&self, batch: OutgoingBatch) -> Result<(), PortError> {
        if batch.is_empty() {
            return Ok(());
        }
        let client = self.client()?;
        if let Some(error) = client.health.permanent() {
            self.metrics.failed.increment(1);
            return Err(error);
        }
        let Some(place) = Place::reserve(&self.queue, batch.len(), batch.bytes()) else {
            self.metrics.failed.increment(1);
            return Err(full(format_args!(
                "{} records wait for an acknowledgement",
                self.queue.records.load(Ordering::Relaxed)
            )));
        };
        let (report, done) = oneshot::channel();
        let pending = Arc::new(Pending { failure: AtomicI32::new(0), report: Some(report), _place: place });
        client.enqueue(&batch, &pending)?;
        // From here on every record holds a share of `pending`; the last report ends the wait.
        drop(pending);
        let late = self.config.delivery_timeout() + REPORT_LATE;
        let outcome = tokio::select! {
            outcome = done => outcome.unwrap_or(Err(RDKafkaErrorCode::Fail)),
            error = client.health.until_permanent() => {
                self.metrics.failed.increment(1);
                return Err(client.or_renewed(error));
            }
            () = tokio::time::sleep(late) => Err(RDKafkaErrorCode::MessageTimedOut),
        };
        match outcome {
            Ok(()) => {
                client.health.works();
                self.metrics.appended.increment(u64::try_from(batch.len()).unwrap_or(u64::MAX));
                Ok(())
            }
            Err(code) => {
                // A broker that is frozen closes no connection: the first sign of it is a record that timed out.
                match code {
                    RDKafkaErrorCode::MessageTimedOut => {
                        client.health.saw(code, "records were not acknowledged in time");
                    }
                    // Records are refused with it before the client's own report is served.
                    RDKafkaErrorCode::Fatal => client.health.saw(code, "records are refused"),
                    _ => {}
                }
                self.metrics.failed.increment(1);
                Err(client.or_renewed(from_code(code, "appending")))
            }
        }
    }

    fn is_reachable(&self) -> bool {
        !self.current.lock().unwrap_or_else(PoisonError::into_inner).health.is_down()
    }

    async fn flush(&self, wait: Duration) -> Result<(), PortError> {
        let emptied = async {
            loop {
                let drained = self.queue.drained.notified();
                if self.queue.records.load(Ordering::Acquire) == 0 {
                    return;
                }
                drained.await;
            }
        };
        tokio::time::timeout(wait, emptied).await.map_err(|_| {
            let left = self.queue.records.load(Ordering::Relaxed);
            unavailable(format_args!("{left} records are not acknowledged yet"))
        })
    }
}

/// What may wait for an acknowledgement. Counted here and not by the library, so that a batch is taken or refused as a
/// whole.
#[derive(Debug)]
struct Queue {
    max_records: usize,
    max_bytes: usize,
    records: AtomicUsize,
    bytes: AtomicUsize,
    drained: Notify,
}

/// A batch's share of the queue, given back when it is dropped.
#[derive(Debug)]
struct Place {
    queue: Arc<Queue>,
    records: usize,
    bytes: usize,
}

impl Place {
    fn reserve(queue: &Arc<Queue>, records: usize, bytes: usize) -> Option<Self> {
        let all_records = queue.records.fetch_add(records, Ordering::AcqRel) + records;
        let all_bytes = queue.bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let place = Self { queue: Arc::clone(queue), records, bytes };
        (all_records <= queue.max_records && all_bytes <= queue.max_bytes).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queue.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        if self.queue.records.fetch_sub(self.records, Ordering::AcqRel) == self.records {
            self.queue.drained.notify_waiters();
        }
    }
}

/// One batch under way. Every record holds a share; when the last is dropped, the outcome is known and sent.
struct Pending {
    /// The code of a record that failed, or 0.
    failure: AtomicI32,
    report: Option<oneshot::Sender<Result<(), RDKafkaErrorCode>>>,
    _place: Place,
}

impl Pending {
    fn fail(&self, code: RDKafkaErrorCode) {
        self.failure.store(code as i32, Ordering::Relaxed);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let outcome = match self.failure.load(Ordering::Relaxed) {
            0 => Ok(()),
            raw => Err(native::code_of(raw)),
        };
        if let Some(report) = self.report.take() {
            // Nobody waits any more if the request was cancelled.
            let _gone = report.send(outcome);
        }
    }
}

struct Context(Watched);

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
struct Client {
    health: Arc<Health>,
    // Topics before the producer: they are dropped first.
    topics: [OnceLock<NativeTopic>; TOPICS.len()],
    names: [String; TOPICS.len()],
    producer: Arc<BaseProducer<Context>>,
    stopped: Arc<AtomicBool>,
}

impl Client {
    fn start(config: &KafkaConfig, metrics: &WriterMetrics) -> Result<Arc<Self>, PortError> {
        let health = Health::new("writer");
        let context = Context(Watched(Arc::clone(&health)));
        let producer = BaseProducer::from_config_and_context(&settings::writer(config), context)
            .map_err(|error| from_kafka(&error, "making a producer"))?;
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
        let names = TOPICS.map(|topic| config.topics.get(topic).to_owned());
        Ok(Arc::new(Self { health, topics: Default::default(), names, producer, stopped }))
    }

    /// What a fatal error means to the caller: the next append finds a new client.
    fn or_renewed(&self, error: PortError) -> PortError {
        if self.health.is_fatal() {
            unavailable(format_args!("the producer is renewed: {error}"))
        } else {
            error
        }
    }

    fn topic(&self, index: usize) -> Result<&NativeTopic, PortError> {
        let (Some(cell), Some(name)) = (self.topics.get(index), self.names.get(index)) else {
            return Err(failed("no such topic"));
        };
        if cell.get().is_none() {
            // Of two that come at once the second is dropped again.
            let _lost = cell.set(NativeTopic::new(self.producer.client(), name)?);
        }
        cell.get().ok_or_else(|| failed("no such topic"))
    }

    fn enqueue(&self, batch: &OutgoingBatch, pending: &Arc<Pending>) -> Result<(), PortError> {
        for (index, topic) in TOPICS.into_iter().enumerate() {
            let records: Vec<_> = batch.iter().filter(|record| record.topic == topic).collect();
            if records.is_empty() {
                continue;
            }
            let tag = || Arc::into_raw(Arc::clone(pending)).cast::<c_void>().cast_mut();
            // SAFETY: the pointer is one that `tag` made, and no delivery report will carry it.
            let untag = |tag: *mut c_void| drop(unsafe { Arc::from_raw(tag.cast_const().cast::<Pending>()) });
            if let Some((_, code)) = native::produce(self.topic(index)?, records.into_iter(), tag, untag) {
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
                self.health.probe(self.producer.client(), &self.topic, PROBE_EVERY);
                probed = Some(Instant::now());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{WantedTopic, apply_topics};
    use onlooker_testkit::shared;
    use std::ffi::CString;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_beyond_repair_is_replaced() {
        let mut config = KafkaConfig { brokers: vec![shared::kafka().bootstrap()], ..KafkaConfig::default() };
        config.topics.views = "fatal.views".into();
        let spec = onlooker_schemas::topics::topics().unwrap().views;
        let spec = onlooker_schemas::topics::TopicSpec { partitions: 1, replication: 1, ..spec };
        apply_topics(&config, &[WantedTopic { topic: Topic::Views, spec }], false).await.unwrap();
        let writer = KafkaWriter::open(&config).unwrap();
        let mut batch = OutgoingBatch::default();
        batch.push(Topic::Views, b"k", b"v");
        writer.append(batch.clone()).await.unwrap();
        let first = writer.client().unwrap();
        let reason = CString::new("a test says so").unwrap();
        // SAFETY: the client and the text live.
        unsafe {
            rdkafka_sys::rd_kafka_test_fatal_error(
                first.producer.client().native_ptr(),
                rdkafka_sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
                reason.as_ptr(),
            );
        }
        // What is refused until the error is known is refused as something that passes.
        let begun = Instant::now();
        while let Err(error) = writer.append(batch.clone()).await {
            assert!(error.is_transient(), "{error}");
            assert!(begun.elapsed() < Duration::from_secs(30));
        }
        assert!(!Arc::ptr_eq(&first, &writer.client().unwrap()));
    }
}
