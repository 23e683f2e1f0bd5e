//! Outputs and consumed positions in one atomic step.

use crate::config::KafkaConfig;
use crate::error::{failed, from_code, from_kafka, unavailable};
use crate::health::{Health, Watched};
use crate::metrics::TransactorMetrics;
use crate::native::{self, NativeError, NativeTopic};
use crate::reader::{KafkaMembership, list_of};
use crate::settings;
use onlooker_ports::{CommitError, OutgoingBatch, OutgoingRef, PortError, Position, Topic, Transactor};
use rdkafka::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{Producer, ProducerContext, ThreadedProducer};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Records handed to the library at once, under one lock of its.
const RUN: usize = 1_000;
const FULL_QUEUE: Duration = Duration::from_millis(2);
/// The coordinator times a transaction out; what it answers then still has to arrive.
const LAST_ANSWER: Duration = Duration::from_secs(5);

/// A transactional producer on a thread of its own.
///
/// The transactional id is fresh for every value: it fences nobody. A former owner is fenced by the group's generation,
/// which travels with the positions (KIP-447). What a dead instance left open is aborted by the broker after the
/// transaction time-out, and holds readers up until then.
pub struct KafkaTransactor {
    jobs: mpsc::Sender<Job>,
    health: Arc<Health>,
}

struct Job {
    outputs: OutgoingBatch,
    inputs: Vec<Position>,
    membership: KafkaMembership,
    /// Set by whoever comes first: the thread that begins it, or the caller who gives it up.
    taken: Arc<AtomicBool>,
    done: oneshot::Sender<Result<(), CommitError>>,
}

impl Job {
    /// True for the first who asks.
    fn take(taken: &AtomicBool) -> bool {
        !taken.swap(true, Ordering::AcqRel)
    }
}

impl KafkaTransactor {
    /// Makes the producer and introduces it to its coordinator in the background; `inputs` is the topic that the
    /// positions are of.
    ///
    /// # Errors
    /// The configuration is not one that the client library takes.
    pub fn open(config: &KafkaConfig, inputs: Topic) -> Result<Self, PortError> {
        let health = Health::new("transactor");
        let id = format!("{}-{}", config.client_id, uuid::Uuid::now_v7());
        let worker = Worker {
            config: config.clone(),
            topic: config.topics.get(inputs).to_owned(),
            id,
            health: Arc::clone(&health),
            metrics: TransactorMetrics::register(),
            producer: None,
        };
        // Faults of the configuration show here and not at the first view.
        worker.make()?;
        let (jobs, inbox) = mpsc::channel();
        std::thread::Builder::new()
            .name("kafka-transactor".into())
            .spawn(move || worker.run(&inbox))
            .map_err(|error| failed(format_args!("cannot start a thread: {error}")))?;
        Ok(Self { jobs, health })
    }
}

impl Transactor for KafkaTransactor {
    type Membership = KafkaMembership;

    async fn commit(
        &mut self,
        outputs: &OutgoingBatch,
        inputs: &[Position],
        membership: &KafkaMembership,
    ) -> Result<(), CommitError> {
        let (done, outcome) = oneshot::channel();
        let taken = Arc::new(AtomicBool::new(false));
        // The copy is one block of memory, and cheap beside what follows.
        let job = Job {
            outputs: outputs.clone(),
            inputs: inputs.to_vec(),
            membership: membership.clone(),
            taken: Arc::clone(&taken),
            done,
        };
        if self.jobs.send(job).is_err() {
            return Err(CommitError::Port(failed("the transactor's thread has ended")));
        }
        let mut outcome = std::pin::pin!(async {
            outcome.await.unwrap_or_else(|_| Err(CommitError::Unknown("the thread has ended".into())))
        });
        tokio::select! {
            outcome = &mut outcome => outcome,
            // Not let in: the thread would find that out by a time-out.
            error = self.health.until_permanent() => match Job::take(&taken) {
                true => Err(CommitError::Port(error)),
                false => outcome.await,
            },
        }
    }
}

struct Worker {
    config: KafkaConfig,
    topic: String,
    id: String,
    health: Arc<Health>,
    metrics: TransactorMetrics,
    /// None before the first use and after a doubt.
    producer: Option<TransactionalProducer>,
}

struct TransactionalProducer {
    // Topics before the producer: they are dropped first.
    topics: Vec<(Topic, NativeTopic)>,
    inner: ThreadedProducer<Context>,
    failure: Arc<Mutex<Option<String>>>,
    introduced: bool,
}

struct Context {
    watched: Watched,
    /// Why a record was not delivered, for the error's text.
    failure: Arc<Mutex<Option<String>>>,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.watched.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // A fenced or timed-out transaction is fatal to the producer and an everyday matter to us: the worker renews it.
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
            tracing::warn!(reason, "transactional producer has to be renewed");
            return;
        }
        self.watched.error(error, reason);
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        }
    }
}

/// How a step failed, and whether the transaction can still be aborted.
enum StepError {
    Abort(String),
    Doubt(String),
}

impl Worker {
    fn run(mut self, inbox: &mpsc::Receiver<Job>) {
        // Before the first job, which it would delay by a second.
        if let Err(error) = self.introduce() {
            tracing::debug!(%error, "transactional producer is not ready yet");
        }
        while let Ok(job) = inbox.recv() {
            let begun = Instant::now();
            let outcome = self.commit(&job);
            self.metrics.duration.record(begun.elapsed().as_secs_f64());
            match &outcome {
                Ok(()) => self.metrics.committed.increment(1),
                Err(CommitError::Unknown(_)) => self.metrics.unknown.increment(1),
                Err(_) => self.metrics.aborted.increment(1),
            }
            let _gone = job.done.send(outcome);
        }
    }

    fn make(&self) -> Result<TransactionalProducer, PortError> {
        let failure = Arc::new(Mutex::new(None));
        let context = Context { watched: Watched(Arc::clone(&self.health)), failure: Arc::clone(&failure) };
        let inner =
            ThreadedProducer::from_config_and_context(&settings::transactor(&self.config, &self.id), context)
                .map_err(|error| from_kafka(&error, "making a transactional producer"))?;
        Ok(TransactionalProducer { topics: Vec::new(), inner, failure, introduced: false })
    }

    /// Makes the producer if there is none and introduces it to the coordinator, which ends what the same id left open.
    fn introduce(&mut self) -> Result<TransactionalProducer, PortError> {
        let mut producer = match self.producer.take() {
            Some(producer) => producer,
            None => self.make()?,
        };
        if !producer.introduced {
            match producer.inner.init_transactions(self.config.request_timeout()) {
                Ok(()) => producer.introduced = true,
                Err(KafkaError::Transaction(error)) => {
                    let retriable = error.is_retriable();
                    let error =
                        from_code(error.code(), format_args!("starting transactions: {}", error.string()));
                    // One that may be asked again is kept, and goes on connecting meanwhile.
                    if retriable {
                        self.producer = Some(producer);
                    }
                    return Err(error);
                }
                Err(error) => return Err(from_kafka(&error, "starting transactions")),
            }
            self.health.works();
        }
        Ok(producer)
    }

    fn commit(&mut self, job: &Job) -> Result<(), CommitError> {
        let mut producer = self.introduce()?;
        if job.done.is_closed() || !Job::take(&job.taken) {
            self.producer = Some(producer);
            return Err(CommitError::Port(unavailable("the caller has given the transaction up")));
        }
        let deadline =
            Instant::now() + Duration::from_millis(self.config.transaction_timeout_ms) + LAST_ANSWER;
        *producer.failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
        match self.steps(&mut producer, job, deadline) {
            Ok(()) => {
                self.producer = Some(producer);
                Ok(())
            }
            Err(StepError::Abort(reason)) => {
                let reason = producer.reason(reason);
                match producer.abort(deadline) {
                    Ok(()) => {
                        self.producer = Some(producer);
                        Err(CommitError::Aborted(reason))
                    }
                    Err(error) => {
                        destroy(producer);
                        Err(CommitError::Unknown(format!("{reason}; and the abort failed: {}", error.text)))
                    }
                }
            }
            Err(StepError::Doubt(reason)) => {
                let reason = producer.reason(reason);
                destroy(producer);
                Err(CommitError::Unknown(reason))
            }
        }
    }

    fn steps(
        &self,
        producer: &mut TransactionalProducer,
        job: &Job,
        deadline: Instant,
    ) -> Result<(), StepError> {
        if let Err(error) = producer.inner.begin_transaction() {
            return Err(StepError::Doubt(format!("cannot begin: {error}")));
        }
        producer.produce(&self.config, &job.outputs, deadline)?;
        if !job.inputs.is_empty() {
            // While the records travel.
            let list =
                list_of(&self.topic, &job.inputs).map_err(|error| StepError::Abort(error.to_string()))?;
            let client = producer.inner.client();
            let sent = until(deadline, |wait| native::send_offsets(client, &list, &job.membership, wait));
            sent.map_err(|error| match error {
                error if error.fatal => StepError::Doubt(error.text),
                error => StepError::Abort(error.text),
            })?;
        }
        let client = producer.inner.client();
        let committed = until(deadline, |wait| native::commit_transaction(client, wait));
        committed.map_err(|error| match error {
            // The library says so only when the commit was not asked for, or was refused.
            error if error.requires_abort => StepError::Abort(error.text),
            error => StepError::Doubt(error.text),
        })
    }
}

impl TransactionalProducer {
    fn produce(
        &mut self,
        config: &KafkaConfig,
        outputs: &OutgoingBatch,
        deadline: Instant,
    ) -> Result<(), StepError> {
        let abort = |error: PortError| StepError::Abort(error.to_string());
        let mut runs: Vec<(Topic, Vec<OutgoingRef<'_>>)> = Vec::new();
        for record in outputs.iter() {
            match runs.iter_mut().find(|(topic, _)| *topic == record.topic) {
                Some((_, run)) => run.push(record),
                None => runs.push((record.topic, vec![record])),
            }
        }
        for (topic, records) in runs {
            let native = self.topic(topic, config).map_err(abort)?;
            for run in records.chunks(RUN) {
                enqueue(native, run, deadline)?;
            }
        }
        Ok(())
    }

    fn topic(&mut self, topic: Topic, config: &KafkaConfig) -> Result<&NativeTopic, PortError> {
        let index = match self.topics.iter().position(|(of, _)| *of == topic) {
            Some(index) => index,
            None => {
                let native = NativeTopic::new(self.inner.client(), config.topics.get(topic))?;
                self.topics.push((topic, native));
                self.topics.len() - 1
            }
        };
        self.topics.get(index).map(|(_, native)| native).ok_or_else(|| failed("no such topic"))
    }

    fn abort(&self, deadline: Instant) -> Result<(), NativeError> {
        until(deadline, |wait| match self.inner.abort_transaction(wait) {
            Ok(()) => Ok(()),
            Err(KafkaError::Transaction(error)) => Err(NativeError::from(error)),
            Err(error) => Err(NativeError {
                code: error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail),
                text: error.to_string(),
                fatal: true,
                retriable: false,
                requires_abort: false,
            }),
        })
    }

    /// Adds why a record was not delivered, if one was not.
    fn reason(&self, reason: String) -> String {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(failure) => format!("{reason} ({failure})"),
            None => reason,
        }
    }
}

/// Hands records over, waiting while the library's queue is full.
fn enqueue(topic: &NativeTopic, records: &[OutgoingRef<'_>], deadline: Instant) -> Result<(), StepError> {
    let mut left: Vec<OutgoingRef<'_>> = records.to_vec();
    while let Some((indices, code)) = native::produce(topic, left.iter().copied(), ptr::null_mut, |_| ()) {
        if code != RDKafkaErrorCode::QueueFull || Instant::now() >= deadline {
            return Err(StepError::Abort(format!("record refused: {code}")));
        }
        left = indices.into_iter().filter_map(|index| left.get(index).copied()).collect();
        std::thread::sleep(FULL_QUEUE);
    }
    Ok(())
}

/// Tries again for as long as the library says that it may help.
fn until(
    deadline: Instant,
    mut step: impl FnMut(Duration) -> Result<(), NativeError>,
) -> Result<(), NativeError> {
    loop {
        let wait = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match step(wait) {
            Err(error) if error.retriable && !error.requires_abort && Instant::now() < deadline => {
                tracing::debug!(code = %error.code, error = error.text, "transaction step is tried again");
            }
            outcome => return outcome,
        }
    }
}

/// Beside the thread that has a next transaction to begin: it can take as long as a broker is silent.
fn destroy(producer: TransactionalProducer) {
    let destroyer = std::thread::Builder::new().name("kafka-destroy".into());
    if let Err(error) = destroyer.spawn(move || drop(producer)) {
        tracing::warn!(%error, "cannot start a thread");
    }
}
