//! The counters as the counts API sees them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::try_join_all;
use onlooker_event::CountKey;
use onlooker_ports::{CountReader, PartitionState, PortError, ReadCount, SketchValue};
use onlooker_sketch::Sketch;
use redis::{Cmd, Pipeline, Value};

use crate::client::Client;
use crate::counts::{LAYOUT, ask_fields, read_number};
use crate::keys::{Names, Namespace};
use crate::layout::read_layout;
use crate::pack::Packer;
use crate::reply::Reader;
use crate::script::Script;

static WANT: Script = Script::new(include_str!("lua/want.lua"));

/// Most wishes of one partition at a time.
const MOST_WANTED: usize = 10_000;
/// How long a wish stays if no counter takes it. Milliseconds.
const WANTED_FOR_MS: usize = 60_000;
/// How long a layout is believed without asking again.
const LAYOUT_FOR: Duration = Duration::from_secs(10);
/// Keys of one pipeline: with bytes up to 2.5 MB.
const KEYS_A_READ: usize = 200;

type Known = Option<(Instant, Arc<Log>)>;
/// Where in the request a key stood, what was found, and how its partition stood around that.
type Placed = (usize, ReadCount, Option<PartitionState>);

/// One log's key names, and how far each of its partitions was seen.
#[derive(Debug)]
struct Log {
    names: Namespace,
    /// By partition.
    seen: Box<[AtomicI64]>,
}

impl Log {
    fn new(names: Namespace) -> Self {
        Self { seen: (0..names.layout().partitions()).map(|_| AtomicI64::new(0)).collect(), names }
    }

    fn seen(&self, partition: i32) -> Option<Seen<'_>> {
        let highest = self.seen.get(usize::try_from(partition).ok()?)?;
        Some(Seen { highest, floor: highest.load(Ordering::Acquire) })
    }
}

/// How far a partition was seen when a question was sent. A replica that takes over without the last writes stands lower,
/// and nothing else tells a reader so: the counters only find out when they write next.
#[derive(Debug, Clone, Copy)]
struct Seen<'a> {
    highest: &'a AtomicI64,
    floor: i64,
}

impl Seen<'_> {
    /// An answer to that question. One that stands lower than what was seen before it was sent has lost something, until
    /// it is as far again.
    fn note(self, state: PartitionState) -> PartitionState {
        let highest = self.highest.fetch_max(state.applied, Ordering::AcqRel).max(state.applied);
        let lost = state.applied < self.floor;
        PartitionState { whole_at: if lost { state.whole_at.max(highest) } else { state.whole_at }, ..state }
    }
}

/// Reads the counters. Cheap to clone. Finds out by itself which log they belong to.
#[derive(Debug, Clone)]
pub struct RedisReader {
    client: Client,
    known: Arc<RwLock<Known>>,
}

impl RedisReader {
    /// Nothing is sent yet.
    pub fn new(client: Client) -> Self {
        Self { client, known: Arc::default() }
    }

    fn reader(&self, command: &'static str) -> Reader {
        Reader { server: self.client.server(), command }
    }

    /// Key names of the layout that stands in Redis; none before the first counter has run.
    async fn log(&self) -> Result<Option<Arc<Log>>, PortError> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((when, log)) = &known
            && when.elapsed() < LAYOUT_FOR
        {
            return Ok(Some(Arc::clone(log)));
        }
        let log = match (read_layout(&self.client, LAYOUT).await?, known) {
            (Some(layout), Some((_, log))) if *log.names.layout() == layout => log,
            (Some(layout), _) => Arc::new(Log::new(Namespace::new(self.client.prefix(), layout))),
            // It is written anew with the next synchronisation; until then the old one is the best guess.
            (None, Some((_, log))) => log,
            (None, None) => return Ok(None),
        };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        *known = Some((Instant::now(), Arc::clone(&log)));
        Ok(Some(log))
    }

    /// The keys of one partition: two round trips, the second one only for what is absent. Each looks where the partition
    /// stands before and after everything else, in the same pipeline: a loss in between would show there.
    async fn read_partition(
        &self,
        log: &Log,
        partition: i32,
        keys: &[(usize, &CountKey)],
        bytes: bool,
    ) -> Result<Vec<Placed>, PortError> {
        let Some(names) = log.names.partition(partition) else { return Ok(Vec::new()) };
        let names = &names;
        let mut out = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(KEYS_A_READ) {
            let seen = log.seen(partition);
            let mut pipeline = Pipeline::with_capacity(4 + chunk.len());
            pipeline.add_command(ask_state(names));
            let fields = || chunk.iter().map(|(_, key)| key.as_bytes());
            pipeline.add_command(ask_fields(&names.dirty_numbers(), fields()));
            pipeline.add_command(ask_fields(&names.totals(), fields()));
            for (_, key) in chunk {
                // One key a command: for several, PFCOUNT merges inside the server and blocks it.
                pipeline.cmd(if bytes { "GET" } else { "PFCOUNT" }).arg(names.sketch(key));
            }
            pipeline.add_command(ask_state(names));
            let mut answers = self.client.pipeline(names.slot(), &pipeline).await?.into_iter();
            let reader = self.reader("HMGET");
            let state = self.state_around(&mut answers, seen)?;
            let mut numbers = || {
                let answer = self.client.checked(answers.next().unwrap_or_default())?;
                reader.array_of(answer, chunk.len())
            };
            let (changed, archived) = (numbers()?, numbers()?);
            for (((index, _), answer), (changed, archived)) in
                chunk.iter().zip(answers).zip(changed.into_iter().zip(archived))
            {
                let views = read_number(reader, changed, archived)?.map(|number| number.n);
                let sketch = self.sketch(answer)?;
                out.push((*index, ReadCount { views, sketch, known_absent: false }, state));
            }
        }
        self.look_for_absent((names, log.seen(partition)), keys, bytes, &mut out).await?;
        Ok(out)
    }

    /// How the partition stood, by the first and the last answer of a pipeline.
    fn state_around(
        &self,
        answers: &mut impl DoubleEndedIterator<Item = Value>,
        seen: Option<Seen<'_>>,
    ) -> Result<Option<PartitionState>, PortError> {
        let before = self.state(answers.next().unwrap_or_default(), seen)?;
        let after = self.state(answers.next_back().unwrap_or_default(), seen)?;
        Ok(PartitionState::weaker(before, after))
    }

    fn state(&self, answer: Value, seen: Option<Seen<'_>>) -> Result<Option<PartitionState>, PortError> {
        let reader = self.reader("HMGET");
        let fields = reader.array_of(self.client.checked(answer)?, 4)?;
        let offset = reader.maybe_number(&fields[0])?;
        // While somebody holds the partition to replace counts, it shows where it stood.
        let Some(applied) = offset.or(reader.maybe_number(&fields[3])?) else { return Ok(None) };
        let (as_of_ms, whole_at) = (reader.number(&fields[1])?, reader.number(&fields[2])?);
        let state = PartitionState { applied, as_of_ms, whole_at };
        Ok(Some(seen.map_or(state, |seen| seen.note(state))))
    }

    /// What one sketch's answer says. An error of this key stays with this key.
    fn sketch(&self, answer: Value) -> Result<Option<SketchValue>, PortError> {
        match answer {
            // PFCOUNT answers 0 for an absent key as for an empty sketch.
            Value::Nil | Value::Int(0) => Ok(None),
            Value::Int(count) => Ok(Some(SketchValue::Estimate(count.unsigned_abs()))),
            Value::BulkString(bytes) if onlooker_sketch::validate(&bytes).is_ok() => {
                Ok(Some(SketchValue::Bytes(Bytes::from(bytes))))
            }
            Value::BulkString(_) => Ok(Some(SketchValue::Corrupt)),
            Value::ServerError(error) if matches!(error.code(), "WRONGTYPE" | "INVALIDOBJ") => {
                Ok(Some(SketchValue::Corrupt))
            }
            other => {
                let answer = self.client.checked(other)?;
                Err(self.reader("PFCOUNT").wrong(&answer))
            }
        }
    }

    async fn look_for_absent(
        &self,
        (names, seen): (&Names<'_>, Option<Seen<'_>>),
        keys: &[(usize, &CountKey)],
        bytes: bool,
        out: &mut [Placed],
    ) -> Result<(), PortError> {
        let absent: Vec<usize> = (0..out.len()).filter(|i| out[*i].1.sketch.is_none()).collect();
        if absent.is_empty() {
            return Ok(());
        }
        let mut pipeline = Pipeline::with_capacity(2 + 2 * absent.len());
        pipeline.add_command(ask_state(names));
        for i in &absent {
            // Its bytes and not whether it exists: a sketch that came back between the two questions is not 0.
            pipeline.cmd("GET").arg(names.sketch(keys[*i].1));
            pipeline.cmd("EXISTS").arg(names.absent(keys[*i].1));
        }
        pipeline.add_command(ask_state(names));
        let mut answers = self.client.pipeline(names.slot(), &pipeline).await?.into_iter();
        let reader = self.reader("EXISTS");
        let later = self.state_around(&mut answers, seen)?;
        for i in absent {
            let sketch = self.sketch(answers.next().unwrap_or_default())?;
            let marked = self.client.checked(answers.next().unwrap_or_default())?;
            let (_, read, state) = &mut out[i];
            *state = PartitionState::weaker(*state, later);
            // The mark may be older than the first view; but a view left a number, which nobody evicts.
            read.known_absent = reader.number(&marked)? == 1 && sketch.is_none() && read.views.is_none();
            read.sketch = match sketch {
                Some(SketchValue::Bytes(found)) if !bytes => Some(estimate(&found)),
                other => other,
            };
        }
        Ok(())
    }
}

fn ask_state(names: &Names<'_>) -> Cmd {
    let mut command = Cmd::new();
    command.arg("HMGET").arg(names.applied());
    command.arg("offset").arg("as_of_ms").arg("whole_at").arg("resume");
    command
}

fn estimate(bytes: &[u8]) -> SketchValue {
    Sketch::from_redis(bytes).map_or(SketchValue::Corrupt, |sketch| SketchValue::Estimate(sketch.count()))
}

/// Indices by partition, each in order; partitions in order.
fn by_partition(keys: &[(i32, CountKey)]) -> Vec<(i32, Vec<(usize, &CountKey)>)> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|i| keys[*i].0);
    order
        .chunk_by(|a, b| keys[*a].0 == keys[*b].0)
        .map(|group| (keys[group[0]].0, group.iter().map(|i| (*i, &keys[*i].1)).collect()))
        .collect()
}

impl CountReader for RedisReader {
    async fn partitions(&self) -> Result<Option<u32>, PortError> {
        Ok(self.log().await?.map(|log| log.names.layout().partitions()))
    }

    async fn states(&self, partitions: &[i32]) -> Result<Vec<Option<PartitionState>>, PortError> {
        let Some(log) = self.log().await? else { return Ok(vec![None; partitions.len()]) };
        let states = partitions.iter().map(|partition| async {
            let Some(names) = log.names.partition(*partition) else { return Ok(None) };
            let seen = log.seen(*partition);
            self.state(self.client.command(names.slot(), &ask_state(&names)).await?, seen)
        });
        try_join_all(states).await
    }

    async fn read(&self, keys: &[(i32, CountKey)], bytes: bool) -> Result<Vec<ReadCount>, PortError> {
        let found = self.read_with_states(keys, bytes).await?;
        Ok(found.into_iter().map(|(read, _)| read).collect())
    }

    async fn read_with_states(
        &self,
        keys: &[(i32, CountKey)],
        bytes: bool,
    ) -> Result<Vec<(ReadCount, Option<PartitionState>)>, PortError> {
        let nothing = ReadCount { views: None, sketch: None, known_absent: false };
        let mut out = vec![(nothing, None); keys.len()];
        let Some(log) = self.log().await? else { return Ok(out) };
        let groups = by_partition(keys);
        // All partitions at once: they share one connection, or have one each to their nodes.
        let reads = groups.iter().map(|(partition, keys)| self.read_partition(&log, *partition, keys, bytes));
        for (index, read, state) in try_join_all(reads).await?.into_iter().flatten() {
            out[index] = (read, state);
        }
        Ok(out)
    }

    async fn want(&self, keys: &[(i32, CountKey)]) -> Result<(), PortError> {
        let Some(log) = self.log().await? else { return Ok(()) };
        let groups = by_partition(keys);
        let wishes = groups.iter().filter_map(|(partition, keys)| {
            let names = log.names.partition(*partition)?;
            let mut list = Packer::with_capacity(keys.len() * 40);
            keys.iter().for_each(|(_, key)| list.bytes(key.as_bytes()));
            let mut call = WANT.call(&[&names.wanted()]);
            call.arg(MOST_WANTED).arg(WANTED_FOR_MS).arg(list.finish());
            Some(async move { self.client.script(names.slot(), &WANT, &call).await.map(drop) })
        });
        try_join_all(wishes).await.map(drop)
    }
}
