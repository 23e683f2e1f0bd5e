//! What readers asked for and did not find, and the claim on a flush round.

use std::time::Duration;

use onlooker_event::CountKey;
use onlooker_ports::PortError;
use redis::{Cmd, Pipeline, Value};

use super::RedisCounters;
use super::flush::{count_keys, millis};

impl RedisCounters {
    pub(super) async fn pop_wanted(
        &self,
        partition: i32,
        at_most: usize,
    ) -> Result<Vec<CountKey>, PortError> {
        let names = self.partition(partition)?;
        let mut command = Cmd::new();
        command.arg("SPOP").arg(names.wanted()).arg(at_most);
        count_keys(self.reader("SPOP"), self.client.command(names.slot(), &command).await?)
    }

    pub(super) async fn set_absent(
        &self,
        partition: i32,
        keys: &[CountKey],
        ttl: Duration,
    ) -> Result<(), PortError> {
        if keys.is_empty() {
            return Ok(());
        }
        let names = self.partition(partition)?;
        let mut pipeline = Pipeline::with_capacity(keys.len());
        for key in keys {
            pipeline.cmd("SET").arg(names.absent(key)).arg("").arg("PX").arg(millis(ttl));
        }
        let answers = self.client.pipeline(names.slot(), &pipeline).await?;
        answers.into_iter().try_for_each(|answer| self.client.checked(answer).map(drop))
    }

    pub(super) async fn set_round(&self, partition: i32, hold: Duration) -> Result<bool, PortError> {
        let names = self.partition(partition)?;
        let mut command = Cmd::new();
        command.arg("SET").arg(names.round()).arg("").arg("NX").arg("PX").arg(millis(hold));
        Ok(!matches!(self.client.command(names.slot(), &command).await?, Value::Nil))
    }
}
