//! Finding something to do: readers' wishes, records, the log's end, or nothing for too long.

use super::{Halt, Worker, now_ms};
use crate::config::LostRecords;
use crate::group::Grouped;
use crate::metrics::Server;
use crate::words::{Answer, Work};
use onlooker_ports::{Archive, CountStore, LogWriter, OutgoingBatch};
use std::sync::PoisonError;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// When to look at the log again after that failed: all partitions of the process wait for the answer.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How often a partition that stands still looks whether somebody has put it right.
const RECHECK: Duration = Duration::from_secs(5);

impl<C: CountStore, A: Archive, W: LogWriter> Worker<C, A, W> {
    /// Finds something to do on top of `from`, waiting for it if need be.
    pub(super) async fn work(&mut self, from: i64) -> Result<(), Halt> {
        self.backoff.reset();
        self.shared.problems.clear((self.partition, "server"));
        self.shared.metrics.applied.set(self.partition, offset_gauge(from));
        let newest_ms = self.heart.as_of_ms();
        self.shared.progressed(self.partition, |progress| progress.advance(from, newest_ms));
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
            let linger = Duration::from_millis(self.shared.config.linger_ms);
            let ripe_at = self.inbox.ripe_at(linger);
            if ripe_at.is_some_and(|at| at <= Instant::now())
                && let Some((grouped, to)) = self.inbox.take()
            {
                return self.records(grouped, to).await;
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
            let next = idle_at.min(self.next_wishes).min(self.next_look);
            tokio::select! {
                () = self.inbox.receive() => {}
                () = sleep_until(ripe_at.unwrap_or(next).min(next)) => {}
                () = self.shared.shutdown.requested() => return Err(Halt::Stop),
            }
        }
    }

    async fn records(&mut self, grouped: Grouped, to: i64) -> Result<(), Halt> {
        self.last_delivery = Instant::now();
        if !grouped.dead.is_empty() {
            let limit = self.shared.config.dead_limit_percent;
            if !self.quality.allows(grouped.records, &grouped.dead, limit) {
                let reason = "most records cannot be read: is a newer version of onlooker writing?";
                return self.blocked(reason).await;
            }
            self.bury(&grouped.dead).await?;
            grouped.dead_reasons.iter().for_each(|r| self.shared.metrics.dead.get(*r).increment(1));
        }
        self.unblock();
        self.answer(Answer::Work(Work::Records { grouped: Box::new(grouped), to })).await
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
            Err(error) if !error.is_transient() => return self.trouble(Server::Log, error).await.map(Some),
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
        self.shared.progressed(self.partition, |progress| progress.end_seen(end, asked_ms));
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
            // Made anew it may soon be long enough again. Who asks for its bounds is told which topic it is.
            if let Err(error) = self.desk.bounds().await? {
                let answer = self.trouble(Server::Log, error).await?;
                return self.answer(answer).await;
            }
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
}

#[expect(clippy::cast_precision_loss, reason = "a gauge; offsets stay below 2^53")]
fn offset_gauge(offset: i64) -> f64 {
    offset as f64
}
