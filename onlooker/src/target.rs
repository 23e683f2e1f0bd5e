//! Where a command finds the system: at an address, or in a folder, whether or not a process has it open.

use crate::config::Config;
use crate::run::{Session, with_folder};
use crate::wiring::embedded::{Holder, holder};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a process that has just opened its folder may take until it says where it listens.
const START: Duration = Duration::from_secs(10);

/// Where to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A server of a cluster, or any other address.
    Url(String),
    /// A folder.
    Folder(PathBuf),
}

impl Target {
    /// An address if one was given, else a folder if one was given or is there, else `default`.
    pub(crate) fn choose(url: Option<&str>, dir: Option<&Path>, config: &Config, default: &str) -> Self {
        match (url, dir) {
            (Some(url), _) => Self::Url(url.trim_end_matches('/').to_owned()),
            (None, Some(dir)) => Self::Folder(dir.to_owned()),
            (None, None) if config.embedded.dir.is_dir() => Self::Folder(config.embedded.dir.clone()),
            (None, None) => Self::Url(default.to_owned()),
        }
    }
}

/// Does something with a folder's system: through the process that has it open, or else in this one, which opens it and
/// counts what still waits in its log before and after.
pub(crate) async fn at_folder<T>(
    folder: &Path,
    mut config: Config,
    act: impl AsyncFnOnce(&Session) -> Result<T>,
) -> Result<T> {
    match running(folder).await? {
        Some(session) => act(&session).await,
        None => {
            config.embedded.dir = folder.to_owned();
            with_folder(config, act).await
        }
    }
}

/// The process that has the folder open; none if nobody has.
pub(crate) async fn running(folder: &Path) -> Result<Option<Session>> {
    if !folder.is_dir() {
        bail!("there is no folder {}", folder.display());
    }
    let begun = Instant::now();
    loop {
        let Holder::Process(pid) = holder(folder)? else {
            return Ok(None);
        };
        // A process that was killed leaves its note behind, until the next one writes its own.
        if let Some(session) = Session::read(folder).filter(|session| Some(session.pid) == pid) {
            return Ok(Some(session));
        }
        if begun.elapsed() > START {
            bail!("{} is in use by a process that does not say where it listens", folder.display());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
