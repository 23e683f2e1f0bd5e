//! An export as a source of parts.

use super::format::About;
use super::read::{Part, ReadError, Reader};
use anyhow::{Context, Result, anyhow};
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// A file that can be read as often as one likes.
pub(super) struct Source {
    path: PathBuf,
    /// What came by standard input lies here.
    _copy: Option<tempfile::NamedTempFile>,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self> {
        if path != Path::new("-") {
            return Ok(Self { path: path.to_owned(), _copy: None });
        }
        let mut copy = tempfile::NamedTempFile::new().context("making a temporary file")?;
        std::io::copy(&mut std::io::stdin().lock(), &mut copy).context("reading standard input")?;
        copy.flush()?;
        Ok(Self { path: copy.path().to_owned(), _copy: Some(copy) })
    }

    fn reader(path: &Path) -> Result<Reader<BufReader<File>>> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        Reader::begin(BufReader::with_capacity(1 << 20, file)).map_err(|error| told(path, error))
    }

    /// Reads it to its end, so that nothing is written of one that is damaged.
    pub(super) async fn verify(self) -> Result<(Self, About)> {
        let path = self.path.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let mut reader = Self::reader(&path)?;
            while reader.next().map_err(|error| told(&path, error))?.is_some() {}
            anyhow::Ok(reader.about().clone())
        });
        let about = reading.await.context("reading ended early")??;
        Ok((self, about))
    }

    /// Its parts, in order; read while they are worked on.
    pub(super) fn parts(&self) -> mpsc::Receiver<Result<Part>> {
        let (sink, parts) = mpsc::channel(2);
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || {
            let read = || {
                let mut reader = Self::reader(&path)?;
                while let Some(part) = reader.next().map_err(|error| told(&path, error))? {
                    if sink.blocking_send(Ok(part)).is_err() {
                        return Ok(());
                    }
                }
                Ok(())
            };
            if let Err(error) = read() {
                // Whoever asked may have gone.
                let _ = sink.blocking_send(Err(error));
            }
        });
        parts
    }
}

fn told(path: &Path, error: ReadError) -> anyhow::Error {
    anyhow!("{} {error}", path.display())
}
