//! The models behind the ports' traits.

use crate::{Archive, Counts, Fate, Journal};
use onlooker_event::CountKey;
use onlooker_ports::{
    self as ports, Apply, ApplyOutcome, ArchiveCell, Archived, CountLookup, CountReader, CountStore, Dirty,
    Number, NumberRead, PartitionState, PortError, ReadCount, SketchRead,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn away(server: &'static str) -> PortError {
    PortError::Unavailable { server, detail: "the test says so".into() }
}

/// Partitions of counters behind `CountStore`. Clones share them.
#[derive(Clone, Default)]
pub struct CountsPort {
    partitions: Arc<Mutex<BTreeMap<i32, Counts>>>,
    /// How long a partition's steps take.
    slow: Arc<Mutex<BTreeMap<i32, Duration>>>,
    /// Decides about requests.
    pub journal: Journal,
}

impl CountsPort {
    /// Looks at a partition, or changes it.
    pub fn with<T>(&self, partition: i32, f: impl FnOnce(&mut Counts) -> T) -> T {
        f(lock(&self.partitions).entry(partition).or_default())
    }

    /// From now on, each step of this partition takes so long.
    pub fn slow(&self, partition: i32, each: Duration) {
        lock(&self.slow).insert(partition, each);
    }

    /// Loses everything.
    pub fn flush_all(&self) {
        lock(&self.partitions).values_mut().for_each(Counts::flush_all);
    }

    async fn ask<T: Send + 'static>(
        &self,
        method: &'static str,
        partition: i32,
        step: impl FnOnce(&mut Counts) -> T + Send + 'static,
    ) -> Result<T, PortError> {
        let slow = lock(&self.slow).get(&partition).copied();
        if let Some(each) = slow {
            tokio::time::sleep(each).await;
        }
        // A request and its answer are two moments: others come between.
        tokio::task::yield_now().await;
        match self.journal.fate(method, partition) {
            Fate::Well => {
                let answer = self.with(partition, step);
                tokio::task::yield_now().await;
                Ok(answer)
            }
            Fate::Lost => Err(away("counters")),
            Fate::Unanswered => {
                self.with(partition, step);
                Err(away("counters"))
            }
            Fate::Late(after) => {
                let port = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    port.with(partition, step);
                });
                Err(away("counters"))
            }
            Fate::Full => Err(PortError::Full { server: "counters", detail: "the test says so".into() }),
        }
    }
}

impl CountStore for CountsPort {
    async fn applied(&self, partition: i32) -> Result<Option<i64>, PortError> {
        self.ask("applied", partition, |c| c.applied).await
    }

    async fn init(&self, partition: i32, durable: i64, whole_at: i64) -> Result<i64, PortError> {
        self.ask("init", partition, move |c| c.init(durable, whole_at)).await
    }

    async fn lookup(&self, partition: i32, from: i64, keys: &[CountKey]) -> Result<CountLookup, PortError> {
        let keys = keys.to_vec();
        self.ask("lookup", partition, move |c| c.lookup(from, &keys)).await
    }

    async fn apply(&self, partition: i32, batch: &Apply) -> Result<ApplyOutcome, PortError> {
        let batch = batch.clone();
        self.ask("apply", partition, move |c| c.apply(&batch)).await
    }

    async fn begin(&self, partition: i32) -> Result<Option<Dirty>, PortError> {
        self.ask("begin", partition, |c| c.begin()).await
    }

    async fn read_sketches(
        &self,
        partition: i32,
        applied: i64,
        keys: &[CountKey],
    ) -> Result<Option<Vec<SketchRead>>, PortError> {
        let keys = keys.to_vec();
        self.ask("read_sketches", partition, move |c| c.read_sketches(applied, &keys)).await
    }

    async fn read_numbers(
        &self,
        partition: i32,
        applied: i64,
        keys: &[CountKey],
    ) -> Result<Option<Vec<NumberRead>>, PortError> {
        let keys = keys.to_vec();
        self.ask("read_numbers", partition, move |c| c.read_numbers(applied, &keys)).await
    }

    async fn settle_sketches(
        &self,
        partition: i32,
        archived: &[(CountKey, i64)],
        _ttl: Duration,
    ) -> Result<usize, PortError> {
        let archived = archived.to_vec();
        self.ask("settle_sketches", partition, move |c| c.settle_sketches(&archived)).await
    }

    async fn settle_numbers(
        &self,
        partition: i32,
        archived: &[(CountKey, Number)],
    ) -> Result<usize, PortError> {
        let archived = archived.to_vec();
        self.ask("settle_numbers", partition, move |c| c.settle_numbers(&archived)).await
    }

    async fn sweep_numbers(
        &self,
        partition: i32,
        cursor: u64,
        changed_before_s: u32,
    ) -> Result<(u64, usize), PortError> {
        // Two parts, so that a caller has to go on with the cursor.
        self.ask("sweep_numbers", partition, move |c| match cursor {
            0 => (1, 0),
            _ => (0, c.sweep(changed_before_s)),
        })
        .await
    }

    async fn take_wanted(&self, partition: i32, at_most: usize) -> Result<Vec<CountKey>, PortError> {
        self.ask("take_wanted", partition, move |c| {
            let taken: Vec<_> = c.wanted.iter().take(at_most).cloned().collect();
            taken.iter().for_each(|key| _ = c.wanted.remove(key));
            taken
        })
        .await
    }

    async fn mark_absent(&self, partition: i32, keys: &[CountKey], _ttl: Duration) -> Result<(), PortError> {
        let keys = keys.to_vec();
        self.ask("mark_absent", partition, move |c| c.mark_absent(&keys)).await
    }

    async fn claim_round(&self, partition: i32, hold: Duration) -> Result<bool, PortError> {
        let now = tokio::time::Instant::now();
        self.ask("claim_round", partition, move |c| {
            let free = c.claimed_until.is_none_or(|until| until <= now);
            if free {
                c.claimed_until = Some(now + hold);
            }
            free
        })
        .await
    }
}

/// Partitions that readers are told of.
const PARTITIONS: u32 = 1024;

impl CountReader for CountsPort {
    async fn partitions(&self) -> Result<Option<u32>, PortError> {
        let begun = lock(&self.partitions).values().any(|c| c.applied.is_some());
        Ok(begun.then_some(PARTITIONS))
    }

    async fn states(&self, partitions: &[i32]) -> Result<Vec<Option<PartitionState>>, PortError> {
        let state = |c: &mut Counts| {
            let (as_of_ms, whole_at) = (c.as_of_ms, c.whole_at);
            c.applied.map(|applied| PartitionState { applied, as_of_ms, whole_at })
        };
        let mut states = Vec::with_capacity(partitions.len());
        for partition in partitions {
            states.push(self.ask("state", *partition, state).await?);
        }
        Ok(states)
    }

    async fn read(&self, keys: &[(i32, CountKey)], bytes: bool) -> Result<Vec<ReadCount>, PortError> {
        let mut found = Vec::with_capacity(keys.len());
        for (partition, key) in keys {
            let key = key.clone();
            found.push(self.ask("read_count", *partition, move |c| c.read(&key, bytes)).await?);
        }
        Ok(found)
    }

    async fn want(&self, keys: &[(i32, CountKey)]) -> Result<(), PortError> {
        for (partition, key) in keys {
            let key = key.clone();
            self.ask("want", *partition, move |c| c.want(&key)).await?;
        }
        Ok(())
    }
}

/// An archive behind its trait. Clones share it.
#[derive(Clone, Default)]
pub struct ArchivePort {
    archive: Arc<Mutex<Archive>>,
    /// Decides about requests. A write is judged cell by cell (`write_cell`) after the whole (`write`).
    pub journal: Journal,
}

impl ArchivePort {
    /// Looks at the archive, or changes it.
    pub fn with<T>(&self, f: impl FnOnce(&mut Archive) -> T) -> T {
        f(&mut lock(&self.archive))
    }

    async fn ask<T: Send + 'static>(
        &self,
        method: &'static str,
        partition: i32,
        step: impl FnOnce(&mut Archive) -> T + Send + 'static,
    ) -> Result<T, PortError> {
        tokio::task::yield_now().await;
        match self.journal.fate(method, partition) {
            Fate::Well => {
                let answer = self.with(step);
                tokio::task::yield_now().await;
                Ok(answer)
            }
            Fate::Lost => Err(away("archive")),
            Fate::Unanswered => {
                self.with(step);
                Err(away("archive"))
            }
            Fate::Late(after) => {
                let port = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    port.with(step);
                });
                Err(away("archive"))
            }
            Fate::Full => Err(PortError::Full { server: "archive", detail: "the test says so".into() }),
        }
    }
}

impl ports::Archive for ArchivePort {
    async fn read(&self, keys: &[CountKey]) -> Result<Vec<Archived>, PortError> {
        let keys = keys.to_vec();
        self.journal.count_keys(keys.len());
        self.ask("read", -1, move |a| keys.iter().map(|key| a.read(key)).collect()).await
    }

    async fn write(&self, cells: &[ArchiveCell]) -> Vec<Result<(), PortError>> {
        if let Err(error) = self.ask("write", -1, |_| ()).await {
            return vec![Err(error); cells.len()];
        }
        let mut results = Vec::new();
        for cell in cells {
            let cell = cell.clone();
            results.push(self.ask("write_cell", -1, move |a| a.write(&cell)).await);
        }
        results
    }

    async fn durable(&self, partition: i32) -> Result<Option<i64>, PortError> {
        self.ask("durable", partition, move |a| a.durable.get(&partition).copied()).await
    }

    async fn set_durable(&self, partition: i32, offset: i64) -> Result<(), PortError> {
        self.ask("set_durable", partition, move |a| a.set_durable(partition, offset)).await
    }
}
