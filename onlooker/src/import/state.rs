//! What an import has already sent, kept on this machine, so that the same file never counts twice: neither when an
//! interrupted import goes on, nor when the whole file is imported again long after the filter forgot it.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// How far one file was sent to one site of one collector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sent {
    /// Bytes of the (unpacked) file whose views are acknowledged. Always at a line's start.
    pub(crate) offset: u64,
    /// SHA-256 of exactly those bytes, in hex: the same beginning is the same file, whatever its name.
    pub(crate) prefix_sha256: String,
}

/// The record of one import target.
#[derive(Debug)]
pub(crate) struct State {
    path: PathBuf,
    entries: Vec<Sent>,
    current: Option<usize>,
}

/// The folder where records are kept unless another one is named: `$XDG_STATE_HOME/onlooker/imports`.
pub(crate) fn default_folder(env: &[(String, String)]) -> PathBuf {
    let get =
        |name: &str| env.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| PathBuf::from(v));
    get("XDG_STATE_HOME")
        .or_else(|| get("HOME").map(|home| home.join(".local/state")))
        .unwrap_or_else(|| PathBuf::from("."))
        .join("onlooker/imports")
}

impl State {
    /// Opens the record for files that go to this site of this collector.
    pub(crate) fn open(folder: &Path, collector: &str, site: &str) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let name = hex(&Sha256::digest(format!("{}\n{site}", collector.trim_end_matches('/'))));
        let path = folder.join(format!("{}.json", &name[..32]));
        let entries = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| {
                format!("{} is not a record of imports; move it away to begin anew", path.display())
            })?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
        };
        Ok(Self { path, entries, current: None })
    }

    /// Finds how far a file with this content was sent before. Reads the file's beginning. Returns the offset and the
    /// running hash up to it.
    pub(crate) fn find(&mut self, mut open: impl FnMut() -> Result<Box<dyn Read>>) -> Result<(u64, Sha256)> {
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        order.sort_by_key(|i| self.entries[*i].offset);
        let mut file = open()?;
        let (mut hash, mut at) = (Sha256::new(), 0u64);
        let mut best = (0, Sha256::new());
        let mut buffer = vec![0; 1 << 16];
        for i in order {
            let wanted = self.entries[i].offset;
            while at < wanted {
                let room = usize::try_from((wanted - at).min(buffer.len() as u64)).unwrap_or(buffer.len());
                let n = file.read(&mut buffer[..room])?;
                if n == 0 {
                    return Ok(best);
                }
                hash.update(&buffer[..n]);
                at += n as u64;
            }
            if hex(&hash.clone().finalize()) == self.entries[i].prefix_sha256 {
                best = (at, hash.clone());
                self.current = Some(i);
            }
        }
        Ok(best)
    }

    /// Notes that everything below `offset` is acknowledged. Survives a crash of this process at any moment: the file is
    /// replaced as a whole and synced.
    pub(crate) fn save(&mut self, offset: u64, hash: &Sha256) -> Result<()> {
        let entry = Sent { offset, prefix_sha256: hex(&hash.clone().finalize()) };
        match self.current {
            Some(i) => self.entries[i] = entry,
            None => {
                self.current = Some(self.entries.len());
                self.entries.push(entry);
            }
        }
        let mut new = tempfile::NamedTempFile::new_in(self.path.parent().unwrap_or(Path::new(".")))?;
        serde_json::to_writer_pretty(&mut new, &self.entries)?;
        new.flush()?;
        new.as_file().sync_all()?;
        new.persist(&self.path).with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(())
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &'static [u8]) -> impl FnMut() -> Result<Box<dyn Read>> {
        move || Ok(Box::new(bytes) as Box<dyn Read>)
    }

    #[test]
    fn a_file_is_known_by_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = State::open(folder.path(), "http://c/", "s").unwrap();
        let (at, mut hash) = state.find(reader(b"one\ntwo\n")).unwrap();
        assert_eq!(at, 0);
        hash.update(b"one\n");
        state.save(4, &hash).unwrap();

        let mut again = State::open(folder.path(), "http://c", "s").unwrap();
        assert_eq!(again.find(reader(b"one\ntwo\nthree\n")).unwrap().0, 4, "grown since");
        let mut other = State::open(folder.path(), "http://c", "s").unwrap();
        assert_eq!(other.find(reader(b"uno\ntwo\n")).unwrap().0, 0, "another file");
        let mut short = State::open(folder.path(), "http://c", "s").unwrap();
        assert_eq!(short.find(reader(b"on")).unwrap().0, 0, "shorter than what was sent");
        let mut site = State::open(folder.path(), "http://c", "t").unwrap();
        assert_eq!(site.find(reader(b"one\ntwo\n")).unwrap().0, 0, "another site");
    }

    #[test]
    fn two_files_are_kept_apart() {
        let folder = tempfile::tempdir().unwrap();
        for content in [&b"aaaa\n"[..], b"bb\n"] {
            let mut state = State::open(folder.path(), "http://c", "s").unwrap();
            let (at, mut hash) = state.find(|| Ok(Box::new(content) as Box<dyn Read>)).unwrap();
            assert_eq!(at, 0);
            hash.update(content);
            state.save(content.len() as u64, &hash).unwrap();
        }
        let mut state = State::open(folder.path(), "http://c", "s").unwrap();
        assert_eq!(state.find(reader(b"aaaa\n")).unwrap().0, 5);
        assert_eq!(state.find(reader(b"bb\n")).unwrap().0, 3);
    }
}
