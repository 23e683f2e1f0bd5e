//! A log's folder: opened, looked at, closed.

use super::append::{EmbeddedTransactor, EmbeddedWriter};
use super::config::{Kind, LogConfig};
use super::encode::{Encoded, Mark};
use super::error::{OpenError, failed};
use super::files::{Disk, FileLayer};
use super::folder::{COMPLETE, first_segment, is_complete, leave_out, make_complete, new_id, raise_starts};
use super::format::{FORGOTTEN, LOG_START};
use super::groups::Groups;
use super::history::EmbeddedHistory;
use super::journal::{Journal, State};
use super::metrics::JournalMetrics;
use super::observer::EmbeddedObserver;
use super::reader::{EmbeddedReader, port_error};
use super::recover::{Recovered, TornTail, recover};
use super::shared::Shared;
use super::writer::Writer;
use onlooker_ports::{Committed, OutgoingBatch, PortError, Topic};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

const LOCK: &str = "lock";
/// More would make every entry's bookkeeping larger than its records.
const MOST_PARTITIONS: u32 = 4_096;

/// What opening a folder found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenReport {
    /// Names this log for ever: another log in the same place, with offsets that mean other records, has another.
    pub id: u64,
    /// True if there was none.
    pub created: bool,
    /// What the last crash left behind, now cut off.
    pub torn: Vec<TornTail>,
    /// Segments that had no usable index and were read.
    pub indexed_anew: usize,
    /// True if a group had read further than the log now goes: its newest records were lost, which only
    /// `durability = "process"` and a loss of power explain, or files from an older copy. Their offsets are left out.
    pub left_out: bool,
    /// Bytes of all files.
    pub bytes: u64,
}

/// An open log. One value per folder; a second one, in this process or another, is refused.
///
/// Dropping it closes it, and waits for what is being written.
#[derive(Debug)]
pub struct EmbeddedLog<F: FileLayer = Disk> {
    shared: Arc<Shared<F>>,
    id: u64,
    threads: Mutex<Vec<JoinHandle<()>>>,
    lock: Mutex<Option<F::Lock>>,
}

impl EmbeddedLog<Disk> {
    /// Whether a log was made in the folder.
    pub fn is_in(dir: &Path) -> bool {
        dir.join(COMPLETE).exists()
    }

    /// Opens the log in a folder, or makes it.
    ///
    /// # Errors
    /// [`OpenError`]; no record in the folder was touched.
    pub fn open(dir: &Path, partitions: u32, config: LogConfig) -> Result<(Self, OpenReport), OpenError> {
        Self::open_on(Disk, dir, partitions, config)
    }
}

impl<F: FileLayer> EmbeddedLog<F> {
    /// Opens the log on another file layer.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_on(
        files: F,
        dir: &Path,
        partitions: u32,
        config: LogConfig,
    ) -> Result<(Self, OpenReport), OpenError> {
        if let Some((key, problem)) = config.faults().into_iter().next() {
            return Err(OpenError::Config { key, problem });
        }
        if !(1..=MOST_PARTITIONS).contains(&partitions) {
            return Err(OpenError::Config { key: "partitions", problem: "must be between 1 and 4096" });
        }
        files.create_dir(dir).map_err(OpenError::io(dir))?;
        let lock = files.lock(&dir.join(LOCK)).map_err(OpenError::io(dir))?;
        let lock = lock.ok_or_else(|| OpenError::Locked(dir.to_owned()))?;
        let complete = is_complete(&files, dir)?;
        let mut found = Vec::new();
        for kind in Kind::ALL.iter().copied() {
            let of_kind = dir.join(kind.name());
            files.create_dir(&of_kind).map_err(OpenError::io(&of_kind))?;
            let recovered = recover(&files, &of_kind, kind, partitions)?;
            if recovered.is_none() && complete {
                return Err(OpenError::damaged(&of_kind, 0, "the journal is missing"));
            }
            found.push(recovered);
        }
        let created = found.iter().all(Option::is_none);
        let ids: Vec<u64> = found.iter().flatten().map(|recovered| recovered.folder).collect();
        let id = ids.first().copied().unwrap_or_else(|| new_id(&files));
        if ids.iter().any(|other| *other != id) {
            return Err(OpenError::damaged(dir, 0, "its journals belong to different folders"));
        }
        let groups = Arc::new(Groups::new(partitions));
        let mut journals = Vec::new();
        let mut report =
            OpenReport { id, created, torn: Vec::new(), indexed_anew: 0, left_out: false, bytes: 0 };
        for (kind, recovered) in Kind::ALL.iter().copied().zip(found) {
            let of_kind = dir.join(kind.name());
            let recovered = match recovered {
                Some(recovered) => recovered,
                None => {
                    first_segment(&files, &of_kind, kind, partitions, id).map_err(OpenError::io(&of_kind))?
                }
            };
            let Recovered { segments, ends, positions, torn, indexed_anew, .. } = recovered;
            groups.apply(positions, true);
            let state = State::new(segments, &ends);
            report.torn.extend(torn);
            report.indexed_anew += indexed_anew;
            report.bytes += state.size();
            let (files, groups) = (files.clone(), Arc::clone(&groups));
            let metrics = JournalMetrics::register();
            metrics.size.get(kind).set(state.size() as f64);
            journals.push(Arc::new(Journal::new(
                kind,
                of_kind,
                files,
                partitions,
                id,
                config.clone(),
                groups,
                metrics,
                state,
            )));
        }
        if !complete {
            make_complete(&files, dir).map_err(OpenError::io(dir))?;
        }
        for torn in &report.torn {
            let (file, position, bytes) = (torn.path.display(), torn.position, torn.bytes);
            tracing::warn!(%file, position, bytes, "torn tail of the log was cut off; a crash leaves only what was not acknowledged there, damage could leave more");
        }
        let Ok(journals) = <[Arc<Journal<F>>; 2]>::try_from(journals) else {
            return Err(OpenError::damaged(dir, 0, "there are two journals"));
        };
        raise_starts(&journals, &groups, partitions);
        let mut threads = Vec::new();
        // Both can be opened, or none is started.
        let mut writers = [Writer::open(Arc::clone(&journals[0]))?, Writer::open(Arc::clone(&journals[1]))?];
        for writer in &mut writers {
            report.left_out |= leave_out(writer).map_err(OpenError::io(dir))?;
        }
        for writer in writers {
            let name = format!("log-{}", writer.journal.kind.name());
            let thread = std::thread::Builder::new().name(name).spawn(move || writer.run());
            threads.push(thread.map_err(OpenError::io(dir))?);
        }
        let shared = Arc::new(Shared::new(partitions, config, groups, journals));
        let log = Self { shared, id, threads: Mutex::new(threads), lock: Mutex::new(Some(lock)) };
        Ok((log, report))
    }

    /// Names this log for ever.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How many partitions each topic has.
    pub fn partitions(&self) -> u32 {
        self.shared.partitions
    }

    /// Appends.
    pub fn writer(&self) -> EmbeddedWriter<F> {
        EmbeddedWriter::new(Arc::clone(&self.shared))
    }

    /// A new member of a group.
    pub fn reader(&self, topic: Topic, group: &str) -> EmbeddedReader<F> {
        EmbeddedReader::new(Arc::clone(&self.shared), topic, group)
    }

    /// Appends verdicts together with positions of the topic `inputs`.
    pub fn transactor(&self, inputs: Topic) -> EmbeddedTransactor<F> {
        EmbeddedTransactor::new(Arc::clone(&self.shared), inputs)
    }

    /// Looks back at what was counted.
    pub fn history(&self) -> EmbeddedHistory<F> {
        EmbeddedHistory::new(Arc::clone(&self.shared))
    }

    /// Looks at the log from outside. These groups work on `views` and on `views.counted`.
    pub fn observer(&self, filter: &str, counter: &str) -> EmbeddedObserver<F> {
        EmbeddedObserver::new(Arc::clone(&self.shared), filter, counter)
    }

    /// Each partition's first offset and its end, as readers see them.
    pub fn bounds(&self, topic: Topic) -> Vec<(i64, i64)> {
        (0..self.shared.partitions).map(|partition| self.shared.bounds(topic, partition)).collect()
    }

    /// Each partition's end, as readers see it.
    pub fn ends(&self, topic: Topic) -> Vec<i64> {
        self.bounds(topic).into_iter().map(|(_, end)| end).collect()
    }

    /// What a group has committed, partition by partition.
    pub fn committed(&self, group: &str, topic: Topic) -> Vec<Option<Committed>> {
        (0..self.shared.partitions)
            .map(|partition| self.shared.groups.committed(topic, group, partition))
            .collect()
    }

    /// The groups that have committed a position.
    pub fn groups(&self) -> Vec<(Topic, String)> {
        self.shared.groups.names()
    }

    /// Forgets what a group has committed, so that it holds nothing back any more: for a group that will not come back.
    /// Should it come back, it is as if it had never been.
    ///
    /// # Errors
    /// Nothing was changed.
    pub async fn forget_group(&self, group: &str, topic: Topic) -> Result<(), PortError> {
        let positions =
            (0..self.shared.partitions).map(|partition| (partition, FORGOTTEN)).collect::<Vec<_>>();
        self.keep(group, topic, &positions).await
    }

    /// Shows no reader what stands below the offset; the space is free when retention removes the segment.
    ///
    /// # Errors
    /// Nothing was changed.
    pub async fn delete_before(&self, topic: Topic, partition: u32, offset: i64) -> Result<(), PortError> {
        if partition >= self.shared.partitions {
            return Err(failed(format!("there is no partition {partition}")));
        }
        let (start, end) = self.shared.bounds(topic, partition);
        self.keep(LOG_START, topic, &[(partition, offset.clamp(start, end))]).await?;
        raise_starts(&self.shared.journals, &self.shared.groups, self.shared.partitions);
        Ok(())
    }

    /// Makes partitions go on at these offsets if they have not got there: for whoever knows of records that the log
    /// has lost, so that their offsets are not given to others. Readers are told of what is missing.
    ///
    /// # Errors
    /// The disk is full or fails; nothing was changed.
    pub async fn raise_ends(&self, topic: Topic, offsets: &[(u32, i64)]) -> Result<(), PortError> {
        let journal = self.shared.journal(topic);
        let known = offsets.iter().filter(|(partition, _)| *partition < journal.partitions);
        let slot = |partition: u32| journal.kind.slot(topic, partition, journal.partitions);
        let floors = known.map(|(partition, offset)| (slot(*partition), *offset)).collect();
        journal.raise_ends(floors).await.map_err(port_error)
    }

    async fn keep(&self, group: &str, topic: Topic, positions: &[(u32, i64)]) -> Result<(), PortError> {
        let journal = self.shared.of(Kind::Verdicts);
        let mark = |(partition, offset): &(u32, i64)| Mark {
            group,
            topic,
            partition: *partition,
            offset: *offset,
            note: "",
        };
        let marks = positions.iter().map(mark);
        let encoded = Encoded::new(journal.kind, journal.partitions, &OutgoingBatch::default(), marks, 0);
        journal.submit(encoded, None, true).await.map_err(port_error)
    }

    /// Takes no more, writes and syncs what waits, and frees the folder.
    pub async fn close(self) {
        let closing = tokio::task::spawn_blocking(move || drop(self));
        if let Err(error) = closing.await {
            tracing::error!(%error, "log was not closed in good order");
        }
    }
}

impl<F: FileLayer> Drop for EmbeddedLog<F> {
    fn drop(&mut self) {
        self.shared.journals.iter().for_each(|journal| journal.queue.close());
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a journal's thread panicked");
            }
        }
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
