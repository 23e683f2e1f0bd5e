//! A copy of the sources that may be spoiled.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use onlooker_testkit::{install, java::workspace};

use super::patches::{Patch, Suite};

/// A suite that takes longer does not end: without its condition, something is waited for in vain. In seconds.
const PATIENCE_S: &str = "300";
/// What `timeout` ends with then.
const OUT_OF_PATIENCE: i32 = 124;

/// The copy, in the target folder. It stays there, so that the next time little has to be built.
#[derive(Debug)]
pub(super) struct Copy {
    sources: PathBuf,
    target: PathBuf,
}

impl Copy {
    /// As the sources are now, with what is not committed yet.
    pub(super) fn make() -> Result<Self> {
        install::for_builds()?;
        install::ensure(&[install::REDIS_SERVER, install::REDIS_CLI])?;
        let folder = workspace().join("target/mutations");
        let copy = Self { sources: folder.join("sources"), target: folder.join("target") };
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(workspace())
            .output()
            .context("cannot run git")?;
        ensure!(listed.status.success(), "git lists no files");
        let listed = String::from_utf8(listed.stdout)?;
        for file in listed.split('\0').filter(|file| !file.is_empty()) {
            // Deleted and not committed: not there any more.
            let Ok(bytes) = fs::read(workspace().join(file)) else { continue };
            write(&copy.sources.join(file), &bytes)?;
        }
        Ok(copy)
    }

    /// Does something while the patch is applied.
    pub(super) fn with<T>(&self, patch: &Patch, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let file = self.sources.join(patch.file);
        let text =
            fs::read_to_string(&file).with_context(|| format!("{}: {}", patch.name, file.display()))?;
        let times = text.matches(patch.find).count();
        ensure!(times == 1, "{}: what it replaces stands {times} times in {}", patch.name, patch.file);
        write(&file, text.replace(patch.find, patch.put).as_bytes())?;
        let done = act();
        write(&file, text.as_bytes())?;
        done
    }

    /// Runs a suite; the first test that fails, or none.
    pub(super) fn run(&self, suite: Suite) -> Result<Option<String>> {
        let built = self.cargo(suite, &["--no-run"])?;
        if !built.status.success() {
            bail!("{suite:?} does not compile:\n{}", String::from_utf8_lossy(&built.stderr));
        }
        let ran = self.cargo(suite, &[])?;
        if ran.status.success() {
            return Ok(None);
        }
        if ran.status.code() == Some(OUT_OF_PATIENCE) {
            return Ok(Some("a test that does not end".to_owned()));
        }
        let text = String::from_utf8_lossy(&ran.stdout);
        let failed = text.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
        Ok(Some(failed.unwrap_or("a test that took its program along").to_owned()))
    }

    fn cargo(&self, suite: Suite, more: &[&str]) -> Result<std::process::Output> {
        let mut command = Command::new(env!("CARGO"));
        if more.is_empty() {
            // It ends the tests with cargo.
            command = Command::new("timeout");
            command.args([PATIENCE_S, env!("CARGO")]);
        }
        command.arg("test").args(suite.selection()).args(more);
        if more.is_empty() {
            command.arg("--").args(suite.filters());
        }
        command.env("CARGO_TARGET_DIR", &self.target).env("RUST_BACKTRACE", "0");
        command.current_dir(&self.sources).output().context("cannot run cargo or timeout")
    }
}

/// Writes what is not there yet: cargo builds again what was written to.
fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(file).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let folder = file.parent().context("a file without a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
}
