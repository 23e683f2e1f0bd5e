//! A model of the log: `views`, the output topics with transactions, and the group.
//!
//! A transaction's result becomes visible marker by marker, one partition after the other, as in Kafka.

use super::reference::Record;
use onlooker_ports::{Committed, OutgoingBatch, Position, Topic};
use std::collections::{BTreeMap, BTreeSet};

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
}

#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) views: Vec<Vec<Record>>,
    /// The first offset that is left, per partition.
    pub(super) earliest: Vec<i64>,
    pub(super) outputs: Vec<Vec<Slot>>,
    txns: BTreeMap<TxnId, Txn>,
    pub(super) committed: BTreeMap<i32, Committed>,
    pub(super) generation: u64,
    /// Who is a member of this generation.
    pub(super) members: BTreeSet<u64>,
}

impl Log {
    pub(super) fn new(partitions: usize) -> Self {
        let first = || Committed { offset: 0, note: String::new() };
        Self {
            views: vec![Vec::new(); partitions],
            earliest: vec![0; partitions],
            outputs: vec![Vec::new(); COUNTED + 1],
            committed: (0..partitions).map(|p| (i32::try_from(p).unwrap(), first())).collect(),
            ..Self::default()
        }
    }

    pub(super) fn begin(&mut self, owner: u64) -> TxnId {
        let id = self.txns.len() as TxnId + 1;
        let txn = Txn { state: State::Open, touched: BTreeSet::new(), offsets: Vec::new(), owner };
        self.txns.insert(id, txn);
        id
    }

    /// Outputs by the partition that they go to.
    pub(super) fn split(outputs: &OutgoingBatch) -> Vec<(usize, OutgoingBatch)> {
        let mut split: BTreeMap<usize, OutgoingBatch> = BTreeMap::new();
        for record in outputs.iter() {
            let partition = match record.topic {
                Topic::Counted => record.key.iter().map(|b| usize::from(*b)).sum::<usize>() % COUNTED,
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
        let Some(txn) = self.txns.get_mut(&id).filter(|txn| txn.state == State::Open) else { return false };
        txn.touched.insert(partition);
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
        let owner = self.txns[&id].owner;
        let ending = |txn: &Txn| {
            txn.owner == owner
                && txn.state != State::Open
                && !(txn.touched.is_empty() && txn.offsets.is_empty())
        };
        !self.txns.range(..id).any(|(_, txn)| ending(txn))
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
        let Some(txn) = self.txns.get_mut(&id).filter(|txn| txn.state == State::Open) else { return false };
        txn.offsets = positions.to_vec();
        true
    }

    /// The state after the request.
    pub(super) fn end(&mut self, id: TxnId, commit: bool) -> State {
        let txn = self.txns.get_mut(&id).unwrap();
        if txn.state == State::Open {
            txn.state = if commit { State::Committed } else { State::Aborted };
        }
        txn.state
    }

    pub(super) fn open(&self) -> Vec<TxnId> {
        self.txns.iter().filter(|(_, txn)| txn.state == State::Open).map(|(id, _)| *id).collect()
    }

    /// Markers that are still to be written: the transaction and the output partition, none for the offsets.
    pub(super) fn markers(&self) -> Vec<(TxnId, Option<usize>)> {
        let ended = self.txns.iter().filter(|(_, txn)| txn.state != State::Open);
        ended
            .flat_map(|(id, txn)| {
                let outputs = txn.touched.iter().map(|p| (*id, Some(*p)));
                outputs.chain((!txn.offsets.is_empty()).then_some((*id, None)))
            })
            .collect()
    }

    pub(super) fn write_marker(&mut self, id: TxnId, partition: Option<usize>) {
        let txn = self.txns.get_mut(&id).unwrap();
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
    }

    /// Whether offsets of the partition are on their way.
    pub(super) fn unstable(&self, partition: i32) -> bool {
        self.txns.values().any(|txn| txn.offsets.iter().any(|o| o.partition == partition))
    }

    /// The end of what a reader of committed records sees of an output partition.
    pub(super) fn last_stable(&self, partition: usize) -> usize {
        let slots = &self.outputs[partition];
        let pending = |slot: &Slot| match slot {
            Slot::Data { txn, .. } => self.txns[txn].touched.contains(&partition),
            Slot::Marker => false,
        };
        slots.iter().position(pending).unwrap_or(slots.len())
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
                (self.txns[txn].state == State::Committed).then_some((*append_ms, key, payload))
            }
            Slot::Marker => None,
        }
    }

    /// Every output of a committed transaction.
    pub(super) fn written(&self) -> impl Iterator<Item = (Topic, &[u8], &[u8])> {
        self.outputs.iter().flatten().filter_map(|slot| match slot {
            Slot::Data { txn, topic, key, payload, .. } if self.txns[txn].state == State::Committed => {
                Some((*topic, key.as_slice(), payload.as_slice()))
            }
            _ => None,
        })
    }
}
