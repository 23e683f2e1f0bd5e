//! A room's reader that brings records of another system, with their offsets and append times as they are there.
//!
//! Membership and committed positions are the shadow's own: so a replay that was interrupted goes on where it was, and a
//! transaction of the shadow's filter is one as any other. Only records, bounds and ends come from the source.

use onlooker_event::ItemKey;
use onlooker_ports::{
    Batch, BatchBuilder, Committed, GroupEvent, GroupReader, LogObserver, PortError, Position, Topic,
};
use onlooker_proto::{decode_counted, decode_view};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Which records, and how fast.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) topic: Topic,
    /// Per partition: nothing from here on is read.
    pub(super) until: Vec<i64>,
    /// Records a second, of all partitions together; none: as fast as they are taken.
    pub(super) per_s: Option<u32>,
    /// Of these items alone; none: of all.
    pub(super) items: Option<Arc<HashSet<ItemKey>>>,
}

impl Script {
    /// What of a batch is wanted.
    fn select(&self, batch: Batch) -> Batch {
        let Some(items) = &self.items else { return batch };
        let mut wanted = BatchBuilder::new(batch.partition);
        for record in batch.iter() {
            let item = match self.topic {
                Topic::Views => {
                    decode_view(record.payload).ok().map(|view| ItemKey::new(&view.site, &view.item))
                }
                _ => decode_counted(record.payload).ok().map(|view| ItemKey::new(&view.site, &view.item)),
            };
            if item.is_some_and(|item| items.contains(&item)) {
                wanted.push(record.offset, record.append_ms, record.key, record.payload);
            }
        }
        wanted.build()
    }
}

/// How far a feed is, for who waits for its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Fed {
    /// Behind the last record that was delivered; none: no record yet.
    pub(super) next: Option<i64>,
    /// There are no more.
    pub(super) through: bool,
}

/// By partition; of those that were started.
pub(super) type Progress = Arc<Mutex<BTreeMap<i32, Fed>>>;

/// What a partition's reading has to tell.
enum Piece {
    Records(Batch),
    /// All that is to be read was.
    Through,
    Failed(PortError),
}

pub(super) struct Feed<L, R> {
    source: Arc<L>,
    own: R,
    script: Script,
    progress: Progress,
    readings: BTreeMap<i32, JoinHandle<()>>,
    pieces: mpsc::Receiver<(i32, u64, Piece)>,
    sink: mpsc::Sender<(i32, u64, Piece)>,
    /// Counts starts: what an earlier one brought is not delivered any more.
    starts: BTreeMap<i32, u64>,
    /// When the next record is due, where there is a pace.
    due: Instant,
    /// The rest of a batch that is delivered in pieces, with its start and the next record's place.
    rest: Option<(u64, Batch, usize)>,
}

/// With a pace: pieces a second.
const PIECES_A_S: u32 = 10;

/// Batches that wait for the room.
const AHEAD: usize = 8;

impl<L: LogObserver, R: GroupReader> Feed<L, R> {
    pub(super) fn new(source: Arc<L>, own: R, script: Script, progress: Progress) -> Self {
        let (sink, pieces) = mpsc::channel(AHEAD);
        let (readings, starts) = (BTreeMap::new(), BTreeMap::new());
        Self {
            source,
            own,
            script,
            progress,
            readings,
            pieces,
            sink,
            starts,
            due: Instant::now(),
            rest: None,
        }
    }

    fn until(&self, partition: i32) -> i64 {
        usize::try_from(partition).ok().and_then(|at| self.script.until.get(at)).copied().unwrap_or(0)
    }

    fn halt(&mut self, partition: i32) {
        if let Some(reading) = self.readings.remove(&partition) {
            reading.abort();
        }
        *self.starts.entry(partition).or_default() += 1;
    }

    /// The whole batch; or as much of it as a tenth of a second may bring, when its time has come.
    async fn in_pace(&mut self, start: u64, batch: Batch, from: usize) -> Batch {
        let Some(per_s) = self.script.per_s else { return batch };
        let room = usize::try_from(per_s / PIECES_A_S).unwrap_or(usize::MAX).max(1);
        let mut piece = BatchBuilder::new(batch.partition);
        for record in batch.iter().skip(from).take(room) {
            piece.push(record.offset, record.append_ms, record.key, record.payload);
        }
        let next = from + piece.len();
        tokio::time::sleep_until(self.due).await;
        let seconds = piece.len() as f64 / f64::from(per_s.max(1));
        self.due = self.due.max(Instant::now()) + Duration::from_secs_f64(seconds);
        if next < batch.len() {
            self.rest = Some((start, batch, next));
        }
        piece.build()
    }

    fn note(&self, partition: i32, change: impl FnOnce(&mut Fed)) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        change(progress.entry(partition).or_default());
    }

    fn deliver(&self, batch: Batch) -> Option<GroupEvent<R::Membership>> {
        let batch = self.script.select(batch);
        let next = batch.next_offset()?;
        self.note(batch.partition, |fed| fed.next = Some(next));
        Some(GroupEvent::Records(batch))
    }

    fn is_current(&self, partition: i32, start: u64) -> bool {
        self.starts.get(&partition) == Some(&start)
    }
}

/// Reads one partition from `offset` to `until`, and says when it is through.
async fn bring<L: LogObserver>(
    source: Arc<L>,
    topic: Topic,
    (partition, start): (i32, u64),
    range: std::ops::Range<i64>,
    sink: mpsc::Sender<(i32, u64, Piece)>,
) {
    let (batches, mut read) = mpsc::channel(2);
    let forward = async {
        while let Some(batch) = read.recv().await {
            if sink.send((partition, start, Piece::Records(batch))).await.is_err() {
                return;
            }
        }
    };
    let ranges = [(partition, range)];
    let (outcome, ()) = tokio::join!(source.read(topic, &ranges, batches), forward);
    let piece = outcome.map_or_else(Piece::Failed, |()| Piece::Through);
    // The room may be gone.
    let _ = sink.send((partition, start, piece)).await;
}

impl<L: LogObserver, R: GroupReader> GroupReader for Feed<L, R> {
    type Membership = R::Membership;

    async fn next(&mut self, wait: Duration) -> Result<Option<GroupEvent<R::Membership>>, PortError> {
        let deadline = Instant::now() + wait;
        loop {
            // The shadow's own topic has no records; only who owns what comes from there.
            match self.own.next(Duration::ZERO).await? {
                Some(event @ (GroupEvent::Assigned { .. } | GroupEvent::Revoked { .. })) => {
                    if let GroupEvent::Revoked { partitions } = &event {
                        partitions.iter().for_each(|partition| self.halt(*partition));
                    }
                    return Ok(Some(event));
                }
                Some(_) => continue,
                None => {}
            }
            if let Some((start, batch, from)) = self.rest.take() {
                if self.is_current(batch.partition, start) {
                    let piece = self.in_pace(start, batch, from).await;
                    if let Some(event) = self.deliver(piece) {
                        return Ok(Some(event));
                    }
                }
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(Some((partition, start, piece))) = tokio::time::timeout(left, self.pieces.recv()).await
            else {
                return Ok(None);
            };
            if !self.is_current(partition, start) {
                continue;
            }
            return match piece {
                Piece::Records(batch) => {
                    let piece = self.in_pace(start, batch, 0).await;
                    match self.deliver(piece) {
                        Some(event) => Ok(Some(event)),
                        None => continue,
                    }
                }
                Piece::Through => {
                    self.note(partition, |fed| fed.through = true);
                    Ok(Some(GroupEvent::CaughtUp { partition, next_offset: self.until(partition) }))
                }
                Piece::Failed(error) => Err(error),
            };
        }
    }

    async fn start(&mut self, partition: i32, offset: i64) -> Result<(), PortError> {
        self.halt(partition);
        let start = self.starts.get(&partition).copied().unwrap_or(0);
        let (source, sink) = (Arc::clone(&self.source), self.sink.clone());
        let range = offset..self.until(partition).max(offset);
        let reading = bring(source, self.script.topic, (partition, start), range, sink);
        self.note(partition, |fed| *fed = Fed { next: None, through: false });
        self.readings.insert(partition, tokio::spawn(reading));
        Ok(())
    }

    async fn stop(&mut self, partition: i32) -> Result<(), PortError> {
        self.halt(partition);
        Ok(())
    }

    async fn committed(&mut self, partition: i32) -> Result<Option<Committed>, PortError> {
        self.own.committed(partition).await
    }

    /// The log ends where the reading does.
    async fn bounds(&mut self, partition: i32) -> Result<(i64, i64), PortError> {
        let bounds = self.source.bounds(self.script.topic).await?;
        let of = usize::try_from(partition).ok().and_then(|at| bounds.get(at));
        Ok(of.map_or((0, 0), |of| (of.earliest, self.until(partition))))
    }

    async fn commit(&mut self, positions: &[Position]) -> Result<(), PortError> {
        self.own.commit(positions).await
    }

    async fn partitions(&mut self) -> Result<u32, PortError> {
        self.own.partitions().await
    }

    async fn close(&mut self, wait: Duration) {
        let started: Vec<i32> = self.readings.keys().copied().collect();
        started.into_iter().for_each(|partition| self.halt(partition));
        self.own.close(wait).await;
    }
}
