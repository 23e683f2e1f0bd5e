//! The room's dealings with the reader: one question or one event at a time.

use crate::report::now_ms;
use crate::room::{FilterError, Room};
use crate::watch;
use futures::FutureExt;
use onlooker_ports::{Committed, DedupStore, GroupEvent, GroupReader, PortError, Transactor, VerdictHistory};
use std::time::Duration;
use tokio::time::Instant;

/// How long the reader is waited for before it can be asked something else.
const READ_WAIT: Duration = Duration::from_millis(50);
/// Between two questions that the log's servers did not answer.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// What the reader is to be asked, before the next event.
pub(crate) enum Question {
    Group { partition: i32, attempt: u64 },
    Stop { partition: i32 },
    Start { partition: i32, start: u64, offset: i64 },
    Ends(Vec<(i32, i64)>),
}

/// What the reader said.
pub(crate) enum Said<M> {
    Event(Result<Option<GroupEvent<M>>, PortError>),
    Group { partition: i32, attempt: u64, found: Result<GroupState, PortError> },
    Stopped(Result<(), PortError>),
    Started { partition: i32, start: u64, offset: i64, result: Result<(), PortError> },
    Ends(Result<Seen, PortError>),
}

/// Partitions with the offset that each awaited and the log's end, and when they were asked for; milliseconds since 1970.
type Seen = (Vec<(i32, i64, i64)>, i64);
/// The committed offset, and the log's bounds.
type GroupState = (Option<Committed>, (i64, i64));

impl<R, T, H, D> Room<R, T, H, D>
where
    R: GroupReader,
    T: Transactor<Membership = R::Membership>,
    H: VerdictHistory,
    D: DedupStore,
{
    /// Gives the reader its next task, if it is at hand and there is one.
    pub(crate) fn read_on(&mut self) {
        let now = Instant::now();
        if now >= self.look_at {
            self.look_at = now + watch::EVERY;
            self.questions.push_back(Question::Ends(self.machine.read_partitions().collect()));
        }
        let due = self.again.iter().position(|(at, _)| *at <= now);
        if let Some((_, question)) = due.map(|at| self.again.swap_remove(at)) {
            self.questions.push_back(question);
        }
        let resting = self.log_rests_until.is_some_and(|until| now < until);
        if self.reader.is_none() || (self.questions.is_empty() && (!self.machine.wants_records() || resting))
        {
            return;
        }
        let Some(reader) = self.reader.take() else { return };
        self.log_rests_until = None;
        self.reading = Some(ask(reader, self.questions.pop_front()).boxed());
    }

    pub(crate) fn heard(&mut self, said: Said<R::Membership>) -> Result<(), FilterError> {
        let now = self.now();
        match said {
            Said::Event(Ok(event)) => {
                self.log_health.ready();
                self.log_backoff.reset();
                if let Some(event) = event {
                    self.take(event);
                }
            }
            Said::Event(Err(error)) if !error.is_transient() => return Err(error.into()),
            Said::Event(Err(error)) => {
                tracing::debug!(%error, "log did not answer");
                self.log_health.unready("the log is unavailable");
                self.log_rests_until = Some(Instant::now() + self.log_backoff.next_delay());
            }
            Said::Group { partition, attempt, found: Ok((committed, bounds)) } => {
                self.reporter.group_waits(partition, false);
                self.machine.group_stands(partition, attempt, committed.as_ref(), bounds, now);
            }
            Said::Group { partition, attempt, found: Err(error) } => {
                if self.ask_again(Question::Group { partition, attempt }, error)? {
                    self.reporter.group_waits(partition, true);
                }
            }
            // Not again: what is still delivered is dropped, and a start stops what was before.
            Said::Stopped(Err(error)) if !error.is_transient() => return Err(error.into()),
            Said::Stopped(_) => {}
            Said::Started { partition, start, result: Ok(()), .. } => {
                self.machine.started(partition, start, now)
            }
            Said::Started { partition, start, offset, result: Err(error) } => {
                self.ask_again(Question::Start { partition, start, offset }, error)?;
            }
            Said::Ends(Ok((seen, asked_ms))) => return self.look(&seen, asked_ms),
            // They are asked for anew in a while. Nobody can deliver while nobody answers.
            Said::Ends(Err(error)) if error.is_transient() => self.watch.pause(),
            Said::Ends(Err(error)) => return Err(error.into()),
        }
        Ok(())
    }

    fn take(&mut self, event: GroupEvent<R::Membership>) {
        let now = self.now();
        match event {
            GroupEvent::Assigned { partitions, membership } => {
                self.membership = Some(membership);
                self.reporter.assigned(&partitions);
                self.machine.assigned(&partitions, now);
            }
            GroupEvent::Revoked { partitions } => self.machine.revoked(&partitions, now),
            GroupEvent::Records(batch) => self.machine.records(batch, now),
            GroupEvent::CaughtUp { partition, .. } => self.reporter.metrics.lag.set(partition, 0.0),
            GroupEvent::OutOfRange { partition, wanted, earliest, end } => {
                tracing::warn!(partition, wanted, earliest, end, "the log does not have the offset");
                self.machine.out_of_range(partition, now);
            }
        }
    }

    /// Whether it is asked again: not if the partition was forgotten while the answer was under way.
    fn ask_again(&mut self, question: Question, error: PortError) -> Result<bool, FilterError> {
        if !error.is_transient() {
            return Err(error.into());
        }
        tracing::debug!(%error, "log did not answer");
        let wanted = match &question {
            Question::Group { partition, attempt } => self.machine.is_current(*partition, *attempt),
            Question::Start { partition, start, .. } => self.machine.wants_start(*partition, *start),
            Question::Stop { .. } | Question::Ends(_) => false,
        };
        if wanted {
            self.again.push((Instant::now() + ASK_AGAIN, question));
        }
        Ok(wanted)
    }

    fn look(&mut self, seen: &[(i32, i64, i64)], asked_ms: i64) -> Result<(), FilterError> {
        for (partition, awaited, end) in seen {
            // Revoked while the answer was under way: its gauge is off the page, and stays off.
            if !self.machine.owns(*partition) {
                continue;
            }
            self.reporter.end_seen(*partition, *end, asked_ms);
            let behind = end.saturating_sub(*awaited).max(0);
            #[expect(clippy::cast_precision_loss, reason = "a gauge")]
            self.reporter.metrics.lag.set(*partition, behind as f64);
        }
        if !self.machine.wants_records() {
            self.watch.pause();
            return Ok(());
        }
        match self.watch.look(seen, Instant::now()) {
            Some(watch::Stalled { partition, awaited, end }) => {
                let for_s = self.settings.config.stall_s;
                Err(FilterError::Stalled { partition, awaited, end, for_s })
            }
            None => Ok(()),
        }
    }
}

/// Asks the reader, and gives it back with the answer: so no event is lost, whatever else happens meanwhile.
async fn ask<R: GroupReader>(mut reader: R, question: Option<Question>) -> (R, Said<R::Membership>) {
    let said = match question {
        None => Said::Event(reader.next(READ_WAIT).await),
        Some(Question::Group { partition, attempt }) => {
            let found = group_state(&mut reader, partition).await;
            Said::Group { partition, attempt, found }
        }
        Some(Question::Stop { partition }) => Said::Stopped(reader.stop(partition).await),
        Some(Question::Start { partition, start, offset }) => {
            let result = reader.start(partition, offset).await;
            Said::Started { partition, start, offset, result }
        }
        Some(Question::Ends(partitions)) => Said::Ends(ends(&mut reader, &partitions).await),
    };
    (reader, said)
}

/// Stops the partition first: a record that was on its way, delivered after the next start, would be taken for one that
/// follows it.
async fn group_state<R: GroupReader>(reader: &mut R, partition: i32) -> Result<GroupState, PortError> {
    reader.stop(partition).await?;
    let committed = reader.committed(partition).await?;
    Ok((committed, reader.bounds(partition).await?))
}

async fn ends<R: GroupReader>(reader: &mut R, partitions: &[(i32, i64)]) -> Result<Seen, PortError> {
    // Before the first is asked: what is appended meanwhile is not taken for seen.
    let asked_ms = now_ms();
    let mut seen = Vec::with_capacity(partitions.len());
    for (partition, awaited) in partitions {
        let (_, end) = reader.bounds(*partition).await?;
        seen.push((*partition, *awaited, end));
    }
    Ok((seen, asked_ms))
}
