//! What a heart has to tell, to metrics, logs and readers.

use super::{Shared, Worker, now_ms};
use crate::metrics::Server;
use crate::words::Told;
use onlooker_event::CountKey;
use onlooker_ports::{Archive, CountStore, LogWriter};
use onlooker_stage::telemetry::Progress;
use std::sync::PoisonError;
use std::time::Duration;

impl<C: CountStore, A: Archive, W: LogWriter> Worker<C, A, W> {
    pub(super) async fn tell(&mut self, told: Told) {
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

impl<C, A, W> Shared<C, A, W> {
    /// The partition is ours from now on.
    pub(crate) fn began(&self, partition: i32) {
        let mut all = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(partition, Progress::begin(0, now_ms()));
        drop(all);
        self.progressed(partition, |_| {});
    }

    /// Something is known about how far a partition is; one that is no longer ours is left out.
    pub(crate) fn progressed(&self, partition: i32, learn: impl FnOnce(&mut Progress)) {
        let mut all = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(progress) = all.get_mut(&partition) {
            learn(progress);
            self.metrics.applied_until.set(partition, seconds(progress.until_ms()));
        }
    }

    /// Everything of the partition below this offset is in the archive.
    pub(crate) fn durable_at(&self, partition: i32, offset: i64) {
        let all = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(progress) = all.get(&partition) {
            self.metrics.durable_until.set(partition, seconds(progress.until_ms_of(offset)));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge; milliseconds since 1970 stay below 2^53")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}

/// Names a key in logs without telling it.
fn key_hash(key: &CountKey) -> String {
    format!("{:016x}", key.log_hash())
}
