//! Servers in memory, behind the ports: for tests of the room. What they promise is held to real servers by the ports'
//! conformance suites; here it matters that they can be made to fail at any step.

use crate::heart::sim::rng::Rng;
use crate::heart::sim::store::Store;
use onlooker_event::Digest128;
use onlooker_ports::{
    Applied, Batch, BatchBuilder, Claim, ClaimOutcome, CommitError, Committed, DedupStore, GroupEvent,
    GroupReader, InstallOutcome, Lookup, OutgoingBatch, PortError, Position, Topic, Transactor,
    VerdictHistory,
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::sleep;

#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) append_ms: i64,
    pub(crate) key: Vec<u8>,
    pub(crate) payload: Option<Vec<u8>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Output {
    pub(crate) topic: Topic,
    pub(crate) key: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    append_ms: i64,
}

/// How the next call of a server fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing happened.
    Before,
    /// It took effect, and the answer got lost.
    After,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) views: Vec<Vec<Record>>,
    pub(crate) earliest: Vec<i64>,
    pub(crate) committed: BTreeMap<i32, Committed>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) stores: Vec<Store>,
    /// While set, every call of the store fails so.
    pub(crate) store_error: Option<PortError>,
    /// While set, every call of the log fails so.
    pub(crate) log_error: Option<PortError>,
    /// Whether records are delivered.
    pub(crate) silent: bool,
    /// Transactions whose end is unknown, or that fail, in percent; calls of the store likewise.
    pub(crate) faults_percent: usize,
    pub(crate) rng: Rng,
    generation: u64,
    pub(crate) lookups: usize,
    pub(crate) left: usize,
}

/// The servers. Clones are the same ones.
#[derive(Debug, Clone)]
pub(crate) struct Servers(Arc<Mutex<State>>);

pub(crate) fn unavailable(server: &'static str) -> PortError {
    PortError::Unavailable { server, detail: "fake".into() }
}

impl Servers {
    /// With offset 0 committed for every partition, as the set-up does.
    pub(crate) fn new(partitions: usize, seed: u64) -> Self {
        let first = || Committed { offset: 0, note: String::new() };
        Self(Arc::new(Mutex::new(State {
            views: vec![Vec::new(); partitions],
            earliest: vec![0; partitions],
            committed: (0..partitions).map(|p| (i32::try_from(p).unwrap(), first())).collect(),
            outputs: Vec::new(),
            stores: vec![Store::default(); partitions],
            store_error: None,
            log_error: None,
            silent: false,
            faults_percent: 0,
            rng: Rng::new(seed),
            generation: 0,
            lookups: 0,
            left: 0,
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A verdict of another log, as a restore appends it.
    pub(crate) fn carry_over(&self, append_ms: i64, counted: &onlooker_proto::Counted) {
        let mut payload = Vec::new();
        onlooker_proto::encode_counted(counted, &mut payload);
        let key = format!("{}:{}", counted.site, counted.item).into_bytes();
        self.state().outputs.push(Output { topic: Topic::Counted, key, payload, append_ms });
    }

    pub(crate) fn append(&self, partition: usize, append_ms: i64, payload: &[u8]) {
        let record = Record { append_ms, key: b"key".to_vec(), payload: Some(payload.to_vec()) };
        self.state().views[partition].push(record);
    }

    /// A new member, which all partitions are assigned to; older ones are fenced.
    pub(crate) fn ports(&self) -> crate::FilterPorts<FakeReader, FakeTransactor, FakeHistory, FakeDedup> {
        let mut state = self.state();
        state.generation += 1;
        let partitions = (0..state.views.len()).map(|p| i32::try_from(p).unwrap()).collect();
        let assigned = GroupEvent::Assigned { partitions, membership: state.generation };
        crate::FilterPorts {
            reader: FakeReader {
                servers: self.clone(),
                events: VecDeque::from([assigned]),
                started: BTreeMap::new(),
            },
            transactor: FakeTransactor(self.clone()),
            history: FakeHistory(self.clone()),
            dedup: FakeDedup(self.clone()),
        }
    }

    /// Some turns of the scheduler, and perhaps a failure.
    async fn travel(&self) -> Option<Fault> {
        let (turns, fault) = {
            let state = &mut *self.state();
            let percent = state.faults_percent;
            let turns = if percent == 0 { 1 } else { state.rng.below(6) };
            let fault = state
                .rng
                .chance(percent)
                .then(|| if state.rng.chance(50) { Fault::Before } else { Fault::After });
            (turns, fault)
        };
        for _ in 0..turns {
            yield_now().await;
        }
        fault
    }
}

#[derive(Debug)]
pub(crate) struct FakeReader {
    servers: Servers,
    pub(crate) events: VecDeque<GroupEvent<u64>>,
    started: BTreeMap<i32, i64>,
}

impl FakeReader {
    fn deliver(&mut self) -> Option<GroupEvent<u64>> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let mut state = self.servers.state();
        if state.silent {
            return None;
        }
        for (partition, next) in &mut self.started {
            let place = usize::try_from(*partition).unwrap();
            let (earliest, end) = (state.earliest[place], i64::try_from(state.views[place].len()).unwrap());
            if *next < earliest || *next > end {
                let (partition, wanted) = (*partition, *next);
                self.started.remove(&partition);
                return Some(GroupEvent::OutOfRange { partition, wanted, earliest, end });
            }
            let count = 1 + state.rng.below(40);
            let mut batch = BatchBuilder::new(*partition);
            for record in state.views[place].iter().skip(usize::try_from(*next).unwrap()).take(count) {
                batch.push(*next, record.append_ms, Some(&record.key), record.payload.as_deref());
                *next += 1;
            }
            if !batch.is_empty() {
                return Some(GroupEvent::Records(batch.build()));
            }
        }
        None
    }

    fn check(&self) -> Result<(), PortError> {
        self.servers.state().log_error.clone().map_or(Ok(()), Err)
    }
}

impl GroupReader for FakeReader {
    type Membership = u64;

    async fn next(&mut self, wait: Duration) -> Result<Option<GroupEvent<u64>>, PortError> {
        yield_now().await;
        self.check()?;
        let event = self.deliver();
        if event.is_none() {
            sleep(wait).await;
        }
        Ok(event)
    }

    async fn start(&mut self, partition: i32, offset: i64) -> Result<(), PortError> {
        self.check()?;
        self.started.insert(partition, offset);
        Ok(())
    }

    async fn stop(&mut self, partition: i32) -> Result<(), PortError> {
        self.started.remove(&partition);
        Ok(())
    }

    async fn committed(&mut self, partition: i32) -> Result<Option<Committed>, PortError> {
        self.servers.travel().await;
        self.check()?;
        Ok(self.servers.state().committed.get(&partition).cloned())
    }

    async fn bounds(&mut self, partition: i32) -> Result<(i64, i64), PortError> {
        self.check()?;
        let (state, place) = (self.servers.state(), usize::try_from(partition).unwrap());
        Ok((state.earliest[place], i64::try_from(state.views[place].len()).unwrap()))
    }

    async fn commit(&mut self, _: &[Position]) -> Result<(), PortError> {
        panic!("the filter commits in transactions alone")
    }

    async fn partitions(&mut self) -> Result<u32, PortError> {
        Ok(u32::try_from(self.servers.state().views.len()).unwrap())
    }

    async fn close(&mut self, _: Duration) {
        self.servers.state().left += 1;
    }
}

#[derive(Debug)]
pub(crate) struct FakeTransactor(Servers);

impl Transactor for FakeTransactor {
    type Membership = u64;

    async fn commit(
        &mut self,
        outputs: &OutgoingBatch,
        inputs: &[Position],
        membership: &u64,
    ) -> Result<(), CommitError> {
        let fault = self.0.travel().await;
        let mut state = self.0.state();
        if *membership != state.generation {
            return Err(CommitError::Aborted("fenced".into()));
        }
        if fault == Some(Fault::Before) {
            let aborted = state.rng.chance(50);
            let reason = "fake".to_owned();
            return Err(if aborted { CommitError::Aborted(reason) } else { CommitError::Unknown(reason) });
        }
        let append_ms = state.views.iter().flatten().map(|r| r.append_ms).max().unwrap_or(0);
        state.outputs.extend(outputs.iter().map(|o| Output {
            topic: o.topic,
            key: o.key.to_vec(),
            payload: o.payload.to_vec(),
            append_ms,
        }));
        for Position { partition, offset, note } in inputs.iter().cloned() {
            state.committed.insert(partition, Committed { offset, note });
        }
        match fault {
            Some(_) => Err(CommitError::Unknown("fake".into())),
            None => Ok(()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct FakeHistory(Servers);

impl VerdictHistory for FakeHistory {
    async fn ends(&self) -> Result<Vec<(i32, i64)>, PortError> {
        self.0.travel().await;
        Ok(vec![(0, i64::try_from(self.0.state().outputs.len()).unwrap())])
    }

    async fn read(
        &self,
        from_ms: i64,
        ends: &[(i32, i64)],
        sink: mpsc::Sender<Batch>,
    ) -> Result<(), PortError> {
        let outputs = self.0.state().outputs.clone();
        let (_, end) = ends[0];
        for (offset, output) in (0..end).zip(outputs) {
            if output.topic == Topic::Counted && output.append_ms >= from_ms {
                let mut batch = BatchBuilder::new(0);
                batch.push(offset, output.append_ms, Some(&output.key), Some(&output.payload));
                if sink.send(batch.build()).await.is_err() {
                    break;
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct FakeDedup(Servers);

impl FakeDedup {
    async fn call<T>(&self, partition: i32, step: impl FnOnce(&mut Store) -> T) -> Result<T, PortError> {
        let fault = self.0.travel().await;
        let mut state = self.0.state();
        if let Some(error) = &state.store_error {
            return Err(error.clone());
        }
        if fault == Some(Fault::Before) {
            return Err(unavailable("dedup"));
        }
        let answer = step(&mut state.stores[usize::try_from(partition).unwrap()]);
        if fault.is_some() { Err(unavailable("dedup")) } else { Ok(answer) }
    }
}

impl DedupStore for FakeDedup {
    async fn applied(&self, partition: i32) -> Result<Option<Applied>, PortError> {
        self.call(partition, |store| store.applied).await
    }

    async fn lookup(
        &self,
        partition: i32,
        at_least: i64,
        at_most: i64,
        slice: i64,
        keys: &[Digest128],
    ) -> Result<Lookup, PortError> {
        self.0.state().lookups += 1;
        self.call(partition, |store| store.lookup(at_least, at_most, slice, keys)).await
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
        self.call(partition, |store| store.claim(None, (from, to), slice, claims, drop)).await
    }

    async fn stage(
        &self,
        partition: i32,
        name: &str,
        part: u64,
        slice: i64,
        claims: &[Claim],
    ) -> Result<bool, PortError> {
        self.call(partition, |store| store.stage(None, name, part, slice, claims)).await
    }

    async fn install(
        &self,
        partition: i32,
        offset: i64,
        slice: i64,
        name: &str,
        parts: u64,
    ) -> Result<InstallOutcome, PortError> {
        self.call(partition, |store| store.install(None, Applied { offset, slice }, name, parts)).await
    }
}
