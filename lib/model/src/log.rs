//! A partitioned log in memory.

use onlooker_ports::{
    BatchBuilder, Committed, GroupEvent, GroupReader, LogWriter, OutgoingBatch, PortError, Position, Topic,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

#[derive(Debug, Clone)]
struct Stored {
    offset: i64,
    append_ms: i64,
    key: Option<Vec<u8>>,
    payload: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Default)]
struct Partition {
    records: Vec<Stored>,
    earliest: i64,
    end: i64,
}

#[derive(Debug, Default)]
struct State {
    partitions: Vec<Partition>,
    committed: BTreeMap<i32, Committed>,
    appended: Vec<(Topic, Vec<u8>, Vec<u8>)>,
    refuses_appends: bool,
}

/// A topic that readers share, and what was appended elsewhere. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Log {
    state: Arc<Mutex<State>>,
    moved: Arc<Notify>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn index(partition: i32) -> usize {
    usize::try_from(partition).unwrap_or(usize::MAX)
}

impl Log {
    /// An empty topic.
    pub fn new(partitions: usize) -> Self {
        let log = Self::default();
        lock(&log.state).partitions.resize_with(partitions, Partition::default);
        log
    }

    fn change<T>(&self, partition: i32, change: impl FnOnce(&mut Partition) -> T) -> T {
        let result = change(&mut lock(&self.state).partitions[index(partition)]);
        self.moved.notify_waiters();
        result
    }

    /// Appends a record; returns its offset.
    pub fn push(&self, partition: i32, append_ms: i64, key: Option<&[u8]>, payload: Option<&[u8]>) -> i64 {
        self.change(partition, |p| {
            let offset = p.end;
            let (key, payload) = (key.map(<[u8]>::to_vec), payload.map(<[u8]>::to_vec));
            p.records.push(Stored { offset, append_ms, key, payload });
            p.end += 1;
            offset
        })
    }

    /// An offset without a record, as a transaction's marker takes one.
    pub fn marker(&self, partition: i32) {
        self.change(partition, |p| p.end += 1);
    }

    /// Retention: the records below are gone.
    pub fn delete_before(&self, partition: i32, offset: i64) {
        self.change(partition, |p| {
            p.records.retain(|r| r.offset >= offset);
            p.earliest = p.earliest.max(offset);
            p.end = p.end.max(offset);
        });
    }

    /// The log's end.
    pub fn end(&self, partition: i32) -> i64 {
        lock(&self.state).partitions[index(partition)].end
    }

    /// What the group has committed.
    pub fn committed(&self, partition: i32) -> Option<i64> {
        lock(&self.state).committed.get(&partition).map(|c| c.offset)
    }

    /// What was appended through the port: topic, key, value.
    pub fn appended(&self) -> Vec<(Topic, Vec<u8>, Vec<u8>)> {
        lock(&self.state).appended.clone()
    }

    /// Whether appending fails.
    pub fn refuse_appends(&self, refuse: bool) {
        lock(&self.state).refuses_appends = refuse;
    }

    /// A reader without partitions, which delivers at most `batch` records at once.
    pub fn reader(&self, batch: usize) -> LogReader {
        LogReader { log: self.clone(), batch, mail: Arc::default(), positions: BTreeMap::new(), turn: 0 }
    }
}

impl LogWriter for Log {
    async fn append(&self, batch: OutgoingBatch) -> Result<(), PortError> {
        tokio::task::yield_now().await;
        let mut state = lock(&self.state);
        if state.refuses_appends {
            return Err(PortError::Unavailable { server: "log", detail: "the test says so".into() });
        }
        state.appended.extend(batch.iter().map(|r| (r.topic, r.key.to_vec(), r.payload.to_vec())));
        Ok(())
    }

    fn is_reachable(&self) -> bool {
        !lock(&self.state).refuses_appends
    }

    async fn flush(&self, _wait: Duration) -> Result<(), PortError> {
        Ok(())
    }
}

#[derive(Debug)]
struct Reading {
    next: i64,
    /// The end that was told last.
    told_end: Option<i64>,
}

type Mail = Arc<Mutex<VecDeque<GroupEvent<()>>>>;

/// A member of the one group.
#[derive(Debug)]
pub struct LogReader {
    log: Log,
    batch: usize,
    mail: Mail,
    positions: BTreeMap<i32, Reading>,
    turn: i32,
}

/// Moves a reader's partitions about.
#[derive(Debug, Clone)]
pub struct Assignment {
    mail: Mail,
    moved: Arc<Notify>,
}

impl Assignment {
    /// These partitions are now the reader's.
    pub fn assign(&self, partitions: &[i32]) {
        lock(&self.mail).push_back(GroupEvent::Assigned { partitions: partitions.to_vec(), membership: () });
        self.moved.notify_waiters();
    }

    /// These are no longer.
    pub fn revoke(&self, partitions: &[i32]) {
        lock(&self.mail).push_back(GroupEvent::Revoked { partitions: partitions.to_vec() });
        self.moved.notify_waiters();
    }
}

impl LogReader {
    /// The handle that gives it partitions.
    pub fn assignment(&self) -> Assignment {
        Assignment { mail: Arc::clone(&self.mail), moved: Arc::clone(&self.log.moved) }
    }

    fn poll(&mut self) -> Option<GroupEvent<()>> {
        if let Some(event) = lock(&self.mail).pop_front() {
            if let GroupEvent::Revoked { partitions } = &event {
                partitions.iter().for_each(|p| _ = self.positions.remove(p));
            }
            return Some(event);
        }
        let state = lock(&self.log.state);
        // Each partition in turn, so that none starves.
        let after = self.positions.range(self.turn + 1..).map(|(p, _)| *p);
        let order: Vec<i32> = after.chain(self.positions.range(..=self.turn).map(|(p, _)| *p)).collect();
        for number in order {
            let partition = &state.partitions[index(number)];
            let Some(reading) = self.positions.get_mut(&number) else { continue };
            if reading.next < partition.earliest || reading.next > partition.end {
                let (wanted, earliest, end) = (reading.next, partition.earliest, partition.end);
                self.positions.remove(&number);
                return Some(GroupEvent::OutOfRange { partition: number, wanted, earliest, end });
            }
            let at = partition.records.partition_point(|r| r.offset < reading.next);
            let mut batch = BatchBuilder::new(number);
            for r in partition.records[at..].iter().take(self.batch) {
                batch.push(r.offset, r.append_ms, r.key.as_deref(), r.payload.as_deref());
            }
            self.turn = number;
            let batch = batch.build();
            if let Some(next) = batch.next_offset() {
                reading.next = next;
                return Some(GroupEvent::Records(batch));
            }
            if reading.told_end != Some(partition.end) {
                reading.told_end = Some(partition.end);
                reading.next = partition.end;
                return Some(GroupEvent::CaughtUp { partition: number, next_offset: partition.end });
            }
        }
        None
    }
}

impl GroupReader for LogReader {
    type Membership = ();

    async fn next(&mut self, wait: Duration) -> Result<Option<GroupEvent<()>>, PortError> {
        let deadline = Instant::now() + wait;
        tokio::task::yield_now().await;
        loop {
            let moved = Arc::clone(&self.log.moved);
            let mut notified = std::pin::pin!(moved.notified());
            notified.as_mut().enable();
            if let Some(event) = self.poll() {
                return Ok(Some(event));
            }
            if timeout_at(deadline, notified).await.is_err() {
                return Ok(None);
            }
        }
    }

    async fn start(&mut self, partition: i32, offset: i64) -> Result<(), PortError> {
        self.positions.insert(partition, Reading { next: offset, told_end: None });
        Ok(())
    }

    async fn stop(&mut self, partition: i32) -> Result<(), PortError> {
        self.positions.remove(&partition);
        Ok(())
    }

    async fn committed(&mut self, partition: i32) -> Result<Option<Committed>, PortError> {
        Ok(lock(&self.log.state).committed.get(&partition).cloned())
    }

    async fn bounds(&mut self, partition: i32) -> Result<(i64, i64), PortError> {
        let state = lock(&self.log.state);
        let partition = &state.partitions[index(partition)];
        Ok((partition.earliest, partition.end))
    }

    async fn commit(&mut self, positions: &[Position]) -> Result<(), PortError> {
        let mut state = lock(&self.log.state);
        for p in positions {
            state.committed.insert(p.partition, Committed { offset: p.offset, note: p.note.clone() });
        }
        Ok(())
    }

    async fn partitions(&mut self) -> Result<u32, PortError> {
        Ok(u32::try_from(lock(&self.log.state).partitions.len()).unwrap_or(u32::MAX))
    }

    async fn close(&mut self, _wait: Duration) {
        self.positions.clear();
    }
}
