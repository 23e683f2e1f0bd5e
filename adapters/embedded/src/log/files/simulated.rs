//! A disk that forgets what was not synced, tears what was being written, fills up and fails.

use super::{FileLayer, LogFile};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a real disk keeps whole when the power goes.
const SECTOR: usize = 512;

/// A simulated disk with a simulated clock. Clones are the same disk.
///
/// The disk dies when `Faults::operations_left` have been done, in the middle of one: every later call fails, as if the
/// process were gone. `power_loss` or `kill` then makes of it what a process started afterwards would find.
#[derive(Debug, Clone, Default)]
pub struct Simulated(Arc<Mutex<State>>);

/// What goes wrong.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Writes, syncs, cuts and changes to a folder that still succeed; none: without end.
    pub operations_left: Option<u64>,
    /// Bytes that still fit on the disk; none: without end.
    pub room: Option<u64>,
    /// Syncs that fail with an I/O error, from the next on.
    pub failing_syncs: u32,
    /// Cuts that fail with an I/O error, from the next on.
    pub failing_cuts: u32,
}

#[derive(Debug, Default)]
struct State {
    /// What the folders show, and what they would show after a power loss.
    names: BTreeMap<PathBuf, Arc<Mutex<Inode>>>,
    durable_names: BTreeMap<PathBuf, Arc<Mutex<Inode>>>,
    locks: Vec<PathBuf>,
    faults: Faults,
    /// Raised by every crash: files and locks from before it are void.
    lives: u64,
    dead: bool,
    random: u64,
    now_ms: i64,
    syncs: u64,
}

#[derive(Debug, Default)]
struct Inode {
    content: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write { position: usize, bytes: Vec<u8> },
    Length(usize),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gone() -> io::Error {
    io::Error::other("the simulated process is gone")
}

impl State {
    /// A xorshift generator: a run is repeated by its seed.
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    /// False in the operation at which the process dies.
    fn operate(&mut self) -> io::Result<bool> {
        if self.dead {
            return Err(gone());
        }
        if let Some(left) = &mut self.faults.operations_left {
            if *left == 0 {
                self.dead = true;
                return Ok(false);
            }
            *left -= 1;
        }
        Ok(true)
    }

    fn restart(&mut self) {
        self.lives += 1;
        self.dead = false;
        self.locks.clear();
        self.faults = Faults::default();
    }
}

impl Simulated {
    /// An empty disk whose accidents follow from the seed.
    pub fn new(seed: u64) -> Self {
        let disk = Self::default();
        lock(&disk.0).random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        lock(&disk.0).now_ms = 1_700_000_000_000;
        disk
    }

    /// Replaces what is to go wrong.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.0).faults = faults;
    }

    /// True once the process has died.
    pub fn is_dead(&self) -> bool {
        lock(&self.0).dead
    }

    /// Lets time pass.
    pub fn advance_ms(&self, ms: i64) {
        lock(&self.0).now_ms += ms;
    }

    /// Syncs of files so far.
    pub fn syncs(&self) -> u64 {
        lock(&self.0).syncs
    }

    /// The process dies; what it wrote is in the system's memory and comes back.
    pub fn kill(&self) {
        lock(&self.0).restart();
    }

    /// The power goes: of what was not synced any part may be there, sector by sector, and the last of it torn
    /// anywhere; files that were made or removed since their folder was synced may be there or not.
    pub fn power_loss(&self) {
        let mut state = lock(&self.0);
        state.restart();
        let mut names = state.durable_names.clone();
        for (path, inode) in state.names.clone() {
            if !names.contains_key(&path) && state.random(2) == 0 {
                names.insert(path, inode);
            }
        }
        for path in state.durable_names.clone().into_keys() {
            if !state.names.contains_key(&path) && state.random(2) == 0 {
                names.remove(&path);
            }
        }
        for inode in names.values() {
            // Nothing survives, or all, or each sector by itself.
            let luck = [0, 2, 1][state.random(3) as usize];
            let mut inode = lock(inode);
            let mut content = std::mem::take(&mut inode.durable);
            let changes = std::mem::take(&mut inode.unsynced);
            let last = changes.len().saturating_sub(1);
            for (index, change) in changes.into_iter().enumerate() {
                match change {
                    Change::Length(length) if luck == 2 || luck == 1 && state.random(2) == 0 => {
                        content.resize(length, 0);
                    }
                    Change::Length(_) => {}
                    Change::Write { position, bytes } => {
                        let torn = index == last && luck > 0 && state.random(2) == 0;
                        let kept =
                            if torn { state.random(bytes.len() as u64 + 1) as usize } else { bytes.len() };
                        let mut at = 0;
                        while at < kept {
                            let next = (SECTOR - (position + at) % SECTOR + at).min(kept);
                            // The length may be there without the bytes: they are zeros then.
                            let (end, survives) =
                                (position + next, luck == 2 || luck == 1 && state.random(2) == 0);
                            if survives || luck == 1 && state.random(4) == 0 {
                                content.resize(content.len().max(end), 0);
                            }
                            if survives {
                                content[position + at..end].copy_from_slice(&bytes[at..next]);
                            }
                            at = next;
                        }
                    }
                }
            }
            inode.durable = content.clone();
            inode.content = content;
        }
        state.durable_names = names.clone();
        state.names = names;
    }

    /// A file's content, for a test to look at.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let inode = lock(&self.0).names.get(path).cloned();
        inode.map(|inode| lock(&inode).content.clone())
    }

    /// Replaces a file's content, durably, as a failing disk or a careless person would.
    pub fn replace(&self, path: &Path, content: Vec<u8>) {
        let mut state = lock(&self.0);
        let inode = Inode { durable: content.clone(), content, unsynced: Vec::new() };
        let inode = Arc::new(Mutex::new(inode));
        state.names.insert(path.to_owned(), Arc::clone(&inode));
        state.durable_names.insert(path.to_owned(), inode);
    }
}

impl FileLayer for Simulated {
    type File = SimulatedFile;
    type Lock = SimulatedLock;

    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<SimulatedFile> {
        let mut state = lock(&self.0);
        if state.dead {
            return Err(gone());
        }
        let lives = state.lives;
        if let Some(inode) = state.names.get(path) {
            return Ok(SimulatedFile { disk: self.clone(), inode: Arc::clone(inode), lives });
        }
        if !create {
            return Err(io::ErrorKind::NotFound.into());
        }
        if !state.operate()? {
            return Err(gone());
        }
        let inode = Arc::<Mutex<Inode>>::default();
        state.names.insert(path.to_owned(), Arc::clone(&inode));
        Ok(SimulatedFile { disk: self.clone(), inode, lives })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = lock(&self.0);
        if state.dead {
            return Err(gone());
        }
        let inside = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        if !state.operate()? {
            return Err(gone());
        }
        state.names.remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        if !state.operate()? {
            return Err(gone());
        }
        state.durable_names.retain(|path, _| path.parent() != Some(dir));
        let inside = state.names.iter().filter(|(path, _)| path.parent() == Some(dir));
        let inside: Vec<_> = inside.map(|(path, inode)| (path.clone(), Arc::clone(inode))).collect();
        state.durable_names.extend(inside);
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<SimulatedLock>> {
        let mut state = lock(&self.0);
        if state.locks.iter().any(|held| held == path) {
            return Ok(None);
        }
        state.locks.push(path.to_owned());
        Ok(Some(SimulatedLock { disk: self.clone(), path: path.to_owned(), lives: state.lives }))
    }

    fn now_ms(&self) -> i64 {
        lock(&self.0).now_ms
    }
}

/// A lock on a simulated disk.
#[derive(Debug)]
pub struct SimulatedLock {
    disk: Simulated,
    path: PathBuf,
    lives: u64,
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let mut state = lock(&self.disk.0);
        if state.lives == self.lives {
            state.locks.retain(|held| *held != self.path);
        }
    }
}

/// A file on a simulated disk.
#[derive(Debug)]
pub struct SimulatedFile {
    disk: Simulated,
    inode: Arc<Mutex<Inode>>,
    lives: u64,
}

impl SimulatedFile {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = lock(&self.disk.0);
        if state.dead || state.lives != self.lives { Err(gone()) } else { Ok(state) }
    }
}

impl LogFile for SimulatedFile {
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        let mut state = self.state()?;
        let survives = state.operate()?;
        let mut inode = lock(&self.inode);
        let position = position as usize;
        let mut written = bytes.len();
        if !survives {
            written = state.random(bytes.len() as u64 + 1) as usize;
        }
        if let Some(room) = &mut state.faults.room {
            let grown = (position + written).saturating_sub(inode.content.len()) as u64;
            if grown > *room {
                // A full disk takes what fits, and says so at the next call.
                written -= (grown - *room) as usize;
                *room = 0;
                if written == 0 {
                    return Err(io::ErrorKind::StorageFull.into());
                }
            } else {
                *room -= grown;
            }
        }
        let bytes = &bytes[..written];
        let end = position + written;
        let length = inode.content.len().max(end);
        inode.content.resize(length, 0);
        inode.content[position..end].copy_from_slice(bytes);
        inode.unsynced.push(Change::Write { position, bytes: bytes.to_vec() });
        if survives { Ok(written) } else { Err(gone()) }
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let _state = self.state()?;
        let inode = lock(&self.inode);
        let rest = inode.content.get(position as usize..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.state()?;
        if !state.operate()? {
            return Err(gone());
        }
        if state.faults.failing_cuts > 0 {
            state.faults.failing_cuts -= 1;
            return Err(io::Error::other("simulated failure of a cut"));
        }
        let mut inode = lock(&self.inode);
        inode.content.resize(length as usize, 0);
        inode.unsynced.push(Change::Length(length as usize));
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        let _state = self.state()?;
        Ok(lock(&self.inode).content.len() as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state()?;
        if !state.operate()? {
            return Err(gone());
        }
        if state.faults.failing_syncs > 0 {
            state.faults.failing_syncs -= 1;
            // As Linux does: the pages count as clean from now on, whether or not they reached the disk. Here they did
            // not, and a later sync does not write them either.
            lock(&self.inode).unsynced.clear();
            return Err(io::Error::other("simulated failure of a sync"));
        }
        state.syncs += 1;
        let mut inode = lock(&self.inode);
        for change in std::mem::take(&mut inode.unsynced) {
            match change {
                Change::Length(length) => inode.durable.resize(length, 0),
                Change::Write { position, bytes } => {
                    let end = position + bytes.len();
                    let length = inode.durable.len().max(end);
                    inode.durable.resize(length, 0);
                    inode.durable[position..end].copy_from_slice(&bytes);
                }
            }
        }
        Ok(())
    }
}
