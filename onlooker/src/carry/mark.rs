//! A note in a folder whose log is not to be written by `onlooker run`: something was begun and not finished, or the
//! counting goes on elsewhere.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

const FILE: &str = "carried.json";

/// What was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Mark {
    /// History is being written into the folder.
    Restoring,
    /// Views go to a cluster from here on; what the folder has is on its way there.
    Promoting {
        /// The cluster, as a person knows it.
        to: String,
        /// Set when all of it is there, and only the filters' start is missing: what they begin with.
        note: Option<String>,
    },
    /// Another system's log, read again into this folder.
    Shadow {
        /// That log's generation.
        of: String,
    },
    /// Everything is in the cluster.
    Promoted {
        /// The cluster.
        to: String,
    },
}

impl Mark {
    /// None: a folder as any other.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        match fs::read(&path) {
            Ok(bytes) => {
                let mark = serde_json::from_slice(&bytes);
                Ok(Some(mark.with_context(|| format!("{} makes no sense", path.display()))?))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// On the disk when it returns.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        crate::run::write_privately(&folder.join(FILE), &serde_json::to_vec(self)?)
    }

    /// Makes the folder one as any other.
    pub(crate) fn remove(folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        let gone = fs::remove_file(&path).and_then(|()| fs::File::open(folder)?.sync_all());
        gone.with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Refuses a folder that has one.
    pub(crate) fn refuse(folder: &Path) -> Result<()> {
        let name = folder.display();
        match Self::read(folder)? {
            None => Ok(()),
            Some(Self::Restoring) => bail!(
                "{name} is half restored: run `onlooker restore` with the same file again, or begin with another folder"
            ),
            Some(Self::Promoting { to, .. }) => bail!(
                "{name} is on its way to {to}, which takes its views already: run `onlooker promote` again to finish"
            ),
            Some(Self::Shadow { of }) => {
                bail!("{name} is a shadow, made of log {of} by a replay: it takes no views")
            }
            Some(Self::Promoted { to }) => {
                bail!(
                    "{name} was moved to {to}: its counts go on there, and nothing is counted here any more"
                )
            }
        }
    }
}
