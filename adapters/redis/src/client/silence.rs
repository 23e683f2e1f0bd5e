//! When a connection that answers nothing is given up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many commands in a row to one slot without an answer, and the connection is made anew. A cluster client would
/// otherwise wait for a stopped master for ever although its replica has long taken over.
const TIMEOUTS_UNTIL_RENEWAL: u32 = 3;

/// Time-outs in a row, by slot: the other masters of a cluster answer all the while.
#[derive(Default)]
pub(super) struct Silence {
    any: AtomicBool,
    slots: Mutex<Vec<(u16, u32)>>,
}

impl Silence {
    fn slots(&self) -> MutexGuard<'_, Vec<(u16, u32)>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn answered(&self, slot: u16) {
        if self.any.load(Ordering::Relaxed) {
            let mut slots = self.slots();
            slots.retain(|(silent, _)| *silent != slot);
            self.any.store(!slots.is_empty(), Ordering::Relaxed);
        }
    }

    /// Counts a time-out; true if it is time to give the connection up.
    pub(super) fn timed_out(&self, slot: u16) -> bool {
        let mut slots = self.slots();
        self.any.store(true, Ordering::Relaxed);
        match slots.iter_mut().find(|(silent, _)| *silent == slot) {
            Some((_, count)) => {
                *count += 1;
                *count >= TIMEOUTS_UNTIL_RENEWAL
            }
            None => {
                slots.push((slot, 1));
                false
            }
        }
    }

    pub(super) fn forget(&self) {
        self.slots().clear();
        self.any.store(false, Ordering::Relaxed);
    }
}
