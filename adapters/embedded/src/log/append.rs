//! Appending, alone or with positions.

use super::config::Kind;
use super::encode::Encoded;
use super::error::full;
use super::files::FileLayer;
use super::groups::EmbeddedMembership;
use super::queue::Refusal;
use super::reader::{marks, port_error};
use super::shared::Shared;
use onlooker_ports::{CommitError, LogWriter, OutgoingBatch, PortError, Position, Topic, Transactor};
use std::sync::Arc;
use std::time::Duration;

/// Appends records. Clones append to the same log.
#[derive(Debug)]
pub struct EmbeddedWriter<F: FileLayer> {
    log: Arc<Shared<F>>,
}

impl<F: FileLayer> Clone for EmbeddedWriter<F> {
    fn clone(&self) -> Self {
        Self { log: Arc::clone(&self.log) }
    }
}

impl<F: FileLayer> EmbeddedWriter<F> {
    pub(crate) fn new(log: Arc<Shared<F>>) -> Self {
        Self { log }
    }
}

impl<F: FileLayer> LogWriter for EmbeddedWriter<F> {
    /// One batch is one entry of each journal that it has records for, and each is whole or not there. `Full`: too much
    /// waits, the disk is full, or the journal has its limit; nothing of it is in the log then.
    async fn append(&self, batch: OutgoingBatch) -> Result<(), PortError> {
        let keyless = self.log.keyless();
        let encode = |kind| Encoded::new(kind, self.log.partitions, &batch, std::iter::empty(), keyless);
        let (views, verdicts) = (encode(Kind::Views), encode(Kind::Verdicts));
        drop(batch);
        let submit = async |kind, encoded: Encoded| {
            if encoded.is_empty() {
                return Ok(());
            }
            self.log.of(kind).submit(encoded, None, true).await.map_err(port_error)
        };
        let (views, verdicts) = tokio::join!(submit(Kind::Views, views), submit(Kind::Verdicts, verdicts));
        views.and(verdicts)
    }

    fn is_reachable(&self) -> bool {
        self.log.journals.iter().all(|journal| journal.is_healthy())
    }

    async fn flush(&self, wait: Duration) -> Result<(), PortError> {
        let quiet = async {
            for journal in &self.log.journals {
                loop {
                    let answered = journal.queue.answered.notified();
                    tokio::pin!(answered);
                    answered.as_mut().enable();
                    if journal.queue.is_quiet() {
                        break;
                    }
                    answered.await;
                }
            }
        };
        tokio::time::timeout(wait, quiet).await.map_err(|_| full("records still wait to be written"))
    }
}

/// Appends records and commits positions in one entry, which is whole or not there.
#[derive(Debug)]
pub struct EmbeddedTransactor<F: FileLayer> {
    log: Arc<Shared<F>>,
    inputs: Topic,
}

impl<F: FileLayer> EmbeddedTransactor<F> {
    pub(crate) fn new(log: Arc<Shared<F>>, inputs: Topic) -> Self {
        Self { log, inputs }
    }
}

impl<F: FileLayer> Transactor for EmbeddedTransactor<F> {
    type Membership = EmbeddedMembership;

    /// `Unknown` only after a sync that failed: the entry is not shown, but may be found at the next start.
    async fn commit(
        &mut self,
        outputs: &OutgoingBatch,
        inputs: &[Position],
        membership: &EmbeddedMembership,
    ) -> Result<(), CommitError> {
        let journal = self.log.of(Kind::Verdicts);
        if outputs.iter().any(|record| Kind::of(record.topic) != Kind::Verdicts) {
            let detail = "a transaction puts out verdicts, and no views";
            return Err(CommitError::Port(super::error::failed(detail)));
        }
        let marks = marks(inputs, &membership.group, self.inputs, self.log.partitions)?;
        let keyless = self.log.keyless();
        let encoded = Encoded::new(journal.kind, self.log.partitions, outputs, marks.into_iter(), keyless);
        let outcome = journal.submit(encoded, Some(membership.clone()), true).await;
        outcome.map_err(|refusal| match refusal {
            Refusal::Stale => CommitError::Aborted("the group has moved on".into()),
            Refusal::Nothing(error) => CommitError::Port(error),
            Refusal::Unknown(error) => CommitError::Unknown(error.to_string()),
        })
    }
}
