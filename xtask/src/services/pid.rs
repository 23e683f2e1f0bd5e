//! Which process a service is, surely: a number in a file may by now belong to somebody else.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// What is remembered of a service that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Running {
    pub(crate) pid: u32,
    pub(crate) port: u16,
}

impl Running {
    /// The service that runs in `folder`, if the process that was started there still does.
    pub(crate) fn find(folder: &Path, executable: &str) -> Option<Self> {
        let running: Self = serde_json::from_slice(&fs::read(file(folder)).ok()?).ok()?;
        running.is_alive(folder, executable).then_some(running)
    }

    /// Whether the process with this id runs `executable` in `folder`. A machine that was restarted, or a
    /// process id that came around again, shows another command or another working folder.
    pub(crate) fn is_alive(&self, folder: &Path, executable: &str) -> bool {
        let process = PathBuf::from(format!("/proc/{}", self.pid));
        let works_here = || Some(fs::read_link(process.join("cwd")).ok()? == folder.canonicalize().ok()?);
        let command = fs::read(process.join("cmdline")).unwrap_or_default();
        let command = command.split(|byte| *byte == 0 || *byte == b' ').next().unwrap_or_default();
        let is_it = String::from_utf8_lossy(command).rsplit('/').next() == Some(executable);
        is_it && works_here().unwrap_or(false)
    }

    pub(crate) fn save(&self, folder: &Path) -> Result<()> {
        let file = file(folder);
        fs::write(&file, serde_json::to_vec(self)?)
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// Forgets what ran in `folder`.
    pub(crate) fn forget(folder: &Path) -> Result<()> {
        match fs::remove_file(file(folder)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join("pid.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stale file names a process id that lives, but as something else.
    #[test]
    fn reused_process_id_is_not_the_service() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = Running { pid: std::process::id(), port: 1 };
        own.save(folder.path()).expect("saved");
        assert_eq!(Running::find(folder.path(), "redis-server"), None);
    }

    #[test]
    fn process_in_another_folder_is_not_the_service() {
        let folder = tempfile::tempdir().expect("a folder");
        let here = std::env::current_dir().expect("a folder");
        let exe = std::env::current_exe().expect("a path");
        let name = exe.file_name().expect("a name").to_string_lossy();
        let own = Running { pid: std::process::id(), port: 1 };
        assert!(own.is_alive(&here, &name));
        assert!(!own.is_alive(folder.path(), &name));
    }
}
