//! Trying again: how long to wait, and when to stop.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::Shutdown;

/// Exponential back-off with full jitter: before try n + 1 it waits a random time between zero and
/// `min(cap, base · 2ⁿ)`.
///
/// The cap comes before the jitter; the other way round every client would wait exactly the cap.
#[derive(Debug)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    failures: u32,
    rng: StdRng,
}

impl Backoff {
    /// Starts at `base`, never waits longer than `cap`.
    pub fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, failures: 0, rng: StdRng::from_os_rng() }
    }

    /// The same with delays that are a function of the seed, for tests and simulations.
    pub fn seeded(base: Duration, cap: Duration, seed: u64) -> Self {
        Self { base, cap, failures: 0, rng: StdRng::seed_from_u64(seed) }
    }

    /// The next delay. Counts one more failure.
    pub fn next_delay(&mut self) -> Duration {
        // 2³¹ times any sensible base is beyond any sensible cap.
        let ceiling = self.base.saturating_mul(1 << self.failures.min(31)).min(self.cap);
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(self.rng.random::<f64>())
    }

    /// Failures since the start or the last reset.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Something went well: the next delay starts at `base` again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// One failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Failures in a row, this one included.
    pub failures: u32,
    /// The wait before the next try, if there is one.
    pub delay: Duration,
}

/// What to do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Wait, then try again.
    Retry,
    /// This error will not go away: hand it to the caller.
    GiveUp,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Stopped<E> {
    /// Shutdown was requested during a wait, or before the first try.
    #[error("shutdown was requested")]
    Shutdown,
    /// The judge gave up on this error.
    #[error(transparent)]
    GaveUp(E),
}

/// Calls `op` until it succeeds, the judge gives up, or shutdown is requested.
///
/// Shutdown cuts a wait short and never a try: whether a write that is dropped half-way took effect
/// nobody can say. So each try has to end by itself, with a time-out of its own. The judge sees every
/// error before the wait: it decides, and it is the place for the log line, the metric and readiness.
///
/// # Errors
/// [`Stopped`].
pub async fn retry_until_shutdown<T, E, Op, Try, Judge>(
    backoff: &mut Backoff,
    shutdown: &Shutdown,
    mut op: Op,
    mut judge: Judge,
) -> Result<T, Stopped<E>>
where
    Op: FnMut() -> Try,
    Try: Future<Output = Result<T, E>>,
    Judge: FnMut(&E, Failure) -> Next,
{
    loop {
        if shutdown.is_requested() {
            return Err(Stopped::Shutdown);
        }
        let error = match op().await {
            Ok(value) => {
                backoff.reset();
                return Ok(value);
            }
            Err(error) => error,
        };
        let delay = backoff.next_delay();
        if judge(&error, Failure { failures: backoff.failures(), delay }) == Next::GiveUp {
            return Err(Stopped::GaveUp(error));
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = shutdown.requested() => return Err(Stopped::Shutdown),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;
    use crate::shutdown::channel;

    const BASE: Duration = Duration::from_millis(100);
    const CAP: Duration = Duration::from_secs(5);

    #[test]
    fn delays_stay_below_a_doubling_ceiling_and_use_all_of_it() {
        let mut longest = [Duration::ZERO; 10];
        for seed in 0..500 {
            let mut backoff = Backoff::seeded(BASE, CAP, seed);
            for (n, longest) in longest.iter_mut().enumerate() {
                let ceiling = BASE.saturating_mul(1 << n).min(CAP);
                let delay = backoff.next_delay();
                assert!(delay <= ceiling, "try {n}: {delay:?} > {ceiling:?}");
                *longest = (*longest).max(delay);
            }
        }
        for (n, longest) in longest.iter().enumerate() {
            assert!(*longest > BASE.saturating_mul(1 << n).min(CAP).mul_f64(0.9), "try {n}: {longest:?}");
        }
    }

    #[test]
    fn a_seed_fixes_the_delays_and_a_reset_starts_again() {
        let delays = |seed| {
            let mut backoff = Backoff::seeded(BASE, CAP, seed);
            (0..8).map(|_| backoff.next_delay()).collect::<Vec<_>>()
        };
        assert_eq!(delays(7), delays(7));
        assert_ne!(delays(7), delays(8));

        let mut backoff = Backoff::seeded(BASE, CAP, 7);
        for _ in 0..100 {
            backoff.next_delay();
        }
        backoff.reset();
        assert_eq!(backoff.failures(), 0);
        assert!(backoff.next_delay() <= BASE);
    }

    #[tokio::test(start_paused = true)]
    async fn tries_until_it_succeeds() {
        let (_trigger, shutdown) = channel();
        let mut backoff = Backoff::seeded(BASE, CAP, 1);
        let tries = Cell::new(0);
        let mut waits = Vec::new();
        let start = Instant::now();
        let value = retry_until_shutdown(
            &mut backoff,
            &shutdown,
            || {
                tries.set(tries.get() + 1);
                let n = tries.get();
                async move { if n < 4 { Err("no") } else { Ok(n) } }
            },
            |_, failure| {
                waits.push(failure);
                Next::Retry
            },
        )
        .await
        .unwrap();
        assert_eq!(value, 4);
        assert_eq!(waits.iter().map(|f| f.failures).collect::<Vec<_>>(), [1, 2, 3]);
        let asked: Duration = waits.iter().map(|f| f.delay).sum();
        // The paused clock moves in whole milliseconds, rounded up once a wait.
        assert!(start.elapsed() >= asked && start.elapsed() <= asked + Duration::from_millis(3));
        assert_eq!(backoff.failures(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn gives_up_when_the_judge_does() {
        let (_trigger, shutdown) = channel();
        let mut backoff = Backoff::seeded(BASE, CAP, 1);
        let outcome: Result<(), _> = retry_until_shutdown(
            &mut backoff,
            &shutdown,
            async || Err("wrong password"),
            |_, _| Next::GiveUp,
        )
        .await;
        assert!(matches!(outcome, Err(Stopped::GaveUp("wrong password"))), "{outcome:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_ends_the_wait_but_not_a_try() {
        let (trigger, shutdown) = channel();
        let mut backoff = Backoff::seeded(Duration::from_secs(3600), Duration::from_secs(3600), 1);
        let finished = Cell::new(0);
        let start = Instant::now();
        let outcome: Result<(), _> = retry_until_shutdown(
            &mut backoff,
            &shutdown,
            || {
                trigger.request();
                let finished = &finished;
                async move {
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    finished.set(finished.get() + 1);
                    Err("no")
                }
            },
            |_, _| Next::Retry,
        )
        .await;
        assert!(matches!(outcome, Err(Stopped::Shutdown)), "{outcome:?}");
        assert_eq!((finished.get(), start.elapsed()), (1, Duration::from_secs(2)));
    }
}
