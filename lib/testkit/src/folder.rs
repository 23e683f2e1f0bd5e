//! Folders for servers' data: removed with their server, or by a later test process when this one was killed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, Result, anyhow};
use tempfile::TempDir;

use crate::install::exclusive;

/// A new folder for one server, removed when the value is dropped.
///
/// # Errors
/// The system's folder for temporary files cannot be written.
pub(crate) fn server_folder(name: &str) -> Result<TempDir> {
    static OWN: LazyLock<Result<(PathBuf, File)>> = LazyLock::new(own_folder);
    let (parent, _) = OWN.as_ref().map_err(|error| anyhow!("{error:#}"))?;
    Ok(TempDir::with_prefix_in(format!("{name}-"), parent)?)
}

/// Where all of this user's test processes meet: their folders and their locks. One a user, since the
/// system's folder for temporary files lets nobody write what another has made.
pub(crate) fn user_folder() -> Result<PathBuf> {
    // SAFETY: geteuid always succeeds and touches no memory.
    let user = unsafe { libc::geteuid() };
    let folder = std::env::temp_dir().join(format!("onlooker-testkit-{user}"));
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// The folder of this process, with the lock that says that it lives. Servers in statics are never
/// dropped and killed processes drop nothing, so each process removes what dead ones have left.
fn own_folder() -> Result<(PathBuf, File)> {
    let root = user_folder()?;
    let _only_one_sweeps = exclusive(&root.join("sweep.lock"))?;
    for entry in fs::read_dir(&root)?.flatten() {
        let path = entry.path();
        let is_dead = || File::open(&path).is_ok_and(|file| file.try_lock().is_ok());
        if path.extension().is_none_or(|e| e != "alive") || !is_dead() {
            continue;
        }
        let left = path.with_extension("");
        // A server that is just dying may still write there: then it is left to the next process.
        if fs::remove_dir_all(&left).is_ok() || !left.exists() {
            fs::remove_file(path)?;
        }
    }
    let folder = TempDir::with_prefix_in(format!("{}-", std::process::id()), &root)?.keep();
    let alive = exclusive(&PathBuf::from(format!("{}.alive", folder.display())))?;
    Ok((folder, alive))
}

/// Copies a folder with all that is in it.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
