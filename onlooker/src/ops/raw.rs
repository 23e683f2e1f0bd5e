//! The log and the archive as they are, for commands that work with them elsewhere: questions that a running process
//! answers, and the other side, which asks them.

use super::at::fetch;
use super::{Ask as Question, Out, Sight};
use crate::carry::Rows;
use crate::run::Session;
use anyhow::{Context, Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use onlooker_event::CountKey;
use onlooker_ports::{Archived, Batch, BatchBuilder, Bounds, GroupView, LogObserver, PortError, Topic};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ops::Range;
use tokio::sync::mpsc;

/// A topic by role, on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Topic", rename_all = "snake_case")]
enum TopicRole {
    Views,
    Counted,
    Ignored,
    Dead,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "raw", rename_all = "snake_case")]
pub(crate) enum Ask {
    /// What the log is.
    About,
    Bounds {
        #[serde(with = "TopicRole")]
        topic: Topic,
    },
    OffsetsAt {
        #[serde(with = "TopicRole")]
        topic: Topic,
        ms: i64,
    },
    Read {
        #[serde(with = "TopicRole")]
        topic: Topic,
        ranges: Vec<(i32, Range<i64>)>,
    },
    /// How far `views` is judged, per partition.
    Judged,
    /// All rows of the archive.
    Rows,
}

#[derive(Debug, Serialize, Deserialize)]
struct About {
    generation: String,
    partitions: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Piece {
    partition: i32,
    /// Offset, append time, key and value in base64.
    records: Vec<(i64, i64, Option<String>, Option<String>)>,
}

/// Key; sketch and its offset; views and their offset.
type Row = (String, Option<(String, i64)>, Option<(u64, i64)>);

/// Records of one line.
const RECORDS: usize = 1_000;

pub(super) async fn answer<S: Sight>(sight: &S, ask: Ask, out: Out) -> Result<()> {
    match ask {
        Ask::About => {
            let about = About { generation: sight.generation().to_owned(), partitions: sight.partitions() };
            out.line(&about).await
        }
        Ask::Bounds { topic } => {
            let bounds = sight.log().bounds(topic).await?;
            let bounds: Vec<_> = bounds.iter().map(|b| (b.earliest, b.stable, b.end)).collect();
            out.line(&bounds).await
        }
        Ask::OffsetsAt { topic, ms } => out.line(&sight.log().offsets_at(topic, ms).await?).await,
        Ask::Read { topic, ranges } => {
            let (sink, mut batches) = mpsc::channel::<Batch>(2);
            let reading = async { Ok(sight.log().read(topic, &ranges, sink).await?) };
            let sending = async {
                while let Some(batch) = batches.recv().await {
                    let records: Vec<_> = batch.iter().collect();
                    for records in records.chunks(RECORDS) {
                        let text = |part: Option<&[u8]>| part.map(|bytes| BASE64.encode(bytes));
                        let record = |r: &onlooker_ports::RecordRef<'_>| {
                            (r.offset, r.append_ms, text(r.key), text(r.payload))
                        };
                        let records = records.iter().map(record).collect();
                        out.line(&Piece { partition: batch.partition, records }).await?;
                    }
                }
                anyhow::Ok(())
            };
            tokio::try_join!(reading, sending)?;
            Ok(())
        }
        Ask::Judged => out.line(&judged(sight).await?).await,
        Ask::Rows => {
            let (sink, mut rows) = mpsc::channel::<Rows>(2);
            let sending = async {
                while let Some(rows) = rows.recv().await {
                    let row = |(key, archived): (CountKey, Archived)| {
                        let sketch = archived.sketch.map(|(bytes, t)| (BASE64.encode(bytes), t));
                        (BASE64.encode(key.as_bytes()), sketch, archived.number)
                    };
                    let rows: Vec<Row> = rows.into_iter().map(row).collect();
                    out.line(&rows).await?;
                }
                Ok(())
            };
            tokio::try_join!(sight.scan(sink), sending)?;
            Ok(())
        }
    }
}

/// Per partition of `views`: the offset up to which the filter has judged; none: it never began.
async fn judged<S: Sight>(sight: &S) -> Result<Vec<Option<i64>>> {
    let group = sight.log().group(Topic::Views).await.context("the filters' group")?;
    let partitions = group.context("no group judges views")?.partitions;
    Ok(partitions.into_iter().map(|(committed, _)| Some(committed?.offset)).collect())
}

/// A running process's log and archive.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    session: Session,
    pub(crate) generation: String,
    pub(crate) partitions: u32,
}

impl Remote {
    pub(crate) async fn open(session: Session) -> Result<Self> {
        let about: About = one(&session, Ask::About).await?;
        Ok(Self { session, generation: about.generation, partitions: about.partitions })
    }

    pub(crate) async fn scan(&self, sink: mpsc::Sender<Rows>) -> Result<()> {
        self.each(Ask::Rows, rows, sink).await
    }

    /// Asks for what is one line.
    pub(super) async fn ask<T: for<'a> Deserialize<'a>>(&self, question: Question) -> Result<T> {
        one_line(&self.session, &question).await
    }

    /// Asks, and hands on what each line says.
    async fn each<T: Send>(
        &self,
        ask: Ask,
        read: fn(Value) -> Result<T>,
        sink: mpsc::Sender<T>,
    ) -> Result<()> {
        let (out, mut lines) = mpsc::channel(8);
        let question = Question::Raw(ask);
        let taking = async {
            while let Some(line) = lines.recv().await {
                let sent = sink.send(read(line)?).await;
                sent.map_err(|_| anyhow!("nobody takes the answer any more"))?;
            }
            Ok(())
        };
        tokio::try_join!(fetch(&self.session, &question, Out(out)), taking)?;
        Ok(())
    }
}

async fn one<T: for<'a> Deserialize<'a>>(session: &Session, ask: Ask) -> Result<T> {
    one_line(session, &Question::Raw(ask)).await
}

/// Asks for what is one line.
async fn one_line<T: for<'a> Deserialize<'a>>(session: &Session, question: &Question) -> Result<T> {
    let (sink, mut lines) = mpsc::channel(8);
    let taking = async {
        let mut last = None;
        while let Some(line) = lines.recv().await {
            last = Some(line);
        }
        Ok(last)
    };
    let ((), last) = tokio::try_join!(fetch(session, question, Out(sink)), taking)?;
    Ok(serde_json::from_value(last.context("an empty answer")?)?)
}

fn bytes(text: &str) -> Result<Bytes> {
    Ok(Bytes::from(BASE64.decode(text)?))
}

fn rows(line: Value) -> Result<Rows> {
    let rows: Vec<Row> = serde_json::from_value(line)?;
    let row = |(key, sketch, number): Row| {
        let sketch = sketch.map(|(blob, t)| anyhow::Ok((bytes(&blob)?, t))).transpose()?;
        let key = CountKey::parse(bytes(&key)?).map_err(|error| anyhow!(error))?;
        anyhow::Ok((key, Archived { sketch, number }))
    };
    rows.into_iter().map(row).collect()
}

fn batch(line: Value) -> Result<Batch> {
    let piece: Piece = serde_json::from_value(line)?;
    let mut batch = BatchBuilder::new(piece.partition);
    let part = |text: Option<String>| text.map(|text| bytes(&text)).transpose();
    for (offset, append_ms, key, payload) in piece.records {
        batch.push(offset, append_ms, part(key)?.as_deref(), part(payload)?.as_deref());
    }
    Ok(batch.build())
}

fn port(error: anyhow::Error) -> PortError {
    PortError::Failed { server: "the running process", detail: format!("{error:#}") }
}

impl LogObserver for Remote {
    async fn bounds(&self, topic: Topic) -> Result<Vec<Bounds>, PortError> {
        let bounds: Vec<(i64, i64, i64)> = one(&self.session, Ask::Bounds { topic }).await.map_err(port)?;
        Ok(bounds.into_iter().map(|(earliest, stable, end)| Bounds { earliest, stable, end }).collect())
    }

    async fn offsets_at(&self, topic: Topic, ms: i64) -> Result<Vec<i64>, PortError> {
        one(&self.session, Ask::OffsetsAt { topic, ms }).await.map_err(port)
    }

    async fn read(
        &self,
        topic: Topic,
        ranges: &[(i32, Range<i64>)],
        sink: mpsc::Sender<Batch>,
    ) -> Result<(), PortError> {
        let ask = Ask::Read { topic, ranges: ranges.to_vec() };
        match self.each(ask, batch, sink.clone()).await {
            // Whoever asked has seen enough.
            Err(_) if sink.is_closed() => Ok(()),
            outcome => outcome.map_err(port),
        }
    }

    async fn group(&self, _topic: Topic) -> Result<Option<GroupView>, PortError> {
        // What is read here is the log alone.
        Ok(None)
    }
}

/// A system's log and archive, wherever they are.
pub(crate) enum Source<S> {
    /// Within reach of this process.
    Here(S),
    /// In another process.
    There(Remote),
}

impl<S: Sight> Source<S> {
    pub(crate) fn generation(&self) -> &str {
        match self {
            Source::Here(sight) => sight.generation(),
            Source::There(remote) => &remote.generation,
        }
    }

    pub(crate) fn partitions(&self) -> u32 {
        match self {
            Source::Here(sight) => sight.partitions(),
            Source::There(remote) => remote.partitions,
        }
    }

    pub(crate) async fn judged(&self) -> Result<Vec<Option<i64>>> {
        match self {
            Source::Here(sight) => judged(sight).await,
            Source::There(remote) => one(&remote.session, Ask::Judged).await,
        }
    }

    pub(crate) async fn scan(&self, sink: mpsc::Sender<Rows>) -> Result<()> {
        match self {
            Source::Here(sight) => sight.scan(sink).await,
            Source::There(remote) => remote.scan(sink).await,
        }
    }
}

impl<S: Sight> LogObserver for Source<S> {
    async fn bounds(&self, topic: Topic) -> Result<Vec<Bounds>, PortError> {
        match self {
            Source::Here(sight) => sight.log().bounds(topic).await,
            Source::There(remote) => remote.bounds(topic).await,
        }
    }

    async fn offsets_at(&self, topic: Topic, ms: i64) -> Result<Vec<i64>, PortError> {
        match self {
            Source::Here(sight) => sight.log().offsets_at(topic, ms).await,
            Source::There(remote) => remote.offsets_at(topic, ms).await,
        }
    }

    async fn read(
        &self,
        topic: Topic,
        ranges: &[(i32, Range<i64>)],
        sink: mpsc::Sender<Batch>,
    ) -> Result<(), PortError> {
        match self {
            Source::Here(sight) => sight.log().read(topic, ranges, sink).await,
            Source::There(remote) => remote.read(topic, ranges, sink).await,
        }
    }

    async fn group(&self, topic: Topic) -> Result<Option<GroupView>, PortError> {
        match self {
            Source::Here(sight) => sight.log().group(topic).await,
            Source::There(remote) => remote.group(topic).await,
        }
    }
}
