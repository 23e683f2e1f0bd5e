//! A wall clock of a program's own, which can be stepped while it runs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::install;

/// What a program that is started in [`WallClock::environment`] sees: the machine's clock and a number of seconds.
/// The monotonic clock, and so every time-out, is left alone.
#[derive(Debug)]
pub struct WallClock {
    library: PathBuf,
    file: PathBuf,
}

impl WallClock {
    /// A clock that is right at first. `file` holds what it is off by, for as long as the program runs.
    ///
    /// # Errors
    /// libfaketime cannot be installed or found, or the file cannot be written.
    pub fn new(file: &Path) -> Result<Self> {
        install::ensure(&[install::FAKETIME])?;
        let clock = Self { library: library()?, file: file.to_owned() };
        clock.set(0)?;
        Ok(clock)
    }

    /// Steps it to `seconds` off the machine's clock; 0 puts it right.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set(&self, seconds: i64) -> Result<()> {
        // A program that read half a line would see the year 1970.
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{seconds:+}\n"))?;
        fs::rename(&next, &self.file).with_context(|| format!("cannot write {}", self.file.display()))
    }

    /// What a program has to be started with, as `NAME=value`.
    pub fn environment(&self) -> Vec<String> {
        vec![
            format!("LD_PRELOAD={}", self.library.display()),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.file.display()),
            "FAKETIME_NO_CACHE=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
            // Files keep their real times.
            "NO_FAKE_STAT=1".to_owned(),
        ]
    }
}

/// The variant for programs with threads, in the folder of this machine's architecture.
fn library() -> Result<PathBuf> {
    let folders = fs::read_dir("/usr/lib").context("cannot read /usr/lib")?;
    let files = folders.flatten().map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    files.into_iter().find(|file| file.is_file()).context("the package faketime has no libfaketimeMT.so.1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_program_sees_the_step() {
        let folder = tempfile::tempdir().unwrap();
        let clock = WallClock::new(&folder.path().join("clock")).unwrap();
        let date = || {
            let output =
                Command::new("env").args(clock.environment()).args(["date", "+%s"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().parse::<i64>().unwrap()
        };
        let begun = date();
        clock.set(-86_400).unwrap();
        assert!((-86_400..-80_000).contains(&(date() - begun)));
        clock.set(86_400).unwrap();
        assert!((86_400..90_000).contains(&(date() - begun)));
    }
}
