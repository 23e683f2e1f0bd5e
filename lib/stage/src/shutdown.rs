//! Shutdown is a value that is passed down: whoever holds a [`Shutdown`] can wait for it, and only
//! who holds the [`ShutdownTrigger`] can ask for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

#[derive(Debug, Default)]
struct State {
    requested: AtomicBool,
    notify: Notify,
}

/// The asking side. Asking is final and may be repeated; dropping every trigger asks for nothing.
#[derive(Clone, Debug, Default)]
pub struct ShutdownTrigger(Arc<State>);

/// The waiting side. Clones are cheap and all see the same request.
#[derive(Clone, Debug)]
pub struct Shutdown(Arc<State>);

/// A connected pair.
pub fn channel() -> (ShutdownTrigger, Shutdown) {
    let trigger = ShutdownTrigger::default();
    let shutdown = trigger.shutdown();
    (trigger, shutdown)
}

impl ShutdownTrigger {
    /// Asks everybody who holds the other side to finish what they have begun and return.
    pub fn request(&self) {
        // The flag goes first, so that who misses the wake-up sees the flag.
        self.0.requested.store(true, Ordering::Release);
        self.0.notify.notify_waiters();
    }

    /// A waiting side of this trigger.
    pub fn shutdown(&self) -> Shutdown {
        Shutdown(Arc::clone(&self.0))
    }
}

impl Shutdown {
    /// Whether shutdown was requested. One atomic load: fit for a hot loop.
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::Acquire)
    }

    /// Returns once shutdown was requested, at once when it already was. Dropping the future is harmless.
    pub async fn requested(&self) {
        // A `Notified` hears of every call that follows its creation, polled or not; so it is
        // created before the flag is read.
        let notified = self.0.notify.notified();
        if self.is_requested() {
            return;
        }
        notified.await;
    }
}

/// Listens to SIGTERM and SIGINT for the rest of the process's life: the first requests shutdown,
/// the second ends the process at once with 128 + the signal's number (143, 130).
///
/// # Errors
/// When the handlers cannot be installed. Call it inside a Tokio runtime.
pub fn signals(trigger: ShutdownTrigger) -> io::Result<()> {
    // Installed here and not in the task, so that no signal after this call kills by default.
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        let name = next(&mut term, &mut int).await.0;
        tracing::info!(signal = name, "shutdown requested, a second signal forces it");
        trigger.request();
        let (name, number) = next(&mut term, &mut int).await;
        let exit_code = 128 + number;
        tracing::error!(signal = name, exit_code, "forced to exit before the drain was done");
        std::process::exit(exit_code);
    });
    Ok(())
}

async fn next(term: &mut Signal, int: &mut Signal) -> (&'static str, i32) {
    tokio::select! {
        _ = term.recv() => ("SIGTERM", SignalKind::terminate().as_raw_value()),
        _ = int.recv() => ("SIGINT", SignalKind::interrupt().as_raw_value()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wakes_everybody_who_waits_and_everybody_who_comes_later() {
        let (trigger, shutdown) = channel();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let shutdown = shutdown.clone();
                tokio::spawn(async move { shutdown.requested().await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(!shutdown.is_requested());
        trigger.request();
        trigger.request();
        for task in waiting {
            task.await.unwrap();
        }
        shutdown.requested().await;
        assert!(shutdown.is_requested());
    }

    #[tokio::test]
    async fn a_request_between_making_the_future_and_polling_it_is_not_missed() {
        let (trigger, shutdown) = channel();
        let requested = shutdown.requested();
        trigger.request();
        requested.await;
    }
}
