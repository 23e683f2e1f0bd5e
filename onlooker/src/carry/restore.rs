//! `onlooker restore`: history and claims into a log that has counted nothing yet.

use super::format::{About, Row};
use super::read::Part;
use super::source::Source;
use super::{Place, Rows};
use crate::config::Config;
use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use onlooker_event::{ItemKey, partition_of};
use onlooker_filter::heart::Note;
use onlooker_ports::{Archive, ArchiveCell, Archived, LogWriter, OutgoingBatch, Topic, VerdictHistory};
use onlooker_proto::{CARRIED_OVER, decode_counted, encode_counted};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use tokio::sync::mpsc;

/// Restores an export into a folder or a cluster that has counted nothing yet
#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// The export; `-` for standard input
    file: PathBuf,
    /// The folder; made if it is not there (default: embedded.dir)
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Into the cluster that the configuration names
    #[cfg(feature = "cluster")]
    #[arg(long, conflicts_with = "dir")]
    cluster: bool,
    /// The old folder's identity.key, for a new folder: with another key every viewer is somebody new
    #[arg(long)]
    identity_key: Option<PathBuf>,
    /// Go on although viewers will be hashed with another key: every one of them counts anew
    #[arg(long)]
    other_identity: bool,
}

/// Runs the command.
pub(crate) async fn restore(args: RestoreArgs, mut config: Config) -> Result<()> {
    let file = Source::open(&args.file)?;
    let (file, about) = file.verify().await?;
    #[cfg(feature = "cluster")]
    if args.cluster {
        use crate::wiring::cluster::ClusterPlace;
        ensure!(args.identity_key.is_none(), "--identity-key is for a folder; a cluster's key is [identity]");
        check_identity(&about, config.identity.fingerprint(), args.other_identity)?;
        let place = ClusterPlace::open(&config).await?;
        return into(&place, &file, &about).await;
    }
    if let Some(dir) = args.dir {
        config.embedded.dir = dir;
    }
    use crate::wiring::embedded::Store;
    let store =
        Store::open(&config.embedded).await.context("is a process running over the folder? stop it first")?;
    let done = async {
        if let Some(key) = &args.identity_key {
            crate::run::adopt_identity(store.path(), key)?;
        }
        if !crate::run::has_identity(store.path(), &config) {
            // Before a key is made, which would be in the way of the right one.
            check_identity(&about, None, args.other_identity)?;
        }
        let identity = crate::run::identity(store.path(), &config)?;
        check_identity(&about, identity.fingerprint(), args.other_identity)?;
        into(&store.place(), &file, &about).await
    }
    .await;
    store.close().await;
    done
}

fn check_identity(about: &About, ours: Option<String>, other_is_fine: bool) -> Result<()> {
    match &about.identity {
        Some(theirs) if Some(theirs) != ours.as_ref() && !other_is_fine => bail!(
            "the export's viewers are hashed with another key, and each would count anew: for a folder give the old \
             folder's key with --identity-key, for a cluster set [identity] secret to it; or say --other-identity"
        ),
        _ => Ok(()),
    }
}

/// Writes everything, checking first; says what it did.
async fn into<P: Place>(place: &P, file: &Source, about: &About) -> Result<()> {
    let done = put(place, file).await?;
    place.begin(&note(about)).await?;
    eprintln!(
        "restored {} rows and {} claims ({} rows and {} claims were there already); counts go on from {}",
        done.rows,
        done.verdicts,
        done.rows_there,
        done.verdicts_there,
        super::export::moment(about)
    );
    Ok(())
}

/// What was written.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) rows: u64,
    pub(super) rows_there: u64,
    pub(super) verdicts: u64,
    pub(super) verdicts_there: u64,
}

type Hash = [u8; 16];

/// History that lies here already: of the same file, or the restore is refused.
struct There {
    rows: HashMap<Bytes, Hash>,
    verdicts: HashSet<Hash>,
}

/// Writes all that the file has; the filter's start is the caller's. May be repeated after a failure at any step.
pub(super) async fn put<P: Place>(place: &P, file: &Source) -> Result<Done> {
    place.untouched().await?;
    let there = look(place).await?;
    if !there.rows.is_empty() {
        same_export(&there, file).await?;
    }
    place.hold().await?;
    let mut done = Done::default();
    let mut parts = file.parts();
    while let Some(part) = parts.recv().await {
        match part? {
            Part::Rows(rows) => write_rows(place, rows, &there, &mut done).await?,
            Part::Verdicts(verdicts) => append(place, &verdicts, &there, &mut done).await?,
        }
    }
    place.untouched().await.context(
        "while history was written: stop the rooms, empty both Redis, and run the same command again",
    )?;
    Ok(done)
}

/// What the filter begins with: the slice of the claims.
pub(super) fn note(about: &About) -> String {
    let note = Note { slice: about.slice, slice_s: about.slice_s };
    if about.slice > 0 { note.write() } else { String::new() }
}

/// True if there is neither history nor a count.
#[cfg(feature = "cluster")]
pub(super) async fn is_empty<P: Place>(place: &P) -> Result<bool> {
    let there = look(place).await?;
    Ok(there.rows.is_empty() && there.verdicts.is_empty())
}

/// What is here. Fails if any of it was counted here.
async fn look<P: Place>(place: &P) -> Result<There> {
    let counted = || {
        anyhow!(
            "log {} has counted views already: history can be put only below a log's first record. Restore into a new \
             folder or log generation",
            place.generation()
        )
    };
    for partition in (0..).take(place.partitions() as usize) {
        if place.archive().durable(partition).await?.is_some_and(|offset| offset > 0) {
            return Err(counted());
        }
    }
    let mut there = There { rows: HashMap::new(), verdicts: HashSet::new() };
    let (sink, mut batches) = mpsc::channel::<Rows>(2);
    let noting = async {
        while let Some(rows) = batches.recv().await {
            for (key, Archived { sketch, number }) in rows {
                let of_log = [sketch.as_ref().map(|(_, t)| *t), number.map(|(_, u)| u)];
                if of_log.into_iter().flatten().any(|offset| offset > 0) {
                    return Err(counted());
                }
                let hash = hash_of(number.map(|(n, _)| n), sketch.as_ref().map(|(bytes, _)| bytes.as_ref()));
                there.rows.insert(key.bytes(), hash);
            }
        }
        Ok(())
    };
    tokio::try_join!(noting, place.scan(sink))?;
    let ends = place.history().ends().await?;
    if ends.iter().all(|(_, end)| *end == 0) {
        return Ok(there);
    }
    let (sink, mut batches) = mpsc::channel(4);
    let reading = async { anyhow::Ok(place.history().read(0, &ends, sink).await?) };
    let noting = async {
        while let Some(batch) = batches.recv().await {
            for record in batch.iter() {
                match decode_counted(record.payload) {
                    Ok(view) if view.source_offset == CARRIED_OVER => {
                        there.verdicts.insert(hash(&[record.payload.unwrap_or_default()]));
                    }
                    _ => return Err(counted()),
                }
            }
        }
        Ok(())
    };
    // The refusal first: the reader fails as well when nobody listens any more.
    let (reading, noting) = tokio::join!(reading, noting);
    noting.and(reading)?;
    Ok(there)
}

/// Refuses to mix the history of two exports.
async fn same_export(there: &There, file: &Source) -> Result<()> {
    let mut left: HashMap<&Bytes, &Hash> = there.rows.iter().collect();
    let mut parts = file.parts();
    while let Some(part) = parts.recv().await {
        let Part::Rows(rows) = part? else { continue };
        for row in rows {
            let Some(found) = left.get(&row.key.bytes()).copied() else { continue };
            // A row's two cells are written apart.
            let halves = [
                hash_of(row.views, row.sketch.as_deref()),
                hash_of(row.views, None),
                hash_of(None, row.sketch.as_deref()),
            ];
            if halves.contains(found) {
                left.remove(&row.key.bytes());
            }
        }
    }
    ensure!(
        left.is_empty(),
        "another export was restored here before: {} of its rows are not in this one. Restore into a new folder or log \
         generation",
        left.len()
    );
    Ok(())
}

async fn write_rows<P: Place>(place: &P, rows: Vec<Row>, there: &There, done: &mut Done) -> Result<()> {
    let mut cells = Vec::new();
    for row in rows {
        let known = there.rows.get(&row.key.bytes());
        if known == Some(&hash_of(row.views, row.sketch.as_deref())) {
            done.rows_there += 1;
            continue;
        }
        done.rows += 1;
        // None of this log's records is in it: that is what offset 0 says.
        if let Some(n) = row.views {
            cells.push(ArchiveCell::Number { key: row.key.clone(), n, u: 0 });
        }
        if let Some(bytes) = row.sketch {
            cells.push(ArchiveCell::Sketch { key: row.key, bytes, t: 0 });
        }
    }
    for written in place.archive().write(&cells).await {
        written.context("writing history; restore the same file again to go on")?;
    }
    Ok(())
}

/// Appends claims. Their viewers' next views will stand in the partition that the claim names.
async fn append<P: Place>(place: &P, verdicts: &[Bytes], there: &There, done: &mut Done) -> Result<()> {
    let mut batch = OutgoingBatch::default();
    let mut payload = Vec::new();
    for verdict in verdicts {
        let mut view = decode_counted(Some(verdict)).context("a claim of the export cannot be read")?;
        view.source_partition = partition_of(&view.viewer.0, place.partitions());
        view.source_offset = CARRIED_OVER;
        payload.clear();
        encode_counted(&view, &mut payload);
        if there.verdicts.contains(&hash(&[&payload])) {
            done.verdicts_there += 1;
            continue;
        }
        done.verdicts += 1;
        batch.push(Topic::Counted, ItemKey::new(&view.site, &view.item).as_bytes(), &payload);
        if batch.bytes() >= APPEND_BYTES {
            place.writer().append(std::mem::take(&mut batch)).await.context(APPENDING)?;
        }
    }
    if !batch.is_empty() {
        place.writer().append(batch).await.context(APPENDING)?;
    }
    Ok(())
}

/// Less than what a log's queue takes at once.
const APPEND_BYTES: usize = 256 << 10;
const APPENDING: &str = "appending claims; restore the same file again to go on";

fn hash_of(views: Option<u64>, sketch: Option<&[u8]>) -> Hash {
    let number = views.map(u64::to_le_bytes);
    hash(&[
        &[u8::from(views.is_some()), u8::from(sketch.is_some())],
        number.as_ref().map_or(&[], |bytes| bytes.as_slice()),
        sketch.unwrap_or_default(),
    ])
}

fn hash(parts: &[&[u8]]) -> Hash {
    let mut sum = Sha256::new();
    parts.iter().for_each(|part| sum.update(part));
    let mut out = [0; 16];
    out.copy_from_slice(&sum.finalize()[..16]);
    out
}
