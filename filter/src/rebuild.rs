//! Making dedup states from verdicts: one reading of `views.counted` for all partitions that lost theirs.

use crate::heart::{Job, Part, Settings, Verdicts};
use crate::metrics::FilterMetrics;
use crate::outside::Dedup;
use onlooker_ports::{DedupStore, InstallOutcome, PortError, VerdictHistory};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Batches between the reader of the history and the store.
const AHEAD: usize = 4;

/// The outcome for each job; none where it failed and has to be begun anew.
pub(crate) type Outcomes = Vec<(i32, u64, Option<InstallOutcome>)>;

/// Reads, stages and installs. The committed offsets of all jobs were read before this is called.
pub(crate) async fn rebuild<H: VerdictHistory, D: DedupStore>(
    settings: Arc<Settings>,
    jobs: Vec<Job>,
    history: Arc<H>,
    dedup: Arc<Dedup<D>>,
    metrics: FilterMetrics,
) -> Result<Outcomes, PortError> {
    let begun = Instant::now();
    let outcomes = match attempt(settings, &jobs, &*history, &dedup, &metrics).await {
        Ok(outcomes) => outcomes,
        Err(error) if error.is_transient() => {
            tracing::warn!(%error, "verdicts could not be read, the rebuild begins anew");
            jobs.iter().map(|job| (job.partition, job.attempt, None)).collect()
        }
        Err(error) => return Err(error),
    };
    let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::info!(partitions = jobs.len(), duration_ms, "rebuild ended");
    Ok(outcomes)
}

async fn attempt<H: VerdictHistory, D: DedupStore>(
    settings: Arc<Settings>,
    jobs: &[Job],
    history: &H,
    dedup: &Dedup<D>,
    metrics: &FilterMetrics,
) -> Result<Outcomes, PortError> {
    let mut verdicts = Verdicts::new(settings, jobs, &fresh_name());
    let mut parts = Vec::new();
    let mut failed = BTreeSet::new();
    // Below offset 0 there is only what was carried over from another log, and then the note names a slice.
    if jobs.iter().any(|job| job.to.offset > 0 || job.to.slice > 0) {
        // Asked for after the committed offsets: the markers of one transaction arrive partition by partition, so an
        // output below a committed offset may still be invisible. It lies below these ends.
        let ends = history.ends().await?;
        let (sink, mut batches) = mpsc::channel(AHEAD);
        let reading = history.read(verdicts.from_ms(), &ends, sink);
        let staging = async {
            while let Some(batch) = batches.recv().await {
                verdicts.take(&batch, &mut parts);
                stage(dedup, &mut parts, &mut failed).await?;
            }
            Ok(())
        };
        tokio::try_join!(reading, staging)?;
    }
    let rebuilds = verdicts.finish(&mut parts);
    stage(dedup, &mut parts, &mut failed).await?;
    let mut outcomes = Vec::new();
    for rebuild in rebuilds {
        let job = rebuild.job;
        let mut outcome = None;
        if !failed.contains(&job.partition) {
            let installed = dedup.install(&rebuild).await?;
            tracing::info!(
                partition = job.partition,
                offset = job.to.offset,
                claims = rebuild.claims,
                outcome = ?installed,
                "dedup state rebuilt"
            );
            metrics.rebuilt_claims.increment(rebuild.claims);
            outcome = Some(installed);
        }
        outcomes.push((job.partition, job.attempt, outcome));
    }
    Ok(outcomes)
}

/// A part that is refused was staged before by a call whose answer got lost, or the store lost what was staged: either
/// way the whole is not to be trusted, and begins anew under another name.
async fn stage<D: DedupStore>(
    dedup: &Dedup<D>,
    parts: &mut Vec<Part>,
    failed: &mut BTreeSet<i32>,
) -> Result<(), PortError> {
    for part in parts.drain(..) {
        if !failed.contains(&part.partition) && !dedup.stage(&part).await? {
            failed.insert(part.partition);
        }
    }
    Ok(())
}

/// A name that no rebuild, of this process or of another, has used before.
fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Seeded by the operating system for every value.
    let random = || std::hash::RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}-{}", random(), random(), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_fresh() {
        let names: BTreeSet<String> = (0..1_000).map(|_| fresh_name()).collect();
        assert_eq!(names.len(), 1_000);
    }
}
