//! What no swap is made of: a count is only the log's if the log has all of it.

use super::run::Swapping;
use super::wire::Key;
use super::{Kind, Shadow, item};
use crate::carry::Rows;
use crate::ops::Sight;
use anyhow::{Context, Result, bail};
use onlooker_ports::{Batch, LogObserver, Topic};
use onlooker_proto::decode_counted;
use std::path::Path;
use tokio::sync::mpsc;

impl<S: Sight> Swapping<'_, S> {
    /// Keys of the archive's rows.
    pub(super) async fn live(&self) -> Result<Vec<Key>> {
        let items = self.items()?;
        let (sink, mut rows) = mpsc::channel::<Rows>(4);
        let collecting = async {
            let mut keys = Vec::new();
            while let Some(rows) = rows.recv().await {
                for (key, row) in rows {
                    // This log's first view makes it 1.
                    if row.number.is_some_and(|(n, u)| n > 0 && u == 0) {
                        return Err(history());
                    }
                    let named =
                        items.as_ref().map(|items| Ok::<_, anyhow::Error>(items.contains(&item(&key)?)));
                    if named.transpose()?.unwrap_or(true) {
                        keys.push(Key(key));
                    }
                }
            }
            Ok(keys)
        };
        let scanning = async { self.source.scan(sink).await.context("the archive") };
        // Whoever collects knows better why it ended.
        let (scanned, keys) = tokio::join!(scanning, collecting);
        let keys = keys?;
        scanned?;
        Ok(keys)
    }

    /// Refuses a log that does not have all that was ever counted.
    pub(super) async fn refuse_history(&self) -> Result<()> {
        if self.shadow.begin.iter().any(|begin| *begin > 0) {
            bail!(
                "retention had removed the log's beginning when this shadow was made: live counts hold more than the log \
                 gives, and are not replaced by less"
            );
        }
        // A restore appends claims before the log's first view.
        let bounds = self.source.bounds(Topic::Counted).await.context("the log")?;
        for (partition, bounds) in (0..).zip(bounds) {
            let range = bounds.earliest..bounds.stable.min(bounds.earliest + 100);
            if range.is_empty() {
                continue;
            }
            let (sink, mut batches) = mpsc::channel::<Batch>(1);
            let carried = async {
                let mut carried = false;
                while let Some(batch) = batches.recv().await {
                    let mut views = batch.iter().filter_map(|record| decode_counted(record.payload).ok());
                    carried |= views.any(|view| view.source_offset < 0);
                }
                Ok(carried)
            };
            let ranges = [(partition, range)];
            let reading = async { self.source.read(Topic::Counted, &ranges, sink).await.context("the log") };
            if tokio::try_join!(reading, carried)?.1 {
                return Err(history());
            }
        }
        Ok(())
    }
}

fn history() -> anyhow::Error {
    anyhow::anyhow!(
        "history was restored into this log: live counts hold more than the log gives, and are not replaced by less"
    )
}

/// Refuses a shadow that no swap can be made with.
pub(in super::super) fn refuse_replay(folder: &Path) -> Result<()> {
    match Shadow::read(folder)? {
        Some(Shadow { kind: Kind::Replay, .. }) => bail!(
            "{} holds verdicts that were judged again, and live counts are those of the verdicts in the log: it cannot be \
             swapped in. `onlooker export` of its folder and `onlooker restore` into a new folder, or a new log generation \
             of a cluster, make it live",
            folder.display()
        ),
        _ => Ok(()),
    }
}
