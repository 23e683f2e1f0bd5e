//! Until when everything is done: what a lag in time is made of.

use std::collections::VecDeque;

/// Distance between two remembered offsets.
const MARK_EVERY_MS: i64 = 1_000;
/// How many offsets are remembered. When there are more, the older half is thinned out: an archive that is away for days
/// costs no memory, and its age is then a little too high rather than too low.
const MARKS: usize = 256;

/// Of one partition: the moment up to which everything that was appended is done.
///
/// A lag in offsets says nothing about time, and an age would stand still with the process that reports it. A moment
/// does not: now less the moment is the lag in time, whoever computes it. All times are milliseconds since 1970.
#[derive(Debug, Clone)]
pub struct Progress {
    /// Nothing is known of what was before.
    began_ms: i64,
    done: i64,
    until_ms: Option<i64>,
    /// Where the log was last seen to end, and when.
    end: Option<(i64, i64)>,
    /// Offsets below which everything was done, each with its moment; both rise.
    marks: VecDeque<(i64, i64)>,
}

impl Progress {
    /// Everything below `done` is done, and nothing is known about when it was appended: until there is evidence, the
    /// moment is `now_ms`, so that a partition that never moves grows old all the same.
    pub fn begin(done: i64, now_ms: i64) -> Self {
        Self { began_ms: now_ms, done, until_ms: None, end: None, marks: VecDeque::new() }
    }

    /// Everything below `done` is done. `newest_ms`: append time of the last record of it; 0: not known.
    pub fn advance(&mut self, done: i64, newest_ms: i64) {
        self.done = self.done.max(done);
        if newest_ms > 0 {
            self.raise(newest_ms);
        }
        self.meet();
    }

    /// At `at_ms` the log ended at `end`: whatever is at or above it was appended later.
    pub fn end_seen(&mut self, end: i64, at_ms: i64) {
        self.end = Some((end, at_ms));
        self.meet();
    }

    /// Everything that was appended before is done.
    pub fn until_ms(&self) -> i64 {
        self.until_ms.unwrap_or(self.began_ms)
    }

    /// The same of what lies below `offset`, which is `done` or less. Of an offset that was done before this process
    /// began nobody knows: then it is the first moment that is known, which is too late rather than too early.
    pub fn until_ms_of(&self, offset: i64) -> i64 {
        if offset >= self.done {
            return self.until_ms();
        }
        let below = self.marks.iter().rev().find(|(done, _)| *done <= offset);
        below.or(self.marks.front()).map_or(self.began_ms, |(_, until_ms)| *until_ms)
    }

    /// Done is everything that the log had when its end was seen.
    fn meet(&mut self) {
        if let Some((_, at_ms)) = self.end.filter(|(end, _)| *end <= self.done) {
            self.raise(at_ms);
        }
    }

    fn raise(&mut self, until_ms: i64) {
        let until_ms = self.until_ms.map_or(until_ms, |before| before.max(until_ms));
        self.until_ms = Some(until_ms);
        self.mark(until_ms);
    }

    fn mark(&mut self, until_ms: i64) {
        let len = self.marks.len();
        let before_last = len.checked_sub(2).and_then(|at| self.marks.get(at)).copied();
        let last = self.marks.back_mut();
        // The last mark moves along until it is far enough from the one before.
        match (last, before_last) {
            (Some(last), _) if last.0 == self.done => last.1 = until_ms,
            (Some(last), Some(before)) if last.1 - before.1 < MARK_EVERY_MS => *last = (self.done, until_ms),
            _ => self.marks.push_back((self.done, until_ms)),
        }
        if self.marks.len() > MARKS {
            let mut at = 0;
            self.marks.retain(|_| {
                at += 1;
                at % 2 == 1 || at > MARKS / 2
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_in_time_is_that_of_the_last_record_and_of_the_last_look() {
        let mut progress = Progress::begin(10, 5_000);
        assert_eq!(progress.until_ms(), 5_000, "nothing known: it grows old from here");
        progress.advance(20, 1_000);
        assert_eq!(progress.until_ms(), 1_000, "evidence of an old backlog");
        progress.end_seen(30, 6_000);
        assert_eq!(progress.until_ms(), 1_000, "there is more in the log");
        progress.advance(30, 2_000);
        assert_eq!(progress.until_ms(), 6_000, "all that the log had at the look is done");
        progress.advance(31, 5_500);
        assert_eq!(progress.until_ms(), 6_000, "it never goes back");
        progress.end_seen(31, 9_000);
        assert_eq!(progress.until_ms(), 9_000, "a quiet partition stays current");
    }

    #[test]
    fn of_a_lower_offset_the_moment_is_earlier() {
        let mut progress = Progress::begin(0, 0);
        for at in 1..=100 {
            progress.advance(at * 10, at * 1_000);
        }
        assert_eq!(progress.until_ms_of(1_000), 100_000);
        assert_eq!(progress.until_ms_of(505), 50_000);
        assert_eq!(progress.until_ms_of(5), 1_000, "the first that is known");
        assert_eq!(Progress::begin(7, 3_000).until_ms_of(2), 3_000);
    }

    #[test]
    fn memory_is_bounded_and_what_is_forgotten_makes_older() {
        let mut progress = Progress::begin(0, 0);
        for at in 1..=100_000 {
            // Ten batches a second.
            progress.advance(at, at * 100);
            assert!(progress.marks.len() <= MARKS + 1);
        }
        for offset in [1_000, 50_000, 99_000, 99_990] {
            let until_ms = progress.until_ms_of(offset);
            assert!(until_ms <= offset * 100, "{offset}: {until_ms}");
        }
        assert!(progress.until_ms_of(99_970) >= 99_950 * 100, "the newest are kept close together");
    }
}
