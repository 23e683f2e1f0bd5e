//! One partition's turn: a round asks, the servers answer.

use crate::config::FlusherConfig;
use crate::metrics::{FlusherMetrics, Server};
use crate::round::{Answer, Ask, Done, Ending, Round};
use onlooker_ports::{Archive, CountStore, PortError};
use onlooker_stage::Problems;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// What all turns share.
#[derive(Debug)]
pub(crate) struct Shared<C, A> {
    pub(crate) config: FlusherConfig,
    pub(crate) counts: C,
    pub(crate) archive: A,
    pub(crate) metrics: FlusherMetrics,
    pub(crate) problems: Problems,
}

/// What one partition's turns remember. Nothing of it is needed for correctness.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) partition: i32,
    /// When its last turn began.
    pub(crate) began: Instant,
    /// What this process last saw durable.
    pub(crate) durable: Option<i64>,
    pub(crate) next_sweep: Instant,
    /// The next turn is out of turn: whoever flushed last, it was not enough.
    pub(crate) hurry: bool,
}

impl<C: CountStore, A: Archive> Shared<C, A> {
    /// A round, if no other flusher has it; then perhaps a sweep.
    pub(crate) async fn turn(&self, memory: &mut Memory) -> Result<(), PortError> {
        match self.counts.claim_round(memory.partition, self.config.interval()).await {
            Ok(false) if std::mem::take(&mut memory.hurry) => {}
            Ok(true) => memory.hurry = false,
            Ok(false) => {
                self.metrics.taken.increment(1);
                // Somebody else sees to it, so nothing is the matter here.
                self.problems.clear((memory.partition, "round"));
                return Ok(());
            }
            Err(error) => return self.trouble(memory.partition, Server::Counters, error),
        }
        self.round(memory).await?;
        if Instant::now() >= memory.next_sweep {
            memory.next_sweep = Instant::now() + Duration::from_millis(self.config.sweep_ms);
            self.sweep(memory.partition).await?;
        }
        Ok(())
    }

    /// Archives what is dirty. An error is one that only a person can put right.
    pub(crate) async fn round(&self, memory: &mut Memory) -> Result<(), PortError> {
        let partition = memory.partition;
        let mut round = Round::new(self.config.page_keys, memory.durable);
        let start = Instant::now();
        let ending = loop {
            let answer = match round.ask() {
                Ask::End(ending) => break ending,
                ask => self.answer(partition, ask).await?,
            };
            round.answer(answer);
        };
        self.tell(partition, ending, round.done());
        self.metrics.round.record(start.elapsed());
        if let Ending::Durable(offset) = ending {
            memory.durable = Some(offset);
        }
        Ok(())
    }

    async fn answer(&self, partition: i32, ask: Ask<'_>) -> Result<Answer, PortError> {
        let counts = &self.counts;
        let (server, answer) = match ask {
            Ask::Begin => (Server::Counters, counts.begin(partition).await.map(Answer::Began)),
            Ask::ReadNumbers { applied, keys } => {
                (Server::Counters, counts.read_numbers(partition, applied, keys).await.map(Answer::Numbers))
            }
            Ask::ReadSketches { applied, keys } => {
                (Server::Counters, counts.read_sketches(partition, applied, keys).await.map(Answer::Sketches))
            }
            Ask::Write(cells) => {
                let mut acknowledged = Vec::with_capacity(cells.len());
                let mut first_error = None;
                for result in self.archive.write(cells).await {
                    acknowledged.push(result.is_ok());
                    if let Err(error) = result {
                        first_error.get_or_insert(error);
                    }
                }
                if let Some(error) = first_error {
                    self.trouble(partition, Server::Archive, error)?;
                }
                (Server::Archive, Ok(Answer::Written(acknowledged)))
            }
            Ask::SettleNumbers(numbers) => {
                let settled = counts.settle_numbers(partition, numbers).await;
                (Server::Counters, settled.map(|_| Answer::Settled))
            }
            Ask::SettleSketches(sketches) => {
                let ttl = Duration::from_secs(self.config.sketch_ttl_s);
                let settled = counts.settle_sketches(partition, sketches, ttl).await;
                (Server::Counters, settled.map(|_| Answer::Settled))
            }
            Ask::SetDurable(offset) => {
                let set = self.archive.set_durable(partition, offset).await;
                (Server::Archive, set.map(|()| Answer::DurableSet))
            }
            Ask::End(_) => return Ok(Answer::Doubt),
        };
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => self.trouble(partition, server, error).map(|()| Answer::Doubt),
        }
    }

    /// A call failed: says so; an error if waiting will not help.
    fn trouble(&self, partition: i32, server: Server, error: PortError) -> Result<(), PortError> {
        self.metrics.errors.get(server).increment(1);
        if matches!(error, PortError::Denied { .. } | PortError::Misconfigured { .. }) {
            return Err(error);
        }
        tracing::warn!(partition, server = server.as_str(), %error, "call failed, what is left stays for the next round");
        self.problems.set((partition, "round"), format!("waiting for the {}", server.as_str()));
        Ok(())
    }

    /// What the partition had is in the archive, as of now.
    pub(crate) fn flushed(&self, partition: i32) {
        self.metrics.flushed_at.set(partition, gauge(now_s()));
    }

    fn tell(&self, partition: i32, ending: Ending, done: &Done) {
        let metrics = &self.metrics;
        metrics.rounds.get(ending.as_str()).increment(1);
        metrics.numbers.increment(done.numbers);
        metrics.sketches.increment(done.sketches);
        metrics.bytes.increment(done.sketch_bytes);
        metrics.failed.increment(done.failed);
        metrics.dirty.set(partition, gauge(done.dirty));
        tracing::debug!(
            partition,
            ending = ending.as_str(),
            numbers = done.numbers,
            sketches = done.sketches,
            sketch_bytes = done.sketch_bytes,
            failed = done.failed,
            "round ended"
        );
        match ending {
            Ending::Durable(offset) => {
                metrics.durable.set(partition, gauge(u64::try_from(offset).unwrap_or(0)));
                self.flushed(partition);
                self.problems.clear((partition, "round"));
            }
            // No counter has run yet, or one is about to notice the loss: nothing that a flusher could wait for.
            Ending::Lost | Ending::Stale => self.problems.clear((partition, "round")),
            Ending::Corrupt => {
                metrics.corrupt.increment(done.corrupt.len() as u64);
                for key in &done.corrupt {
                    tracing::error!(
                        partition,
                        key_hash = format!("{:016x}", key.log_hash()),
                        "changed count is absent or damaged: not archived, nothing is durable; \
                         empty the counters store (FLUSHALL) to restore it from the log"
                    );
                }
                self.problems.set((partition, "round"), "a changed count in the store is absent or damaged");
            }
            // `trouble` has said why.
            Ending::Incomplete | Ending::GivenUp => {}
        }
    }

    /// Removes archived numbers that nobody has changed for long.
    async fn sweep(&self, partition: i32) -> Result<(), PortError> {
        let before_s = now_s().saturating_sub(self.config.number_age_s);
        let before_s = u32::try_from(before_s).unwrap_or(u32::MAX);
        let (mut cursor, mut removed) = (0, 0);
        loop {
            match self.counts.sweep_numbers(partition, cursor, before_s).await {
                Ok((next, some)) => {
                    removed += some;
                    cursor = next;
                }
                Err(error) => return self.trouble(partition, Server::Counters, error),
            }
            if cursor == 0 {
                break;
            }
        }
        self.metrics.swept.increment(removed as u64);
        self.metrics.swept_at.set(gauge(now_s()));
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge; offsets stay below 2^53")]
fn gauge(value: u64) -> f64 {
    value as f64
}

/// Seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
