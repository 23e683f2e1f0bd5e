//! A model of the log: `views`, the output topics with transactions, and the group.
//!
//! A transaction's result becomes visible marker by marker, one partition after the other, as in Kafka.

use onlooker_ports::{Committed, OutgoingBatch, Position, Topic};
use std::collections::{BTreeMap, BTreeSet};

/// Names no transaction: what other programs appended.
pub(super) const NO_TXN: TxnId = 0;

/// Partitions of `views.counted`.
pub(super) const COUNTED: usize = 2;
/// The place of all ignored and dead records.
const OTHERS: usize = COUNTED;

pub(super) type TxnId = u64;

#[derive(Debug, Clone)]
pub(super) enum Slot {
    Data { txn: TxnId, append_ms: i64, topic: Topic, key: Vec<u8>, payload: Vec<u8> },
    Marker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Open,
    Committed,
    Aborted,
}

#[derive(Debug)]
pub(super) struct Txn {
    pub(super) state: State,
    /// Partitions of outputs that still lack the marker.
    touched: BTreeSet<usize>,
    /// Offsets that are not visible yet.
    offsets: Vec<Position>,
    /// The instance whose producer it belongs to.
    owner: u64,
    /// Where its records stand: output partition and place.
    records: Vec<(usize, usize)>,
}

impl Txn {
    /// Everybody sees how it ended.
    fn is_settled(&self) -> bool {
        self.state != State::Open && self.touched.is_empty() && self.offsets.is_empty()
    }
}

/// A record of `views`, as it stands in the log.
#[derive(Debug)]
pub(super) struct ViewRecord {
    pub(super) append_ms: i64,
    pub(super) payload: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) views: Vec<Vec<ViewRecord>>,
    /// The first offset that is left, per partition.
    pub(super) earliest: Vec<i64>,
    pub(super) outputs: Vec<Vec<Slot>>,
    /// Transaction n stands at n - 1.
    txns: Vec<Txn>,
    /// Those that are open, or whose end not everybody sees.
    unsettled: Vec<TxnId>,
    /// Those that were committed since somebody asked.
    committed_txns: Vec<TxnId>,
    /// How far each output partition is known to be stable.
    stable: Vec<usize>,
    pub(super) committed: BTreeMap<i32, Committed>,
    pub(super) generation: u64,
    /// Who is a member of this generation.
    pub(super) members: BTreeSet<u64>,
}

impl Log {
    pub(super) fn new(partitions: usize) -> Self {
        let first = || Committed { offset: 0, note: String::new() };
        Self {
            views: (0..partitions).map(|_| Vec::new()).collect(),
            earliest: vec![0; partitions],
            outputs: vec![Vec::new(); COUNTED + 1],
            stable: vec![0; COUNTED + 1],
            committed: (0..partitions).map(|p| (i32::try_from(p).unwrap(), first())).collect(),
            ..Self::default()
        }
    }

    pub(super) fn begin(&mut self, owner: u64) -> TxnId {
        self.txns.push(Txn {
            state: State::Open,
            touched: BTreeSet::new(),
            offsets: Vec::new(),
            owner,
            records: Vec::new(),
        });
        let id = self.txns.len() as TxnId;
        self.unsettled.push(id);
        id
    }

    fn txn(&self, id: TxnId) -> Option<&Txn> {
        self.txns.get(usize::try_from(id).unwrap().checked_sub(1)?)
    }

    fn txn_mut(&mut self, id: TxnId) -> &mut Txn {
        &mut self.txns[usize::try_from(id).unwrap() - 1]
    }

    fn unsettled(&self) -> impl Iterator<Item = (TxnId, &Txn)> {
        self.unsettled.iter().map(|id| (*id, &self.txns[usize::try_from(*id).unwrap() - 1]))
    }

    fn settle(&mut self, id: TxnId) {
        if self.txn(id).is_some_and(Txn::is_settled) {
            self.unsettled.retain(|other| *other != id);
        }
    }

    /// Appends what no transaction of ours wrote.
    pub(super) fn carry_over(&mut self, partition: usize, append_ms: i64, key: &[u8], payload: Vec<u8>) {
        let key = key.to_vec();
        self.outputs[partition].push(Slot::Data {
            txn: NO_TXN,
            append_ms,
            topic: Topic::Counted,
            key,
            payload,
        });
    }

    /// Outputs by the partition that they go to.
    pub(super) fn split(outputs: &OutgoingBatch) -> Vec<(usize, OutgoingBatch)> {
        let mut split: BTreeMap<usize, OutgoingBatch> = BTreeMap::new();
        for record in outputs.iter() {
            let partition = match record.topic {
                Topic::Counted => place_of(record.key),
                _ => OTHERS,
            };
            split.entry(partition).or_default().push(record.topic, record.key, record.payload);
        }
        split.into_iter().collect()
    }

    pub(super) fn produce(
        &mut self,
        id: TxnId,
        partition: usize,
        records: &OutgoingBatch,
        append_ms: i64,
    ) -> bool {
        let first = self.outputs[partition].len();
        let txn = self.txn_mut(id);
        if txn.state != State::Open {
            return false;
        }
        txn.touched.insert(partition);
        txn.records.extend((first..first + records.len()).map(|slot| (partition, slot)));
        self.outputs[partition].extend(records.iter().map(|r| Slot::Data {
            txn: id,
            append_ms,
            topic: r.topic,
            key: r.key.to_vec(),
            payload: r.payload.to_vec(),
        }));
        true
    }

    /// A producer begins when all markers of its previous transaction are written (`CONCURRENT_TRANSACTIONS`).
    pub(super) fn may_begin(&self, id: TxnId) -> bool {
        let owner = self.txn(id).map(|txn| txn.owner);
        let mut earlier = self.unsettled().filter(|(other, _)| *other < id);
        !earlier.any(|(_, txn)| Some(txn.owner) == owner && txn.state != State::Open)
    }

    pub(super) fn send_offsets(
        &mut self,
        id: TxnId,
        (member, generation): (u64, u64),
        checked: bool,
        positions: &[Position],
    ) -> bool {
        if checked && (generation != self.generation || !self.members.contains(&member)) {
            return false;
        }
        let txn = self.txn_mut(id);
        if txn.state != State::Open {
            return false;
        }
        txn.offsets = positions.to_vec();
        true
    }

    /// The state after the request.
    pub(super) fn end(&mut self, id: TxnId, commit: bool) -> State {
        let txn = self.txn_mut(id);
        if txn.state != State::Open {
            return txn.state;
        }
        txn.state = if commit { State::Committed } else { State::Aborted };
        if commit {
            self.committed_txns.push(id);
        }
        self.settle(id);
        if commit { State::Committed } else { State::Aborted }
    }

    pub(super) fn open(&self) -> Vec<TxnId> {
        self.unsettled().filter(|(_, txn)| txn.state == State::Open).map(|(id, _)| id).collect()
    }

    /// Markers that are still to be written: the transaction and the output partition, none for the offsets.
    pub(super) fn markers(&self) -> Vec<(TxnId, Option<usize>)> {
        let ended = self.unsettled().filter(|(_, txn)| txn.state != State::Open);
        ended
            .flat_map(|(id, txn)| {
                let outputs = txn.touched.iter().map(move |p| (id, Some(*p)));
                outputs.chain((!txn.offsets.is_empty()).then_some((id, None)))
            })
            .collect()
    }

    /// Whether every transaction has ended, for everybody.
    pub(super) fn is_settled(&self) -> bool {
        self.unsettled.is_empty()
    }

    pub(super) fn write_marker(&mut self, id: TxnId, partition: Option<usize>) {
        let txn = self.txn_mut(id);
        match partition {
            Some(partition) => {
                txn.touched.remove(&partition);
                self.outputs[partition].push(Slot::Marker);
            }
            None => {
                let committed = txn.state == State::Committed;
                for position in std::mem::take(&mut txn.offsets).into_iter().filter(|_| committed) {
                    let Position { partition, offset, note } = position;
                    self.committed.insert(partition, Committed { offset, note });
                }
            }
        }
        self.settle(id);
    }

    /// Whether offsets of the partition are on their way.
    pub(super) fn unstable(&self, partition: i32) -> bool {
        self.unsettled().any(|(_, txn)| txn.offsets.iter().any(|o| o.partition == partition))
    }

    /// The end of what a reader of committed records sees of an output partition.
    pub(super) fn last_stable(&mut self, partition: usize) -> usize {
        let mut end = self.stable[partition];
        while let Some(slot) = self.outputs[partition].get(end) {
            if let Slot::Data { txn, .. } = slot
                && self.txn(*txn).is_some_and(|txn| txn.touched.contains(&partition))
            {
                break;
            }
            end += 1;
        }
        self.stable[partition] = end;
        end
    }

    /// The first slot that was appended at this time or later.
    pub(super) fn seek(&self, partition: usize, from_ms: i64) -> usize {
        let slots = &self.outputs[partition];
        let late = |slot: &Slot| match slot {
            Slot::Data { append_ms, .. } => *append_ms >= from_ms,
            Slot::Marker => false,
        };
        slots.iter().position(late).unwrap_or(slots.len())
    }

    /// The record in a slot, if it is one and committed.
    pub(super) fn visible(&self, partition: usize, slot: usize) -> Option<(i64, &[u8], &[u8])> {
        match &self.outputs[partition][slot] {
            Slot::Data { txn, append_ms, key, payload, .. } => {
                let aborted = self.txn(*txn).is_some_and(|txn| txn.state != State::Committed);
                (!aborted).then_some((*append_ms, key, payload))
            }
            Slot::Marker => None,
        }
    }

    /// Transactions that were committed since the last call.
    pub(super) fn take_committed(&mut self) -> Vec<TxnId> {
        std::mem::take(&mut self.committed_txns)
    }

    /// The outputs of a transaction.
    pub(super) fn written_by(&self, id: TxnId) -> impl Iterator<Item = (Topic, &[u8], &[u8])> {
        let records = self.txn(id).map(|txn| txn.records.as_slice()).unwrap_or_default();
        records.iter().filter_map(|(partition, slot)| match &self.outputs[*partition][*slot] {
            Slot::Data { topic, key, payload, .. } => Some((*topic, key.as_slice(), payload.as_slice())),
            Slot::Marker => None,
        })
    }
}

/// The output partition of a counted view.
pub(super) fn place_of(key: &[u8]) -> usize {
    key.iter().map(|b| usize::from(*b)).sum::<usize>() % COUNTED
}
