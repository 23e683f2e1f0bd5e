//! The filter's claims, in memory.

mod table;

use super::metrics::{Store, StoreMetrics};
use foldhash::HashMap;
use onlooker_event::Digest128;
use onlooker_ports::{
    Applied, Claim, ClaimOutcome, DedupStore, InstallOutcome, Lookup, PortError, Remembered,
};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use table::Table;

const SERVER: &str = "dedup";
/// How long staged parts stay without a new one: a rebuild that died leaves nothing behind.
const STAGED_FOR: Duration = Duration::from_secs(600);
/// Keys whose places are read together before any is searched.
const TOGETHER: usize = 32;
/// What a claim of one value takes, about, while its table grows.
const CLAIM_BYTES: usize = 32;

#[derive(Default)]
struct Staged {
    parts: u64,
    slices: Vec<(i64, Table)>,
    last: Option<Instant>,
}

#[derive(Default)]
struct Partition {
    at: Option<Applied>,
    /// Two, but for a moment.
    slices: Vec<(i64, Table)>,
    staged: HashMap<Box<str>, Staged>,
}

fn table(slices: &[(i64, Table)], slice: i64) -> Option<&Table> {
    slices.iter().find(|(of, _)| *of == slice).map(|(_, table)| table)
}

fn table_mut(slices: &mut Vec<(i64, Table)>, slice: i64) -> &mut Table {
    let at = slices.iter().position(|(of, _)| *of == slice).unwrap_or_else(|| {
        slices.push((slice, Table::new()));
        slices.len() - 1
    });
    &mut slices[at].1
}

impl Partition {
    fn bytes(&self) -> usize {
        let staged = self.staged.values().flat_map(|staged| &staged.slices);
        self.slices.iter().chain(staged).map(|(_, table)| table.bytes()).sum()
    }
}

/// The filter's memory of the last two slices, per partition of `views`. A restart empties it, and the filter rebuilds
/// it from its verdicts.
///
/// A claim of one value takes 25 bytes or so (20, and what is free in its table).
pub struct MemoryDedup {
    partitions: Box<[Mutex<Partition>]>,
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    metrics: StoreMetrics,
}

impl std::fmt::Debug for MemoryDedup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let partitions = self.partitions.len();
        f.debug_struct("MemoryDedup").field("partitions", &partitions).finish_non_exhaustive()
    }
}

impl MemoryDedup {
    /// For so many partitions of `views`, empty. When claims take more than `limit_bytes`, further ones are refused as
    /// `PortError::Full` until slices are dropped: none is ever forgotten to make room.
    pub fn new(partitions: u32, limit_bytes: usize) -> Self {
        let partitions = (0..partitions).map(|_| Mutex::default()).collect();
        let metrics = StoreMetrics::of(Store::Claims, limit_bytes);
        Self { partitions, limit_bytes, used_bytes: AtomicUsize::new(0), metrics }
    }

    /// Bytes that claims take, those under construction included.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Forgets everything, as a restart does.
    pub fn clear(&self) {
        for partition in &self.partitions {
            let mut partition = partition.lock().unwrap_or_else(PoisonError::into_inner);
            self.account(&mut partition, |partition| *partition = Partition::default());
        }
    }

    fn partition(&self, partition: i32) -> Result<MutexGuard<'_, Partition>, PortError> {
        let found = usize::try_from(partition).ok().and_then(|at| self.partitions.get(at));
        let found = found.ok_or_else(|| PortError::Misconfigured {
            server: SERVER,
            detail: format!("there is no partition {partition} of {}", self.partitions.len()),
        })?;
        Ok(found.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes a partition and keeps the sum of all bytes.
    fn account<T>(&self, partition: &mut Partition, change: impl FnOnce(&mut Partition) -> T) -> T {
        let before = partition.bytes();
        let result = change(partition);
        let after = partition.bytes();
        if after >= before {
            self.used_bytes.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.used_bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
        self.metrics.used(Store::Claims, self.used_bytes());
        result
    }

    fn room_for(&self, claims: &[Claim]) -> Result<(), PortError> {
        let lists: usize = claims.iter().map(|claim| claim.values.len().saturating_sub(1) * 8).sum();
        let needed = claims.len() * CLAIM_BYTES + lists;
        let used = self.used_bytes();
        if used + needed <= self.limit_bytes || claims.is_empty() {
            return Ok(());
        }
        let limit = self.limit_bytes;
        let detail = format!("claims take {used} bytes of {limit}, and {needed} more are needed");
        Err(PortError::Full { server: SERVER, detail })
    }
}

/// Looks all keys up in both slices.
fn find(older: Option<&Table>, newer: Option<&Table>, keys: &[Digest128]) -> Vec<Remembered> {
    let mut found = Vec::with_capacity(keys.len());
    for group in keys.chunks(TOGETHER) {
        let touched = group.iter().fold(0, |all, key| {
            all ^ older.map_or(0, |table| table.touch(&key.0)) ^ newer.map_or(0, |table| table.touch(&key.0))
        });
        std::hint::black_box(touched);
        found.extend(group.iter().map(|key| Remembered {
            older: older.map_or_else(Vec::new, |table| table.values(&key.0)),
            newer: newer.map_or_else(Vec::new, |table| table.values(&key.0)),
        }));
    }
    found
}

fn write(table: &mut Table, claims: &[Claim]) {
    for group in claims.chunks(TOGETHER) {
        std::hint::black_box(group.iter().fold(0, |all, claim| all ^ table.touch(&claim.key.0)));
        for claim in group {
            table.set(&claim.key.0, &claim.values);
        }
    }
}

impl DedupStore for MemoryDedup {
    async fn applied(&self, partition: i32) -> Result<Option<Applied>, PortError> {
        Ok(self.partition(partition)?.at)
    }

    async fn lookup(
        &self,
        partition: i32,
        at_least: i64,
        at_most: i64,
        slice: i64,
        keys: &[Digest128],
    ) -> Result<Lookup, PortError> {
        let partition = self.partition(partition)?;
        // Below: claims of earlier records are missing. Above: claims of records that are still to be decided.
        if !partition.at.is_some_and(|at| (at_least..=at_most).contains(&at.offset)) {
            return Ok(Lookup::Gap(partition.at));
        }
        let (older, newer) = (table(&partition.slices, slice - 1), table(&partition.slices, slice));
        Ok(Lookup::Found(find(older, newer, keys)))
    }

    async fn claim(
        &self,
        partition: i32,
        from: i64,
        to: i64,
        slice: i64,
        claims: &[Claim],
        drop: Range<i64>,
    ) -> Result<ClaimOutcome, PortError> {
        let mut partition = self.partition(partition)?;
        // Only on top of exactly the state that the verdicts were made on: otherwise a claim would stand for a verdict
        // that somebody else decided differently.
        if partition.at.is_none_or(|at| at.offset != from) {
            return Ok(ClaimOutcome::Gap(partition.at));
        }
        self.room_for(claims)?;
        self.account(&mut partition, |partition| {
            if !claims.is_empty() {
                write(table_mut(&mut partition.slices, slice), claims);
            }
            partition.at = Some(Applied { offset: to, slice });
            // Never the two slices that verdicts are made from, whatever was asked for.
            partition.slices.retain(|(of, _)| !drop.contains(of) || *of >= slice - 1);
        });
        Ok(ClaimOutcome::Done)
    }

    async fn stage(
        &self,
        partition: i32,
        name: &str,
        part: u64,
        slice: i64,
        claims: &[Claim],
    ) -> Result<bool, PortError> {
        let mut partition = self.partition(partition)?;
        let now = Instant::now();
        self.account(&mut partition, |partition| {
            let fresh = |last: Instant| now.saturating_duration_since(last) < STAGED_FOR;
            partition.staged.retain(|_, staged| staged.last.is_none_or(fresh));
        });
        // A part that is missing or came twice would make a state that is not the log's.
        if partition.staged.get(name).map_or(0, |staged| staged.parts) != part {
            return Ok(false);
        }
        self.room_for(claims)?;
        self.account(&mut partition, |partition| {
            let staged = partition.staged.entry(name.into()).or_default();
            staged.parts += 1;
            staged.last = Some(now);
            let table = table_mut(&mut staged.slices, slice);
            // What earlier parts staged for a key stays in front.
            claims.iter().for_each(|claim| table.append(&claim.key.0, &claim.values));
        });
        Ok(true)
    }

    async fn install(
        &self,
        partition: i32,
        offset: i64,
        slice: i64,
        name: &str,
        parts: u64,
    ) -> Result<InstallOutcome, PortError> {
        let mut partition = self.partition(partition)?;
        if partition.staged.get(name).map_or(0, |staged| staged.parts) != parts {
            return Ok(InstallOutcome::Gap);
        }
        Ok(self.account(&mut partition, |partition| {
            let staged = partition.staged.remove(name).unwrap_or_default();
            // Somebody was faster, and may have claimed since.
            if partition.at.is_some_and(|at| at.offset >= offset) {
                return InstallOutcome::Discarded;
            }
            partition.slices = staged.slices;
            partition.slices.retain(|(of, _)| *of == slice || *of == slice - 1);
            partition.at = Some(Applied { offset, slice });
            InstallOutcome::Done
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_ports::conformance::dedup::{self, digest};

    struct Test(MemoryDedup);

    impl dedup::DedupUnderTest for Test {
        type Store = MemoryDedup;

        fn store(&self) -> &MemoryDedup {
            &self.0
        }

        async fn lose(&self) {
            self.0.clear();
            assert_eq!(self.0.used_bytes(), 0);
        }
    }

    #[tokio::test]
    async fn it_keeps_the_promises_of_a_dedup_store() {
        dedup::all(&Test(MemoryDedup::new(dedup::PARTITIONS, usize::MAX))).await;
    }

    #[tokio::test]
    async fn a_partition_that_is_not_there_is_a_wrong_setting() {
        let store = MemoryDedup::new(2, usize::MAX);
        for partition in [-1, 2] {
            let error = store.applied(partition).await.unwrap_err();
            assert!(!error.is_transient() && error.to_string().contains("no partition"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_full_store_refuses_and_goes_on_when_slices_go() {
        let store = MemoryDedup::new(1, 100_000);
        let claims = |from: u32| -> Vec<Claim> {
            (from..from + 100).map(|n| Claim { key: digest(n), values: [n].into_iter().collect() }).collect()
        };
        assert_eq!(store.install(0, 0, 1, "begin", 0).await, Ok(InstallOutcome::Done));
        let mut to = 0;
        let error = loop {
            let batch = claims(u32::try_from(to).unwrap());
            match store.claim(0, to, to + 100, 1, &batch, 0..0).await {
                Ok(outcome) => assert_eq!(outcome, ClaimOutcome::Done),
                Err(error) => break error,
            }
            to += 100;
        };
        assert!(error.is_transient(), "{error}");
        assert!(to > 1_000 && store.used_bytes() <= 110_000, "{to} claims in {} bytes", store.used_bytes());
        assert_eq!(store.applied(0).await, Ok(Some(Applied { offset: to, slice: 1 })), "nothing was changed");
        // An empty batch still moves on, and drops what is old.
        assert_eq!(store.claim(0, to, to + 1, 9, &[], 0..8).await, Ok(ClaimOutcome::Done));
        assert_eq!(store.claim(0, to + 1, to + 2, 9, &claims(0), 0..8).await, Ok(ClaimOutcome::Done));
    }
}
