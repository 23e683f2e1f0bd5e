//! A log that stands for another one from some moment on.

use onlooker_ports::{LogWriter, OutgoingBatch, PortError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::RwLock;

/// Appends to the first log, and from `switch` on to the second. Clones are one.
pub(crate) struct Door<A, B>(Arc<Both<A, B>>);

struct Both<A, B> {
    first: A,
    second: OnceLock<B>,
    /// Held by every append to the first.
    under_way: RwLock<()>,
}

impl<A, B> Clone for Door<A, B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A: LogWriter, B: LogWriter> Door<A, B> {
    pub(crate) fn new(first: A) -> Self {
        Self(Arc::new(Both { first, second: OnceLock::new(), under_way: RwLock::new(()) }))
    }

    /// True if appends go to the second.
    pub(crate) fn is_switched(&self) -> bool {
        self.0.second.get().is_some()
    }

    /// Lets appends go to the second. When it returns, everything that was appended to the first is in it: nothing comes
    /// there any more. What comes meanwhile waits for that, not longer than an append takes.
    /// `at_rest` ends when what the first was given is in it: an append whose caller has gone is under way without one.
    pub(crate) async fn switch(
        &self,
        second: B,
        at_rest: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        let quiet = self.0.under_way.write().await;
        at_rest.await?;
        // Whoever was first is right: there is one second.
        let _ = self.0.second.set(second);
        drop(quiet);
        Ok(())
    }
}

impl<A: LogWriter, B: LogWriter> LogWriter for Door<A, B> {
    async fn append(&self, batch: OutgoingBatch) -> Result<(), PortError> {
        let under_way = self.0.under_way.read().await;
        match self.0.second.get() {
            None => self.0.first.append(batch).await,
            Some(second) => {
                drop(under_way);
                second.append(batch).await
            }
        }
    }

    fn is_reachable(&self) -> bool {
        self.0.second.get().map_or_else(|| self.0.first.is_reachable(), LogWriter::is_reachable)
    }

    async fn flush(&self, wait: Duration) -> Result<(), PortError> {
        match self.0.second.get() {
            None => self.0.first.flush(wait).await,
            Some(second) => second.flush(wait).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_ports::Topic;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Notify;
    use tokio::task::yield_now;

    /// Notes what was appended, not before it is told that it may.
    #[derive(Clone, Default)]
    struct Slow {
        taken: Arc<Mutex<Vec<Vec<u8>>>>,
        waiting: Arc<AtomicUsize>,
        may: Arc<Notify>,
        open: bool,
    }

    impl LogWriter for Slow {
        async fn append(&self, batch: OutgoingBatch) -> Result<(), PortError> {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            if !self.open {
                self.may.notified().await;
            }
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            self.taken.lock().unwrap().extend(batch.iter().map(|record| record.payload.to_vec()));
            Ok(())
        }

        fn is_reachable(&self) -> bool {
            self.open
        }

        async fn flush(&self, _: Duration) -> Result<(), PortError> {
            Ok(())
        }
    }

    fn record(payload: &[u8]) -> OutgoingBatch {
        let mut batch = OutgoingBatch::default();
        batch.push(Topic::Views, b"k", payload);
        batch
    }

    #[tokio::test]
    async fn what_was_begun_ends_in_the_first_and_the_rest_goes_to_the_second() {
        let (first, second) = (Slow::default(), Slow { open: true, ..Slow::default() });
        let door = Door::new(first.clone());
        let append = |payload: &'static [u8]| {
            let door = door.clone();
            tokio::spawn(async move { door.append(record(payload)).await.unwrap() })
        };
        let begun = [append(b"1"), append(b"2")];
        while first.waiting.load(Ordering::SeqCst) < 2 {
            yield_now().await;
        }
        let switching = {
            let (door, second) = (door.clone(), second.clone());
            tokio::spawn(async move { door.switch(second, async { Ok(()) }).await.unwrap() })
        };
        let late = append(b"3");
        for _ in 0..20 {
            yield_now().await;
        }
        assert!(!switching.is_finished() && !late.is_finished() && !door.is_switched());
        assert_eq!(first.waiting.load(Ordering::SeqCst), 2, "nobody else got to the first");
        first.may.notify_waiters();
        for task in begun.into_iter().chain([switching, late]) {
            task.await.unwrap();
        }
        assert!(door.is_switched() && door.is_reachable());
        let mut taken = first.taken.lock().unwrap().clone();
        taken.sort();
        assert_eq!(taken, [b"1", b"2"]);
        assert_eq!(*second.taken.lock().unwrap(), [b"3"]);
    }
}
