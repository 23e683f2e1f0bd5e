//! Counts that are replaced under whoever counts.

use super::form::Form;
use super::key::split;
use super::partition::Partition;
use super::{MemoryCounts, SERVER};
use onlooker_ports::{CountRepair, Hold, Number, PartitionState, PortError, Put};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How often those who wait for the end of a hold look for it.
const LOOK: Duration = Duration::from_millis(5);

/// A partition's hold.
pub(super) struct Held {
    /// Where the partition stood, and stands again.
    pub(super) state: PartitionState,
    by: Box<str>,
    until: Instant,
}

/// Where a partition stands for its counter.
pub(super) enum Standing {
    At(i64),
    Nowhere,
    Held,
}

impl Partition {
    /// Ends a hold whose time is over.
    fn expire(&mut self, now: Instant) {
        if let Some(held) = self.held.take_if(|held| held.until <= now) {
            self.state = Some(held.state);
        }
    }

    /// For a counter, which has forgotten everything when it asks for this.
    pub(super) fn standing(&mut self, now: Instant) -> Standing {
        self.expire(now);
        if self.held.is_some() {
            return Standing::Held;
        }
        self.put = false;
        self.applied().map_or(Standing::Nowhere, Standing::At)
    }

    /// As one that counts on finds it: after a put nowhere, for what it knows may rest on what was there before.
    pub(super) fn known(&self) -> Option<i64> {
        self.applied().filter(|_| !self.put)
    }

    /// As readers see it.
    pub(super) fn shown(&self) -> Option<PartitionState> {
        self.state.or(self.held.as_ref().map(|held| held.state))
    }
}

impl MemoryCounts {
    /// Where the partition stands, when nobody holds it any more.
    pub(super) async fn wait_for_state(&self, partition: i32) -> Result<Option<i64>, PortError> {
        loop {
            let standing = self.partition(partition)?.standing(Instant::now());
            match standing {
                Standing::At(offset) => return Ok(Some(offset)),
                Standing::Nowhere => return Ok(None),
                Standing::Held => sleep(LOOK).await,
            }
        }
    }
}

impl CountRepair for MemoryCounts {
    async fn hold(&self, partition: i32, holder: &str, lasts: Duration) -> Result<Hold, PortError> {
        let mut partition = self.partition(partition)?;
        let now = Instant::now();
        if let Some(held) = &mut partition.held {
            if *held.by != *holder && held.until > now {
                return Ok(Hold::Taken);
            }
            (held.by, held.until) = (holder.into(), now + lasts);
            return Ok(Hold::Ours { at: held.state.applied });
        }
        let Some(state) = partition.state.take() else { return Ok(Hold::Nowhere) };
        partition.held = Some(Held { state, by: holder.into(), until: now + lasts });
        Ok(Hold::Ours { at: state.applied })
    }

    async fn put_and_release(
        &self,
        partition: i32,
        holder: &str,
        at: i64,
        puts: &[Put],
    ) -> Result<bool, PortError> {
        let form = |put: &Put| {
            Form::from_redis(&put.sketch).map_err(|error| PortError::Failed {
                server: SERVER,
                detail: format!("what is put is no sketch: {error}"),
            })
        };
        let forms = puts.iter().map(form).collect::<Result<Vec<_>, _>>()?;
        let mut partition = self.partition(partition)?;
        partition.expire(Instant::now());
        let Some(held) = partition.held.take_if(|held| *held.by == *holder) else { return Ok(false) };
        partition.state = Some(PartitionState { applied: at, ..held.state });
        partition.put |= !puts.is_empty();
        self.account(&mut partition, |partition| {
            for (put, form) in puts.iter().zip(forms) {
                let (scope, name) = split(&put.key);
                let id = partition.make(self.hash(name), name);
                let before = partition.item(id).heap_bytes();
                let slot = partition.item_mut(id).make_slot(scope);
                let (clean, old, new) = (slot.evictable_bytes(), slot.form.heap_bytes(), form.heap_bytes());
                slot.form = form;
                slot.set_mark(at);
                slot.set_number(Number { n: put.n, u: at, changed_s: put.changed_s });
                partition.evictable -= clean;
                partition.heap = partition.heap + partition.item(id).heap_bytes() - before + new - old;
                partition.absent.remove(&put.key);
                partition.list(id);
            }
        });
        Ok(true)
    }
}
