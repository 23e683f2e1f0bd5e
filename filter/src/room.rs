//! The room: carries out what the heart asks for, on real servers.

use crate::config::{FilterConfig, Sites};
use crate::heart::{Command, CommitEnd, Job, Machine, Settings};
use crate::metrics::FilterMetrics;
use crate::outside::Dedup;
use crate::reading::{Question, Said};
use crate::rebuild::{Outcomes, rebuild};
use crate::report::Reporter;
use crate::watch::{self, Watch};
use futures::future::{AbortHandle, Abortable, BoxFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use onlooker_ports::{
    Applied, ClaimOutcome, CommitError, DedupStore, GroupReader, Lookup, PortError, Transactor,
    VerdictHistory,
};
use onlooker_stage::{Backoff, Component, Health, Shutdown};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// The loop turns at least this often.
const TURN: Duration = Duration::from_secs(1);
/// If it does not for this long, only a restart helps.
const HUNG: Duration = Duration::from_secs(60);
/// For leaving the group when the time to drain has been used up.
const LEAVE: Duration = Duration::from_secs(2);

/// What the filter needs.
#[derive(Debug)]
pub struct FilterPorts<R, T, H, D> {
    /// Of `views`, as a member of the filters' group.
    pub reader: R,
    /// Writes verdicts and positions of `views` in one transaction.
    pub transactor: T,
    /// Of `views.counted`.
    pub history: H,
    /// The dedup store.
    pub dedup: D,
}

/// Why the room ended.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// A server refuses for good, or contradicts what the protocol rests on.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The client of the log has gone silent; a new process gets a new one.
    #[error(
        "partition {partition} has records from {awaited} to {end}, and none was delivered for {for_s} s"
    )]
    Stalled {
        /// The partition.
        partition: i32,
        /// The offset that was waited for.
        awaited: i64,
        /// The log's end.
        end: i64,
        /// For how long, in seconds.
        for_s: u64,
    },
    /// A defect.
    #[error("a task panicked: {0}")]
    Panicked(String),
}

/// What the store, or a rebuild, answered.
enum Answer {
    Memory(i32, u64, Option<Applied>),
    LookedUp(i32, u64, Lookup),
    Claimed(i32, u64, (i64, i64), ClaimOutcome),
    Rebuilt(Outcomes),
}

/// A call of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Memory,
    Lookup,
    Claim,
}

type Task = Abortable<BoxFuture<'static, Result<Answer, PortError>>>;

pub(crate) struct Room<R: GroupReader, T, H, D> {
    pub(crate) settings: Arc<Settings>,
    pub(crate) machine: Machine,
    pub(crate) began: Instant,
    /// At hand while it is not being asked something.
    pub(crate) reader: Option<R>,
    pub(crate) reading: Option<BoxFuture<'static, (R, Said<R::Membership>)>>,
    pub(crate) questions: VecDeque<Question>,
    /// Questions that were not answered, and when they are asked again.
    pub(crate) again: Vec<(Instant, Question)>,
    /// Of the last assignment: what a transaction carries. The group's latest one instead would let a former owner
    /// commit what it decided before it lost a partition.
    pub(crate) membership: Option<R::Membership>,
    /// At hand while no transaction is under way.
    transactor: Option<T>,
    commits: JoinSet<(T, Result<(), CommitError>, Duration)>,
    tasks: FuturesUnordered<Task>,
    /// Ends what is under way for a partition: at most one of each kind.
    aborts: BTreeMap<(i32, Kind), AbortHandle>,
    jobs: Vec<Job>,
    rebuilding: bool,
    history: Arc<H>,
    dedup: Arc<Dedup<D>>,
    pub(crate) reporter: Reporter,
    loop_health: Component,
    pub(crate) log_health: Component,
    pub(crate) log_backoff: Backoff,
    pub(crate) log_rests_until: Option<Instant>,
    pub(crate) watch: Watch,
    pub(crate) look_at: Instant,
}

/// Judges views until shutdown is requested, then commits and claims what is decided, and leaves the group.
///
/// Waits for servers that are away. It may die at any moment: no view is lost and none counted twice.
///
/// # Errors
/// When a server refuses the login or its settings contradict what the protocol rests on, and when the log's client
/// has gone silent.
pub async fn run<R, T, H, D>(
    config: FilterConfig,
    sites: Sites,
    ports: FilterPorts<R, T, H, D>,
    health: Health,
    shutdown: Shutdown,
) -> Result<(), FilterError>
where
    R: GroupReader,
    T: Transactor<Membership = R::Membership>,
    H: VerdictHistory,
    D: DedupStore,
{
    let metrics = FilterMetrics::register();
    let settings = Arc::new(Settings::new(config, sites));
    let now = Instant::now();
    let mut room = Room {
        machine: Machine::new(Arc::clone(&settings)),
        began: now,
        reader: Some(ports.reader),
        reading: None,
        questions: VecDeque::new(),
        again: Vec::new(),
        membership: None,
        transactor: Some(ports.transactor),
        commits: JoinSet::new(),
        tasks: FuturesUnordered::new(),
        aborts: BTreeMap::new(),
        jobs: Vec::new(),
        rebuilding: false,
        history: Arc::new(ports.history),
        dedup: Arc::new(Dedup::new(ports.dedup, metrics.clone(), health.component("filter.dedup"))),
        reporter: Reporter::new(metrics, health.component("filter.partitions"), settings.config.volatile),
        loop_health: health.component_with_deadline("filter.loop", HUNG),
        log_health: health.component("filter.log"),
        log_backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(2)),
        log_rests_until: None,
        watch: Watch::new(Duration::from_secs(settings.config.stall_s)),
        look_at: now + watch::EVERY,
        settings,
    };
    room.loop_health.ready();
    let result = room.run(&shutdown).await;
    room.leave().await;
    result
}

impl<R, T, H, D> Room<R, T, H, D>
where
    R: GroupReader,
    T: Transactor<Membership = R::Membership>,
    H: VerdictHistory,
    D: DedupStore,
{
    async fn run(&mut self, shutdown: &Shutdown) -> Result<(), FilterError> {
        let mut drained_by: Option<Instant> = None;
        loop {
            // Whatever woke the loop, time has passed: what became due is begun, before the next wake is asked for.
            let now = self.now();
            self.machine.tick(now);
            self.obey();
            self.loop_health.beat();
            if let Some(deadline) = drained_by
                && (self.machine.is_drained() || Instant::now() >= deadline)
            {
                if !self.machine.is_drained() {
                    tracing::warn!("not everything is claimed, the next owner decides it again");
                }
                return Ok(());
            }
            self.read_on();
            let wake = self.wake_at(now, drained_by);
            tokio::select! {
                // In this order, so that a test's run depends on nothing but its seed.
                biased;
                () = shutdown.requested(), if drained_by.is_none() => {
                    tracing::info!("draining");
                    drained_by = Some(Instant::now() + Duration::from_millis(self.settings.config.drain_ms));
                    self.machine.drain(self.now());
                }
                Some(ended) = self.commits.join_next() => self.commit_ended(ended)?,
                Some(answer) = self.tasks.next() => {
                    if let Ok(answer) = answer {
                        self.answered(answer?);
                    }
                }
                (reader, said) = poll_reading(&mut self.reading) => {
                    self.reading = None;
                    self.reader = Some(reader);
                    self.heard(said)?;
                }
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Milliseconds since the room began.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// `now`: when the heart was told the time last.
    fn wake_at(&self, now: u64, drained_by: Option<Instant>) -> Instant {
        let heart = self.machine.wake_at(now).map(|ms| self.began + Duration::from_millis(ms));
        let again = self.again.iter().map(|(at, _)| *at).min();
        let all = [heart, again, drained_by, self.log_rests_until];
        all.into_iter().flatten().fold(Instant::now() + TURN, Instant::min)
    }

    /// Begins everything that the heart wants.
    fn obey(&mut self) {
        while let Some(command) = self.machine.next_command() {
            match command {
                Command::Forget { partition } => self.forget(partition),
                Command::AskGroup { partition, attempt } => {
                    self.questions.push_back(Question::Group { partition, attempt });
                }
                Command::Stop { partition } => self.questions.push_back(Question::Stop { partition }),
                Command::Start { partition, start, offset } => {
                    self.questions.push_back(Question::Start { partition, start, offset });
                }
                Command::Rebuild(job) => self.jobs.push(job),
                Command::AskMemory { partition, attempt } => {
                    let dedup = Arc::clone(&self.dedup);
                    self.begin((partition, Kind::Memory), async move {
                        Ok(Answer::Memory(partition, attempt, dedup.memory(partition).await?))
                    });
                }
                Command::Lookup { partition, attempt, at_least, at_most, slice, keys } => {
                    let dedup = Arc::clone(&self.dedup);
                    self.begin((partition, Kind::Lookup), async move {
                        let found = dedup.lookup(partition, (at_least, at_most), slice, &keys).await?;
                        Ok(Answer::LookedUp(partition, attempt, found))
                    });
                }
                Command::Claim { partition, attempt, from, to, slice, claims, drop } => {
                    let dedup = Arc::clone(&self.dedup);
                    self.begin((partition, Kind::Claim), async move {
                        let outcome = dedup.claim(partition, (from, to), slice, &claims, drop).await?;
                        Ok(Answer::Claimed(partition, attempt, (to, slice), outcome))
                    });
                }
                Command::Commit { outputs, positions } => self.commit(outputs, positions),
            }
        }
        while let Some(notice) = self.machine.next_notice() {
            self.reporter.take(notice);
        }
        // One reading serves all partitions that lost their memory together.
        if !self.jobs.is_empty() && !self.rebuilding && self.machine.synchronising() == 0 {
            self.rebuilding = true;
            let jobs = std::mem::take(&mut self.jobs);
            let (settings, history) = (Arc::clone(&self.settings), Arc::clone(&self.history));
            let (dedup, metrics) = (Arc::clone(&self.dedup), self.reporter.metrics.clone());
            let task =
                async move { rebuild(settings, jobs, history, dedup, metrics).await.map(Answer::Rebuilt) };
            // Belongs to no partition: what is installed for one that has gone meanwhile does no harm.
            let (_, registration) = AbortHandle::new_pair();
            self.tasks.push(Abortable::new(task.boxed(), registration));
        }
    }

    fn begin(
        &mut self,
        what: (i32, Kind),
        task: impl Future<Output = Result<Answer, PortError>> + Send + 'static,
    ) {
        let (abort, registration) = AbortHandle::new_pair();
        self.tasks.push(Abortable::new(task.boxed(), registration));
        self.aborts.insert(what, abort);
    }

    fn forget(&mut self, partition: i32) {
        for kind in [Kind::Memory, Kind::Lookup, Kind::Claim] {
            if let Some(abort) = self.aborts.remove(&(partition, kind)) {
                abort.abort();
            }
        }
        let of_it = |question: &Question| match question {
            Question::Group { partition: p, .. }
            | Question::Stop { partition: p }
            | Question::Start { partition: p, .. } => *p == partition,
            Question::Ends(_) => false,
        };
        self.questions.retain(|question| !of_it(question));
        self.again.retain(|(_, question)| !of_it(question));
        self.jobs.retain(|job| job.partition != partition);
    }

    fn commit(&mut self, outputs: onlooker_ports::OutgoingBatch, positions: Vec<onlooker_ports::Position>) {
        let (Some(mut transactor), Some(membership)) = (self.transactor.take(), self.membership.clone())
        else {
            // Not without an assignment, and not with another one under way.
            let now = self.now();
            return self.machine.commit_ended(CommitEnd::Aborted, now);
        };
        // A task of its own: outputs are handed to the client while the next batch is decided here.
        self.commits.spawn(async move {
            let begun = Instant::now();
            let result = transactor.commit(&outputs, &positions, &membership).await;
            (transactor, result, begun.elapsed())
        });
    }

    fn commit_ended(
        &mut self,
        ended: Result<(T, Result<(), CommitError>, Duration), tokio::task::JoinError>,
    ) -> Result<(), FilterError> {
        let (transactor, result, duration) = ended.map_err(|e| FilterError::Panicked(e.to_string()))?;
        self.transactor = Some(transactor);
        self.reporter.metrics.commit.record(duration);
        let end = match result {
            Ok(()) => {
                self.reporter.metrics.commits.increment(1);
                CommitEnd::Done
            }
            Err(CommitError::Aborted(reason)) => {
                tracing::warn!(reason, "transaction aborted");
                CommitEnd::Aborted
            }
            Err(CommitError::Unknown(reason)) => {
                tracing::warn!(reason, "transaction's result is unknown");
                CommitEnd::Unknown
            }
            Err(CommitError::Port(error)) if error.is_transient() => {
                // Nothing of it was sent.
                tracing::warn!(%error, "transaction could not be begun");
                CommitEnd::Aborted
            }
            Err(CommitError::Port(error)) => return Err(error.into()),
        };
        let now = self.now();
        self.machine.commit_ended(end, now);
        Ok(())
    }

    fn answered(&mut self, answer: Answer) {
        let now = self.now();
        match answer {
            Answer::Memory(partition, attempt, memory) => {
                self.machine.memory_stands(partition, attempt, memory, now);
            }
            Answer::LookedUp(partition, attempt, found) => {
                self.machine.looked_up(partition, attempt, found, now)
            }
            Answer::Claimed(partition, attempt, at, outcome) => {
                self.machine.claimed(partition, attempt, at, outcome, now);
            }
            Answer::Rebuilt(outcomes) => {
                self.rebuilding = false;
                for (partition, attempt, outcome) in outcomes {
                    self.machine.rebuilt(partition, attempt, outcome, now);
                }
            }
        }
    }

    /// Leaves the group, so that others take over at once.
    async fn leave(mut self) {
        if let Some(reading) = self.reading.take() {
            self.reader = timeout(LEAVE, reading).await.ok().map(|(reader, _)| reader);
        }
        let Some(mut reader) = self.reader.take() else {
            return tracing::warn!("group not left, its session has to expire");
        };
        if timeout(LEAVE + LEAVE, reader.close(LEAVE)).await.is_err() {
            tracing::warn!("group not left in time");
        }
    }
}

/// The reader's answer; never, while it is not asked anything.
async fn poll_reading<R, S>(reading: &mut Option<BoxFuture<'static, (R, S)>>) -> (R, S) {
    match reading {
        Some(reading) => reading.await,
        None => std::future::pending().await,
    }
}
