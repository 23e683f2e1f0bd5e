//! What a heart has to tell, to metrics, logs and readers.

use super::{Worker, now_ms};
use crate::metrics::Server;
use crate::words::Told;
use onlooker_event::CountKey;
use onlooker_ports::{Archive, CountStore, LogWriter};
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

/// Names a key in logs without telling it.
fn key_hash(key: &CountKey) -> String {
    format!("{:016x}", key.log_hash())
}
