//! The counters, in memory.

mod apply;
mod evict;
mod flush;
mod form;
mod item;
mod key;
mod partition;
mod read;
mod repair;
mod segment;
#[cfg(test)]
mod tests;
mod wishes;

use super::metrics::{Store, StoreMetrics};
use foldhash::fast::RandomState;
use onlooker_event::CountKey;
use onlooker_ports::{
    Apply, ApplyOutcome, CountLookup, CountReader, CountStore, Dirty, Number, NumberRead, PartitionState,
    PortError, ReadCount, SketchRead,
};
use partition::Partition;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use wishes::Wishes;

const SERVER: &str = "counters";

/// What so many bytes take from the allocator, about: it keeps 8 bytes for itself, rounds up to 16, and gives no less
/// than 32.
fn allocation(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16).max(32) }
}

struct Shared {
    partitions: Box<[(Mutex<Partition>, Mutex<Wishes>)]>,
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    /// Some partition has a state.
    began: AtomicBool,
    hasher: RandomState,
    refusing: watch::Sender<bool>,
    metrics: StoreMetrics,
}

/// Sketches and numbers of all partitions, for the counter, the flusher and readers of one process. Clones share them.
///
/// Nothing survives the process: what was not archived is read again from the log. Memory is bounded without losing
/// anything: a sketch or number that changed since it was archived stays, one that did not may be evicted and is then
/// read from the archive when it is needed.
#[derive(Clone)]
pub struct MemoryCounts {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for MemoryCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryCounts").field("used_bytes", &self.used_bytes()).finish_non_exhaustive()
    }
}

impl MemoryCounts {
    /// For so many partitions of `views.counted`, empty. All that is kept takes at most `limit_bytes` (tables, names and
    /// what the allocator adds included; readers' wishes, 1 MiB a partition at most, are not). When what is not archived
    /// yet fills them, `apply` answers `PortError::Full`.
    pub fn new(partitions: u32, limit_bytes: usize) -> Self {
        let partitions: Box<[_]> =
            (0..partitions).map(|_| (Mutex::new(Partition::new()), Mutex::default())).collect();
        let used = partitions.iter().map(|(partition, _)| lock(partition).bytes()).sum();
        let shared = Shared {
            partitions,
            limit_bytes,
            used_bytes: AtomicUsize::new(used),
            began: AtomicBool::new(false),
            hasher: RandomState::default(),
            refusing: watch::Sender::new(false),
            metrics: StoreMetrics::of(Store::Counts, limit_bytes),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Bytes that are in use.
    pub fn used_bytes(&self) -> usize {
        self.shared.used_bytes.load(Ordering::Relaxed)
    }

    /// The limit.
    pub fn limit_bytes(&self) -> usize {
        self.shared.limit_bytes
    }

    /// Turns true when a batch is refused for lack of memory, and false when one is applied. While it is true, flushing
    /// at once is what makes room: what is archived may be evicted.
    pub fn refusing(&self) -> watch::Receiver<bool> {
        self.shared.refusing.subscribe()
    }

    /// Loses everything: the counter then starts anew from what is durable. Always safe.
    pub fn clear(&self) {
        for (partition, wishes) in &self.shared.partitions {
            self.account(&mut lock(partition), |partition| *partition = Partition::new());
            *lock(wishes) = Wishes::default();
        }
        tracing::info!("counters emptied");
    }

    fn at(&self, partition: i32) -> Option<&(Mutex<Partition>, Mutex<Wishes>)> {
        usize::try_from(partition).ok().and_then(|at| self.shared.partitions.get(at))
    }

    fn require(&self, partition: i32) -> Result<&(Mutex<Partition>, Mutex<Wishes>), PortError> {
        self.at(partition).ok_or_else(|| PortError::Misconfigured {
            server: SERVER,
            detail: format!("there is no partition {partition} of {}", self.shared.partitions.len()),
        })
    }

    fn partition(&self, partition: i32) -> Result<MutexGuard<'_, Partition>, PortError> {
        self.require(partition).map(|(partition, _)| lock(partition))
    }

    #[inline]
    fn hash(&self, name: &[u8]) -> u64 {
        self.shared.hasher.hash_one(name)
    }

    /// Changes a partition and keeps the sum of all bytes.
    fn account<T>(&self, partition: &mut Partition, change: impl FnOnce(&mut Partition) -> T) -> T {
        let before = partition.bytes();
        let result = change(partition);
        let after = partition.bytes();
        // Wraps where it shrinks, and the sum is right all the same.
        self.shared.used_bytes.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        self.shared.metrics.used(Store::Counts, self.used_bytes());
        result
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CountStore for MemoryCounts {
    async fn applied(&self, partition: i32) -> Result<Option<i64>, PortError> {
        self.wait_for_state(partition).await
    }

    async fn init(&self, partition: i32, durable: i64, whole_at: i64) -> Result<i64, PortError> {
        loop {
            if let Some(applied) = self.wait_for_state(partition).await? {
                return Ok(applied);
            }
            let mut partition = self.partition(partition)?;
            // Somebody may have been faster.
            if partition.shown().is_none() {
                partition.state = Some(PartitionState { applied: durable, as_of_ms: 0, whole_at });
                self.shared.began.store(true, Ordering::Relaxed);
                return Ok(durable);
            }
        }
    }

    async fn lookup(&self, partition: i32, from: i64, keys: &[CountKey]) -> Result<CountLookup, PortError> {
        self.look_up(partition, from, keys)
    }

    async fn apply(&self, partition: i32, batch: &Apply) -> Result<ApplyOutcome, PortError> {
        self.apply_batch(partition, batch)
    }

    async fn begin(&self, partition: i32) -> Result<Option<Dirty>, PortError> {
        self.list_dirty(partition)
    }

    async fn read_sketches(
        &self,
        partition: i32,
        applied: i64,
        keys: &[CountKey],
    ) -> Result<Option<Vec<SketchRead>>, PortError> {
        self.read_dirty_sketches(partition, applied, keys)
    }

    async fn read_numbers(
        &self,
        partition: i32,
        applied: i64,
        keys: &[CountKey],
    ) -> Result<Option<Vec<NumberRead>>, PortError> {
        self.read_dirty_numbers(partition, applied, keys)
    }

    async fn settle_sketches(
        &self,
        partition: i32,
        archived: &[(CountKey, i64)],
        _ttl: Duration,
    ) -> Result<usize, PortError> {
        // Memory is bounded by the limit alone: an archived sketch is worth keeping for as long as there is room.
        self.mark_sketches_clean(partition, archived)
    }

    async fn settle_numbers(
        &self,
        partition: i32,
        archived: &[(CountKey, Number)],
    ) -> Result<usize, PortError> {
        self.mark_numbers_clean(partition, archived)
    }

    async fn sweep_numbers(
        &self,
        partition: i32,
        cursor: u64,
        changed_before_s: u32,
    ) -> Result<(u64, usize), PortError> {
        self.sweep(partition, cursor, changed_before_s)
    }

    async fn take_wanted(&self, partition: i32, at_most: usize) -> Result<Vec<CountKey>, PortError> {
        let (_, wishes) = self.require(partition)?;
        Ok(lock(wishes).take(at_most, Instant::now()))
    }

    async fn mark_absent(&self, partition: i32, keys: &[CountKey], ttl: Duration) -> Result<(), PortError> {
        let mut partition = self.partition(partition)?;
        let until = Instant::now() + ttl;
        self.account(&mut partition, |partition| {
            for key in keys {
                let (scope, name) = key::split(key);
                partition.mark_absent(self.hash(name), scope, key, name, until);
            }
        });
        Ok(())
    }

    async fn claim_round(&self, partition: i32, hold: Duration) -> Result<bool, PortError> {
        let mut partition = self.partition(partition)?;
        let now = Instant::now();
        if partition.round_until.is_some_and(|until| until > now) {
            return Ok(false);
        }
        partition.round_until = Some(now + hold);
        Ok(true)
    }
}

impl CountReader for MemoryCounts {
    async fn partitions(&self) -> Result<Option<u32>, PortError> {
        let began = self.shared.began.load(Ordering::Relaxed);
        Ok(began.then(|| u32::try_from(self.shared.partitions.len()).unwrap_or(u32::MAX)))
    }

    async fn states(&self, partitions: &[i32]) -> Result<Vec<Option<PartitionState>>, PortError> {
        Ok(partitions.iter().map(|partition| lock(&self.at(*partition)?.0).shown()).collect())
    }

    async fn read(&self, keys: &[(i32, CountKey)], bytes: bool) -> Result<Vec<ReadCount>, PortError> {
        Ok(self.read_counts(keys, bytes).into_iter().map(|(read, _)| read).collect())
    }

    async fn read_with_states(
        &self,
        keys: &[(i32, CountKey)],
        bytes: bool,
    ) -> Result<Vec<(ReadCount, Option<PartitionState>)>, PortError> {
        Ok(self.read_counts(keys, bytes))
    }

    async fn want(&self, keys: &[(i32, CountKey)]) -> Result<(), PortError> {
        let now = Instant::now();
        for (partition, key) in keys {
            if let Some((_, wishes)) = self.at(*partition) {
                lock(wishes).add(key, now);
            }
        }
        Ok(())
    }
}
