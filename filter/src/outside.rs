//! The dedup store as the room asks it: again and again until it answers, and everybody can see that it does not.

use crate::heart::{Part, Rebuild};
use crate::metrics::FilterMetrics;
use onlooker_event::Digest128;
use onlooker_ports::{Applied, Claim, ClaimOutcome, DedupStore, InstallOutcome, Lookup, PortError};
use onlooker_stage::{Backoff, Component};
use std::future::Future;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const BACKOFF_BASE: Duration = Duration::from_millis(50);
const BACKOFF_CAP: Duration = Duration::from_secs(2);

/// The store, with its readiness.
#[derive(Debug)]
pub(crate) struct Dedup<D> {
    store: D,
    metrics: FilterMetrics,
    component: Component,
    /// Calls that failed and wait to be repeated.
    failing: AtomicUsize,
}

/// A call that waits to be repeated. While there is one, the store counts as unavailable.
struct Failing<'a, D>(&'a Dedup<D>);

impl<D> Drop for Failing<'_, D> {
    fn drop(&mut self) {
        if self.0.failing.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.metrics.dedup_unavailable.set(0.0);
            self.0.component.ready();
        }
    }
}

impl<D: DedupStore> Dedup<D> {
    pub(crate) fn new(store: D, metrics: FilterMetrics, component: Component) -> Self {
        // Ready until a call fails: an instance without partitions asks nothing.
        component.ready();
        Self { store, metrics, component, failing: AtomicUsize::new(0) }
    }

    /// Repeats a call until the store answers. Whether an earlier one took effect does not matter: every step first
    /// asks whether the state is still the one that it was decided on.
    async fn patiently<T, F: Future<Output = Result<T, PortError>>>(
        &self,
        mut call: impl FnMut() -> F,
    ) -> Result<T, PortError> {
        let mut backoff = Backoff::new(BACKOFF_BASE, BACKOFF_CAP);
        let mut failing = None;
        loop {
            let error = match call().await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_transient() => error,
                Err(error) => return Err(error),
            };
            self.metrics.dedup_errors.increment(1);
            tracing::debug!(%error, "dedup store did not answer");
            failing.get_or_insert_with(|| self.failing(&error));
            sleep(backoff.next_delay()).await;
        }
    }

    fn failing(&self, error: &PortError) -> Failing<'_, D> {
        self.failing.fetch_add(1, Ordering::Relaxed);
        self.metrics.dedup_unavailable.set(1.0);
        self.component.unready(match error {
            PortError::Full { .. } => "the dedup store is full",
            _ => "the dedup store is unavailable",
        });
        Failing(self)
    }

    pub(crate) async fn memory(&self, partition: i32) -> Result<Option<Applied>, PortError> {
        self.patiently(|| self.store.applied(partition)).await
    }

    pub(crate) async fn lookup(
        &self,
        partition: i32,
        bounds: (i64, i64),
        slice: i64,
        keys: &[Digest128],
    ) -> Result<Lookup, PortError> {
        let begun = Instant::now();
        let found = self.patiently(|| self.store.lookup(partition, bounds.0, bounds.1, slice, keys)).await?;
        self.metrics.lookup.record(begun.elapsed());
        #[expect(clippy::cast_precision_loss, reason = "a histogram")]
        self.metrics.lookup_keys.record(keys.len() as f64);
        Ok(found)
    }

    pub(crate) async fn claim(
        &self,
        partition: i32,
        (from, to): (i64, i64),
        slice: i64,
        claims: &[Claim],
        drop: Range<i64>,
    ) -> Result<ClaimOutcome, PortError> {
        let begun = Instant::now();
        let claim = || self.store.claim(partition, from, to, slice, claims, drop.clone());
        let outcome = self.patiently(claim).await?;
        self.metrics.claim.record(begun.elapsed());
        Ok(outcome)
    }

    pub(crate) async fn stage(&self, part: &Part) -> Result<bool, PortError> {
        let stage = || self.store.stage(part.partition, &part.name, part.part, part.slice, &part.claims);
        self.patiently(stage).await
    }

    pub(crate) async fn install(&self, rebuild: &Rebuild) -> Result<InstallOutcome, PortError> {
        let (job, to) = (&rebuild.job, rebuild.job.to);
        let install = || self.store.install(job.partition, to.offset, to.slice, &rebuild.name, rebuild.parts);
        self.patiently(install).await
    }
}
