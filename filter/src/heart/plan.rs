//! What may begin now: synchronisations, look-ups, claims and the next transaction.

use super::command::Command;
use super::machine::{InFlight, Machine};
use super::partition::Phase;
use onlooker_ports::{OutgoingBatch, Position};
use std::sync::Arc;

/// Decided records that wait for their claim, per partition, as a multiple of a batch. Beyond it a partition waits.
const UNCLAIMED_BATCHES: usize = 8;
/// Bytes of one transaction, about at most.
const TRANSACTION_BYTES: usize = 32 << 20;
/// A partition that waits so long for a look-up gives its place in a full queue to others. In milliseconds.
const PARK_AFTER_MS: u64 = if cfg!(test) { 300 } else { 3_000 };
/// How long decided records wait for other partitions' answers, in milliseconds, so that they share a transaction.
const COMMIT_HOLD_MS: u64 = 100;

impl Machine {
    /// When `tick` has something to do next, if nothing else happens.
    pub fn wake_at(&self, now: u64) -> Option<u64> {
        let held =
            self.pending_since.filter(|_| self.in_flight.is_none()).map(|since| since + COMMIT_HOLD_MS);
        let waits = self.partitions.values().filter_map(|p| match p.phase {
            Phase::Due(at) if !self.draining => Some(at),
            Phase::Running if p.queued > 0 && p.asking.is_none() => {
                Some(p.queued_since + self.settings.config.linger_ms)
            }
            _ => None,
        });
        // What is due already and did not begin waits for something that will be told.
        waits.chain(held).filter(|at| *at > now).min()
    }

    /// Everything that may begin now.
    pub(super) fn plan(&mut self, now: u64) {
        let ids: Vec<i32> = self.partitions.keys().copied().collect();
        let (records, bytes) = self.pending();
        let room = records < self.settings.config.transaction_records && bytes < TRANSACTION_BYTES;
        for id in ids {
            self.plan_sync(id, now);
            self.plan_claim(id);
            self.plan_lookup(id, room, now);
        }
        self.plan_commit(now);
        if !self.draining && self.is_full() {
            self.park(now);
        }
    }

    /// Records and bytes of the next transaction.
    fn pending(&self) -> (usize, usize) {
        let batches = self.partitions.values().map(|p| &p.outputs.batch);
        batches.fold((0, 0), |(n, b), batch| (n + batch.len(), b + batch.bytes()))
    }

    /// A server of the store that is away holds up its own partitions and no others, nor the group's events.
    fn park(&mut self, now: u64) {
        for partition in self.partitions.values_mut() {
            let waits = partition.asking.is_some() && now >= partition.asked_at + PARK_AFTER_MS;
            if waits && partition.queued > 0 {
                partition.park();
                self.commands.push_back(Command::Stop { partition: partition.id });
            }
        }
    }

    fn plan_sync(&mut self, id: i32, now: u64) {
        // A transaction under way may still move the committed offset: it has to end first.
        let held = self.in_flight.iter().flatten().any(|part| part.partition == id);
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let due = match partition.phase {
            Phase::Due(at) => at <= now && !held && !self.draining,
            _ => false,
        };
        if !due {
            return;
        }
        let attempt = partition.attempt;
        #[cfg(test)]
        if self.settings.breaks(super::sim::Broken::GroupBeforeMemory) {
            partition.phase = Phase::AskedGroup(None);
            self.commands.push_back(Command::AskGroup { partition: id, attempt });
            return;
        }
        partition.phase = Phase::AskedMemory;
        self.commands.push_back(Command::AskMemory { partition: id, attempt });
    }

    fn plan_claim(&mut self, id: i32) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        if partition.phase != Phase::Running || partition.claiming {
            return;
        }
        let Some((claims, drop)) = partition.next_claim(&self.settings) else { return };
        partition.claiming = true;
        self.commands.push_back(Command::Claim {
            partition: id,
            attempt: partition.attempt,
            // Always the previous `to`, never a record's offset: offsets have gaps.
            from: partition.claimed,
            to: claims.to,
            slice: claims.slice,
            claims: claims.claims,
            drop,
        });
    }

    fn plan_lookup(&mut self, id: i32, room: bool, now: u64) {
        let settings = Arc::clone(&self.settings);
        let config = &settings.config;
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let full =
            partition.queued >= config.batch_records || now >= partition.queued_since + config.linger_ms;
        if partition.phase != Phase::Running
            || self.draining
            || partition.queued == 0
            || !full
            || partition.asking.is_some()
            || !room
            || partition.overlay.records() >= UNCLAIMED_BATCHES * config.batch_records
        {
            return;
        }
        let Some(chunk) = partition.next_chunk(&settings) else { return };
        // Below `claimed` the store has lost claims that nobody will write again; beyond `decided` it holds claims of
        // records that are about to be decided, which would be found to be repeats of themselves.
        let (at_least, at_most) = (partition.claimed, partition.decided);
        #[cfg(test)]
        let (floor, at_least) = if settings.breaks(super::sim::Broken::LookupFloor) {
            (at_least, i64::MIN)
        } else {
            (at_least, at_least)
        };
        #[cfg(not(test))]
        let floor = at_least;
        #[cfg(test)]
        let at_most = if settings.breaks(super::sim::Broken::LookupCeiling) { i64::MAX } else { at_most };
        self.commands.push_back(Command::Lookup {
            partition: id,
            attempt: partition.attempt,
            at_least,
            at_most,
            slice: chunk.slice,
            keys: Arc::clone(&chunk.keys),
        });
        partition.asking = Some((chunk, floor));
        partition.asked_at = now;
        #[cfg(test)]
        if settings.breaks(super::sim::Broken::NoOverlay) {
            partition.overlay.forget_keys();
        }
    }

    fn plan_commit(&mut self, now: u64) {
        // Transactions stay in order: one at a time.
        if self.in_flight.is_some() {
            return;
        }
        let config = &self.settings.config;
        let (records, bytes) = self.pending();
        if records == 0 {
            self.pending_since = None;
            return;
        }
        let waited = self.pending_since.is_some_and(|since| now >= since + COMMIT_HOLD_MS);
        let asking = self.partitions.values().any(|p| p.asking.is_some());
        if asking && !waited && records < config.transaction_records && bytes < TRANSACTION_BYTES {
            return;
        }
        let (mut outputs, mut positions, mut parts) = (OutgoingBatch::default(), Vec::new(), Vec::new());
        for partition in self.partitions.values_mut().filter(|p| !p.outputs.batch.is_empty()) {
            let ready = std::mem::take(&mut partition.outputs);
            if outputs.is_empty() {
                outputs = ready.batch;
            } else {
                outputs.extend_from(&ready.batch);
            }
            positions.push(Position {
                partition: partition.id,
                offset: partition.decided,
                note: partition.note(&self.settings),
            });
            parts.push(InFlight {
                partition: partition.id,
                attempt: partition.attempt,
                to: partition.decided,
                tally: ready.tally,
                spans: ready.spans,
            });
        }
        self.pending_since = None;
        self.in_flight = Some(parts);
        self.commands.push_back(Command::Commit { outputs, positions });
    }
}
