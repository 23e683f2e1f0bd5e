//! What goes wrong.

use super::instance::{Request, Tag};
use super::store::Store;
use super::world::World;
use super::{Broken, PARTITIONS};
use crate::heart::CommitEnd;

/// How often what goes wrong, in 1,000 steps.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) crash: usize,
    pub(super) rebalance: usize,
    pub(super) store_lost: usize,
    pub(super) store_set_back: usize,
    pub(super) split_brain: usize,
    pub(super) lost_request: usize,
    pub(super) time_out: usize,
    pub(super) retention: usize,
    pub(super) txn_expires: usize,
    /// Requests that arrive much later than they were sent, in 100 of them.
    pub(super) late: usize,
}

impl World {
    pub(super) fn fault(&mut self, faults: Faults) {
        let mut happens = |per_mille: usize| self.rng.below(1_000) < per_mille;
        let crash = happens(faults.crash);
        let rebalance = happens(faults.rebalance);
        let lost = happens(faults.store_lost);
        let set_back = happens(faults.store_set_back);
        let split = happens(faults.split_brain);
        let request = happens(faults.lost_request);
        let time_out = happens(faults.time_out);
        let retention = happens(faults.retention);
        let expires = happens(faults.txn_expires);
        if crash {
            self.crash();
        }
        if rebalance {
            self.rebalance();
        }
        if lost {
            let partition = self.rng.below(PARTITIONS);
            self.stores[0][partition] = Store::default();
        }
        if set_back {
            // A replica lacks the last few writes, or is a backup.
            let last = self.snapshots.len() - 1;
            let back = if self.rng.chance(70) { self.rng.below(5) } else { self.rng.below(last + 1) };
            self.stores[0] = self.snapshots[last.saturating_sub(back)].clone();
        }
        if split {
            self.split_or_join();
        }
        if request && !self.requests.is_empty() {
            let at = self.rng.below(self.requests.len());
            self.requests.swap_remove(at);
        }
        if time_out {
            self.time_out();
        }
        if retention {
            let partition = self.rng.below(PARTITIONS);
            let committed = self.log.committed[&i32::try_from(partition).unwrap()].offset;
            let earliest = &mut self.log.earliest[partition];
            *earliest = self.rng.range(*earliest, committed.max(*earliest));
        }
        if expires && let Some(txn) = self.rng.pick(&self.log.open()).copied() {
            self.log.end(txn, false);
        }
        if self.broken == Some(Broken::ClaimsExpire) && self.rng.chance(2) {
            let partition = self.rng.below(PARTITIONS);
            self.stores[0][partition].slices.pop_last();
        }
    }

    /// kill -9: what it has sent may still arrive.
    fn crash(&mut self) {
        let at = self.rng.below(self.instances.len());
        self.instances.swap_remove(at);
        self.start_instance();
        if self.rng.chance(80) {
            self.rebalance();
        }
    }

    /// One of the instances talks to another copy of the store for a while; one copy survives.
    fn split_or_join(&mut self) {
        if self.instances.iter().all(|i| i.store == 0) {
            self.stores[1] = self.stores[0].clone();
            let at = self.rng.below(self.instances.len());
            self.instances[at].store = 1;
            return;
        }
        if self.rng.chance(50) {
            self.stores[0] = self.stores[1].clone();
        }
        self.instances.iter_mut().for_each(|i| i.store = 0);
    }

    /// A client stops waiting: it asks the store again, or gives its transaction up.
    fn time_out(&mut self) {
        let at = self.rng.below(self.instances.len());
        let instance = &mut self.instances[at];
        let open: Vec<Tag> = instance.open.keys().copied().collect();
        let ending = |tag: &&Tag| matches!(instance.open[*tag], Request::End { .. });
        let Some(mut tag) = self.rng.pick(&open).copied() else { return };
        // The end of a transaction is the one request whose loss leaves a doubt.
        if let Some(end) = open.iter().find(ending)
            && self.rng.chance(50)
        {
            tag = *end;
        }
        let request = instance.open[&tag].clone();
        let mut sent = Vec::new();
        match request {
            Request::Produce { .. } | Request::SendOffsets { .. } => {
                instance.abort(&mut sent);
                instance.machine.commit_ended(CommitEnd::Aborted, self.now);
            }
            Request::End { txn, .. } => {
                instance.forget_txn(txn);
                instance.txn = None;
                self.stats.unknown += 1;
                instance.machine.commit_ended(CommitEnd::Unknown, self.now);
            }
            // The first request may still arrive, before or after the second.
            again => sent.push((instance.id, tag, again)),
        }
        instance.obey(&mut self.log, &mut sent);
        self.send(sent);
    }

    /// No more faults: everybody is in the group, every question is asked until it is answered.
    pub(super) fn heal(&mut self) {
        self.late_percent = 0;
        self.instances.iter_mut().for_each(|i| i.store = 0);
        self.rebalance();
    }
}
