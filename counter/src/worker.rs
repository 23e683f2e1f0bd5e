//! One partition: asks what its heart wants asked, and waits where servers make it wait.

use crate::config::{CounterConfig, LostRecords};
use crate::desk::{Desk, Gone};
use crate::heart::{Answer, Ask, Heart, Told, Work};
use crate::inbox::{Inbox, Quality};
use crate::metrics::{CounterMetrics, Server};
use onlooker_event::CountKey;
use onlooker_ports::{Archive, CountStore, LogWriter, OutgoingBatch, PortError};
use onlooker_stage::{Backoff, Problems, Shutdown};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Waits between tries.
const RETRY_BASE: Duration = Duration::from_millis(50);
const RETRY_CAP: Duration = Duration::from_secs(5);
/// When to look at the log again after that failed: all partitions of the process wait for the answer.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How often a partition that stands still looks whether somebody has put it right.
const RECHECK: Duration = Duration::from_secs(5);

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
        let inbox = Inbox::new(partition, &shared.config.source_topic, shared.config.batch_records);
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
                tracing::warn!(
                    partition,
                    durable,
                    whole_at,
                    "store stands nowhere, counting again from what is durable"
                );
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
                let mut applying = std::pin::pin!(counts.apply(partition, step));
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

    /// Finds something to do on top of `from`, waiting for it if need be.
    async fn work(&mut self, from: i64) -> Result<(), Halt> {
        self.backoff.reset();
        self.shared.problems.clear((self.partition, "server"));
        self.shared.metrics.applied.set(self.partition, offset_gauge(from));
        loop {
            let now = Instant::now();
            if now >= self.next_wishes {
                self.next_wishes = now + Duration::from_millis(self.shared.config.wanted_ms);
                if let Some(answer) = self.wishes().await? {
                    return self.answer(answer).await;
                }
            }
            if now >= self.next_look {
                self.next_look = now + self.shared.config.idle();
                if let Some(answer) = self.look_at_log(from).await? {
                    return self.answer(answer).await;
                }
            }
            self.inbox.fill();
            if let Some((grouped, to)) = self.inbox.take() {
                self.unblock();
                self.last_delivery = now;
                if !grouped.dead.is_empty() {
                    if !self.quality.allows(
                        grouped.records,
                        &grouped.dead,
                        self.shared.config.dead_limit_percent,
                    ) {
                        return self
                            .blocked("most records cannot be read: is a newer version of onlooker writing?")
                            .await;
                    }
                    self.bury(&grouped.dead).await?;
                    grouped.dead_reasons.iter().for_each(|r| self.shared.metrics.dead.get(*r).increment(1));
                }
                return self.answer(Answer::Work(Work::Records { grouped, to })).await;
            }
            if !self.inbox.is_open() && self.inbox.out_of_range.is_none() {
                // Deliveries were ended because this partition kept the others waiting. All that came has been taken.
                return self.go_on(from).await;
            }
            if let Some((wanted, earliest, end)) = self.inbox.out_of_range {
                return self.out_of_range(wanted, earliest, end).await;
            }
            if let Some(to) = self.inbox.caught_up().filter(|to| *to > from) {
                self.unblock();
                self.last_delivery = now;
                return self.answer(Answer::Work(Work::Nothing { to, as_of_ms: 0 })).await;
            }
            let idle_at = self.last_step + self.shared.config.idle();
            if now >= idle_at {
                // Even though it changes nothing: on a quiet partition nothing else would notice that the store lost
                // its data.
                let work = Work::Nothing { to: 0, as_of_ms: self.as_of_ms };
                return self.answer(Answer::Work(work)).await;
            }
            tokio::select! {
                () = self.inbox.receive() => {}
                () = sleep_until(idle_at.min(self.next_wishes).min(self.next_look)) => {}
                () = self.shared.shutdown.requested() => return Err(Halt::Stop),
            }
        }
    }

    async fn wishes(&mut self) -> Result<Option<Answer>, Halt> {
        let most = self.shared.config.wanted_keys;
        match self.shared.counts.take_wanted(self.partition, most).await {
            Ok(keys) if keys.is_empty() => Ok(None),
            Ok(keys) => {
                self.shared.metrics.wishes.increment(keys.len() as u64);
                let now_s = u32::try_from(now_ms() / 1000).unwrap_or(u32::MAX);
                Ok(Some(Answer::Work(Work::Wishes { keys, now_s })))
            }
            Err(error) => self.trouble(Server::Counters, error).await.map(Some),
        }
    }

    /// Where does the log end? For the lag, for "as of", and to notice that records do not come.
    async fn look_at_log(&mut self, from: i64) -> Result<Option<Answer>, Halt> {
        let asked_ms = now_ms();
        let (earliest, end) = match self.desk.bounds().await? {
            Ok(bounds) => bounds,
            Err(error) => {
                // The reader goes on by itself; counting does not depend on this.
                self.next_look = Instant::now() + LOOK_AGAIN;
                self.shared.metrics.errors.get(Server::Log).increment(1);
                tracing::debug!(partition = self.partition, %error, "log's bounds not known");
                return Ok(None);
            }
        };
        let metrics = &self.shared.metrics;
        metrics.lag.set(self.partition, offset_gauge((end - from).max(0)));
        #[expect(clippy::cast_precision_loss, reason = "a gauge")]
        metrics.known.set(self.partition, self.heart.known_keys() as f64);
        self.shared.earliest.lock().unwrap_or_else(PoisonError::into_inner).insert(self.partition, earliest);
        if end <= from && earliest <= from {
            (self.as_of_ms, self.last_delivery) = (asked_ms, Instant::now());
        }
        if self.last_delivery.elapsed() >= Duration::from_secs(self.shared.config.stall_s) && !self.blocked {
            metrics.stalls.increment(1);
            self.last_delivery = Instant::now();
            tracing::warn!(partition = self.partition, from, end, "no records came, reading anew");
            return Ok(Some(Answer::Doubt));
        }
        Ok(None)
    }

    /// Sets unreadable records aside before the offset moves past them. After a crash they may be set aside again:
    /// each names its place in the log.
    async fn bury(&mut self, dead: &OutgoingBatch) -> Result<(), Halt> {
        while let Err(error) = self.shared.dead.append(dead.clone()).await {
            self.trouble(Server::Log, error).await?;
        }
        self.backoff.reset();
        self.shared.problems.clear((self.partition, "server"));
        Ok(())
    }

    /// The log does not have what comes next.
    async fn out_of_range(&mut self, wanted: i64, earliest: i64, end: i64) -> Result<(), Halt> {
        if wanted > end {
            tracing::error!(
                partition = self.partition,
                applied = wanted,
                end,
                "the log ends before what was counted: its topic was made anew, which is another log generation"
            );
            return self.blocked("the log is shorter than what was counted from it").await;
        }
        let lost = earliest - wanted;
        if self.shared.config.lost_records == LostRecords::Skip {
            tracing::error!(
                partition = self.partition,
                from = wanted,
                to = earliest,
                lost,
                "skipping lost records"
            );
            self.shared.metrics.lost_offsets.increment(u64::try_from(lost).unwrap_or(0));
            self.inbox.out_of_range = None;
            return self.answer(Answer::Work(Work::Skip { to: earliest })).await;
        }
        // Said once, with what would help.
        if !self.blocked {
            let durable = self.shared.archive.durable(self.partition).await.ok().flatten().unwrap_or(0);
            let cure = if durable >= earliest {
                "empty the counters store (FLUSHALL): the archive has what is missing"
            } else {
                "set counter.lost_records = \"skip\" to go on without them"
            };
            tracing::error!(
                partition = self.partition,
                applied = wanted,
                earliest,
                durable,
                lost,
                cure,
                "records are lost"
            );
        }
        self.blocked("the log has lost the records that come next").await
    }

    /// Stands still, and looks again from time to time.
    async fn blocked(&mut self, reason: &'static str) -> Result<(), Halt> {
        self.blocked = true;
        self.shared.problems.set((self.partition, "log"), reason);
        self.shared.metrics.out_of_range.set(self.partition, 1.0);
        self.detach().await?;
        self.pause(RECHECK).await?;
        self.answer(Answer::Doubt).await
    }

    fn unblock(&mut self) {
        if self.blocked {
            self.blocked = false;
            self.shared.problems.clear((self.partition, "log"));
        }
        self.shared.metrics.out_of_range.set(self.partition, 0.0);
    }

    async fn tell(&mut self, told: Told) {
        let (metrics, partition) = (&self.shared.metrics, self.partition);
        if told.gaps > 0 {
            metrics.gaps.increment(told.gaps);
            tracing::info!(partition, "store stands elsewhere, looking where");
        }
        if let Some((records, oldest_ms)) = told.applied {
            metrics.batches.increment(1);
            metrics.records.increment(records as u64);
            #[expect(clippy::cast_precision_loss, reason = "a histogram")]
            {
                metrics.batch.record(records as f64);
                metrics.age.record((now_ms() - oldest_ms).max(0) as f64 / 1000.0);
            }
        }
        for (counter, n) in [
            (&metrics.created, told.created),
            (&metrics.restored, told.restored),
            (&metrics.sent, told.sent),
            (&metrics.spared, told.spared),
        ] {
            if n > 0 {
                counter.increment(n);
            }
        }
        for key in &told.damaged_archived {
            metrics.damaged_archived.increment(1);
            tracing::error!(
                partition,
                key_hash = key_hash(key),
                "archived sketch is damaged and stays out of service; its number goes on"
            );
        }
        for key in &told.corrupt_stored {
            metrics.corrupt_stored.increment(1);
            tracing::error!(
                partition,
                key_hash = key_hash(key),
                "sketch in the store is damaged or was removed; empty the counters store to restore it"
            );
        }
        if !told.absent.is_empty() {
            metrics.absent.increment(told.absent.len() as u64);
            let ttl = Duration::from_secs(self.shared.config.absent_s);
            if let Err(error) = self.shared.counts.mark_absent(partition, &told.absent, ttl).await {
                // Readers ask again.
                metrics.errors.get(Server::Counters).increment(1);
                tracing::debug!(partition, %error, "absent keys not marked");
            }
        }
    }
}

fn too_slow() -> PortError {
    PortError::Unavailable { server: "archive", detail: "no answer in time for a reader's wish".into() }
}

/// Names a key in logs without telling it.
fn key_hash(key: &CountKey) -> String {
    format!("{:016x}", key.log_hash())
}

#[expect(clippy::cast_precision_loss, reason = "a gauge; offsets stay below 2^53")]
fn offset_gauge(offset: i64) -> f64 {
    offset as f64
}

/// Milliseconds since 1970. Only what people see as "as of" or "age" rests on it.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
