//! One folder on this machine's disk, and nothing else.

use crate::carry::{Mark, Place, Rows};
use crate::ops::{Finding, JudgedBy, Sight};
use anyhow::{Context, Result, bail};
use onlooker_counter::CounterPorts;
use onlooker_embedded::log::files::Disk;
use onlooker_embedded::log::{
    Durability, EmbeddedHistory, EmbeddedLog, EmbeddedObserver, EmbeddedReader, EmbeddedTransactor,
    EmbeddedWriter, LogConfig,
};
use onlooker_embedded::store::{Folder, FolderError, MemoryCounts, MemoryDedup, RedbArchive};
use onlooker_event::CountKey;
use onlooker_filter::FilterPorts;
use onlooker_flusher::FlusherPorts;
use onlooker_ports::{Archived, GroupReader, Position, Topic};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

const FILTER: &str = "filter";
const COUNTER: &str = "counter";
/// Rows that are read at once when all are.
const SCAN_ROWS: usize = 1_000;

/// `[embedded]`: the folder of a process that is everything at once.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EmbeddedConfig {
    /// The folder.
    pub(crate) dir: PathBuf,
    /// Partitions of the log; fixed when the folder is made. About as many as cores.
    pub(crate) partitions: u32,
    /// Bytes that sketches and numbers may take in memory. Besides these, `dedup_bytes` and `archive_cache_bytes` the
    /// process takes up to 320 MiB: what it remembers of hot and of known items, the log's newest records, requests
    /// under way. (150 MiB were measured with a limit of 1 MiB and ten times as many counts.)
    pub(crate) counts_bytes: usize,
    /// Bytes that the filter's memory of the last hours may take.
    pub(crate) dedup_bytes: usize,
    /// Bytes of the archive that are kept in memory.
    pub(crate) archive_cache_bytes: usize,
    /// How the log is kept.
    pub(crate) log: LogConfig,
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        Self {
            dir: "onlooker-data".into(),
            partitions: 2,
            counts_bytes: 256 << 20,
            dedup_bytes: 512 << 20,
            archive_cache_bytes: 16 << 20,
            log: LogConfig::default(),
        }
    }
}

impl EmbeddedConfig {
    /// Everything that is wrong with it, as (key, problem).
    pub(crate) fn faults(&self) -> Vec<(String, String)> {
        let mut faults: Vec<(String, String)> = Vec::new();
        let mut check = |good: bool, key: &str, problem: &str| {
            if !good {
                faults.push((key.to_owned(), problem.to_owned()));
            }
        };
        check(!self.dir.as_os_str().is_empty(), "dir", "is empty");
        check((1..=256).contains(&self.partitions), "partitions", "must be between 1 and 256");
        check(self.counts_bytes >= 1 << 20, "counts_bytes", "must be at least 1048576");
        check(self.dedup_bytes >= 1 << 20, "dedup_bytes", "must be at least 1048576");
        let log = self.log.faults().into_iter();
        faults.extend(log.map(|(key, problem)| (format!("log.{key}"), problem.to_owned())));
        faults
    }
}

type FilterSide =
    FilterPorts<EmbeddedReader<Disk>, EmbeddedTransactor<Disk>, EmbeddedHistory<Disk>, MemoryDedup>;

/// Who has a folder open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    Nobody,
    /// A process, with its id where that can be read.
    Process(Option<u32>),
}

/// Who has the folder open.
pub(crate) fn holder(folder: &Path) -> Result<Holder> {
    match Folder::open(folder) {
        Ok(_) => Ok(Holder::Nobody),
        Err(FolderError::Locked { pid, .. }) => Ok(Holder::Process(pid)),
        Err(error) => Err(error.into()),
    }
}

/// An open folder with everything in it.
pub(crate) struct Store {
    folder: Folder,
    log: Arc<EmbeddedLog>,
    dedup: Option<MemoryDedup>,
    counts: MemoryCounts,
    archive: Arc<RedbArchive>,
    partitions: u32,
    created: bool,
    generation: String,
    durability: Durability,
}

impl Store {
    /// Opens the folder, or makes it; says in log lines what the last crash left behind.
    pub(crate) async fn open(config: &EmbeddedConfig) -> Result<Self> {
        let config = config.clone();
        let opening = tokio::task::spawn_blocking(move || Self::open_here(&config));
        let store = opening.await.context("opening ended early")??;
        store.go_on().await?;
        store.begin().await?;
        Ok(store)
    }

    fn open_here(config: &EmbeddedConfig) -> Result<Self> {
        let folder = Folder::open(&config.dir)?;
        // The log is made first. Going on with another one would show all counts as nothing, and keep them out of sight.
        if folder.archive().exists() && !EmbeddedLog::is_in(&folder.log()?) {
            bail!("{} has an archive and no log: restore the folder from a backup", folder.path().display());
        }
        let (log, report) = EmbeddedLog::open(&folder.log()?, config.partitions, config.log.clone())?;
        for torn in &report.torn {
            tracing::warn!(
                ?torn,
                "an append that is not whole was removed from the log's end; if it was a crash, it had not been acknowledged"
            );
        }
        let generation = format!("{:016x}", report.id);
        let archive = RedbArchive::open(&folder.archive(), &generation, config.archive_cache_bytes);
        let archive = archive.with_context(|| {
            format!(
                "{} cannot be opened: restore the folder from a backup; or move this file away, and counts are made again \
                 from what the log still has",
                folder.archive().display()
            )
        })?;
        Ok(Self {
            folder,
            log: Arc::new(log),
            dedup: Some(MemoryDedup::new(config.partitions, config.dedup_bytes)),
            counts: MemoryCounts::new(config.partitions, config.counts_bytes),
            archive: Arc::new(archive),
            partitions: config.partitions,
            created: report.created,
            generation,
            durability: config.log.durability,
        })
    }

    /// With `durability = "process"` a loss of power may leave less of the log than what is archived was counted from.
    /// Those offsets are not given to other records, which would be taken for counted.
    async fn go_on(&self) -> Result<()> {
        let durable = self.archive.all_durable().await?;
        let ends: Vec<(u32, i64)> =
            durable.iter().filter_map(|(p, offset)| Some((u32::try_from(*p).ok()?, *offset))).collect();
        Ok(self.log.raise_ends(Topic::Counted, &ends).await?)
    }

    /// Lets the filter begin at the beginning, once: a filter refuses to guess where it is.
    async fn begin(&self) -> Result<()> {
        let committed = self.log.committed(FILTER, Topic::Views);
        if committed.iter().all(Option::is_some) {
            return Ok(());
        }
        let verdicts = [Topic::Counted, Topic::Ignored, Topic::Dead];
        if !verdicts.iter().all(|topic| self.log.ends(*topic).iter().all(|end| *end == 0)) {
            bail!(
                "the log has verdicts and does not say which views they are on: restore the folder from a backup"
            );
        }
        let missing = (0..).zip(&committed).filter(|(_, committed)| committed.is_none());
        let start = |(partition, _)| Position { partition, offset: 0, note: String::new() };
        let positions: Vec<Position> = missing.map(start).collect();
        let mut reader = self.log.reader(Topic::Views, FILTER);
        reader.commit(&positions).await?;
        reader.close(Duration::from_secs(1)).await;
        Ok(())
    }

    /// Lets the filter begin where it is told instead.
    pub(crate) async fn judge_from(&self, positions: &[Position]) -> Result<()> {
        let mut reader = self.log.reader(Topic::Views, FILTER);
        reader.commit(positions).await?;
        reader.close(Duration::from_secs(1)).await;
        Ok(())
    }

    /// Per partition of `views`: up to where it is judged.
    pub(crate) fn judged(&self) -> Vec<Option<i64>> {
        let committed = self.log.committed(FILTER, Topic::Views);
        committed.into_iter().map(|committed| Some(committed?.offset)).collect()
    }

    /// Per partition of `views.counted`: up to where it is counted.
    pub(crate) async fn counted(&self) -> Result<Vec<Option<i64>>> {
        use onlooker_ports::CountReader;
        let partitions: Vec<i32> = (0..).take(self.partitions as usize).collect();
        let states = self.counts.states(&partitions).await?;
        Ok(states.into_iter().map(|state| Some(state?.applied)).collect())
    }

    /// Offsets that are counted and not archived; of the log's own verdicts also those that are not counted yet.
    pub(crate) async fn unarchived(&self, own: bool) -> Result<i64> {
        use onlooker_ports::Archive;
        let ends = self.log.ends(Topic::Counted);
        let mut rest = 0;
        for ((partition, counted), end) in (0..).zip(self.counted().await?).zip(ends) {
            let to = if own { end } else { counted.unwrap_or(0) };
            rest += (to - self.archive.durable(partition).await?.unwrap_or(0)).max(0);
        }
        Ok(rest)
    }

    /// True if there was no log in the folder.
    pub(crate) fn created(&self) -> bool {
        self.created
    }

    /// The folder's path.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The collector's log.
    pub(crate) fn collector_log(&self) -> EmbeddedWriter<Disk> {
        self.log.writer()
    }

    /// The filter's ports; once.
    pub(crate) fn filter_ports(&mut self) -> Result<FilterSide> {
        Ok(FilterPorts {
            reader: self.log.reader(Topic::Views, FILTER),
            transactor: self.log.transactor(Topic::Views),
            history: self.log.history(),
            dedup: self.dedup.take().context("there is one filter")?,
        })
    }

    /// The counter's ports.
    pub(crate) fn counter_ports(
        &self,
    ) -> CounterPorts<EmbeddedReader<Disk>, MemoryCounts, Arc<RedbArchive>, EmbeddedWriter<Disk>> {
        CounterPorts {
            reader: self.log.reader(Topic::Counted, COUNTER),
            counts: self.counts.clone(),
            archive: Arc::clone(&self.archive),
            dead: self.log.writer(),
        }
    }

    /// The flusher's ports.
    pub(crate) fn flusher_ports(&self) -> FlusherPorts<MemoryCounts, Arc<RedbArchive>> {
        FlusherPorts {
            counts: self.counts.clone(),
            archive: Arc::clone(&self.archive),
            partitions: self.partitions,
            hurry: Some(self.counts.refusing()),
        }
    }

    /// The counts API's port.
    pub(crate) fn counts_reader(&self) -> MemoryCounts {
        self.counts.clone()
    }

    /// How many views wait to be judged, and verdicts to be counted.
    pub(crate) async fn behind(&self) -> Result<(i64, i64)> {
        behind(&self.log, &self.counts).await
    }

    /// What counts are exported from, and history is put into.
    pub(crate) fn place(&self) -> FolderPlace {
        FolderPlace {
            path: self.folder.path().to_owned(),
            generation: self.generation.clone(),
            log: Arc::clone(&self.log),
            history: self.log.history(),
            writer: self.log.writer(),
            archive: Arc::clone(&self.archive),
            counts: self.counts.clone(),
        }
    }

    /// What an operator asks.
    pub(crate) fn sight(&self) -> FolderSight {
        FolderSight {
            durability: self.durability,
            path: self.folder.path().to_owned(),
            generation: self.generation.clone(),
            partitions: self.partitions,
            log: self.log.observer(FILTER, COUNTER),
            writer: self.log.writer(),
            archive: Arc::clone(&self.archive),
            counts: self.counts.clone(),
        }
    }

    /// Writes and syncs what waits, and frees the folder.
    pub(crate) async fn close(self) {
        // Whoever else holds it lets go with the process.
        if let Some(log) = Arc::into_inner(self.log) {
            log.close().await;
        }
    }
}

/// A folder, as counts are carried from it and into it.
pub(crate) struct FolderPlace {
    path: PathBuf,
    generation: String,
    log: Arc<EmbeddedLog>,
    history: EmbeddedHistory<Disk>,
    writer: EmbeddedWriter<Disk>,
    archive: Arc<RedbArchive>,
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "asked when a folder moves"))]
    counts: MemoryCounts,
}

/// All rows of a folder that no process has open. Changes nothing.
pub(crate) async fn rows(folder: &Path, config: EmbeddedConfig) -> Result<BTreeMap<CountKey, Archived>> {
    let path = folder.to_owned();
    let opening = tokio::task::spawn_blocking(move || {
        let folder = Folder::open(&path)?;
        if !EmbeddedLog::is_in(&folder.log()?) {
            bail!("{} has no log", path.display());
        }
        let (log, report) = EmbeddedLog::open(&folder.log()?, config.partitions, config.log)?;
        let generation = format!("{:016x}", report.id);
        let archive = RedbArchive::open(&folder.archive(), &generation, config.archive_cache_bytes);
        Ok((archive.with_context(|| format!("{} cannot be opened", folder.archive().display()))?, log))
    });
    let (archive, log) = opening.await.context("opening ended early")??;
    let (sink, mut batches) = mpsc::channel::<Rows>(4);
    let collecting = async {
        let mut rows = BTreeMap::new();
        while let Some(batch) = batches.recv().await {
            rows.extend(batch);
        }
        Ok(rows)
    };
    let (_, rows) = tokio::try_join!(scan(&archive, sink), collecting)?;
    log.close().await;
    Ok(rows)
}

/// What has not got through a folder's rooms yet.
#[cfg(feature = "cluster")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    /// To be judged.
    pub(crate) views: i64,
    /// To be counted.
    pub(crate) verdicts: i64,
    /// Offsets of verdicts that are not durable yet.
    pub(crate) unarchived: i64,
}

#[cfg(feature = "cluster")]
impl FolderPlace {
    /// Ends when every view that was handed to the log by now is in it.
    pub(crate) async fn taken(&self) -> Result<()> {
        Ok(self.log.raise_ends(Topic::Views, &[]).await?)
    }

    /// Looks at each room in the order in which a view walks.
    pub(crate) async fn waits(&self) -> Result<Waits> {
        use onlooker_ports::Archive;
        let (views, verdicts) = behind(&self.log, &self.counts).await?;
        let mut unarchived = 0;
        for (partition, end) in (0..).zip(self.log.ends(Topic::Counted)) {
            unarchived += end - self.archive.durable(partition).await?.unwrap_or(0);
        }
        Ok(Waits { views, verdicts, unarchived })
    }
}

async fn behind(log: &EmbeddedLog, counts: &MemoryCounts) -> Result<(i64, i64)> {
    use onlooker_ports::CountReader;
    let judged = log.committed(FILTER, Topic::Views);
    let views = log.ends(Topic::Views).into_iter().zip(judged);
    let views = views.map(|(end, judged)| end - judged.map_or(0, |judged| judged.offset)).sum();
    let partitions: Vec<i32> = (0..).take(log.partitions() as usize).collect();
    let applied = counts.states(&partitions).await?;
    let counted = log.ends(Topic::Counted).into_iter().zip(applied);
    let counted = counted.map(|(end, state)| end - state.map_or(0, |state| state.applied)).sum();
    Ok((views, counted))
}

/// A folder, as an operator looks at it.
pub(crate) struct FolderSight {
    pub(super) path: PathBuf,
    pub(super) durability: Durability,
    pub(super) generation: String,
    partitions: u32,
    log: EmbeddedObserver<Disk>,
    writer: EmbeddedWriter<Disk>,
    archive: Arc<RedbArchive>,
    counts: MemoryCounts,
}

impl Sight for FolderSight {
    type Log = EmbeddedObserver<Disk>;
    type Writer = EmbeddedWriter<Disk>;
    type Counts = MemoryCounts;
    type Archive = Arc<RedbArchive>;

    fn generation(&self) -> &str {
        &self.generation
    }

    fn partitions(&self) -> u32 {
        self.partitions
    }

    fn log(&self) -> &Self::Log {
        &self.log
    }

    fn writer(&self) -> Result<&EmbeddedWriter<Disk>> {
        Ok(&self.writer)
    }

    fn counts(&self) -> &MemoryCounts {
        &self.counts
    }

    fn archive(&self) -> &Self::Archive {
        &self.archive
    }

    fn topic(&self, topic: Topic) -> String {
        let name = match topic {
            Topic::Views => "views",
            Topic::Counted => "views.counted",
            Topic::Ignored => "views.ignored",
            Topic::Dead => "views.dead",
        };
        name.to_owned()
    }

    fn location(&self, _partition: i32, _key: &CountKey) -> Option<(u16, String)> {
        None
    }

    fn judged_by(&self) -> Result<JudgedBy> {
        crate::run::judged_by(&self.path)
    }

    async fn servers(&self) -> Vec<Finding> {
        super::folder_check::servers(self)
    }

    async fn settings(&self) -> Vec<Finding> {
        super::folder_check::settings(self)
    }

    async fn scan(&self, sink: mpsc::Sender<Rows>) -> Result<()> {
        scan(&self.archive, sink).await
    }
}

async fn scan(archive: &RedbArchive, sink: mpsc::Sender<Rows>) -> Result<()> {
    let mut after = None;
    loop {
        let rows = archive.scan(after.as_ref(), SCAN_ROWS).await?;
        let Some((last, _)) = rows.last() else { return Ok(()) };
        after = Some(last.clone());
        sink.send(rows).await.context("nobody takes the rows any more")?;
    }
}

impl Place for FolderPlace {
    type Archive = Arc<RedbArchive>;
    type History = EmbeddedHistory<Disk>;
    type Writer = EmbeddedWriter<Disk>;

    fn kind(&self) -> &'static str {
        "embedded"
    }

    fn generation(&self) -> &str {
        &self.generation
    }

    fn partitions(&self) -> u32 {
        self.log.partitions()
    }

    fn archive(&self) -> &Arc<RedbArchive> {
        &self.archive
    }

    fn history(&self) -> &EmbeddedHistory<Disk> {
        &self.history
    }

    fn writer(&self) -> &EmbeddedWriter<Disk> {
        &self.writer
    }

    async fn earliest(&self) -> Result<Vec<i64>> {
        Ok(self.log.bounds(Topic::Counted).into_iter().map(|(earliest, _)| earliest).collect())
    }

    async fn scan(&self, sink: mpsc::Sender<Rows>) -> Result<()> {
        scan(&self.archive, sink).await
    }

    async fn untouched(&self) -> Result<()> {
        // What the rooms remember lives in their process, and the folder is this one's.
        if self.log.ends(Topic::Views).iter().any(|end| *end > 0) {
            bail!("{} has taken views already: restore into a new folder", self.path.display());
        }
        Ok(())
    }

    async fn hold(&self) -> Result<()> {
        Mark::Restoring.write(&self.path)
    }

    async fn begin(&self, note: &str) -> Result<()> {
        let position = |partition| Position { partition, offset: 0, note: note.to_owned() };
        let positions: Vec<Position> = (0..).take(self.partitions() as usize).map(position).collect();
        let mut reader = self.log.reader(Topic::Views, FILTER);
        reader.commit(&positions).await?;
        reader.close(Duration::from_secs(1)).await;
        // A position is synced with the next entry that is; this one changes nothing.
        self.log.delete_before(Topic::Counted, 0, 0).await?;
        Mark::remove(&self.path)
    }
}
