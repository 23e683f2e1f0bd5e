//! One partition: asks what its heart wants asked, and waits where servers make it wait.

mod tell;
mod work;

use crate::config::CounterConfig;
use crate::desk::{Desk, Gone};
use crate::heart::Heart;
use crate::inbox::{Inbox, Quality};
use crate::metrics::{CounterMetrics, Server};
use crate::words::{Answer, Ask, Told};
use onlooker_ports::{Archive, CountStore, LogWriter, PortError};
use onlooker_stage::telemetry::Progress;
use onlooker_stage::{Backoff, Problems, Shutdown};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

/// Waits between tries.
const RETRY_BASE: Duration = Duration::from_millis(50);
const RETRY_CAP: Duration = Duration::from_secs(5);

/// How long a step keeps its turn.
const TURN: Duration = Duration::from_millis(250);

/// Why a worker ends.
#[derive(Debug)]
pub(crate) enum Halt {
    /// Shutdown, or the partition is no longer ours.
    Stop,
    /// Nothing will help but a person.
    Fatal(PortError),
}

impl From<Gone> for Halt {
    fn from(_: Gone) -> Self {
        Halt::Stop
    }
}

/// What all workers share.
#[derive(Debug)]
pub(crate) struct Shared<C, A, W> {
    pub(crate) config: CounterConfig,
    pub(crate) counts: C,
    pub(crate) archive: A,
    pub(crate) dead: W,
    pub(crate) metrics: CounterMetrics,
    pub(crate) problems: Problems,
    /// The first offset that the log has, of each partition of ours, when it was last looked at.
    pub(crate) earliest: Mutex<BTreeMap<i32, i64>>,
    /// How far each partition of ours is, in time.
    pub(crate) progress: Mutex<BTreeMap<i32, Progress>>,
    /// Steps that may stand in the store's queue at once. A reader's command waits behind all of them.
    pub(crate) turns: Semaphore,
    pub(crate) shutdown: Shutdown,
}

pub(crate) struct Worker<C, A, W> {
    partition: i32,
    shared: Arc<Shared<C, A, W>>,
    desk: Desk,
    heart: Heart,
    inbox: Inbox,
    quality: Quality,
    backoff: Backoff,
    /// The log lost what comes next, or cannot be read; cleared when records come again.
    blocked: bool,
    next_wishes: Instant,
    next_look: Instant,
    last_step: Instant,
    last_delivery: Instant,
    /// When the log was last seen to end where the store stands; milliseconds since 1970.
    as_of_ms: i64,
}

impl<C: CountStore, A: Archive, W: LogWriter> Worker<C, A, W> {
    pub(crate) fn new(shared: Arc<Shared<C, A, W>>, desk: Desk, heart: Heart) -> Self {
        let (partition, now) = (desk.worker.partition, Instant::now());
        let inbox = Inbox::new(partition, &shared.config.source_topic, shared.config.batch_records)
            .spread_over(shared.config.partitions);
        Self {
            partition,
            shared,
            desk,
            heart,
            inbox,
            quality: Quality::default(),
            backoff: Backoff::new(RETRY_BASE, RETRY_CAP),
            blocked: false,
            next_wishes: now,
            next_look: now,
            last_step: now,
            last_delivery: now,
            as_of_ms: 0,
        }
    }

    /// Until shutdown or the end of the assignment. It may be dropped at any moment: that is a crash, and the store
    /// says where to go on.
    pub(crate) async fn run(mut self) -> Result<(), PortError> {
        loop {
            if self.shared.shutdown.is_requested() {
                return Ok(());
            }
            match self.step().await {
                Ok(()) => {}
                Err(Halt::Stop) => return Ok(()),
                Err(Halt::Fatal(error)) => return Err(error),
            }
        }
    }

    async fn step(&mut self) -> Result<(), Halt> {
        let shared = Arc::clone(&self.shared);
        let (counts, archive, partition) = (&shared.counts, &shared.archive, self.partition);
        let (server, result) = match self.heart.ask() {
            Ask::Applied => {
                // Nothing that was delivered or seen so far counts any more.
                self.inbox.close();
                self.as_of_ms = 0;
                if let Err(error) = self.desk.stop().await? {
                    (Server::Log, Err(error))
                } else {
                    (Server::Counters, counts.applied(partition).await.map(Answer::Applied))
                }
            }
            Ask::Durable => (Server::Archive, archive.durable(partition).await.map(Answer::Durable)),
            Ask::End => (Server::Log, self.desk.bounds().await?.map(|(_, end)| Answer::End(end))),
            Ask::Init { durable, whole_at } => {
                shared.metrics.losses.increment(1);
                if shared.config.volatile || durable == whole_at {
                    tracing::info!(partition, durable, whole_at, "counting from what is durable");
                } else {
                    tracing::warn!(
                        partition,
                        durable,
                        whole_at,
                        "store stands nowhere, counting again from what is durable"
                    );
                }
                let at = counts.init(partition, durable, whole_at).await;
                (Server::Counters, at.map(Answer::Initialised))
            }
            Ask::Start { offset } => match self.desk.start(offset).await? {
                Ok(deliveries) => {
                    self.inbox.open(deliveries);
                    self.last_delivery = Instant::now();
                    tracing::info!(partition, offset, "counting");
                    (Server::Log, Ok(Answer::Started))
                }
                Err(error) => (Server::Log, Err(error)),
            },
            Ask::Work { from } => return self.work(from).await,
            Ask::Lookup { from, keys } => {
                (Server::Counters, counts.lookup(partition, from, keys).await.map(Answer::Found))
            }
            Ask::Read { keys, for_readers } => {
                shared.metrics.archive_reads.increment(keys.len() as u64);
                let rows = if for_readers {
                    let most = Duration::from_millis(shared.config.wanted_read_ms);
                    timeout(most, archive.read(keys)).await.unwrap_or_else(|_| Err(too_slow()))
                } else {
                    archive.read(keys).await
                };
                if for_readers && rows.is_err() {
                    // Counting is not to suffer from it: readers ask again, and are served again later.
                    self.next_wishes = Instant::now() + RETRY_CAP;
                    shared.metrics.errors.get(Server::Archive).increment(1);
                    (Server::Archive, Ok(Answer::Doubt))
                } else {
                    (Server::Archive, rows.map(Answer::Archived))
                }
            }
            Ask::Apply(step) => {
                let start = Instant::now();
                let mut applying = std::pin::pin!(async {
                    // Never closed, so there is always a turn to be had.
                    let turn = shared.turns.acquire().await;
                    let mut applying = std::pin::pin!(counts.apply(partition, step));
                    // One that takes longer waits for a server that is away, perhaps one of many: the others go on.
                    if let Ok(outcome) = timeout(TURN, &mut applying).await {
                        return outcome;
                    }
                    drop(turn);
                    applying.await
                });
                let outcome = loop {
                    tokio::select! {
                        biased;
                        outcome = &mut applying => break outcome,
                        // The next batch is read and grouped meanwhile. Looking it up has to wait: it is asked on top
                        // of an offset that is not there yet.
                        () = self.inbox.receive(), if self.inbox.has_room() => {}
                    }
                };
                self.last_step = Instant::now();
                shared.metrics.apply.record(start.elapsed());
                (Server::Counters, outcome.map(Answer::Outcome))
            }
        };
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => self.trouble(server, error).await?,
        };
        self.answer(answer).await
    }

    async fn answer(&mut self, answer: Answer) -> Result<(), Halt> {
        self.heart.answer(answer);
        let told = self.heart.take_told();
        if told != Told::default() {
            self.tell(told).await;
        }
        Ok(())
    }

    /// Asks for deliveries from where the store stands.
    async fn go_on(&mut self, from: i64) -> Result<(), Halt> {
        match self.desk.start(from).await? {
            Ok(deliveries) => {
                self.inbox.open(deliveries);
                Ok(())
            }
            Err(error) => {
                let answer = self.trouble(Server::Log, error).await?;
                self.answer(answer).await
            }
        }
    }

    /// No deliveries while this partition waits for something, or all others would wait for it.
    async fn detach(&mut self) -> Result<(), Halt> {
        if self.inbox.is_open() {
            self.inbox.close();
            if let Err(error) = self.desk.stop().await? {
                tracing::debug!(partition = self.partition, %error, "reading not stopped");
            }
        }
        Ok(())
    }

    /// A call failed: says so, waits, and gives the answer that fits.
    async fn trouble(&mut self, server: Server, error: PortError) -> Result<Answer, Halt> {
        let metrics = &self.shared.metrics;
        metrics.errors.get(server).increment(1);
        if matches!(error, PortError::Denied { .. } | PortError::Misconfigured { .. }) {
            return Err(Halt::Fatal(error));
        }
        let answer = match &error {
            PortError::Full { .. } => Answer::Refused,
            _ => Answer::Doubt,
        };
        let delay = self.backoff.next_delay();
        let part = (self.partition, "server");
        self.shared.problems.set(part, format!("waiting for the {}", server.as_str()));
        tracing::warn!(
            partition = self.partition,
            server = server.as_str(),
            %error,
            failures = self.backoff.failures(),
            retry_in_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
            "call failed"
        );
        self.detach().await?;
        self.pause(delay).await?;
        Ok(answer)
    }

    async fn pause(&self, delay: Duration) -> Result<(), Halt> {
        tokio::select! {
            () = sleep(delay) => Ok(()),
            () = self.shared.shutdown.requested() => Err(Halt::Stop),
        }
    }
}

fn too_slow() -> PortError {
    PortError::Unavailable { server: "archive", detail: "no answer in time for a reader's wish".into() }
}

/// Milliseconds since 1970. Only what people see as "as of" or "age" rests on it.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
