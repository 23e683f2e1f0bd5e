//! The recorder behind the metrics, and the page that Prometheus reads.

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use tokio::time::MissedTickBehavior;

use super::process;

/// Upper bounds of every histogram's buckets, in seconds: from 50 µs, a local call, to 30 s, a drain.
/// Around 60 ms, the promised p99, they are fine enough to see it kept or broken.
pub const LATENCY_BUCKETS_S: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08,
    0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// Histograms named `*_size` count things, not seconds.
const SIZE_BUCKETS: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 1e5];

/// How often samples are folded into buckets. A histogram holds every sample in between.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Access to what was recorded. Clones see the same recorder.
#[derive(Clone)]
pub struct MetricsHandle {
    recorder: Arc<PrometheusRecorder>,
    page: PrometheusHandle,
}

/// Why metrics could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The exporter refuses its settings.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// There is a recorder already.
    #[error("the process has a metrics recorder already")]
    Installed,
}

/// Makes the recorder of the process. Call it before any room registers its metrics.
///
/// # Errors
/// When the process has a recorder already.
pub fn init_metrics() -> Result<MetricsHandle, MetricsError> {
    let handle = MetricsHandle::detached()?;
    metrics::set_global_recorder(Arc::clone(&handle.recorder)).map_err(|_| MetricsError::Installed)?;
    Ok(handle)
}

impl MetricsHandle {
    /// A recorder that is nobody's default, for tests: metrics registered [`within`](Self::within)
    /// it show on its page alone.
    ///
    /// # Errors
    /// Never for the buckets that are built in.
    pub fn detached() -> Result<Self, MetricsError> {
        let recorder = PrometheusBuilder::new()
            .set_buckets(LATENCY_BUCKETS_S)?
            .set_buckets_for_metric(Matcher::Suffix("_size".into()), SIZE_BUCKETS)?
            .build_recorder();
        let page = recorder.handle();
        Ok(Self { recorder: Arc::new(recorder), page })
    }

    /// Runs `register` with this recorder as the current one.
    pub fn within<T>(&self, register: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(&self.recorder, register)
    }

    /// The page in Prometheus's text format, with the process's own CPU time, memory and open files.
    pub fn render(&self) -> String {
        let mut page = drop_cleared(&self.page.render());
        process::render(&mut page);
        page
    }

    /// Folds samples into buckets every few seconds, for ever. Without it histograms grow.
    pub async fn upkeep(&self) {
        let mut ticks = tokio::time::interval(UPKEEP_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.page.run_upkeep();
        }
    }
}

/// Leaves out gauges without a value.
fn drop_cleared(page: &str) -> String {
    let mut kept = String::with_capacity(page.len() + 512);
    for line in page.lines().filter(|line| !line.ends_with(" NaN")) {
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{Counter, Family, Gauge, Histogram, PartitionGauge};

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Outcome {
        Counted,
        Ignored,
    }

    impl Outcome {
        const ALL: &'static [Outcome] = &[Outcome::Counted, Outcome::Ignored];

        fn as_str(self) -> &'static str {
            match self {
                Outcome::Counted => "counted",
                Outcome::Ignored => "ignored",
            }
        }
    }

    crate::metrics! {
        /// A room's metrics.
        struct RoomMetrics {
            /// Views read, whatever becomes
            /// of them
            read: Counter = "room_read_total";
            /// Views by outcome
            outcomes: Family<Outcome, Counter> = "room_outcomes_total", "outcome" in Outcome::ALL as Outcome::as_str;
            /// Time of a commit, in seconds
            commit: Histogram = "room_commit_seconds";
            /// Views in a batch
            batch: Histogram = "room_batch_size";
            /// Bytes waiting
            queued: Gauge = "room_queued_bytes";
            /// Records behind the end of the log
            lag: PartitionGauge = "room_lag_records";
        }
    }

    #[test]
    fn the_page_shows_names_help_and_values() {
        let handle = MetricsHandle::detached().unwrap();
        handle.within(|| {
            let room = RoomMetrics::register();
            room.read.increment(3);
            room.outcomes.get(Outcome::Counted).increment(2);
            room.commit.record(Duration::from_micros(55_500));
            room.batch.record(40.0);
            room.queued.set(12.0);
            room.lag.set(0, 5.0);
            room.lag.set(1, 7.0);
            room.lag.clear(1);
            room.lag.clear(2);
        });
        let page = handle.render();
        for line in [
            "# HELP room_read_total Views read, whatever becomes of them",
            "# TYPE room_read_total counter",
            "room_read_total 3",
            "room_outcomes_total{outcome=\"counted\"} 2",
            "room_outcomes_total{outcome=\"ignored\"} 0",
            "room_commit_seconds_bucket{le=\"0.05\"} 0",
            "room_commit_seconds_bucket{le=\"0.06\"} 1",
            "room_batch_size_bucket{le=\"25\"} 0",
            "room_batch_size_bucket{le=\"50\"} 1",
            "room_queued_bytes 12",
            "room_lag_records{partition=\"0\"} 5",
        ] {
            assert!(page.lines().any(|other| other == line), "{line:?} is missing in\n{page}");
        }
        assert!(!page.contains("partition=\"1\""), "a revoked partition is still shown:\n{page}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_partition_that_comes_back_is_shown_again_and_upkeep_loses_nothing() {
        let handle = MetricsHandle::detached().unwrap();
        let room = handle.within(RoomMetrics::register);
        handle.within(|| room.lag.set(1, 7.0));
        room.lag.clear(1);
        room.lag.set(1, 9.0);
        for _ in 0..3 {
            room.commit.record(0.001);
            let _ = tokio::time::timeout(2 * UPKEEP_INTERVAL, handle.upkeep()).await;
        }
        let page = handle.render();
        assert!(page.contains("room_lag_records{partition=\"1\"} 9"), "{page}");
        assert!(page.contains("room_commit_seconds_count 3"), "{page}");
    }
}
