//! What was fetched and not yet handed out, in order and bounded. No I/O: the threads around it lock and feed it.

use onlooker_ports::{BatchBuilder, GroupEvent, RecordRef};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// A queue of events in which a partition's state can be voided.
///
/// Records of one partition grow into one batch while nobody takes them: the slower the room, the larger its batches.
#[derive(Debug)]
pub(crate) struct Buffer<M> {
    slots: VecDeque<Slot<M>>,
    /// Number of slots that were ever taken: slot `n` stands at index `n - taken`.
    taken: u64,
    /// The newest slot of each partition.
    newest: HashMap<i32, u64>,
    /// Each assigned partition; with the next offset if it is started.
    owned: BTreeMap<i32, Option<i64>>,
    bytes: usize,
    max_bytes: usize,
    max_records: usize,
}

#[derive(Debug)]
enum Slot<M> {
    /// Voided by a start, a stop or a revocation.
    Void,
    Event(GroupEvent<M>),
    Records(BatchBuilder),
}

/// A record costs this much beside its bytes.
const ENTRY_BYTES: usize = 64;

impl<M> Buffer<M> {
    /// `max_bytes` for all that waits, `max_records` for one batch.
    pub(crate) fn new(max_bytes: usize, max_records: usize) -> Self {
        Self {
            slots: VecDeque::new(),
            taken: 0,
            newest: HashMap::new(),
            owned: BTreeMap::new(),
            bytes: 0,
            max_bytes,
            max_records,
        }
    }

    /// These partitions are ours now, and stand still.
    pub(crate) fn assign(&mut self, partitions: Vec<i32>, membership: M) {
        for partition in &partitions {
            self.void(*partition);
            self.owned.insert(*partition, None);
        }
        self.slots.push_back(Slot::Event(GroupEvent::Assigned { partitions, membership }));
    }

    /// These are no longer ours; what waits of them is void.
    pub(crate) fn revoke(&mut self, partitions: Vec<i32>) {
        for partition in &partitions {
            self.void(*partition);
            self.owned.remove(partition);
        }
        self.slots.push_back(Slot::Event(GroupEvent::Revoked { partitions }));
    }

    /// Takes records from `offset` on. False if the partition is not ours (any more).
    pub(crate) fn start(&mut self, partition: i32, offset: i64) -> bool {
        self.void(partition);
        let Some(next) = self.owned.get_mut(&partition) else { return false };
        *next = Some(offset);
        true
    }

    /// Takes nothing of the partition until the next start.
    pub(crate) fn stop(&mut self, partition: i32) {
        self.void(partition);
        if let Some(next) = self.owned.get_mut(&partition) {
            *next = None;
        }
    }

    /// Started partitions with the next offset of each.
    pub(crate) fn started(&self) -> impl Iterator<Item = (i32, i64)> {
        self.owned.iter().filter_map(|(partition, next)| next.map(|next| (*partition, next)))
    }

    /// The next offset of a started partition.
    pub(crate) fn position(&self, partition: i32) -> Option<i64> {
        self.owned.get(&partition).copied().flatten()
    }

    /// A fetched record. Dropped if the partition is not started, or the record stands before the position.
    pub(crate) fn record(&mut self, partition: i32, record: &RecordRef<'_>) {
        let RecordRef { offset, append_ms, key, payload, trace } = *record;
        match self.owned.get_mut(&partition) {
            Some(Some(next)) if offset >= *next => *next = offset + 1,
            _ => return,
        }
        let (max_records, max_bytes) = (self.max_records, self.max_bytes);
        let growing = match self.newest_slot(partition) {
            Some(Slot::Records(batch)) if batch.len() < max_records && batch.bytes() < max_bytes / 4 => {
                Some(batch)
            }
            _ => None,
        };
        let push = |batch: &mut BatchBuilder| {
            batch.push(offset, append_ms, key, payload);
            batch.trace_last(trace);
        };
        match growing {
            Some(batch) => push(batch),
            None => {
                let mut batch = BatchBuilder::new(partition);
                push(&mut batch);
                self.push(partition, Slot::Records(batch));
            }
        }
        self.bytes += record_bytes(key, payload);
    }

    /// Nothing is left below `next_offset`.
    pub(crate) fn caught_up(&mut self, partition: i32, next_offset: i64) {
        match self.owned.get_mut(&partition) {
            Some(Some(next)) if next_offset >= *next => *next = next_offset,
            _ => return,
        }
        // An older one that nobody has read is worth nothing beside this one.
        if let Some(slot @ Slot::Event(GroupEvent::CaughtUp { .. })) = self.newest_slot(partition) {
            *slot = Slot::Void;
        }
        self.push(partition, Slot::Event(GroupEvent::CaughtUp { partition, next_offset }));
    }

    /// The offset that was started at is not in the log; the partition stands still.
    pub(crate) fn out_of_range(&mut self, partition: i32, wanted: i64, earliest: i64, end: i64) {
        let Some(next) = self.owned.get_mut(&partition) else { return };
        *next = None;
        self.push(partition, Slot::Event(GroupEvent::OutOfRange { partition, wanted, earliest, end }));
    }

    /// The next event.
    pub(crate) fn take(&mut self) -> Option<GroupEvent<M>> {
        loop {
            let slot = self.slots.pop_front()?;
            self.taken += 1;
            match slot {
                Slot::Void => {}
                Slot::Event(event) => return Some(event),
                Slot::Records(batch) => {
                    self.bytes -= batch.bytes() + ENTRY_BYTES * batch.len();
                    return Some(GroupEvent::Records(batch.build()));
                }
            }
        }
    }

    /// True if nothing more should be fetched for now.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= self.max_bytes
    }

    /// What waits, with the costs of keeping it.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if the partition has records that wait to be taken.
    pub(crate) fn holds(&self, wanted: i32) -> bool {
        let of_wanted = |slot: &Slot<M>| matches!(slot, Slot::Records(batch) if batch.partition() == wanted);
        self.slots.iter().any(of_wanted)
    }

    fn push(&mut self, partition: i32, slot: Slot<M>) {
        let number = self.taken + u64::try_from(self.slots.len()).unwrap_or(u64::MAX);
        self.newest.insert(partition, number);
        self.slots.push_back(slot);
    }

    fn newest_slot(&mut self, partition: i32) -> Option<&mut Slot<M>> {
        let index = self.newest.get(&partition)?.checked_sub(self.taken)?;
        self.slots.get_mut(usize::try_from(index).ok()?)
    }

    fn void(&mut self, partition: i32) {
        self.newest.remove(&partition);
        for slot in &mut self.slots {
            let of_it = match slot {
                Slot::Records(batch) => batch.partition() == partition,
                Slot::Event(
                    GroupEvent::CaughtUp { partition: p, .. } | GroupEvent::OutOfRange { partition: p, .. },
                ) => *p == partition,
                _ => false,
            };
            if !of_it {
                continue;
            }
            if let Slot::Records(batch) = slot {
                self.bytes -= batch.bytes() + ENTRY_BYTES * batch.len();
            }
            *slot = Slot::Void;
        }
    }
}

fn record_bytes(key: Option<&[u8]>, payload: Option<&[u8]>) -> usize {
    ENTRY_BYTES + key.map_or(0, <[u8]>::len) + payload.map_or(0, <[u8]>::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(partitions: &[i32]) -> Buffer<()> {
        let mut buffer = Buffer::new(10_000, 3);
        buffer.assign(partitions.to_vec(), ());
        for partition in partitions {
            assert!(buffer.start(*partition, 0));
        }
        assert!(matches!(buffer.take(), Some(GroupEvent::Assigned { .. })));
        buffer
    }

    fn record<'a>(offset: i64, key: Option<&'a [u8]>, payload: &'a [u8]) -> RecordRef<'a> {
        RecordRef { offset, append_ms: 1, key, payload: Some(payload), trace: None }
    }

    fn feed(buffer: &mut Buffer<()>, partition: i32, offsets: impl IntoIterator<Item = i64>) {
        for offset in offsets {
            buffer.record(partition, &record(offset, Some(b"k"), b"value"));
        }
    }

    /// Events as text: `p:offsets`, `p=end`, `p!wanted`.
    fn drain(buffer: &mut Buffer<()>) -> Vec<String> {
        let mut seen = Vec::new();
        while let Some(event) = buffer.take() {
            seen.push(match event {
                GroupEvent::Records(batch) => {
                    let offsets: Vec<_> = batch.iter().map(|r| r.offset.to_string()).collect();
                    format!("{}:{}", batch.partition, offsets.join(","))
                }
                GroupEvent::CaughtUp { partition, next_offset } => format!("{partition}={next_offset}"),
                GroupEvent::OutOfRange { partition, wanted, .. } => format!("{partition}!{wanted}"),
                GroupEvent::Assigned { partitions, .. } => format!("+{partitions:?}"),
                GroupEvent::Revoked { partitions } => format!("-{partitions:?}"),
            });
        }
        assert_eq!(buffer.bytes(), 0);
        seen
    }

    #[test]
    fn records_grow_into_batches() {
        let mut buffer = started(&[0, 1]);
        for offset in 0..5 {
            feed(&mut buffer, 0, [offset]);
            feed(&mut buffer, 1, [offset]);
        }
        assert_eq!(drain(&mut buffer), ["0:0,1,2", "1:0,1,2", "0:3,4", "1:3,4"]);
        feed(&mut buffer, 1, [5]);
        assert_eq!(drain(&mut buffer), ["1:5"]);
    }

    #[test]
    fn nothing_comes_before_start_or_after_stop() {
        let mut buffer = Buffer::new(10_000, 3);
        buffer.assign(vec![0], ());
        feed(&mut buffer, 0, [0, 1]);
        assert_eq!(drain(&mut buffer), ["+[0]"]);
        assert!(buffer.start(0, 1));
        feed(&mut buffer, 0, [0, 1]);
        buffer.stop(0);
        feed(&mut buffer, 0, [2]);
        buffer.caught_up(0, 3);
        assert!(drain(&mut buffer).is_empty());
        assert!(!buffer.start(7, 0));
    }

    #[test]
    fn start_voids_what_waits() {
        let mut buffer = started(&[0, 1]);
        feed(&mut buffer, 0, 0..2);
        feed(&mut buffer, 1, 0..2);
        buffer.caught_up(0, 2);
        assert!(buffer.start(0, 1));
        feed(&mut buffer, 0, [0, 1]);
        assert_eq!(drain(&mut buffer), ["1:0,1", "0:1"]);
    }

    #[test]
    fn revocation_comes_in_order_and_voids_only_its_own() {
        let mut buffer = started(&[0, 1]);
        feed(&mut buffer, 0, [0]);
        feed(&mut buffer, 1, [0]);
        buffer.revoke(vec![0]);
        feed(&mut buffer, 0, [1]);
        feed(&mut buffer, 1, [1]);
        buffer.assign(vec![0], ());
        feed(&mut buffer, 0, [2]);
        assert_eq!(drain(&mut buffer), ["1:0,1", "-[0]", "+[0]"]);
    }

    #[test]
    fn end_passes_what_is_no_record() {
        let mut buffer = started(&[0]);
        feed(&mut buffer, 0, [0]);
        buffer.caught_up(0, 4);
        buffer.caught_up(0, 6);
        assert_eq!(buffer.position(0), Some(6));
        feed(&mut buffer, 0, [6]);
        buffer.out_of_range(0, 7, 10, 20);
        feed(&mut buffer, 0, [10]);
        assert_eq!(drain(&mut buffer), ["0:0", "0=6", "0:6", "0!7"]);
    }

    #[test]
    fn is_bounded() {
        let mut buffer: Buffer<()> = Buffer::new(1_000, 100);
        buffer.assign(vec![0], ());
        assert!(buffer.start(0, 0));
        let mut offset = 0;
        while !buffer.is_full() {
            buffer.record(0, &record(offset, None, &[0; 100]));
            offset += 1;
        }
        assert_eq!(offset, 7);
        assert!(buffer.holds(0) && !buffer.holds(1));
        buffer.stop(0);
        assert!(!buffer.is_full() && !buffer.holds(0));
        assert_eq!(drain(&mut buffer), ["+[0]"]);
    }
}
