//! A disk that forgets what was not synced, tears the last write, fills up and fails.

use redb::StorageBackend;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

#[derive(Debug, Clone)]
enum Op {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

#[derive(Debug, Default)]
struct State {
    /// What a power loss leaves for certain.
    synced: Vec<u8>,
    /// What is seen while the power is on.
    seen: Vec<u8>,
    /// Since the last sync.
    pending: Vec<Op>,
    /// Steps until the power fails.
    steps_left: Option<u64>,
    /// Bytes of the disk.
    size: Option<u64>,
    /// Writes until one fails, without a power loss.
    fault_in: Option<u64>,
    random: u64,
}

impl State {
    fn below(&mut self, n: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % n
    }

    fn step(&mut self) -> io::Result<()> {
        match &mut self.steps_left {
            Some(0) => Err(io::Error::other("the power is off")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn change(&mut self, op: Op) -> io::Result<()> {
        self.step()?;
        if let Some(left) = &mut self.fault_in {
            if *left == 0 {
                self.fault_in = None;
                return Err(io::Error::other("a bad sector"));
            }
            *left -= 1;
        }
        let end = match &op {
            Op::Write(at, data) => at + data.len() as u64,
            Op::SetLen(len) => *len,
        };
        if self.size.is_some_and(|size| end > size) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        apply(&mut self.seen, &op);
        self.pending.push(op);
        Ok(())
    }
}

fn apply(image: &mut Vec<u8>, op: &Op) {
    match op {
        Op::SetLen(len) => image.resize(*len as usize, 0),
        Op::Write(at, data) => {
            let at = *at as usize;
            image.resize(image.len().max(at + data.len()), 0);
            image[at..at + data.len()].copy_from_slice(data);
        }
    }
}

/// A simulated disk with one file. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

impl SimulatedDisk {
    /// An empty disk whose accidents follow from the seed.
    pub fn new(seed: u64) -> Self {
        let disk = Self::default();
        disk.state().random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        disk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A repeatable number below `n`.
    pub fn below(&self, n: u64) -> u64 {
        self.state().below(n)
    }

    /// The power fails after so many more steps.
    pub fn fail_after(&self, steps: u64) {
        self.state().steps_left = Some(steps);
    }

    /// The power is back: what was not synced is there in part, in any order, torn within.
    pub fn power_cycle(&self) {
        let mut state = self.state();
        let pending = std::mem::take(&mut state.pending);
        let mut image = state.synced.clone();
        for op in pending {
            match (state.below(3), op) {
                (0, _) => {}
                (1, op) => apply(&mut image, &op),
                (_, Op::Write(at, data)) => {
                    // Some of its sectors, those of its beginning or its end.
                    let cut = state.below(data.len() as u64 + 1) as usize / SECTOR * SECTOR;
                    if state.below(2) == 0 {
                        apply(&mut image, &Op::Write(at, data[..cut].to_vec()));
                    } else if cut < data.len() {
                        apply(&mut image, &Op::Write(at + cut as u64, data[cut..].to_vec()));
                    }
                }
                (_, op) => apply(&mut image, &op),
            }
        }
        state.synced.clone_from(&image);
        state.seen = image;
        state.steps_left = None;
    }

    /// How large the disk is; none: without an end.
    pub fn set_size(&self, size: Option<u64>) {
        self.state().size = size;
    }

    /// The write after so many fails, once.
    pub fn fault_after(&self, writes: u64) {
        self.state().fault_in = Some(writes);
    }

    /// Length of the file in bytes.
    pub fn length(&self) -> u64 {
        self.state().seen.len() as u64
    }

    /// True once the power has failed.
    pub fn is_off(&self) -> bool {
        self.state().steps_left == Some(0)
    }
}

impl StorageBackend for SimulatedDisk {
    fn len(&self) -> io::Result<u64> {
        self.state().step()?;
        Ok(self.length())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        let at = offset as usize;
        let found = state.seen.get(at..at + out.len());
        out.copy_from_slice(found.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state().change(Op::SetLen(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        state.pending.clear();
        state.synced = state.seen.clone();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.state().change(Op::Write(offset, data.to_vec()))
    }
}
