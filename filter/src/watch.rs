//! The watch over reading: how far it lags, and whether it has stopped without a word.
//!
//! Clients of the log have been known to go silent for ever after a rebalance or a broker's restart. Then only a new
//! process helps, so the room ends.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How often the ends are asked for.
pub(crate) const EVERY: Duration = Duration::from_secs(10);

/// The partition had records to read, and the same offset was awaited all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stalled {
    pub(crate) partition: i32,
    pub(crate) awaited: i64,
    pub(crate) end: i64,
}

#[derive(Debug)]
pub(crate) struct Watch {
    limit: Duration,
    /// The offset that was awaited, and since when.
    waiting: BTreeMap<i32, (i64, Instant)>,
}

impl Watch {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, waiting: BTreeMap::new() }
    }

    /// The room itself keeps the records away, or the log is known to be: what follows is a new wait.
    pub(crate) fn pause(&mut self) {
        self.waiting.clear();
    }

    /// Running partitions with the offset that each awaits and the log's end.
    pub(crate) fn look(&mut self, seen: &[(i32, i64, i64)], now: Instant) -> Option<Stalled> {
        self.waiting.retain(|partition, _| seen.iter().any(|(other, ..)| other == partition));
        let mut stalled = None;
        for (partition, awaited, end) in seen.iter().copied() {
            let since = match self.waiting.get(&partition) {
                Some((before, since)) if *before == awaited && end > awaited => *since,
                _ => now,
            };
            self.waiting.insert(partition, (awaited, since));
            if now.duration_since(since) >= self.limit {
                stalled = Some(Stalled { partition, awaited, end });
            }
        }
        stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_something_to_read_and_does_not_get_it_stalls() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut watch = Watch::new(Duration::from_secs(30));
        // 0 gets records, 1 is at the end, 2 gets none.
        for (s, read) in [(0, 10), (10, 20), (20, 30), (29, 40)] {
            assert_eq!(watch.look(&[(0, read, 99), (1, 50, 50), (2, 5, 60)], at(s)), None);
        }
        let seen = [(0, 50, 99), (1, 50, 50), (2, 5, 60)];
        assert_eq!(watch.look(&seen, at(30)), Some(Stalled { partition: 2, awaited: 5, end: 60 }));
        // A pause, or a time in somebody else's hands, begins the wait anew.
        watch.pause();
        assert_eq!(watch.look(&seen, at(31)), None);
        assert_eq!(watch.look(&seen[1..2], at(50)), None);
        assert_eq!(watch.look(&seen, at(62)), None);
        assert_eq!(watch.look(&[(1, 50, 51)], at(70)), None, "it has only just got behind");
    }
}
