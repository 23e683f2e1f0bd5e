//! All partitions of an instance, and the one transaction that may be under way.

use super::command::{Cause, Command, CommitEnd, Notice, Refusal, Tally};
use super::decide::decide;
use super::partition::{Partition, Phase, Synced};
use super::{Settings, command::Attempt};
use onlooker_ports::{Applied, Batch, ClaimOutcome, Committed, InstallOutcome, Lookup};
use onlooker_stage::spans::Span;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Records that wait to be looked up, as a multiple of a transaction. Beyond it no more are asked for.
const QUEUED_TRANSACTIONS: usize = 2;
/// Bytes of the same: unreadable records may be large.
const QUEUED_BYTES: usize = 64 << 20;

/// The state of an instance. Times are milliseconds on any clock that never steps back.
#[derive(Debug)]
pub struct Machine {
    pub(super) settings: Arc<Settings>,
    pub(super) partitions: BTreeMap<i32, Partition>,
    pub(super) in_flight: Option<Vec<InFlight>>,
    /// When the oldest output became ready.
    pub(super) pending_since: Option<u64>,
    attempts: Attempt,
    pub(super) draining: bool,
    pub(super) commands: VecDeque<Command>,
    notices: VecDeque<Notice>,
}

/// A partition's share of the transaction under way.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) partition: i32,
    pub(super) attempt: Attempt,
    pub(super) to: i64,
    pub(super) tally: Tally,
    pub(super) spans: Vec<Span>,
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
        let wanted = self.running(batch.partition).is_some_and(|p| p.reading);
        #[cfg(test)]
        let wanted = wanted || self.settings.breaks(super::sim::Broken::RecordsBeforeStart);
        if wanted && let Some(partition) = self.running(batch.partition) {
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
            && let Some((mut chunk, _)) = partition.asking.take()
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
                                &mut chunk,
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
                part.spans.into_iter().for_each(Span::done);
                let ours = self.partitions.contains_key(&partition);
                self.notices.push_back(Notice::Committed { partition, ours, offset: to, tally });
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

    pub(super) fn is_full(&self) -> bool {
        let (records, bytes) =
            self.partitions.values().fold((0, 0), |(n, b), p| (n + p.queued, b + p.queued_bytes));
        records >= QUEUED_TRANSACTIONS * self.settings.config.transaction_records || bytes >= QUEUED_BYTES
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

    /// Whether the group has assigned the partition to this instance.
    pub fn owns(&self, id: i32) -> bool {
        self.partitions.contains_key(&id)
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
}
