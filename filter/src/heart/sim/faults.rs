//! What goes wrong.

use super::instance::{Request, Tag};
use super::store::Store;
use super::world::World;
use super::{Broken, PARTITIONS};
use crate::heart::CommitEnd;
use onlooker_model::simulation::Plan;

pub(super) const KINDS: &[&str] = &[
    "crash",
    "pause",
    "rebalance",
    "store lost",
    "store set back",
    "store split",
    "request lost",
    "request late",
    "time-out",
    "unknown commit",
    "records expired",
    "transaction expired",
    "staged state expired",
];

/// A kind of fault: its place in `KINDS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Crash,
    Pause,
    Rebalance,
    Lost,
    SetBack,
    Split,
    RequestLost,
    RequestLate,
    TimeOut,
    Unknown,
    Retention,
    TxnExpires,
    StagedExpire,
}

/// How often what goes wrong, in 1,000 steps.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    crash: usize,
    pause: usize,
    rebalance: usize,
    store_lost: usize,
    store_set_back: usize,
    split_brain: usize,
    lost_request: usize,
    time_out: usize,
    retention: usize,
    txn_expires: usize,
    staged_expire: usize,
    /// Requests that arrive much later than they were sent, in 100 of them.
    pub(super) late: usize,
    /// Commits whose answer does not come, in 100 of them.
    pub(super) unknown: usize,
}

impl Faults {
    /// Each seed has its own mixture, so that some faults are rare in one history and common in another. Every
    /// fourth one is a storm of failovers, every fourth one of rebalances and losses, every fourth one of zombies.
    pub(super) fn of(plan: &Plan) -> Self {
        let mut rng = super::rng::Rng::new(plan.seed_of_part(2));
        let mut some = |most: usize| match rng.below(10) {
            0..5 => 0,
            5..9 => rng.below(most + 1),
            _ => 5 * most,
        };
        match plan.seed() % 4 {
            0 => Self { crash: 15, time_out: 20, store_set_back: 25, late: 25, ..Self::default() },
            1 => Self {
                rebalance: 20,
                pause: 10,
                crash: 5,
                store_lost: 25,
                time_out: 20,
                late: 15,
                ..Self::default()
            },
            2 => Self {
                rebalance: 20,
                pause: 15,
                store_lost: 15,
                store_set_back: 5,
                unknown: 30,
                late: 40,
                ..Self::default()
            },
            _ => Self {
                crash: some(6),
                pause: some(8),
                rebalance: some(12),
                store_lost: some(6),
                store_set_back: some(8),
                split_brain: some(10),
                lost_request: some(30),
                time_out: some(40),
                unknown: some(40),
                retention: some(10),
                txn_expires: some(6),
                staged_expire: some(6),
                late: some(10),
            },
        }
    }

    /// What goes wrong, if anything does, for a number below 1,000.
    fn pick(&self, mut at: usize) -> Option<Kind> {
        let all = [
            (self.crash, Kind::Crash),
            (self.pause, Kind::Pause),
            (self.rebalance, Kind::Rebalance),
            (self.store_lost, Kind::Lost),
            (self.store_set_back, Kind::SetBack),
            (self.split_brain, Kind::Split),
            (self.lost_request, Kind::RequestLost),
            (self.time_out, Kind::TimeOut),
            (self.retention, Kind::Retention),
            (self.txn_expires, Kind::TxnExpires),
            (self.staged_expire, Kind::StagedExpire),
        ];
        for (per_mille, kind) in all {
            if at < per_mille {
                return Some(kind);
            }
            at -= per_mille;
        }
        None
    }
}

impl World<'_> {
    pub(super) fn happens(&mut self, kind: Kind) {
        self.record.fault(kind as usize);
    }

    /// Whether something went wrong.
    pub(super) fn fault(&mut self, faults: &Faults) -> bool {
        let Some(kind) = faults.pick(self.rng.below(1_000)) else { return false };
        match kind {
            Kind::Crash => self.crash(),
            Kind::Pause => self.pause(),
            Kind::Rebalance => {
                self.happens(kind);
                self.rebalance();
            }
            Kind::Lost => {
                let partition = self.rng.below(PARTITIONS);
                self.stores[0][partition] = Store::default();
                self.happens(kind);
                self.record.say(|| format!("the store loses partition {partition}"));
            }
            Kind::SetBack => self.set_back(),
            Kind::Split => self.split_or_join(),
            Kind::RequestLost if !self.requests.is_empty() => {
                let at = self.rng.below(self.requests.len());
                let (id, _, request) = self.requests.swap_remove(at);
                self.happens(kind);
                self.record.say(|| format!("filter {id}: {} gets lost", request.brief()));
            }
            Kind::TimeOut => self.time_out(),
            Kind::Retention => self.retention(),
            Kind::TxnExpires => {
                if let Some(txn) = self.rng.pick(&self.log.open()).copied() {
                    self.log.end(txn, false);
                    self.happens(kind);
                    self.record.say(|| format!("transaction {txn} expires"));
                }
            }
            Kind::StagedExpire => {
                let partition = self.rng.below(PARTITIONS);
                self.stores[0][partition].expire(self.broken);
                self.happens(kind);
                self.record.say(|| format!("what is staged of partition {partition} expires"));
            }
            _ => {}
        }
        true
    }

    /// What the conditions that are left out allow for besides.
    pub(super) fn clocks(&mut self) {
        let partition = self.rng.below(PARTITIONS);
        match self.broken {
            Some(Broken::ClaimsExpire) if self.rng.chance(2) => {
                self.stores[0][partition].slices.pop_last();
            }
            Some(Broken::InstallKeepsTtl) if self.rng.chance(2) => {
                self.stores[0][partition].expire(self.broken)
            }
            _ => {}
        }
    }

    /// A replica lacks the last few writes, or is a backup.
    fn set_back(&mut self) {
        let last = self.snapshots.len() - 1;
        let back = if self.rng.chance(70) { self.rng.below(5) } else { self.rng.below(last + 1) };
        self.stores[0] = self.snapshots[last.saturating_sub(back)].clone();
        self.happens(Kind::SetBack);
        let at = self.stores[0].iter().map(|s| s.applied.map(|a| a.offset)).collect::<Vec<_>>();
        self.record.say(|| format!("the store fails over to a state {back} writes ago, at {at:?}"));
    }

    /// kill -9: what it has sent may still arrive.
    fn crash(&mut self) {
        let at = self.rng.below(self.instances.len());
        let dead = self.instances.swap_remove(at).id;
        self.happens(Kind::Crash);
        self.record.say(|| format!("filter {dead} dies"));
        self.start_instance();
        if self.rng.chance(80) {
            self.rebalance();
        }
    }

    /// SIGSTOP, and SIGCONT when the group has long gone on without it.
    fn pause(&mut self) {
        let at = self.rng.below(self.instances.len());
        let steps = 10 + self.rng.below(60);
        self.instances[at].paused = u32::try_from(steps).unwrap();
        let id = self.instances[at].id;
        self.happens(Kind::Pause);
        self.record.say(|| format!("filter {id} stands still for {steps} steps"));
        if self.rng.chance(80) {
            self.rebalance();
        }
    }

    /// One of the instances talks to another copy of the store for a while; one copy survives.
    fn split_or_join(&mut self) {
        self.happens(Kind::Split);
        if self.instances.iter().all(|i| i.store == 0) {
            self.stores[1] = self.stores[0].clone();
            let at = self.rng.below(self.instances.len());
            self.instances[at].store = 1;
            let id = self.instances[at].id;
            self.record.say(|| format!("filter {id} talks to a second store from now on"));
            return;
        }
        let second = self.rng.chance(50);
        if second {
            self.stores[0] = self.stores[1].clone();
        }
        self.record.say(|| format!("one store again, the {}", if second { "second" } else { "first" }));
        self.instances.iter_mut().for_each(|i| i.store = 0);
    }

    /// The log drops its oldest records, never any that are not judged.
    fn retention(&mut self) {
        let partition = self.rng.below(PARTITIONS);
        let committed = self.log.committed[&i32::try_from(partition).unwrap()].offset;
        let earliest = &mut self.log.earliest[partition];
        *earliest = self.rng.range(*earliest, committed.max(*earliest));
        let earliest = *earliest;
        self.happens(Kind::Retention);
        self.record.say(|| format!("records of partition {partition} below {earliest} are gone"));
    }

    /// A client stops waiting: it asks the store again, or gives its transaction up.
    fn time_out(&mut self) {
        let at = self.rng.below(self.instances.len());
        let instance = &mut self.instances[at];
        let open: Vec<Tag> = instance.open.keys().copied().collect();
        let Some(tag) = self.rng.pick(&open).copied() else { return };
        let (id, request) = (instance.id, instance.open[&tag].clone());
        if matches!(request, Request::End { .. }) {
            return self.unknown(at);
        }
        let mut sent = Vec::new();
        self.record.say(|| format!("filter {id} waits no longer for {}", request.brief()));
        if matches!(request, Request::Produce { .. } | Request::SendOffsets { .. }) {
            instance.abort(&mut sent);
            instance.machine.commit_ended(CommitEnd::Aborted, self.now);
        } else {
            // The first request may still arrive, before or after the second.
            sent.push((id, tag, request));
        }
        instance.obey(&mut self.log, &mut sent);
        self.happens(Kind::TimeOut);
        self.send(sent);
    }

    /// The end of a transaction is not answered: the one request whose loss leaves a doubt.
    pub(super) fn unknown(&mut self, at: usize) {
        let instance = &mut self.instances[at];
        let ends = instance.open.values().find_map(|request| match request {
            Request::End { txn, .. } => Some(*txn),
            _ => None,
        });
        let Some(txn) = ends else { return };
        let id = instance.id;
        self.record.say(|| format!("filter {id} does not know how transaction {txn} ends"));
        instance.forget_txn(txn);
        instance.txn = None;
        instance.machine.commit_ended(CommitEnd::Unknown, self.now);
        let mut sent = Vec::new();
        instance.obey(&mut self.log, &mut sent);
        self.stats.unknown += 1;
        self.happens(Kind::Unknown);
        self.send(sent);
    }

    /// No more faults: everybody is in the group, every question is asked until it is answered.
    pub(super) fn heal(&mut self) {
        (self.late_percent, self.unknown_percent) = (0, 0);
        self.instances.iter_mut().for_each(|i| (i.store, i.paused) = (0, 0));
        self.rebalance();
    }
}
