//! What Redis holds for the keys of a batch.

use onlooker_event::CountKey;
use onlooker_ports::{CountLookup, Held, PortError};
use redis::{Cmd, Pipeline, Value};

use super::{RedisCounters, ask_applied, number};
use crate::keys::Names;
use crate::reply::Reader;

/// Keys of one `EXISTS`: it answers how many are there, so a full group needs no second look.
const GROUP: usize = 16;

pub(crate) fn ask_fields(hash: &[u8], keys: impl ExactSizeIterator<Item = impl AsRef<[u8]>>) -> Cmd {
    let mut command = Cmd::with_capacity(2 + keys.len(), 5 + hash.len() + 40 * keys.len());
    command.arg("HMGET").arg(hash);
    for key in keys {
        command.arg(key.as_ref());
    }
    command
}

fn ask_present(names: &Names<'_>, keys: &[CountKey]) -> Cmd {
    let mut command = Cmd::with_capacity(1 + keys.len(), 60 * keys.len());
    command.arg("EXISTS");
    for key in keys {
        command.arg(names.sketch(key));
    }
    command
}

/// A number of views, or none. Changed numbers stand in one hash and archived ones in another; the changed one is
/// the newer.
pub(crate) fn read_number(
    reader: Reader,
    changed: Value,
    archived: Value,
) -> Result<Option<onlooker_ports::Number>, PortError> {
    let newer = if matches!(changed, Value::Nil) { archived } else { changed };
    let Some(bytes) = reader.bytes(newer)? else { return Ok(None) };
    number::decode(&bytes).map(Some).ok_or_else(|| PortError::Failed {
        server: reader.server,
        detail: format!("a number of views of {} bytes, not {}", bytes.len(), number::NUMBER_BYTES),
    })
}

impl RedisCounters {
    pub(super) async fn look_up(
        &self,
        partition: i32,
        from: i64,
        keys: &[CountKey],
    ) -> Result<CountLookup, PortError> {
        let names = self.partition(partition)?;
        let reader = self.reader("HMGET");
        // State, numbers and presence of one moment: a base that is read from the archive after this answer is then
        // one for a sketch that was absent when Redis stood at `from`.
        let mut pipeline = Pipeline::with_capacity(3 + keys.len() / GROUP + 1);
        pipeline.atomic().add_command(ask_applied(&names));
        if !keys.is_empty() {
            pipeline.add_command(ask_fields(&names.dirty_numbers(), keys.iter().map(CountKey::as_bytes)));
            pipeline.add_command(ask_fields(&names.totals(), keys.iter().map(CountKey::as_bytes)));
        }
        for group in keys.chunks(GROUP) {
            pipeline.add_command(ask_present(&names, group));
        }
        let mut answers = self.client.transaction(names.slot(), &pipeline).await?.into_iter();
        let at = reader.maybe_number(&answers.next().unwrap_or_default())?;
        if at != Some(from) {
            return Ok(CountLookup::Gap(at));
        }
        if keys.is_empty() {
            return Ok(CountLookup::Found(Vec::new()));
        }
        let changed = reader.array_of(answers.next().unwrap_or_default(), keys.len())?;
        let archived = reader.array_of(answers.next().unwrap_or_default(), keys.len())?;
        let numbers = changed.into_iter().zip(archived);
        let mut held = numbers
            .map(|(changed, archived)| {
                Ok(Held { number: read_number(reader, changed, archived)?, sketch: true })
            })
            .collect::<Result<Vec<_>, PortError>>()?;
        let mut unsure = Vec::new();
        for (group, answer) in answers.enumerate() {
            let indices = group * GROUP..keys.len().min((group + 1) * GROUP);
            match usize::try_from(reader.number(&answer)?) {
                Ok(0) => held[indices].iter_mut().for_each(|held| held.sketch = false),
                Ok(there) if there == indices.len() => {}
                _ => unsure.extend(indices),
            }
        }
        self.look_closer(&names, from, keys, &unsure, held).await
    }

    /// Asks for each key of the groups that were there in part, again on top of `from`.
    async fn look_closer(
        &self,
        names: &Names<'_>,
        from: i64,
        keys: &[CountKey],
        unsure: &[usize],
        mut held: Vec<Held>,
    ) -> Result<CountLookup, PortError> {
        if unsure.is_empty() {
            return Ok(CountLookup::Found(held));
        }
        let mut pipeline = Pipeline::with_capacity(1 + unsure.len());
        pipeline.atomic().add_command(ask_applied(names));
        for index in unsure {
            pipeline.add_command(ask_present(names, std::slice::from_ref(&keys[*index])));
        }
        let answers = self.client.transaction(names.slot(), &pipeline).await?;
        let reader = self.reader("EXISTS");
        let (at, present) = answers.split_first().ok_or_else(|| reader.wrong(&Value::Nil))?;
        let at = reader.maybe_number(at)?;
        if at != Some(from) {
            return Ok(CountLookup::Gap(at));
        }
        for (index, answer) in unsure.iter().zip(present) {
            held[*index].sketch = reader.number(answer)? == 1;
        }
        Ok(CountLookup::Found(held))
    }
}
