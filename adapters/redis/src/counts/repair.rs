//! Counts that are replaced under whoever counts.

use std::time::Duration;

use onlooker_ports::{CountRepair, Hold, Number, PortError, Put};
use redis::Value;
use tokio::time::sleep;

use super::flush::millis;
use super::{INIT, RedisCounters, number};
use crate::pack::Packer;
use crate::script::Script;

static APPLIED: Script = Script::new(include_str!("../lua/applied.lua"));
static HOLD: Script = Script::new(include_str!("../lua/hold.lua"));
static PUT: Script = Script::new(include_str!("../lua/put.lua"));

/// How often those who wait for the end of a hold ask for it.
const LOOK: Duration = Duration::from_millis(20);

impl RedisCounters {
    /// Where the partition stands, when nobody holds it any more.
    pub(super) async fn wait_for_state(&self, partition: i32) -> Result<Option<i64>, PortError> {
        let names = self.partition(partition)?;
        let reader = self.reader("applied script");
        loop {
            let call = APPLIED.call(&[&names.applied(), &names.hold(), &names.resume()]);
            let answer = reader.array(self.client.script(names.slot(), &APPLIED, &call).await?)?;
            match answer.as_slice() {
                [] => return Ok(None),
                [at] => return reader.number(at).map(Some),
                _ => sleep(LOOK).await,
            }
        }
    }

    pub(super) async fn init_at(
        &self,
        partition: i32,
        durable: i64,
        whole_at: i64,
    ) -> Result<i64, PortError> {
        let names = self.partition(partition)?;
        loop {
            let mut call = INIT.call(&[&names.applied(), &names.resume()]);
            call.arg(durable).arg(whole_at);
            let answer = self.client.script(names.slot(), &INIT, &call).await?;
            if let Some(at) = self.reader("init script").maybe_number(&answer)? {
                return Ok(at);
            }
            if let Some(at) = self.wait_for_state(partition).await? {
                return Ok(at);
            }
        }
    }
}

impl CountRepair for RedisCounters {
    async fn hold(&self, partition: i32, holder: &str, lasts: Duration) -> Result<Hold, PortError> {
        let names = self.partition(partition)?;
        self.check_log().await?;
        let mut call = HOLD.call(&[&names.applied(), &names.hold(), &names.resume()]);
        call.arg(holder).arg(millis(lasts));
        let reader = self.reader("hold script");
        let answer = reader.array(self.client.script(names.slot(), &HOLD, &call).await?)?;
        match answer.as_slice() {
            [Value::Int(0), at] => Ok(Hold::Ours { at: reader.number(at)? }),
            [Value::Int(1)] => Ok(Hold::Taken),
            [Value::Int(2)] => Ok(Hold::Nowhere),
            _ => Err(reader.wrong(&Value::Array(answer))),
        }
    }

    async fn put_and_release(
        &self,
        partition: i32,
        holder: &str,
        at: i64,
        puts: &[Put],
    ) -> Result<bool, PortError> {
        let names = self.partition(partition)?;
        let stem = names.sketch_stem();
        let list = || Packer::with_capacity(puts.len() * 64);
        let (mut sketches, mut contents, mut absent) = (list(), list(), list());
        let (mut fields, mut numbers) = (list(), list());
        for put in puts {
            sketches.joined(&stem, put.key.as_bytes());
            contents.bytes(&put.sketch);
            absent.bytes(&names.absent(&put.key));
            fields.bytes(put.key.as_bytes());
            numbers.bytes(&number::encode(Number { n: put.n, u: at, changed_s: put.changed_s }));
        }
        let (applied, marks, changed) = (names.applied(), names.dirty_sketches(), names.dirty_numbers());
        let mut call =
            PUT.call(&[&applied, &names.hold(), &names.resume(), &marks, &changed, &names.totals()]);
        call.arg(holder).arg(at).arg(sketches.finish()).arg(contents.finish());
        call.arg(absent.finish()).arg(fields.finish()).arg(numbers.finish());
        let answer = self.client.script(names.slot(), &PUT, &call).await?;
        Ok(self.reader("put script").number(&answer)? == 1)
    }
}
