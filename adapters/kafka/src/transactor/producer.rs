//! A producer within its transaction.

use crate::config::KafkaConfig;
use crate::error::{failed, from_kafka};
use crate::health::{Health, Watched};
use crate::native::{self, NativeError, NativeTopic};
use crate::settings;
use onlooker_ports::{OutgoingBatch, OutgoingRef, PortError, Topic};
use rdkafka::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{Producer, ProducerContext, ThreadedProducer};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Records handed to the library at once, under one lock of its.
const RUN: usize = 1_000;
const FULL_QUEUE: Duration = Duration::from_millis(2);

pub(super) struct TransactionalProducer {
    // Topics before the producer: they are dropped first.
    topics: Vec<(Topic, NativeTopic)>,
    pub(super) inner: ThreadedProducer<Context>,
    failure: Arc<Mutex<Option<String>>>,
    /// True once its coordinator knows it.
    pub(super) introduced: bool,
}

pub(super) struct Context {
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
pub(super) enum StepError {
    Abort(String),
    Doubt(String),
}

impl TransactionalProducer {
    pub(super) fn make(config: &KafkaConfig, id: &str, health: &Arc<Health>) -> Result<Self, PortError> {
        let failure = Arc::new(Mutex::new(None));
        let context = Context { watched: Watched::new(config, health), failure: Arc::clone(&failure) };
        let inner = ThreadedProducer::from_config_and_context(&settings::transactor(config, id), context)
            .map_err(|error| from_kafka(&error, "making a transactional producer"))?;
        Ok(Self { topics: Vec::new(), inner, failure, introduced: false })
    }

    pub(super) fn produce(
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
                let native =
                    NativeTopic::spread(self.inner.client(), config.topics.get(topic), config.spread(topic))?;
                self.topics.push((topic, native));
                self.topics.len() - 1
            }
        };
        self.topics.get(index).map(|(_, native)| native).ok_or_else(|| failed("no such topic"))
    }

    pub(super) fn abort(&self, deadline: Instant) -> Result<(), NativeError> {
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

    /// After a question that had no answer: it may have nobody left to ask.
    pub(super) fn renew_brokers(&self) {
        let client = self.inner.client();
        client.context().watched.lifeline().renew(client);
    }

    pub(super) fn forget_failure(&self) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Adds why a record was not delivered, if one was not.
    pub(super) fn reason(&self, reason: String) -> String {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(failure) => format!("{reason} ({failure})"),
            None => reason,
        }
    }
}

/// Hands records over, waiting while the library's queue is full.
fn enqueue(topic: &NativeTopic, records: &[OutgoingRef<'_>], deadline: Instant) -> Result<(), StepError> {
    let mut left: Vec<OutgoingRef<'_>> = records.to_vec();
    while let Some((indices, code)) = native::produce(topic, &left, ptr::null_mut, |_| ()) {
        if code != RDKafkaErrorCode::QueueFull || Instant::now() >= deadline {
            return Err(StepError::Abort(format!("record refused: {code}")));
        }
        left = indices.into_iter().filter_map(|index| left.get(index).copied()).collect();
        std::thread::sleep(FULL_QUEUE);
    }
    Ok(())
}

/// Tries again for as long as the library says that it may help.
pub(super) fn until(
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
pub(super) fn destroy(producer: TransactionalProducer) {
    let destroyer = std::thread::Builder::new().name("kafka-destroy".into());
    if let Err(error) = destroyer.spawn(move || drop(producer)) {
        tracing::warn!(%error, "cannot start a thread");
    }
}
