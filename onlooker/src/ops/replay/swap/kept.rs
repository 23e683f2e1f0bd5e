//! What was there before, kept in the shadow's folder until somebody says that it may go.

use super::compare::Wrong;
use super::wire::{Blob, Held, Key};
use anyhow::{Context, Result};
use onlooker_sketch::Sketch;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

const FILE: &str = "swapped.json";

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The swap came to its end.
    pub(super) whole: bool,
    /// By key.
    pub(super) counts: BTreeMap<Key, Old>,
}

/// A count as readers saw it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Old {
    pub(super) partition: i32,
    pub(super) held: Held,
    /// As it stood in the archive.
    archive: Held,
}

impl Kept {
    /// None: nothing was swapped, or it was confirmed.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        match std::fs::read(&path) {
            Ok(bytes) => {
                let kept = serde_json::from_slice(&bytes);
                Ok(Some(kept.with_context(|| format!("{} makes no sense", path.display()))?))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// On the disk when it returns.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        crate::run::write_privately(&folder.join(FILE), &serde_json::to_vec(self)?)
    }

    pub(super) fn remove(folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        let gone = std::fs::remove_file(&path).and_then(|()| std::fs::File::open(folder)?.sync_all());
        gone.with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Adds what is about to be replaced. What was kept before is older, and stays: a swap that is run again finds its own
    /// work.
    pub(super) fn add(&mut self, partition: i32, wrong: &[Wrong]) {
        for Wrong { key, stored, .. } in wrong {
            let held = stored.counters.clone();
            let held =
                held.map_or_else(|| stored.archive.clone(), |counters| over(counters, &stored.archive));
            let old = Old { partition, held, archive: stored.archive.clone() };
            self.counts.entry(Key(key.clone())).or_insert(old);
        }
    }
}

/// What readers see: the counters' part of each kind, and the archive's where there is none. Of bytes that are no sketch
/// nothing is worth keeping.
fn over(counters: Held, archive: &Held) -> Held {
    let good = |blob: &Blob| Sketch::from_redis(&blob.0).is_ok();
    let (views, views_below) = match counters.views {
        Some(views) => (Some(views), counters.views_below),
        None => (archive.views, archive.views_below),
    };
    let (sketch, sketch_below) = match counters.sketch.filter(good) {
        Some(sketch) => (Some(sketch), counters.sketch_below),
        None => (archive.sketch.clone().filter(good), archive.sketch_below),
    };
    Held { views, views_below, sketch, sketch_below }
}
