//! Appending with an acknowledgement.

mod client;
mod pending;

use crate::config::KafkaConfig;
use crate::error::{from_code, full, unavailable};
use crate::metrics::WriterMetrics;
use client::Client;
use onlooker_ports::{LogWriter, OutgoingBatch, PortError};
use pending::{Pending, Place, Queue};
use rdkafka::error::RDKafkaErrorCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The library reports every record within the delivery time-out; this is for the case that it does not.
const REPORT_LATE: Duration = Duration::from_secs(5);

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
        let queue = Queue::new(config.queue_records, config.queue_bytes);
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
            return Err(full(format_args!("{} records wait for an acknowledgement", self.queue.len())));
        };
        let (pending, done) = Pending::new(place);
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
        tokio::time::timeout(wait, self.queue.until_empty()).await.map_err(|_| {
            let left = self.queue.len();
            unavailable(format_args!("{left} records are not acknowledged yet"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{WantedTopic, apply_topics};
    use onlooker_ports::Topic;
    use onlooker_testkit::shared;
    use rdkafka::producer::Producer;
    use std::ffi::CString;
    use std::time::Instant;

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
