//! All partitions of an instance, and the one transaction that may be under way.

use super::command::{Cause, Command, CommitEnd, Notice, Refusal, Tally};
use super::decide::decide;
use super::partition::{Partition, Phase, Synced};
use super::{Settings, command::Attempt};
use onlooker_ports::{
    Applied, Batch, ClaimOutcome, Committed, InstallOutcome, Lookup, OutgoingBatch, Position,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Decided records that wait for their claim, per partition, as a multiple of a batch. Beyond it a partition waits.
const UNCLAIMED_BATCHES: usize = 8;
/// Records that wait to be looked up, as a multiple of a transaction. Beyond it no more are asked for.
const QUEUED_TRANSACTIONS: usize = 2;
/// Bytes of the same: unreadable records may be large.
const QUEUED_BYTES: usize = 64 << 20;
/// Bytes of one transaction, about at most.
const TRANSACTION_BYTES: usize = 32 << 20;
/// A partition that waits so long for a look-up gives its place in a full queue to others. In milliseconds.
const PARK_AFTER_MS: u64 = if cfg!(test) { 300 } else { 3_000 };
/// How long decided records wait for other partitions' answers, in milliseconds, so that they share a transaction.
const COMMIT_HOLD_MS: u64 = 100;

/// The state of an instance. Times are milliseconds on any clock that never steps back.
#[derive(Debug)]
pub struct Machine {
    settings: Arc<Settings>,
    partitions: BTreeMap<i32, Partition>,
    in_flight: Option<Vec<InFlight>>,
    /// When the oldest output became ready.
    pending_since: Option<u64>,
    attempts: Attempt,
    draining: bool,
    commands: VecDeque<Command>,
    notices: VecDeque<Notice>,
}

/// A partition's share of the transaction under way.
#[derive(Debug)]
struct InFlight {
    partition: i32,
    attempt: Attempt,
    to: i64,
    tally: Tally,
}

impl Machine {
    /// An instance without partitions.
    pub fn new(settings: Arc<Settings>) -> Self {
        Self {
            settings,
            partitions: BTreeMap::new(),
            in_flight: None,
            pending_since: None,
            attempts: 0,
            draining: false,
            commands: VecDeque::new(),
            notices: VecDeque::new(),
        }
    }

    /// What is to be done next.
    pub fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// What happened.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// The group assigned these partitions. Those that the instance kept are synchronised too: a transaction carries
    /// the membership of this assignment from now on, and what was decided under an older one may have been decided
    /// by somebody else meanwhile.
    pub fn assigned(&mut self, partitions: &[i32], now: u64) {
        for id in partitions {
            #[cfg(test)]
            if self.settings.breaks(super::sim::Broken::KeepAtReassignment)
                && self.partitions.contains_key(id)
            {
                continue;
            }
            self.partitions.entry(*id).or_insert_with(|| Partition::new(*id));
        }
        let all: Vec<i32> = self.partitions.keys().copied().collect();
        for id in all {
            #[cfg(test)]
            if self.settings.breaks(super::sim::Broken::KeepAtReassignment)
                && self.partitions[&id].phase == Phase::Running
            {
                continue;
            }
            self.doubt(id, Cause::Assigned, now);
        }
        self.plan(now);
    }

    /// The group took these partitions away.
    pub fn revoked(&mut self, partitions: &[i32], now: u64) {
        for id in partitions {
            #[cfg(test)]
            if self.settings.breaks(super::sim::Broken::KeepAtReassignment) {
                continue;
            }
            if self.partitions.remove(id).is_some() {
                self.commands.push_back(Command::Forget { partition: *id });
                self.notices.push_back(Notice::Revoked { partition: *id });
            }
        }
        self.plan(now);
    }

    /// Consecutive records were delivered.
    pub fn records(&mut self, batch: Batch, now: u64) {
        let any = false;
        #[cfg(test)]
        let any = any || self.settings.breaks(super::sim::Broken::RecordsBeforeStart);
        if let Some(partition) = self.running(batch.partition).filter(|p| p.reading || any) {
            partition.enqueue(batch, now);
        }
        self.plan(now);
    }

    /// A reading has begun: what is delivered from now on belongs to it.
    pub fn started(&mut self, id: i32, start: u64, now: u64) {
        if let Some(partition) = self.partitions.get_mut(&id).filter(|p| p.start == start) {
            partition.reading = true;
        }
        self.plan(now);
    }

    /// The log does not have the offset that was asked for. What is missing is decided with fresh positions, and never
    /// by jumping to the end.
    pub fn out_of_range(&mut self, partition: i32, now: u64) {
        if self.running(partition).is_some() {
            self.doubt(partition, Cause::OutOfRange, now);
        }
        self.plan(now);
    }

    /// The dedup store's position.
    pub fn memory_stands(&mut self, id: i32, attempt: Attempt, memory: Option<Applied>, now: u64) {
        #[cfg(test)]
        if let Some((committed, bounds)) = self.asked(id, attempt).and_then(|p| p.early_group.take()) {
            if let Some(partition) = self.asked(id, attempt) {
                partition.phase = Phase::AskedGroup(memory);
            }
            self.settle(id, attempt, committed.as_ref(), bounds, now);
            return self.plan(now);
        }
        if let Some(partition) = self.asked(id, attempt)
            && partition.phase == Phase::AskedMemory
        {
            partition.phase = Phase::AskedGroup(memory);
            self.commands.push_back(Command::AskGroup { partition: id, attempt });
        }
        self.plan(now);
    }

    /// The group's committed offset, and the log's first offset and end.
    pub fn group_stands(
        &mut self,
        id: i32,
        attempt: Attempt,
        committed: Option<&Committed>,
        bounds: (i64, i64),
        now: u64,
    ) {
        #[cfg(test)]
        if self.settings.breaks(super::sim::Broken::GroupBeforeMemory)
            && let Some(partition) = self.asked(id, attempt)
            && partition.phase == Phase::AskedGroup(None)
        {
            partition.early_group = Some((committed.cloned(), bounds));
            partition.phase = Phase::AskedMemory;
            self.commands.push_back(Command::AskMemory { partition: id, attempt });
            return self.plan(now);
        }
        self.settle(id, attempt, committed, bounds, now);
        self.plan(now);
    }

    /// A rebuilt memory was installed, or not (none: it could not be built).
    pub fn rebuilt(&mut self, id: i32, attempt: Attempt, outcome: Option<InstallOutcome>, now: u64) {
        #[cfg(test)]
        let settings = Arc::clone(&self.settings);
        if let Some(partition) = self.asked(id, attempt)
            && let Phase::Rebuilding(to) = partition.phase
        {
            let done = outcome == Some(InstallOutcome::Done);
            #[cfg(test)]
            let done = done && !settings.breaks(super::sim::Broken::JudgeAgain);
            if done {
                partition.run(to, to.offset, to.offset);
                self.runs(id, to.offset, to.offset);
            } else {
                self.doubt(id, Cause::Rebuild, now);
            }
        }
        self.plan(now);
    }

    /// What the dedup store remembers of the keys.
    pub fn looked_up(&mut self, id: i32, attempt: Attempt, answer: Lookup, now: u64) {
        let settings = Arc::clone(&self.settings);
        if let Some(partition) = self.asked(id, attempt)
            && let Some((chunk, _)) = partition.asking.take()
        {
            let parked = std::mem::take(&mut partition.parked);
            let next = partition.awaited();
            match answer {
                Lookup::Found(found) if found.len() == chunk.keys.len() => {
                    let bearable = if chunk.emits { partition.bearable(&settings, &chunk) } else { Ok(()) };
                    match bearable {
                        Err(why) => self.refuse(id, why, now),
                        Ok(()) => {
                            let decided = decide(
                                &settings.config,
                                &chunk,
                                &found,
                                &partition.overlay,
                                &mut partition.outputs,
                            );
                            partition.decided = decided.to;
                            partition.slice = decided.slice;
                            partition.overlay.push(decided);
                            partition.drop_overlay();
                            if chunk.emits {
                                self.pending_since.get_or_insert(now);
                            }
                            if parked {
                                self.start(id, next);
                            }
                        }
                    }
                }
                _ => self.doubt(id, Cause::Gap, now),
            }
        }
        self.plan(now);
    }

    /// What became of a claim.
    pub fn claimed(
        &mut self,
        id: i32,
        attempt: Attempt,
        (to, slice): (i64, i64),
        answer: ClaimOutcome,
        now: u64,
    ) {
        if let Some(partition) = self.asked(id, attempt)
            && partition.claiming
        {
            match answer {
                ClaimOutcome::Done => {
                    partition.claim_done(to, slice);
                    #[cfg(test)]
                    if self.settings.breaks(super::sim::Broken::DropUnderLookup)
                        && let Some(partition) = self.partitions.get_mut(&id)
                    {
                        partition.overlay.drop_below(to);
                    }
                }
                ClaimOutcome::Gap(_) => self.doubt(id, Cause::Gap, now),
            }
        }
        self.plan(now);
    }

    /// The transaction under way has ended.
    pub fn commit_ended(&mut self, end: CommitEnd, now: u64) {
        // An unknown result is neither a success (it would leave holes) nor a failure (it would write twice).
        #[cfg(test)]
        let end = match end {
            CommitEnd::Unknown if self.settings.breaks(super::sim::Broken::UnknownIsDone) => CommitEnd::Done,
            end => end,
        };
        for part in self.in_flight.take().unwrap_or_default() {
            #[cfg(test)]
            if end == CommitEnd::Unknown && self.settings.breaks(super::sim::Broken::UnknownIsAborted) {
                self.again_from_committed(part.partition);
                continue;
            }
            if end == CommitEnd::Done {
                let InFlight { partition, to, tally, .. } = part;
                self.notices.push_back(Notice::Committed { partition, offset: to, tally });
            }
            let Some(partition) = self.asked(part.partition, part.attempt) else { continue };
            match end {
                CommitEnd::Done => {
                    partition.committed = part.to;
                    partition.progressed();
                }
                CommitEnd::Aborted => self.doubt(part.partition, Cause::Aborted, now),
                CommitEnd::Unknown => self.doubt(part.partition, Cause::Unknown, now),
            }
        }
        self.plan(now);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: u64) {
        self.plan(now);
    }

    /// Nothing new is begun; what was decided is committed and claimed.
    pub fn drain(&mut self, now: u64) {
        self.draining = true;
        for partition in self.partitions.values_mut() {
            partition.drop_queue();
        }
        self.plan(now);
    }

    /// After `drain`: nothing is left to wait for.
    pub fn is_drained(&self) -> bool {
        let idle = |p: &Partition| {
            p.phase != Phase::Running || (p.asking.is_none() && !p.claiming && p.overlay.is_claimed())
        };
        self.in_flight.is_none() && self.partitions.values().all(idle)
    }

    /// Whether there is room for more records.
    pub fn wants_records(&self) -> bool {
        !self.draining && !self.is_full()
    }

    fn is_full(&self) -> bool {
        let (records, bytes) =
            self.partitions.values().fold((0, 0), |(n, b), p| (n + p.queued, b + p.queued_bytes));
        records >= QUEUED_TRANSACTIONS * self.settings.config.transaction_records || bytes >= QUEUED_BYTES
    }

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

    /// Partitions that are on their way from a doubt to a known state, and will get there without waiting.
    pub fn synchronising(&self) -> usize {
        let under_way = |p: &&Partition| matches!(p.phase, Phase::AskedMemory | Phase::AskedGroup(_));
        self.partitions.values().filter(under_way).count()
    }

    /// The partitions that are being read, with the next offset that each waits for.
    pub fn read_partitions(&self) -> impl Iterator<Item = (i32, i64)> {
        self.partitions
            .values()
            .filter(|p| p.phase == Phase::Running && p.reading)
            .map(|p| (p.id, p.awaited()))
    }

    /// Whether this reading is still to begin.
    pub fn wants_start(&self, id: i32, start: u64) -> bool {
        self.partitions.get(&id).is_some_and(|p| p.start == start && !p.reading && p.phase == Phase::Running)
    }

    /// Whether answers to this attempt are still wanted.
    pub fn is_current(&self, id: i32, attempt: u64) -> bool {
        self.partitions.get(&id).is_some_and(|p| p.attempt == attempt)
    }

    fn running(&mut self, id: i32) -> Option<&mut Partition> {
        self.partitions.get_mut(&id).filter(|p| p.phase == Phase::Running)
    }

    /// The partition, if it is still in the attempt that asked.
    fn asked(&mut self, id: i32, attempt: Attempt) -> Option<&mut Partition> {
        self.partitions.get_mut(&id).filter(|p| p.attempt == attempt)
    }

    fn doubt(&mut self, id: i32, cause: Cause, now: u64) {
        self.attempts += 1;
        let attempt = self.attempts;
        if let Some(partition) = self.partitions.get_mut(&id) {
            partition.doubt(cause, attempt, now);
            self.commands.push_back(Command::Forget { partition: id });
            self.notices.push_back(Notice::Sync { partition: id, cause });
        }
    }

    /// Both positions are known.
    fn settle(
        &mut self,
        id: i32,
        attempt: Attempt,
        committed: Option<&Committed>,
        bounds: (i64, i64),
        now: u64,
    ) {
        let settings = Arc::clone(&self.settings);
        if let Some(partition) = self.asked(id, attempt)
            && let Phase::AskedGroup(memory) = partition.phase
        {
            match partition.synced(&settings, memory, committed, bounds) {
                Synced::Refuse(why) => self.refuse(id, why, now),
                Synced::Rebuild(job) => {
                    partition.phase = Phase::Rebuilding(job.to);
                    self.notices.push_back(Notice::Rebuilding { partition: id, offset: job.to.offset });
                    self.commands.push_back(Command::Rebuild(job));
                }
                Synced::Run { memory, from, lost } => {
                    let committed = committed.map_or(from, |c| c.offset);
                    partition.run(memory, committed, from);
                    #[cfg(test)]
                    if settings.breaks(super::sim::Broken::WriteBelowCommitted) {
                        partition.emit_from = from;
                    }
                    let news = lost.filter(|lost| partition.reported_loss != Some(*lost));
                    partition.reported_loss = lost;
                    if let Some((from, to)) = news {
                        self.notices.push_back(Notice::Lost { partition: id, from, to });
                    }
                    self.runs(id, from, committed);
                }
            }
        }
    }

    fn refuse(&mut self, id: i32, why: Refusal, now: u64) {
        self.doubt(id, Cause::Refused, now);
        self.notices.push_back(Notice::Refused { partition: id, why });
    }

    fn runs(&mut self, id: i32, from: i64, emit_from: i64) {
        self.notices.push_back(Notice::Running { partition: id, from, emit_from });
        self.start(id, from);
    }

    fn start(&mut self, id: i32, offset: i64) {
        self.attempts += 1;
        let start = self.attempts;
        if let Some(partition) = self.partitions.get_mut(&id) {
            partition.start = start;
            partition.reading = false;
            self.commands.push_back(Command::Start { partition: id, start, offset });
        }
    }

    /// Everything that may begin now.
    fn plan(&mut self, now: u64) {
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

    /// Takes an unknown result for a failure: the same records are written again.
    #[cfg(test)]
    fn again_from_committed(&mut self, id: i32) {
        self.attempts += 1;
        let attempt = self.attempts;
        if let Some(partition) = self.partitions.get_mut(&id).filter(|p| p.phase == Phase::Running) {
            partition.again_from_committed(attempt);
            let offset = partition.committed;
            self.commands.push_back(Command::Forget { partition: id });
            self.start(id, offset);
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
            });
        }
        self.pending_since = None;
        self.in_flight = Some(parts);
        self.commands.push_back(Command::Commit { outputs, positions });
    }
}
