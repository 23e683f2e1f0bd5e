//! The thread of a transactor: one transaction after the other.

use super::Job;
use super::producer::{StepError, TransactionalProducer, destroy, until};
use crate::config::KafkaConfig;
use crate::error::{from_code, from_kafka, unavailable};
use crate::health::Health;
use crate::metrics::TransactorMetrics;
use crate::native;
use crate::reader::list_of;
use onlooker_ports::{CommitError, PortError, Topic};
use rdkafka::error::KafkaError;
use rdkafka::producer::Producer;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// The coordinator times a transaction out; what it answers then still has to arrive.
const LAST_ANSWER: Duration = Duration::from_secs(5);

pub(super) struct Worker {
    config: KafkaConfig,
    /// Whose positions are committed.
    topic: String,
    /// The transactional id.
    id: String,
    health: Arc<Health>,
    metrics: TransactorMetrics,
    /// None after a doubt.
    producer: Option<TransactionalProducer>,
}

impl Worker {
    pub(super) fn new(config: &KafkaConfig, inputs: Topic, health: Arc<Health>) -> Result<Self, PortError> {
        let id = format!("{}-{}", config.client_id, uuid::Uuid::now_v7());
        let producer = TransactionalProducer::make(config, &id, &health)?;
        Ok(Self {
            config: config.clone(),
            topic: config.topics.get(inputs).to_owned(),
            id,
            health,
            metrics: TransactorMetrics::register(),
            producer: Some(producer),
        })
    }

    pub(super) fn run(mut self, inbox: &mpsc::Receiver<Job>) {
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

    /// Makes the producer if there is none and introduces it to the coordinator, which ends what the same id left open.
    fn introduce(&mut self) -> Result<TransactionalProducer, PortError> {
        let mut producer = match self.producer.take() {
            Some(producer) => producer,
            None => TransactionalProducer::make(&self.config, &self.id, &self.health)?,
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
                        producer.renew_brokers();
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
        producer.forget_failure();
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
