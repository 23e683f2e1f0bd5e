//! The archive on Cassandra or ScyllaDB.

use crate::config::{ConfigError, ScyllaConfig};
use crate::error::{failed, from_execution, misconfigured};
use crate::rows::{self, CellRow};
use crate::session::{Link, Live};
use futures::StreamExt;
use onlooker_event::CountKey;
use onlooker_ports::{Archive, ArchiveCell, Archived, PortError};
use scylla::errors::ExecutionError;
use scylla::response::query_result::QueryResult;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::statement::batch::{Batch, BatchStatement, BatchType};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Where a scan goes on.
#[derive(Debug, Clone)]
pub struct ScanPage(PagingState);

/// Sketches and numbers of one log, in two tables. Clones share the session.
///
/// Made without a connection: the first call connects, and fails as `Unavailable` while no node answers.
#[derive(Clone)]
pub struct ScyllaArchive {
    link: Arc<Link>,
    log: Arc<str>,
    in_flight: Arc<Semaphore>,
    at_once: usize,
}

impl ScyllaArchive {
    /// An archive of the log generation `log`, whose rows no other generation shares.
    ///
    /// # Errors
    /// A value of the configuration cannot work, or a file of its TLS section cannot be read.
    pub fn new(config: &ScyllaConfig, log: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            link: Link::new(config)?,
            log: log.into(),
            in_flight: Arc::new(Semaphore::new(config.max_in_flight)),
            at_once: config.max_in_flight,
        })
    }

    /// Connects now, unless there is a session.
    ///
    /// # Errors
    /// `Denied` for a wrong login or certificate, `Misconfigured` where tables or the data centre are missing,
    /// `Unavailable` while no node answers.
    pub async fn connect(&self) -> Result<(), PortError> {
        self.link.live().await.map(drop)
    }

    /// True while some node is connected, as far as the client knows without a round trip.
    pub fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// The clock of a node, milliseconds since 1970.
    ///
    /// # Errors
    /// As for a read.
    pub async fn clock_ms(&self) -> Result<i64, PortError> {
        let live = self.link.live().await?;
        let text = "SELECT toUnixTimestamp(now()) FROM system.local";
        let answer =
            live.session.query_unpaged(text, ()).await.map_err(|e| crate::error::from_execution(&e))?;
        let rows = answer.into_rows_result().map_err(failed)?;
        let (ms,) = rows.first_row::<(i64,)>().map_err(failed)?;
        Ok(ms)
    }

    /// Notes that this log is the topic with this id and so many partitions, or checks it where it was noted before.
    ///
    /// # Errors
    /// `Misconfigured` if the log was another topic: it was deleted and made again, or has other partitions now. Its
    /// offsets would then be mixed up with those of the old one.
    pub async fn claim_log(&self, topic_id: &str, partitions: u32) -> Result<(), PortError> {
        let partitions = i32::try_from(partitions).map_err(failed)?;
        let mut noted = self.read_log().await?;
        if noted.is_none() {
            let live = self.link.live().await?;
            let values = (&*self.log, topic_id, partitions);
            let claimed = live.session.execute_unpaged(&live.prepared.claim_log, values).await;
            if let Err(error) = claimed {
                // It may have been applied: the serial read below tells.
                tracing::warn!(%error, "claim of the log got no clear answer");
            }
            noted = self.read_log().await?;
        }
        match noted {
            None => Err(crate::error::unavailable("the claim of the log was not written")),
            Some(noted) => self.same_log(noted, topic_id, partitions),
        }
    }

    /// Checks what `claim_log` noted, and notes nothing.
    ///
    /// # Errors
    /// `Misconfigured` if the log was never noted, or was another topic.
    pub async fn check_log(&self, topic_id: &str, partitions: u32) -> Result<(), PortError> {
        let partitions = i32::try_from(partitions).map_err(failed)?;
        match self.read_log().await? {
            None => Err(misconfigured(format!(
                "nobody has noted which topic log {:?} is: run `onlooker schema apply`",
                &*self.log
            ))),
            Some(noted) => self.same_log(noted, topic_id, partitions),
        }
    }

    /// The id of the topic that this log is. None: nobody has noted it yet.
    ///
    /// # Errors
    /// As for a read.
    pub async fn topic_id(&self) -> Result<Option<String>, PortError> {
        Ok(self.read_log().await?.map(|(id, _)| id))
    }

    fn same_log(&self, noted: (String, i32), topic_id: &str, partitions: i32) -> Result<(), PortError> {
        match noted {
            (id, count) if id == topic_id && count == partitions => Ok(()),
            (id, count) => Err(misconfigured(format!(
                "log {:?} is topic {id} with {count} partitions, and Kafka now has topic {topic_id} with {partitions}: \
                 give the new topic a log name of its own",
                &*self.log
            ))),
        }
    }

    /// The log's rows, a page at a time, in no order. `from`: what came with the page before; the first begins without.
    /// None comes with the last page, which may be empty, as may others. A page sees rows of its own moment.
    ///
    /// # Errors
    /// As for a read; the page may be asked for again.
    pub async fn scan(
        &self,
        from: Option<ScanPage>,
    ) -> Result<(Vec<(CountKey, Archived)>, Option<ScanPage>), PortError> {
        let live = self.link.live().await?;
        let state = from.map_or_else(PagingState::start, |page| page.0);
        let answer = live.session.execute_single_page(&live.prepared.scan, (), state).await;
        let (result, next) = answer.map_err(|error| self.link.note(&live, from_execution(&error)))?;
        let next = match next {
            PagingStateResponse::HasMorePages { state } => Some(ScanPage(state)),
            PagingStateResponse::NoMorePages => None,
        };
        Ok((rows::of_log(result, &self.log)?, next))
    }

    async fn read_log(&self) -> Result<Option<(String, i32)>, PortError> {
        let live = self.link.live().await?;
        let answer = live.session.execute_unpaged(&live.prepared.read_log, (&*self.log,)).await;
        rows::first::<(String, i32)>(self.answer(&live, answer)?)
    }

    fn answer(
        &self,
        live: &Live,
        answer: Result<QueryResult, ExecutionError>,
    ) -> Result<QueryResult, PortError> {
        answer.map_err(|error| self.link.note(live, from_execution(&error)))
    }

    /// Reads the rows of one group.
    async fn read_group(&self, group: &rows::Group<'_>) -> Result<QueryResult, PortError> {
        let _permit = self.in_flight.acquire().await.map_err(failed)?;
        let live = self.link.live().await?;
        let (session, prepared) = (&live.session, &live.prepared);
        let answer = match group.items.as_slice() {
            [item] => session.execute_unpaged(&prepared.read_one, (item, &group.scopes, &*self.log)).await,
            items => session.execute_unpaged(&prepared.read_many, (items, &group.scopes, &*self.log)).await,
        };
        self.answer(&live, answer)
    }

    /// Writes cells in one request: one statement, or one unlogged batch. If it fails, some may have been written.
    async fn write_batch(&self, cells: &[ArchiveCell]) -> Result<(), PortError> {
        let _permit = self.in_flight.acquire().await.map_err(failed)?;
        let live = self.link.live().await?;
        let statement = |row: &CellRow<'_>| match row {
            CellRow::Sketch(_) => &live.prepared.write_sketch,
            CellRow::Number(_) => &live.prepared.write_number,
        };
        let rows = cells.iter().map(|cell| CellRow::new(cell, &self.log)).collect::<Result<Vec<_>, _>>()?;
        let answer = match rows.as_slice() {
            [row] => live.session.execute_unpaged(statement(row), row).await,
            rows => {
                let statements = rows
                    .iter()
                    .map(|row| BatchStatement::PreparedStatement(statement(row).clone()))
                    .collect();
                let mut batch = Batch::new_with_statements(BatchType::Unlogged, statements);
                batch.set_is_idempotent(true);
                live.session.batch(&batch, rows).await
            }
        };
        self.answer(&live, answer).map(drop)
    }
}

impl Archive for ScyllaArchive {
    async fn read(&self, keys: &[CountKey]) -> Result<Vec<Archived>, PortError> {
        let mut found: HashMap<Vec<u8>, Archived> = HashMap::with_capacity(keys.len());
        let groups = rows::groups(keys);
        // Made one by one, as places get free: a request's future takes kilobytes.
        let reads = (0..groups.len()).map(|i| self.read_group(&groups[i]));
        let mut answers = futures::stream::iter(reads).buffer_unordered(self.at_once);
        while let Some(answer) = answers.next().await {
            rows::collect(answer?, &mut found)?;
        }
        Ok(keys.iter().map(|key| found.get(key.as_bytes()).cloned().unwrap_or_default()).collect())
    }

    async fn write(&self, cells: &[ArchiveCell]) -> Vec<Result<(), PortError>> {
        let batches = rows::batches(cells);
        let writes = (0..batches.len()).map(|i| self.write_batch(&cells[batches[i].clone()]));
        let written: Vec<_> = futures::stream::iter(writes).buffered(self.at_once).collect().await;
        batches
            .into_iter()
            .zip(written)
            .flat_map(|(batch, result)| batch.map(move |_| result.clone()))
            .collect()
    }

    async fn durable(&self, partition: i32) -> Result<Option<i64>, PortError> {
        let live = self.link.live().await?;
        let answer = live.session.execute_unpaged(&live.prepared.read_durable, (&*self.log, partition)).await;
        Ok(rows::first::<(i64,)>(self.answer(&live, answer)?)?.map(|(offset,)| offset))
    }

    async fn set_durable(&self, partition: i32, offset: i64) -> Result<(), PortError> {
        let live = self.link.live().await?;
        let values = (&*self.log, partition, offset, offset.saturating_add(1));
        let answer = live.session.execute_unpaged(&live.prepared.write_durable, values).await;
        self.answer(&live, answer).map(drop)
    }
}
