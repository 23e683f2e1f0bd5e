//! What becomes of a request.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What becomes of a request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is done and answered.
    Well,
    /// It never arrives.
    Lost,
    /// It is done, and the answer is lost.
    Unanswered,
    /// There is no answer, and it is done later.
    Late(Duration),
    /// The server has no memory left: refused.
    Full,
}

type Judge = Box<dyn FnMut(&'static str, i32) -> Fate + Send>;

struct Inner {
    judge: Judge,
    asked: Vec<(&'static str, i32)>,
    keys_read: usize,
}

/// Decides about requests, and writes them down. Clones share it.
#[derive(Clone)]
pub struct Journal(Arc<Mutex<Inner>>);

impl Default for Journal {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Inner {
            judge: Box::new(|_, _| Fate::Well),
            asked: Vec::new(),
            keys_read: 0,
        })))
    }
}

impl Journal {
    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on, `judge` decides by the name of the method and the partition (-1: none).
    pub fn judge(&self, judge: impl FnMut(&'static str, i32) -> Fate + Send + 'static) {
        self.with(|inner| inner.judge = Box::new(judge));
    }

    /// All goes well again.
    pub fn heal(&self) {
        self.judge(|_, _| Fate::Well);
    }

    /// How often a method was called.
    pub fn count(&self, method: &str) -> usize {
        self.with(|inner| inner.asked.iter().filter(|(name, _)| *name == method).count())
    }

    /// What was asked, in order.
    pub fn asked(&self) -> Vec<(&'static str, i32)> {
        self.with(|inner| inner.asked.clone())
    }

    /// Forgets what was asked.
    pub fn clear(&self) {
        self.with(|inner| inner.asked.clear());
    }

    /// How many keys were read from the archive, ever.
    pub fn keys_read(&self) -> usize {
        self.with(|inner| inner.keys_read)
    }

    pub(crate) fn count_keys(&self, keys: usize) {
        self.with(|inner| inner.keys_read += keys);
    }

    pub(crate) fn fate(&self, method: &'static str, partition: i32) -> Fate {
        self.with(|inner| {
            inner.asked.push((method, partition));
            (inner.judge)(method, partition)
        })
    }
}
