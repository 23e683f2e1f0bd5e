//! An instance: the machine, and what it has under way. It carries commands out as requests that the world delivers
//! when it likes.

use super::Broken;
use super::log::{Log, TxnId};
use crate::heart::rebuild::{Job, Part, Rebuild, Verdicts};
use crate::heart::{Command, Machine, Settings};
use onlooker_event::Digest128;
use onlooker_ports::{
    Batch, Claim, ClaimOutcome, Committed, InstallOutcome, Lookup, OutgoingBatch, Position,
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// What goes over the network.
#[derive(Debug, Clone)]
pub(super) enum Request {
    AskMemory {
        partition: i32,
        attempt: u64,
    },
    AskGroup {
        partition: i32,
        attempt: u64,
    },
    Lookup {
        partition: i32,
        attempt: u64,
        bounds: (i64, i64),
        slice: i64,
        keys: Arc<Vec<Digest128>>,
    },
    Claim {
        partition: i32,
        attempt: u64,
        span: (i64, i64),
        slice: i64,
        claims: Arc<Vec<Claim>>,
        drop: Range<i64>,
    },
    Stage {
        attempt: u64,
        part: Arc<Part>,
    },
    Install {
        attempt: u64,
        partition: i32,
        job: Job,
        name: String,
        parts: u64,
    },
    Ends {
        attempt: u64,
        partition: i32,
    },
    Produce {
        txn: TxnId,
        partition: usize,
        records: Arc<OutgoingBatch>,
    },
    SendOffsets {
        txn: TxnId,
        generation: u64,
        positions: Vec<Position>,
    },
    End {
        txn: TxnId,
        commit: bool,
    },
}

/// What comes back.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Memory(Option<onlooker_ports::Applied>),
    Group(Option<Committed>, (i64, i64)),
    Lookup(Lookup),
    Claim(ClaimOutcome),
    Stage(bool),
    Install(InstallOutcome),
    Ends(Vec<usize>),
    /// Whether the transaction may go on, or after its end: whether it is committed.
    Txn(TxnId, bool),
}

/// Names a question and the place of its answer.
pub(super) type Tag = u64;

#[derive(Debug)]
pub(super) enum GroupEvent {
    Assigned { partitions: Vec<i32>, generation: u64 },
    Revoked { partitions: Vec<i32> },
}

#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) id: TxnId,
    /// Requests without an answer.
    pub(super) waiting: usize,
    pub(super) step: Step,
    positions: Vec<Position>,
    /// The membership that it was begun under.
    generation: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Producing,
    SendingOffsets,
    Ending,
}

#[derive(Debug)]
pub(super) struct Rebuilding {
    pub(super) job: Job,
    pub(super) verdicts: Option<Verdicts>,
    pub(super) ends: Option<Vec<usize>>,
    pub(super) positions: Vec<usize>,
    pub(super) parts: VecDeque<Part>,
    pub(super) staging: bool,
    pub(super) done: Option<Rebuild>,
}

#[derive(Debug)]
enum Order {
    Stop { partition: i32 },
    Start { partition: i32, start: u64, offset: i64 },
}

#[derive(Debug)]
pub(super) struct Instance {
    pub(super) id: u64,
    pub(super) machine: Machine,
    pub(super) generation: u64,
    pub(super) believes: Vec<i32>,
    pub(super) events: VecDeque<GroupEvent>,
    /// The next offset to be fetched, of started partitions.
    pub(super) readers: BTreeMap<i32, i64>,
    /// Fetched and not delivered yet, in order.
    pub(super) fetched: VecDeque<Batch>,
    /// What the reader is to do, one after the other.
    orders: VecDeque<Order>,
    /// Questions without an answer; each may be asked again.
    pub(super) open: BTreeMap<Tag, Request>,
    pub(super) txn: Option<Transaction>,
    pub(super) rebuilds: BTreeMap<i32, Rebuilding>,
    /// Which copy of the store it talks to.
    pub(super) store: usize,
    /// Steps for which it stands still.
    pub(super) paused: u32,
    next_tag: Tag,
}

impl Instance {
    pub(super) fn new(id: u64, settings: &Arc<Settings>) -> Self {
        Self {
            id,
            machine: Machine::new(Arc::clone(settings)),
            generation: 0,
            believes: Vec::new(),
            events: VecDeque::new(),
            readers: BTreeMap::new(),
            fetched: VecDeque::new(),
            orders: VecDeque::new(),
            open: BTreeMap::new(),
            txn: None,
            rebuilds: BTreeMap::new(),
            store: 0,
            paused: 0,
            next_tag: id << 32,
        }
    }

    fn ask(&mut self, request: Request, sent: &mut Vec<(u64, Tag, Request)>) {
        self.next_tag += 1;
        self.open.insert(self.next_tag, request.clone());
        sent.push((self.id, self.next_tag, request));
    }

    /// Carries out what the machine wants. What is sent goes to `sent`.
    pub(super) fn obey(&mut self, log: &mut Log, sent: &mut Vec<(u64, Tag, Request)>) {
        while let Some(command) = self.machine.next_command() {
            match command {
                Command::Forget { partition } => {
                    // The reader does not hear of it: what it delivers until it is stopped nobody wants.
                    self.orders.retain(|order| match order {
                        Order::Stop { partition: p } | Order::Start { partition: p, .. } => *p != partition,
                    });
                    self.rebuilds.remove(&partition);
                }
                Command::AskMemory { partition, attempt } => {
                    self.ask(Request::AskMemory { partition, attempt }, sent);
                }
                Command::AskGroup { partition, attempt } => {
                    self.stop(partition);
                    self.ask(Request::AskGroup { partition, attempt }, sent);
                }
                Command::Start { partition, start, offset } => {
                    self.orders.push_back(Order::Start { partition, start, offset });
                }
                Command::Stop { partition } => self.orders.push_back(Order::Stop { partition }),
                Command::Lookup { partition, attempt, at_least, at_most, slice, keys } => {
                    let bounds = (at_least, at_most);
                    self.ask(Request::Lookup { partition, attempt, bounds, slice, keys }, sent);
                }
                Command::Claim { partition, attempt, from, to, slice, claims, drop } => {
                    let span = (from, to);
                    self.ask(Request::Claim { partition, attempt, span, slice, claims, drop }, sent);
                }
                Command::Rebuild(job) => {
                    self.rebuilds.insert(
                        job.partition,
                        Rebuilding {
                            job,
                            verdicts: None,
                            ends: None,
                            positions: Vec::new(),
                            parts: VecDeque::new(),
                            staging: false,
                            done: None,
                        },
                    );
                    self.ask(Request::Ends { attempt: job.attempt, partition: job.partition }, sent);
                }
                Command::Commit { outputs, positions } => self.begin(log, &outputs, positions, sent),
            }
        }
        let partitions: Vec<i32> = self.rebuilds.keys().copied().collect();
        for partition in partitions {
            self.stage_next(partition, sent);
        }
    }

    /// The reader carries one order out.
    pub(super) fn read_on(&mut self, now: u64) -> bool {
        match self.orders.pop_front() {
            Some(Order::Stop { partition }) => self.stop(partition),
            Some(Order::Start { partition, start, offset }) => {
                self.stop(partition);
                self.readers.insert(partition, offset);
                self.machine.started(partition, start, now);
            }
            None => return false,
        }
        true
    }

    fn stop(&mut self, partition: i32) {
        self.readers.remove(&partition);
        self.fetched.retain(|batch| batch.partition != partition);
    }

    fn begin(
        &mut self,
        log: &mut Log,
        outputs: &OutgoingBatch,
        positions: Vec<Position>,
        sent: &mut Vec<(u64, Tag, Request)>,
    ) {
        let id = log.begin(self.id);
        let split = Log::split(outputs);
        self.txn = Some(Transaction {
            id,
            waiting: split.len(),
            step: Step::Producing,
            positions,
            generation: self.generation,
        });
        for (partition, records) in split {
            self.ask(Request::Produce { txn: id, partition, records: Arc::new(records) }, sent);
        }
    }

    /// The next step of a transaction whose last request went through.
    pub(super) fn go_on(&mut self, log: &Log, broken: Option<Broken>, sent: &mut Vec<(u64, Tag, Request)>) {
        let id = self.id;
        let Some(txn) = &mut self.txn else { return };
        let request = match txn.step {
            Step::Producing => {
                txn.step = Step::SendingOffsets;
                // The membership of the assignment, not the group's latest: who has lost a partition without having
                // heard of it must be refused.
                let latest = broken == Some(Broken::LatestMembership) && log.members.contains(&id);
                let generation = if latest { log.generation } else { txn.generation };
                Request::SendOffsets { txn: txn.id, generation, positions: txn.positions.clone() }
            }
            _ => {
                txn.step = Step::Ending;
                Request::End { txn: txn.id, commit: true }
            }
        };
        txn.waiting = 1;
        self.ask(request, sent);
    }

    /// Sends the abort and gives the transaction up.
    pub(super) fn abort(&mut self, sent: &mut Vec<(u64, Tag, Request)>) {
        if let Some(txn) = self.txn.take() {
            self.forget_txn(txn.id);
            // Nobody waits for the answer.
            self.next_tag += 1;
            sent.push((self.id, self.next_tag, Request::End { txn: txn.id, commit: false }));
        }
    }

    /// Destroys the producer.
    pub(super) fn forget_txn(&mut self, id: TxnId) {
        self.open.retain(|_, request| match request {
            Request::Produce { txn, .. } | Request::SendOffsets { txn, .. } | Request::End { txn, .. } => {
                *txn != id
            }
            _ => true,
        });
    }

    /// Stages the next part, or installs when all are staged.
    fn stage_next(&mut self, partition: i32, sent: &mut Vec<(u64, Tag, Request)>) {
        let Some(rebuild) = self.rebuilds.get_mut(&partition) else { return };
        if rebuild.staging {
            return;
        }
        let attempt = rebuild.job.attempt;
        if let Some(part) = rebuild.parts.pop_front() {
            rebuild.staging = true;
            self.ask(Request::Stage { attempt, part: Arc::new(part) }, sent);
        } else if let Some(Rebuild { job, name, parts, .. }) = rebuild.done.take() {
            rebuild.staging = true;
            self.ask(Request::Install { attempt, partition, job, name, parts }, sent);
        }
    }
}
