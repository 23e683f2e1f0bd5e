//! What is durable, now and then.

use crate::desk::Request;
use crate::metrics::Server;
use crate::worker::Shared;
use onlooker_ports::{Archive, CountStore, LogWriter};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Asks now and then what is durable. Apart from a store that lost everything, and from keys that the store does not
/// hold, nothing else in the room touches the archive.
pub(super) async fn ask_durable<C: CountStore, A: Archive, W: LogWriter>(
    shared: Arc<Shared<C, A, W>>,
    partitions: Arc<Mutex<Vec<i32>>>,
    to_desk: mpsc::UnboundedSender<Request>,
) {
    loop {
        sleep(Duration::from_millis(shared.config.durable_ms)).await;
        let now = partitions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut durable = Vec::with_capacity(now.len());
        for partition in now {
            match shared.archive.durable(partition).await {
                Ok(Some(offset)) => {
                    show_durable(&shared, partition, offset);
                    durable.push((partition, offset));
                }
                Ok(None) => {}
                Err(error) => {
                    shared.metrics.errors.get(Server::Archive).increment(1);
                    tracing::warn!(partition, %error, "what is durable is not known");
                }
            }
        }
        if to_desk.send(Request::Durable(durable)).is_err() {
            return;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "gauges; offsets stay below 2^53")]
fn show_durable<C, A, W>(shared: &Shared<C, A, W>, partition: i32, durable: i64) {
    let earliest = shared.earliest.lock().unwrap_or_else(PoisonError::into_inner).get(&partition).copied();
    shared.metrics.durable.set(partition, durable as f64);
    shared.durable_at(partition, durable);
    let Some(earliest) = earliest else { return };
    shared.metrics.retention_margin.set(partition, (durable - earliest) as f64);
    if durable < earliest {
        tracing::error!(
            partition,
            durable,
            earliest,
            "log is kept too short: a loss of the counters store would now lose counts"
        );
    }
}
