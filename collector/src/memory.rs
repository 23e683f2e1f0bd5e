//! What all requests together hold in memory, bounded.

use crate::quiet::jittered;
use onlooker_stage::http::ApiError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts bytes of bodies and records that wait. One counter and no lock: every request touches it.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: usize,
    used: AtomicUsize,
}

impl Memory {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0) }
    }

    /// A request's share, which is nothing yet.
    pub(crate) fn share(&self) -> Share<'_> {
        Share { memory: self, bytes: 0 }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// What one request holds; given back when it is dropped, however the request ends.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    memory: &'a Memory,
    bytes: usize,
}

impl Share<'_> {
    /// Takes more, or nothing at all and says 503.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        let before = self.memory.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.memory.limit {
            self.memory.used.fetch_sub(bytes, Ordering::Relaxed);
            let message = "too many views are on their way at the moment; send these again";
            return Err(ApiError::unavailable("overloaded", message, jittered()));
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Gives back all but this much.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let freed = self.bytes.saturating_sub(bytes);
        self.bytes -= freed;
        self.memory.used.fetch_sub(freed, Ordering::Relaxed);
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_limit_and_come_back() {
        let memory = Memory::new(100);
        let (mut a, mut b) = (memory.share(), memory.share());
        a.grow(60).unwrap();
        b.grow(40).unwrap();
        let refused = b.grow(1).unwrap_err();
        assert_eq!((refused.status().as_u16(), refused.detail().code), (503, "overloaded"));
        a.shrink_to(10);
        assert_eq!(memory.used(), 50);
        b.grow(50).unwrap();
        assert!(a.grow(usize::MAX).is_err(), "no overflow");
        drop(b);
        assert_eq!(memory.used(), 10);
        drop(a);
        assert_eq!(memory.used(), 0);
    }
}
