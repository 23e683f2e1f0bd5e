//! The filter's memory: claims as fields of one hash per partition and slice.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use onlooker_event::Digest128;
use onlooker_ports::{
    Applied, Claim, ClaimOutcome, DedupStore, InstallOutcome, Lookup, PortError, Remembered,
};
use redis::{Cmd, Pipeline, Value};

use crate::client::Client;
use crate::keys::{Layout, Names, Namespace};
use crate::layout::{TopicId, check_layout};
use crate::pack::Packer;
use crate::reply::Reader;
use crate::script::Script;

static CLAIM: Script = Script::new(include_str!("lua/claim.lua"));
static STAGE: Script = Script::new(include_str!("lua/stage.lua"));
static WHERE: Script = Script::new(include_str!("lua/where.lua"));
static INSTALL: Script = Script::new(include_str!("lua/install.lua"));

/// Name of the layout key of the filter's memory.
pub(crate) const LAYOUT: &str = "flayout";

/// Name of the key with the topic's id.
const TOPIC: &str = "ftopic";

/// How long staged parts stay without a new one: a rebuild that died leaves nothing behind.
const STAGED_FOR: Duration = Duration::from_secs(600);

/// The memory in Redis. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RedisDedup {
    pub(crate) client: Client,
    pub(crate) names: Arc<Namespace>,
    topic: Arc<TopicId>,
}

impl RedisDedup {
    /// `layout` is that of the topic `views`. Nothing is sent yet.
    pub fn new(client: Client, layout: Layout) -> Self {
        let names = Namespace::new(client.prefix(), layout).into();
        Self { client, names, topic: Arc::default() }
    }

    /// Says which topic `views` is. From here on, a memory of any other topic is refused, whenever it is looked at anew.
    ///
    /// # Errors
    /// `Misconfigured` if this store was told of another topic before: it was made anew meanwhile.
    pub fn belongs_to(&self, topic_id: &str) -> Result<(), PortError> {
        self.topic.set(self.client.server(), topic_id)
    }

    /// Whether what stands there is a function of our log.
    pub(crate) async fn check_log(&self) -> Result<(), PortError> {
        check_layout(&self.client, LAYOUT, self.names.layout()).await?;
        self.topic.check(&self.client, TOPIC).await
    }

    fn partition(&self, partition: i32) -> Result<Names<'_>, PortError> {
        self.names.require(self.client.server(), partition)
    }

    /// Where the memory stands, if all of it is there; what is left of another one is forgotten.
    async fn look_where(&self, names: &Names<'_>) -> Result<Option<Applied>, PortError> {
        let reader = self.reader("where script");
        let mut call = WHERE.call(&[&names.fapplied()]);
        call.arg(names.seen_stem());
        let answer = reader.array(self.client.script(names.slot(), &WHERE, &call).await?)?;
        match answer.as_slice() {
            [] => Ok(None),
            [offset, slice] => state(reader, offset, slice),
            _ => Err(reader.wrong(&Value::Array(answer))),
        }
    }

    fn reader(&self, command: &'static str) -> Reader {
        Reader { server: self.client.server(), command }
    }
}

fn state(reader: Reader, offset: &Value, slice: &Value) -> Result<Option<Applied>, PortError> {
    let Some(offset) = reader.maybe_number(offset)? else { return Ok(None) };
    Ok(Some(Applied { offset, slice: reader.number(slice)? }))
}

/// With the number of claims that each of its two slices has to have.
fn ask_state(names: &Names<'_>) -> Cmd {
    let mut command = Cmd::new();
    command.arg("HMGET").arg(names.fapplied()).arg("offset").arg("slice").arg("newer").arg("older");
    command
}

fn ask_length(key: &[u8]) -> Cmd {
    let mut command = Cmd::new();
    command.arg("HLEN").arg(key);
    command
}

/// How many claims `slice - 1` and `slice` have to have, in a memory that stands at `at` and whose newest slice has `newer`
/// and the one before it `older`; none where that is not known.
fn expected(at: Applied, newer: i64, older: i64, slice: i64) -> [Option<i64>; 2] {
    match slice - at.slice {
        ..-1 => [None, None],
        -1 => [None, Some(older)],
        0 => [Some(older), Some(newer)],
        1 => [Some(newer), Some(0)],
        _ => [Some(0), Some(0)],
    }
}

fn ask_slice(key: &[u8], keys: &[Digest128]) -> Cmd {
    let mut command = Cmd::with_capacity(2 + keys.len(), 5 + key.len() + 16 * keys.len());
    command.arg("HMGET").arg(key);
    for digest in keys {
        command.arg(&digest.0[..]);
    }
    command
}

/// The numbers of one field, little-endian, 4 bytes each.
fn values(reader: Reader, value: Value) -> Result<Vec<u32>, PortError> {
    let Some(bytes) = reader.bytes(value)? else { return Ok(Vec::new()) };
    let (words, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        let detail = format!("a claim of {} bytes, which is not a multiple of 4", bytes.len());
        return Err(PortError::Failed { server: reader.server, detail });
    }
    Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
}

fn pack(claims: &[Claim]) -> Vec<u8> {
    let mut packer = Packer::with_capacity(claims.len() * 24);
    for claim in claims {
        packer.bytes(&claim.key.0);
        packer.words(&claim.values);
    }
    packer.finish()
}

impl DedupStore for RedisDedup {
    async fn applied(&self, partition: i32) -> Result<Option<Applied>, PortError> {
        let names = self.partition(partition)?;
        self.check_log().await?;
        self.look_where(&names).await
    }

    async fn lookup(
        &self,
        partition: i32,
        at_least: i64,
        at_most: i64,
        slice: i64,
        keys: &[Digest128],
    ) -> Result<Lookup, PortError> {
        let names = self.partition(partition)?;
        let reader = self.reader("HMGET");
        // One transaction, because state and slices have to be of one moment; and no script, because it would build
        // a Lua table for every answer and cost half as much again.
        let mut pipeline = Pipeline::with_capacity(5);
        let slices = [names.seen(slice - 1), names.seen(slice)];
        pipeline.atomic().add_command(ask_state(&names));
        for key in &slices {
            pipeline.add_command(ask_length(key));
        }
        if !keys.is_empty() {
            for key in &slices {
                pipeline.add_command(ask_slice(key, keys));
            }
        }
        let mut answers = self.client.transaction(names.slot(), &pipeline).await?.into_iter();
        let fields = reader.array_of(answers.next().unwrap_or_default(), 4)?;
        let at = state(reader, &fields[0], &fields[1])?;
        let (newer, older) = (reader.maybe_number(&fields[2])?, reader.maybe_number(&fields[3])?);
        let mut length = || reader.number(&answers.next().unwrap_or_default());
        let lengths = [length()?, length()?];
        // Below: claims of earlier records are missing. Above: claims of records that are still to be decided.
        let Some(at) = at.filter(|at| (at_least..=at_most).contains(&at.offset)) else {
            return Ok(Lookup::Gap(at));
        };
        // A slice that lost claims, to a hand or to an evicting policy, would let views count twice.
        let expected = newer.zip(older).map(|(newer, older)| expected(at, newer, older, slice));
        let agree = |(wanted, found): (Option<i64>, i64)| wanted.is_none_or(|wanted| wanted == found);
        if !expected.is_some_and(|wanted| wanted.into_iter().zip(lengths).all(agree)) {
            return self.look_where(&names).await.map(Lookup::Gap);
        }
        let mut next = |len: usize| reader.array_of(answers.next().unwrap_or_default(), len);
        if keys.is_empty() {
            return Ok(Lookup::Found(Vec::new()));
        }
        let (older, newer) = (next(keys.len())?, next(keys.len())?);
        let both = older.into_iter().zip(newer);
        let found = both.map(|(older, newer)| {
            Ok(Remembered { older: values(reader, older)?, newer: values(reader, newer)? })
        });
        found.collect::<Result<_, _>>().map(Lookup::Found)
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
        let names = self.partition(partition)?;
        let mut call = CLAIM.call(&[&names.fapplied(), &names.seen(slice)]);
        call.arg(from).arg(to).arg(slice).arg(pack(claims)).arg(names.seen_stem());
        // Never the two slices that verdicts are made from, whatever was asked for.
        call.arg(drop.start).arg(drop.end.min(slice - 1) - 1);
        let reader = self.reader("claim script");
        let answer = reader.array(self.client.script(names.slot(), &CLAIM, &call).await?)?;
        match answer.as_slice() {
            [Value::Int(0)] => Ok(ClaimOutcome::Done),
            [Value::Int(1), offset, slice] => state(reader, offset, slice).map(ClaimOutcome::Gap),
            _ => Err(reader.wrong(&Value::Array(answer))),
        }
    }

    async fn stage(
        &self,
        partition: i32,
        name: &str,
        part: u64,
        slice: i64,
        claims: &[Claim],
    ) -> Result<bool, PortError> {
        let names = self.partition(partition)?;
        // A memory has two slices: this one, and one beside it.
        let [before, after] = [slice - 1, slice + 1].map(|slice| names.staged(name, slice));
        let mut call = STAGE.call(&[&names.staged_parts(name), &names.staged(name, slice), &before, &after]);
        call.arg(part).arg(pack(claims)).arg(STAGED_FOR.as_millis().to_string());
        let answer = self.client.script(names.slot(), &STAGE, &call).await?;
        Ok(self.reader("stage script").number(&answer)? == 1)
    }

    async fn install(
        &self,
        partition: i32,
        offset: i64,
        slice: i64,
        name: &str,
        parts: u64,
    ) -> Result<InstallOutcome, PortError> {
        let names = self.partition(partition)?;
        let mut call = INSTALL.call(&[
            &names.fapplied(),
            &names.staged_parts(name),
            &names.staged(name, slice - 1),
            &names.staged(name, slice),
            &names.seen(slice - 1),
            &names.seen(slice),
        ]);
        call.arg(offset).arg(slice).arg(parts).arg(names.seen_stem());
        let answer = self.client.script(names.slot(), &INSTALL, &call).await?;
        let reader = self.reader("install script");
        match reader.number(&answer)? {
            0 => Ok(InstallOutcome::Done),
            1 => Ok(InstallOutcome::Discarded),
            2 => Ok(InstallOutcome::Gap),
            _ => Err(reader.wrong(&answer)),
        }
    }
}
