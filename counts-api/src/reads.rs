//! Reading the counters for many requests at once.
//!
//! At 10,000 requests a second each read of its own would cost Redis and this process more than what it reads. So
//! requests that wait at the same time share one read, in which each key is asked for once. Nobody waits for others to
//! come: while fewer than a few reads are under way, the next one starts at once.

use crate::metrics::CountsApiMetrics;
use moka::sync::Cache;
use onlooker_event::{CountKey, partition_of};
use onlooker_ports::{CountReader, PartitionState, PortError, ReadCount};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Requests that may wait for a read.
const WAITING: usize = 4_096;
/// Reads under way at once. With one alone, a thousand keys of somebody else would hold up everybody.
const AT_ONCE: usize = 4;
/// Keys of one shared read, unless a single request has more.
const KEYS_A_READ: usize = 1_000;
/// A wish is not repeated for so long. Counters look for wishes several times a second.
const WISH_AGAIN: Duration = Duration::from_secs(1);
/// Wishes that are remembered in order not to repeat them.
const WISHES: u64 = 100_000;

/// What was found for one key, and how its partition stood. Nothing at all before the first counter has run.
pub(crate) type Found = (ReadCount, Option<PartitionState>);

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// Too many wait already.
    Overloaded,
    /// The counters.
    Port(PortError),
}

struct Job {
    keys: Vec<CountKey>,
    reply: oneshot::Sender<Result<Vec<Found>, PortError>>,
}

/// The way to the counters. Clones share it.
pub(crate) struct Reads<R> {
    jobs: mpsc::Sender<Job>,
    inner: Arc<Inner<R>>,
}

struct Inner<R> {
    reader: R,
    metrics: CountsApiMetrics,
    wished: Cache<CountKey, ()>,
}

impl<R: CountReader> Reads<R> {
    /// Starts the task that reads; it ends when the last clone is gone.
    pub(crate) fn start(reader: R, metrics: CountsApiMetrics) -> Self {
        let wished = Cache::builder().max_capacity(WISHES).time_to_live(WISH_AGAIN).build();
        let inner = Arc::new(Inner { reader, metrics, wished });
        let (jobs, inbox) = mpsc::channel(WAITING);
        tokio::spawn(share(Arc::clone(&inner), inbox));
        Self { jobs, inner }
    }

    /// Estimates and numbers of these keys, in order, in a read that other requests share.
    pub(crate) async fn estimates(&self, keys: Vec<CountKey>) -> Result<Vec<Found>, ReadError> {
        let (reply, answer) = oneshot::channel();
        self.jobs.try_send(Job { keys, reply }).map_err(|_| ReadError::Overloaded)?;
        // Without a reply the read has panicked.
        let lost = || PortError::Failed { server: "counters", detail: "the read was lost".into() };
        answer.await.unwrap_or_else(|_| Err(lost())).map_err(ReadError::Port)
    }

    /// Sketches as bytes, and numbers, in a read of their own.
    pub(crate) async fn sketches(&self, keys: Vec<CountKey>) -> Result<Vec<Found>, ReadError> {
        self.inner.read(keys, true).await.map_err(ReadError::Port)
    }

    /// Asks the counters to bring keys back.
    pub(crate) async fn wish(&self, keys: Vec<CountKey>) {
        self.inner.wish(keys).await;
    }

    /// Whether the counters answer.
    pub(crate) async fn ping(&self) -> Result<(), PortError> {
        self.inner.reader.states(&[0]).await.map(drop)
    }
}

/// Collects what waits into reads.
async fn share<R: CountReader>(inner: Arc<Inner<R>>, mut inbox: mpsc::Receiver<Job>) {
    let free = Arc::new(Semaphore::new(AT_ONCE));
    let mut next = None;
    loop {
        // First the permit: what comes in meanwhile goes into the same read.
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
        let Some(job) = (match next.take() {
            Some(job) => Some(job),
            None => inbox.recv().await,
        }) else {
            return;
        };
        let mut keys = job.keys.len();
        let mut jobs = vec![job];
        while let Ok(job) = inbox.try_recv() {
            keys += job.keys.len();
            if keys > KEYS_A_READ {
                next = Some(job);
                break;
            }
            jobs.push(job);
        }
        let inner = Arc::clone(&inner);
        tokio::spawn(async move {
            inner.answer(jobs).await;
            drop(permit);
        });
    }
}

impl<R: CountReader> Inner<R> {
    /// One read for several requests.
    async fn answer(&self, jobs: Vec<Job>) {
        if let [_] = jobs.as_slice() {
            // Nothing to share out, which is the usual case of a quiet server.
            for job in jobs {
                let _ = job.reply.send(self.read(job.keys, false).await);
            }
            return;
        }
        let mut unique: Vec<CountKey> = Vec::new();
        let mut places: HashMap<CountKey, usize> = HashMap::new();
        let mut shares = Vec::with_capacity(jobs.len());
        for job in jobs {
            let share: Vec<usize> = job
                .keys
                .into_iter()
                .map(|key| match places.entry(key) {
                    Entry::Occupied(at) => *at.get(),
                    Entry::Vacant(empty) => {
                        unique.push(empty.key().clone());
                        *empty.insert(unique.len() - 1)
                    }
                })
                .collect();
            shares.push((share, job.reply));
        }
        let found = self.read(unique, false).await;
        for (share, reply) in shares {
            let part = found.as_ref().map(|found| share.iter().map(|at| found[*at].clone()).collect());
            // A client that is gone does not need it.
            let _ = reply.send(part.map_err(Clone::clone));
        }
    }

    async fn read(&self, keys: Vec<CountKey>, bytes: bool) -> Result<Vec<Found>, PortError> {
        let start = Instant::now();
        let count = keys.len();
        let found = self.read_now(keys, bytes).await;
        self.metrics.read.record(start.elapsed());
        self.metrics.read_keys.record(count as f64);
        if found.is_err() {
            self.metrics.failed_reads.increment(1);
        }
        found
    }

    async fn read_now(&self, keys: Vec<CountKey>, bytes: bool) -> Result<Vec<Found>, PortError> {
        let Some(partitions) = self.reader.partitions().await? else {
            let nothing = ReadCount { views: None, sketch: None, known_absent: false };
            return Ok(vec![(nothing, None); keys.len()]);
        };
        let keys: Vec<_> =
            keys.into_iter().map(|key| (partition_of(key.item_bytes(), partitions), key)).collect();
        let found = self.reader.read_with_states(&keys, bytes).await?;
        if found.len() != keys.len() {
            let detail = format!("{} answers to {} keys", found.len(), keys.len());
            return Err(PortError::Failed { server: "counters", detail });
        }
        Ok(found)
    }

    async fn wish(&self, mut keys: Vec<CountKey>) {
        keys.retain(|key| !self.wished.contains_key(key));
        if keys.is_empty() {
            return;
        }
        for key in &keys {
            self.wished.insert(key.clone(), ());
        }
        let count = keys.len() as u64;
        let Ok(Some(partitions)) = self.reader.partitions().await else { return };
        let keys: Vec<_> =
            keys.into_iter().map(|key| (partition_of(key.item_bytes(), partitions), key)).collect();
        match self.reader.want(&keys).await {
            Ok(()) => self.metrics.wished.increment(count),
            // Whoever asked asks again.
            Err(error) => tracing::debug!(%error, keys = count, "wishes could not be left"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_event::{ItemId, ItemKey, Scope, SiteId};
    use onlooker_ports::SketchValue;
    use std::sync::Mutex;

    /// Each item's views are the number that it is named.
    #[derive(Default)]
    struct Numbers {
        reads: Arc<Mutex<Vec<usize>>>,
    }

    impl CountReader for Numbers {
        async fn partitions(&self) -> Result<Option<u32>, PortError> {
            Ok(Some(8))
        }

        async fn states(&self, partitions: &[i32]) -> Result<Vec<Option<PartitionState>>, PortError> {
            Ok(vec![Some(PartitionState { applied: 1, as_of_ms: 1, whole_at: 0 }); partitions.len()])
        }

        async fn read(&self, keys: &[(i32, CountKey)], _bytes: bool) -> Result<Vec<ReadCount>, PortError> {
            self.reads.lock().unwrap().push(keys.len());
            tokio::task::yield_now().await;
            let views =
                |key: &CountKey| std::str::from_utf8(&key.item_bytes()[2..]).unwrap().parse().unwrap();
            let read = |key| ReadCount {
                views: Some(views(key)),
                sketch: Some(SketchValue::Estimate(0)),
                known_absent: false,
            };
            Ok(keys.iter().map(|(_, key)| read(key)).collect())
        }

        async fn want(&self, _keys: &[(i32, CountKey)]) -> Result<(), PortError> {
            Ok(())
        }
    }

    fn key(n: u64) -> CountKey {
        let item = ItemKey::new(&SiteId::new("s").unwrap(), &ItemId::new(&n.to_string()).unwrap());
        CountKey::new(Scope::All, item.as_bytes())
    }

    #[tokio::test]
    async fn requests_that_wait_together_share_a_read_and_get_their_own() {
        let numbers = Numbers::default();
        let log = Arc::clone(&numbers.reads);
        let reads = Arc::new(Reads::start(numbers, CountsApiMetrics::register()));
        let mut asking = tokio::task::JoinSet::new();
        for n in 0..600u64 {
            let reads = Arc::clone(&reads);
            asking.spawn(async move {
                let own = [n % 50, n + 100, n % 50, n + 1_000];
                let found = reads.estimates(own.map(key).to_vec()).await.unwrap();
                let views: Vec<_> = found.iter().map(|(read, _)| read.views).collect();
                assert_eq!(views, own.map(Some));
            });
        }
        while let Some(done) = asking.join_next().await {
            done.unwrap();
        }
        let sizes = log.lock().unwrap().clone();
        assert!(sizes.len() < 20, "600 requests took {} reads", sizes.len());
        assert!(sizes.iter().all(|size| *size <= KEYS_A_READ), "{sizes:?}");
        // Each key once a read, however many asked for it.
        assert!(sizes.iter().sum::<usize>() <= 1_200 + 50 * sizes.len(), "{sizes:?}");
    }
}
