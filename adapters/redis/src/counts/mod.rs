//! Sketches and numbers of views, for the counter and the flusher.

mod apply;
mod flush;
mod lookup;
pub(crate) mod number;
mod observe;
mod repair;
mod wishes;

pub(crate) use lookup::{ask_fields, read_number};

use std::sync::Arc;
use std::time::Duration;

use onlooker_event::CountKey;
use onlooker_ports::{
    Apply, ApplyOutcome, CountLookup, CountStore, Dirty, Number, NumberRead, PortError, SketchRead,
};
use redis::Cmd;

use crate::client::Client;
use crate::keys::{Layout, Names, Namespace};
use crate::layout::{TopicId, check_layout};
use crate::reply::Reader;
use crate::script::Script;

static INIT: Script = Script::new(include_str!("../lua/init.lua"));

/// Name of the counters' layout key.
pub(crate) const LAYOUT: &str = "layout";

/// Name of the key with the topic's id.
const TOPIC: &str = "topic";

/// The counters in Redis. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RedisCounters {
    pub(crate) client: Client,
    pub(crate) names: Arc<Namespace>,
    topic: Arc<TopicId>,
}

impl RedisCounters {
    /// `layout` is that of the topic `views.counted`. Nothing is sent yet.
    pub fn new(client: Client, layout: Layout) -> Self {
        let names = Namespace::new(client.prefix(), layout).into();
        Self { client, names, topic: Arc::default() }
    }

    /// Says which topic `views.counted` is. From here on, counters of any other topic are refused, whenever it is looked
    /// at anew where they stand.
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

    /// Slot and key of a sketch, for people. None for a partition that there is not.
    pub fn location(&self, partition: i32, key: &CountKey) -> Option<(u16, String)> {
        let names = self.names.partition(partition)?;
        Some((names.slot(), String::from_utf8_lossy(&names.sketch(key)).into_owned()))
    }

    fn partition(&self, partition: i32) -> Result<Names<'_>, PortError> {
        self.names.require(self.client.server(), partition)
    }

    fn reader(&self, command: &'static str) -> Reader {
        Reader { server: self.client.server(), command }
    }
}

/// Asks where the partition stands.
fn ask_applied(names: &Names<'_>) -> Cmd {
    let mut command = Cmd::new();
    command.arg("HGET").arg(names.applied()).arg("offset");
    command
}

impl CountStore for RedisCounters {
    async fn applied(&self, partition: i32) -> Result<Option<i64>, PortError> {
        self.check_log().await?;
        self.wait_for_state(partition).await
    }

    async fn init(&self, partition: i32, durable: i64, whole_at: i64) -> Result<i64, PortError> {
        self.check_log().await?;
        self.init_at(partition, durable, whole_at).await
    }

    async fn lookup(&self, partition: i32, from: i64, keys: &[CountKey]) -> Result<CountLookup, PortError> {
        self.look_up(partition, from, keys).await
    }

    async fn apply(&self, partition: i32, batch: &Apply) -> Result<ApplyOutcome, PortError> {
        self.apply_batch(partition, batch).await
    }

    async fn begin(&self, partition: i32) -> Result<Option<Dirty>, PortError> {
        self.list_dirty(partition).await
    }

    async fn read_sketches(
        &self,
        partition: i32,
        applied: i64,
        keys: &[CountKey],
    ) -> Result<Option<Vec<SketchRead>>, PortError> {
        self.read_dirty_sketches(partition, applied, keys).await
    }

    async fn read_numbers(
        &self,
        partition: i32,
        applied: i64,
        keys: &[CountKey],
    ) -> Result<Option<Vec<NumberRead>>, PortError> {
        self.read_dirty_numbers(partition, applied, keys).await
    }

    async fn settle_sketches(
        &self,
        partition: i32,
        archived: &[(CountKey, i64)],
        ttl: Duration,
    ) -> Result<usize, PortError> {
        self.mark_sketches_clean(partition, archived, ttl).await
    }

    async fn settle_numbers(
        &self,
        partition: i32,
        archived: &[(CountKey, Number)],
    ) -> Result<usize, PortError> {
        self.mark_numbers_clean(partition, archived).await
    }

    async fn sweep_numbers(
        &self,
        partition: i32,
        cursor: u64,
        changed_before_s: u32,
    ) -> Result<(u64, usize), PortError> {
        self.sweep(partition, cursor, changed_before_s).await
    }

    async fn take_wanted(&self, partition: i32, at_most: usize) -> Result<Vec<CountKey>, PortError> {
        self.pop_wanted(partition, at_most).await
    }

    async fn mark_absent(&self, partition: i32, keys: &[CountKey], ttl: Duration) -> Result<(), PortError> {
        self.set_absent(partition, keys, ttl).await
    }

    async fn claim_round(&self, partition: i32, hold: Duration) -> Result<bool, PortError> {
        self.set_round(partition, hold).await
    }
}
