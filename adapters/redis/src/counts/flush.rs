//! What the flusher reads and settles, and the janitor.

use std::time::Duration;

use bytes::Bytes;
use onlooker_event::CountKey;
use onlooker_ports::{Dirty, Number, NumberRead, PortError, SketchRead};
use redis::{Cmd, Value};

use super::{RedisCounters, number};
use crate::pack::Packer;
use crate::reply::Reader;
use crate::script::Script;

static BEGIN: Script = Script::new(include_str!("../lua/begin.lua"));
static READ: Script = Script::new(include_str!("../lua/read.lua"));
static SETTLE_SKETCHES: Script = Script::new(include_str!("../lua/settle_sketches.lua"));
static SETTLE_NUMBERS: Script = Script::new(include_str!("../lua/settle_numbers.lua"));
static SWEEP: Script = Script::new(include_str!("../lua/sweep.lua"));

/// Sketches of one read: up to 1.2 MB, a millisecond or two of the server.
const SKETCHES_A_READ: usize = 100;
/// Numbers of one read, likewise. Lua's stack takes about 8,000 values.
const NUMBERS_A_READ: usize = 2_000;
/// Keys of one settling script, so that readers do not wait for it longer than a millisecond or two.
const KEYS_A_SETTLE: usize = 1_000;
/// How many fields one step of the janitor looks at.
const FIELDS_A_SWEEP: usize = 1_000;

fn count_key(reader: Reader, bytes: Vec<u8>) -> Result<CountKey, PortError> {
    CountKey::parse(Bytes::from(bytes)).map_err(|_| PortError::Failed {
        server: reader.server,
        detail: format!("{} answered a field that is no key of a count", reader.command),
    })
}

pub(super) fn count_keys(reader: Reader, answer: Value) -> Result<Vec<CountKey>, PortError> {
    let key = |value: Value| match value {
        Value::BulkString(bytes) => count_key(reader, bytes),
        other => Err(reader.wrong(&other)),
    };
    reader.array(answer)?.into_iter().map(key).collect()
}

impl RedisCounters {
    pub(super) async fn list_dirty(&self, partition: i32) -> Result<Option<Dirty>, PortError> {
        let names = self.partition(partition)?;
        let call = BEGIN.call(&[&names.applied(), &names.dirty_sketches(), &names.dirty_numbers()]);
        let reader = self.reader("begin script");
        let answer = reader.array(self.client.script(names.slot(), &BEGIN, &call).await?)?;
        let [applied, sketches, numbers]: [Value; 3] =
            answer.try_into().map_err(|answer| reader.wrong(&Value::Array(answer)))?;
        let Some(applied) = reader.maybe_number(&applied)? else { return Ok(None) };
        let stem = names.sketch_stem();
        let sketch = |value: Value| match value {
            Value::BulkString(mut name) if name.starts_with(&stem) => {
                name.drain(..stem.len());
                count_key(reader, name)
            }
            other => Err(reader.wrong(&other)),
        };
        let sketches = reader.array(sketches)?.into_iter().map(sketch).collect::<Result<_, _>>()?;
        Ok(Some(Dirty { applied, sketches, numbers: count_keys(reader, numbers)? }))
    }

    pub(super) async fn read_dirty_sketches(
        &self,
        partition: i32,
        applied: i64,
        keys: &[CountKey],
    ) -> Result<Option<Vec<SketchRead>>, PortError> {
        let names = self.partition(partition)?;
        let reader = self.reader("read script");
        let stem = names.sketch_stem();
        let mut found = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(SKETCHES_A_READ) {
            let mut list = Packer::with_capacity(chunk.len() * 60);
            chunk.iter().for_each(|key| list.joined(&stem, key.as_bytes()));
            let mut call = READ.call(&[&names.applied(), &names.dirty_sketches()]);
            call.arg(list.finish()).arg(1);
            let answer = reader.array(self.client.script(names.slot(), &READ, &call).await?)?;
            let [at, marks, contents]: [Value; 3] =
                answer.try_into().map_err(|answer| reader.wrong(&Value::Array(answer)))?;
            // Below it Redis lost something after the round began, and may have lost marks of this very list.
            if reader.maybe_number(&at)?.is_none_or(|at| at < applied) {
                return Ok(None);
            }
            let marks = reader.array_of(marks, chunk.len())?;
            let contents = reader.array_of(contents, chunk.len())?;
            for (mark, content) in marks.iter().zip(contents) {
                // A key of another type reads as absent: it is no sketch either.
                found.push(match (reader.maybe_number(mark)?, reader.bytes(content)?) {
                    (None, _) => SketchRead::Clean,
                    (Some(_), None) => SketchRead::Corrupt,
                    (Some(t), Some(bytes)) => SketchRead::Found { t, bytes: bytes.into() },
                });
            }
        }
        Ok(Some(found))
    }

    pub(super) async fn read_dirty_numbers(
        &self,
        partition: i32,
        applied: i64,
        keys: &[CountKey],
    ) -> Result<Option<Vec<NumberRead>>, PortError> {
        let names = self.partition(partition)?;
        let reader = self.reader("read script");
        let mut found = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(NUMBERS_A_READ) {
            let mut list = Packer::with_capacity(chunk.len() * 40);
            chunk.iter().for_each(|key| list.bytes(key.as_bytes()));
            let mut call = READ.call(&[&names.applied(), &names.dirty_numbers()]);
            call.arg(list.finish()).arg(0);
            let answer = reader.array(self.client.script(names.slot(), &READ, &call).await?)?;
            let [at, values]: [Value; 2] =
                answer.try_into().map_err(|answer| reader.wrong(&Value::Array(answer)))?;
            if reader.maybe_number(&at)?.is_none_or(|at| at < applied) {
                return Ok(None);
            }
            for value in reader.array_of(values, chunk.len())? {
                found.push(match reader.bytes(value)? {
                    None => NumberRead::Clean,
                    // n and u are one value, so they are always of one moment.
                    Some(bytes) => number::decode(&bytes).map_or(NumberRead::Corrupt, NumberRead::Found),
                });
            }
        }
        Ok(Some(found))
    }

    pub(super) async fn mark_sketches_clean(
        &self,
        partition: i32,
        archived: &[(CountKey, i64)],
        ttl: Duration,
    ) -> Result<usize, PortError> {
        let names = self.partition(partition)?;
        let stem = names.sketch_stem();
        let mut settled = 0;
        for chunk in archived.chunks(KEYS_A_SETTLE) {
            let mut list = Packer::with_capacity(chunk.len() * 80);
            for (key, t) in chunk {
                list.joined(&stem, key.as_bytes());
                list.bytes(t.to_string().as_bytes());
            }
            let mut call = SETTLE_SKETCHES.call(&[&names.dirty_sketches()]);
            call.arg(millis(ttl)).arg(list.finish());
            let answer = self.client.script(names.slot(), &SETTLE_SKETCHES, &call).await?;
            settled += self.count("settle script", &answer)?;
        }
        Ok(settled)
    }

    pub(super) async fn mark_numbers_clean(
        &self,
        partition: i32,
        archived: &[(CountKey, Number)],
    ) -> Result<usize, PortError> {
        let names = self.partition(partition)?;
        let mut settled = 0;
        for chunk in archived.chunks(KEYS_A_SETTLE) {
            let mut list = Packer::with_capacity(chunk.len() * 60);
            for (key, number) in chunk {
                list.bytes(key.as_bytes());
                list.bytes(&number.u.to_le_bytes());
            }
            let mut call = SETTLE_NUMBERS.call(&[&names.dirty_numbers(), &names.totals()]);
            call.arg(list.finish());
            let answer = self.client.script(names.slot(), &SETTLE_NUMBERS, &call).await?;
            settled += self.count("settle script", &answer)?;
        }
        Ok(settled)
    }

    pub(super) async fn sweep(
        &self,
        partition: i32,
        cursor: u64,
        changed_before_s: u32,
    ) -> Result<(u64, usize), PortError> {
        let names = self.partition(partition)?;
        let totals = names.totals();
        let mut command = Cmd::new();
        command.arg("HSCAN").arg(&totals).arg(cursor).arg("COUNT").arg(FIELDS_A_SWEEP);
        let reader = self.reader("HSCAN");
        let page = reader.array_of(self.client.command(names.slot(), &command).await?, 2)?;
        let [next, fields]: [Value; 2] = page.try_into().map_err(|page| reader.wrong(&Value::Array(page)))?;
        // The cursor is an unsigned number of 64 bits, written as text.
        let next = reader.bytes(next)?.and_then(|text| String::from_utf8(text).ok()?.parse().ok());
        let next = next.ok_or_else(|| reader.wrong(&Value::Nil))?;
        let mut old = Packer::with_capacity(4_096);
        let mut any = false;
        for pair in reader.array(fields)?.chunks_exact(2) {
            let (Value::BulkString(field), Value::BulkString(value)) = (&pair[0], &pair[1]) else { continue };
            if number::decode(value).is_some_and(|number| number.changed_s < changed_before_s) {
                old.bytes(field);
                any = true;
            }
        }
        if !any {
            return Ok((next, 0));
        }
        let mut call = SWEEP.call(&[&totals]);
        call.arg(changed_before_s).arg(old.finish());
        let answer = self.client.script(names.slot(), &SWEEP, &call).await?;
        Ok((next, self.count("sweep script", &answer)?))
    }

    pub(super) fn count(&self, command: &'static str, answer: &Value) -> Result<usize, PortError> {
        let reader = self.reader(command);
        usize::try_from(reader.number(answer)?).map_err(|_| reader.wrong(answer))
    }
}

/// Redis takes times to live in whole milliseconds, and none below 1.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 50)
}
