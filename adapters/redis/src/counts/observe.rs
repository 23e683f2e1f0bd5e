//! What an operator sees of a key.

use super::{RedisCounters, read_number};
use crate::pack::Packer;
use crate::script::Script;
use onlooker_event::CountKey;
use onlooker_ports::{CountObserver, KeyView, PortError};
use redis::{Cmd, Value};
use std::time::Duration;

static OBSERVE: Script = Script::new(include_str!("../lua/observe.lua"));

/// Keys of one call: with their sketches up to 1.2 MB.
const KEYS: usize = 100;

impl CountObserver for RedisCounters {
    /// Of more than 100 keys, each hundred is of a moment of its own; the first one's place is given.
    async fn observe(
        &self,
        partition: i32,
        keys: &[CountKey],
    ) -> Result<(Option<i64>, Vec<KeyView>), PortError> {
        if keys.is_empty() {
            let names = self.partition(partition)?;
            let mut command = Cmd::new();
            // While somebody holds the partition, it shows where it stood.
            command.arg("HMGET").arg(names.applied()).arg("offset").arg("resume");
            let reader = self.reader("HMGET");
            let state = reader.array_of(self.client.command(names.slot(), &command).await?, 2)?;
            return Ok((reader.maybe_number(&state[0])?.or(reader.maybe_number(&state[1])?), Vec::new()));
        }
        let (mut first, mut views) = (None, Vec::with_capacity(keys.len()));
        for (number, keys) in keys.chunks(KEYS).enumerate() {
            let applied = self.observe_together(partition, keys, &mut views).await?;
            if number == 0 {
                first = applied;
            }
        }
        Ok((first, views))
    }
}

impl RedisCounters {
    async fn observe_together(
        &self,
        partition: i32,
        keys: &[CountKey],
        views: &mut Vec<KeyView>,
    ) -> Result<Option<i64>, PortError> {
        let names = self.partition(partition)?;
        let (stem, reader) = (names.sketch_stem(), self.reader("observe script"));
        let (mut fields, mut sketches) = (Packer::with_capacity(0), Packer::with_capacity(0));
        for key in keys {
            fields.bytes(key.as_bytes());
            sketches.joined(&stem, key.as_bytes());
        }
        let (applied, changed, archived) = (names.applied(), names.dirty_numbers(), names.totals());
        let mut call = OBSERVE.call(&[&applied, &changed, &archived, &names.dirty_sketches()]);
        call.arg(fields.finish()).arg(sketches.finish());
        let answer = reader.array(self.client.script(names.slot(), &OBSERVE, &call).await?)?;
        let [applied, lists @ ..]: [Value; 6] =
            answer.try_into().map_err(|answer| reader.wrong(&Value::Array(answer)))?;
        let mut lists = lists.into_iter().map(|list| reader.array_of(list, keys.len()));
        let mut next = || lists.next().unwrap_or_else(|| Ok(Vec::new())).map(Vec::into_iter);
        let (changed, archived, marks, contents, times) = (next()?, next()?, next()?, next()?, next()?);
        for ((((changed, archived), mark), content), time) in
            changed.zip(archived).zip(marks).zip(contents).zip(times)
        {
            let number_dirty = !matches!(changed, Value::Nil);
            views.push(KeyView {
                number: read_number(reader, changed, archived)?,
                number_dirty,
                sketch: reader.bytes(content)?.map(Into::into),
                sketch_dirty: reader.maybe_number(&mark)?,
                // Negative: it does not expire, or is not there.
                ttl: u64::try_from(reader.number(&time)?).ok().map(Duration::from_millis),
            });
        }
        reader.maybe_number(&applied)
    }
}
