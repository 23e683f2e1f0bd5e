//! Keeping trouble from making more of itself: a log line a period and not a request, and clients that come back one
//! by one.

use rand::Rng;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Equal warnings go out this often.
pub(crate) const WARN_EVERY: Duration = Duration::from_secs(10);
/// Hints about the configuration go out this often.
pub(crate) const HINT_EVERY: Duration = Duration::from_secs(3600);

/// One to five seconds, so that clients do not come back all at once.
pub(crate) fn jittered() -> Duration {
    Duration::from_secs(rand::rng().random_range(1..=5))
}

/// Lets one of many equal log lines through.
#[derive(Debug)]
pub(crate) struct Quiet {
    period: Duration,
    /// When the last line went out, and how many were held back since.
    state: Mutex<(Option<Instant>, u64)>,
}

impl Quiet {
    pub(crate) fn every(period: Duration) -> Self {
        Self { period, state: Mutex::default() }
    }

    /// How many lines were held back since the last one, if it is time for another.
    pub(crate) fn due(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if state.0.is_some_and(|last| last.elapsed() < self.period) {
            state.1 += 1;
            return None;
        }
        state.0 = Some(Instant::now());
        Some(std::mem::take(&mut state.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_period_says_how_many_were_held_back() {
        let quiet = Quiet::every(Duration::from_secs(3600));
        assert_eq!((quiet.due(), quiet.due(), quiet.due()), (Some(0), None, None));
        let never_quiet = Quiet { period: Duration::ZERO, ..quiet };
        assert_eq!((never_quiet.due(), never_quiet.due()), (Some(2), Some(0)));
    }

    #[test]
    fn waits_differ() {
        let waits: std::collections::HashSet<_> = (0..100).map(|_| jittered()).collect();
        assert!(waits.len() > 1 && waits.iter().all(|w| (1..=5).contains(&w.as_secs())), "{waits:?}");
    }
}
