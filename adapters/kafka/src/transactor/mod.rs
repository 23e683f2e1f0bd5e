//! Outputs and consumed positions in one atomic step.

mod producer;
mod worker;

use crate::config::KafkaConfig;
use crate::error::failed;
use crate::health::Health;
use crate::reader::KafkaMembership;
use onlooker_ports::{CommitError, OutgoingBatch, PortError, Position, Topic, Transactor};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use tokio::sync::oneshot;
use worker::Worker;

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
        // Faults of the configuration show here and not at the first view.
        let worker = Worker::new(config, inputs, Arc::clone(&health))?;
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
