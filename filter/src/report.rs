//! What the heart tells, as log lines, metrics and readiness.

use crate::heart::{Cause, Notice};
use crate::metrics::FilterMetrics;
use onlooker_stage::telemetry::Progress;
use onlooker_stage::{Component, Problems};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Sides of a partition.
const REFUSED: &str = "refused";
const ASSIGNED: &str = "assigned";
const GROUP: &str = "group";
const REBUILDING: &str = "rebuilding";

pub(crate) struct Reporter {
    pub(crate) metrics: FilterMetrics,
    /// The partitions' readiness.
    problems: Problems,
    /// Partitions that stand still, with what was said about each.
    refused: BTreeMap<i32, String>,
    /// How far each partition of ours is, in time.
    progress: BTreeMap<i32, Progress>,
    /// The dedup store begins empty with each start.
    volatile: bool,
}

impl Reporter {
    pub(crate) fn new(metrics: FilterMetrics, component: Component, volatile: bool) -> Self {
        Self {
            metrics,
            problems: Problems::new(component),
            refused: BTreeMap::new(),
            progress: BTreeMap::new(),
            volatile,
        }
    }

    /// The group has answered: without a partition there is nothing the matter either.
    pub(crate) fn assigned(&mut self, partitions: &[i32]) {
        tracing::info!(?partitions, "partitions assigned");
        for partition in partitions {
            self.progress.insert(*partition, Progress::begin(0, now_ms()));
            self.show_progress(*partition);
            self.problems.set((*partition, ASSIGNED), "finding out where the partition stands");
        }
        self.problems.clear((-1, ""));
    }

    pub(crate) fn take(&mut self, notice: Notice) {
        match notice {
            Notice::Sync { partition, cause } => self.sync(partition, cause),
            Notice::Running { partition, from, emit_from } => {
                tracing::info!(partition, from, emit_from, "partition runs");
                self.decided(partition, emit_from, 0);
                self.settled(partition);
            }
            Notice::Rebuilding { partition, offset } => {
                if self.volatile || offset == 0 {
                    tracing::info!(partition, offset, "dedup state is rebuilt from verdicts");
                } else {
                    tracing::warn!(partition, offset, "dedup state is gone, it is rebuilt from verdicts");
                }
                self.metrics.rebuilds.increment(1);
                self.problems.set((partition, REBUILDING), "the dedup state is being rebuilt from verdicts");
            }
            Notice::Refused { partition, why } => {
                let why = format!("partition {partition}: {why}");
                // It is tried again every few seconds: the log hears of it once.
                if self.refused.get(&partition) != Some(&why) {
                    tracing::error!(
                        partition,
                        reason = why,
                        "partition stands still until a person has looked"
                    );
                    self.problems.clear((partition, ASSIGNED));
                    self.problems.set((partition, REFUSED), why.clone());
                    self.refused.insert(partition, why);
                }
                self.gauge();
            }
            Notice::Lost { partition, from, to } => {
                let records = to.saturating_sub(from).max(0).cast_unsigned();
                tracing::error!(
                    partition,
                    from,
                    to,
                    records,
                    "records were removed by retention before they were judged, going on at the first that is left"
                );
                self.metrics.lost_records.increment(records);
                self.decided(partition, to, 0);
            }
            Notice::Committed { partition, ours, offset, tally } => {
                tracing::trace!(partition, offset, records = tally.records(), "verdicts committed");
                self.metrics.committed(&tally);
                if ours {
                    self.metrics.judged(partition, &tally);
                    self.decided(partition, offset, tally.last_append_ms);
                }
            }
            Notice::Revoked { partition } => {
                tracing::info!(partition, "partition revoked");
                self.metrics.clear(partition);
                self.progress.remove(&partition);
                self.problems.clear_partition(partition);
                self.refused.remove(&partition);
                self.gauge();
            }
        }
    }

    /// At this moment the partition of ours ended at `end`.
    pub(crate) fn end_seen(&mut self, partition: i32, end: i64, at_ms: i64) {
        if let Some(progress) = self.progress.get_mut(&partition) {
            progress.end_seen(end, at_ms);
        }
        self.show_progress(partition);
    }

    /// Every view below `offset` has its verdict; `newest_ms` as for [`Progress::advance`].
    fn decided(&mut self, partition: i32, offset: i64, newest_ms: i64) {
        if let Some(progress) = self.progress.get_mut(&partition) {
            progress.advance(offset, newest_ms);
        }
        self.show_progress(partition);
    }

    fn show_progress(&self, partition: i32) {
        if let Some(progress) = self.progress.get(&partition) {
            self.metrics.decided(partition, progress.until_ms());
        }
    }

    /// A transaction that somebody left open, or servers that are away, keep the committed offset from being read.
    pub(crate) fn group_waits(&self, partition: i32, waits: bool) {
        if waits {
            self.problems.set((partition, GROUP), "waiting for the committed offset");
        } else {
            self.problems.clear((partition, GROUP));
        }
    }

    fn sync(&self, partition: i32, cause: Cause) {
        self.metrics.syncs.get(cause).increment(1);
        match cause {
            Cause::Assigned | Cause::Refused => {
                tracing::debug!(partition, cause = cause.as_str(), "synchronising")
            }
            _ => tracing::warn!(partition, cause = cause.as_str(), "in doubt, synchronising"),
        }
    }

    fn settled(&mut self, partition: i32) {
        for side in [ASSIGNED, REBUILDING, REFUSED] {
            self.problems.clear((partition, side));
        }
        if self.refused.remove(&partition).is_some() {
            tracing::info!(partition, "partition is no longer refused");
        }
        self.gauge();
    }

    fn gauge(&self) {
        #[expect(clippy::cast_precision_loss, reason = "a gauge of a few partitions")]
        self.metrics.refused_partitions.set(self.refused.len() as f64);
    }
}

/// Milliseconds since 1970. Only what people see as age rests on it.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heart::Tally;
    use onlooker_stage::Health;
    use onlooker_stage::telemetry::MetricsHandle;

    #[test]
    fn a_partitions_moment_is_that_of_what_is_decided() {
        let page = MetricsHandle::detached().unwrap();
        let component = Health::new().component("filter.partitions");
        let mut reporter = Reporter::new(page.within(FilterMetrics::register), component, false);
        let decided = || {
            let page = page.render();
            let series = "onlooker_filter_decided_timestamp_seconds{partition=\"3\"} ";
            page.lines().find_map(|line| line.strip_prefix(series)?.parse::<f64>().ok())
        };
        let told = |reporter: &mut Reporter, notice| page.within(|| reporter.take(notice));

        page.within(|| reporter.assigned(&[3]));
        let assigned = decided().unwrap();
        assert!(
            (assigned - now_ms() as f64 / 1_000.0).abs() < 60.0,
            "nothing is known: it grows old from now on"
        );
        told(&mut reporter, Notice::Running { partition: 3, from: 10, emit_from: 10 });
        let tally = Tally { last_append_ms: 5_000, ..Tally::default() };
        told(&mut reporter, Notice::Committed { partition: 3, ours: true, offset: 20, tally });
        assert_eq!(decided(), Some(5.0), "the last that was decided");
        page.within(|| reporter.end_seen(3, 30, 7_000));
        assert_eq!(decided(), Some(5.0), "there is more to decide");
        told(&mut reporter, Notice::Lost { partition: 3, from: 20, to: 30 });
        assert_eq!(decided(), Some(7.0), "what is lost is not waited for");
        let of_another = Tally { last_append_ms: 9_000, ..Tally::default() };
        told(&mut reporter, Notice::Committed { partition: 3, ours: false, offset: 40, tally: of_another });
        assert_eq!(decided(), Some(7.0), "a commit of a former assignment says nothing");
        told(&mut reporter, Notice::Revoked { partition: 3 });
        assert_eq!(decided(), None);
        page.within(|| reporter.end_seen(3, 50, 9_000));
        assert_eq!(decided(), None, "it is somebody else's");
    }
}
