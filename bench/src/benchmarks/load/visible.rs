//! From a view to its count: views of items that nobody else looks at, read again and again until they are counted.

use crate::http::{Connection, get, post};
use crate::latency::Latency;
use crate::workload::{SITE, json_of};
use anyhow::{Result, anyhow, ensure};
use std::net::SocketAddr;
use std::thread::{self, Scope, sleep};
use std::time::{Duration, Instant};

/// Views under way at once: one that takes long must not hold up the timetable of the others.
const WATCHERS: u32 = 8;

/// Views a second, of all watchers together.
const RATE: u32 = 10;

/// Between two reads.
const INTERVAL: Duration = Duration::from_millis(10);

/// Later is not at all.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where views go and counts come from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watcher<'a> {
    pub(super) collector: SocketAddr,
    pub(super) counts: SocketAddr,
    /// Part of the items' names, so that they are new.
    pub(super) name: &'a str,
}

/// What was seen.
#[derive(Debug)]
pub(super) struct Seen {
    /// From the sending of a view until the count of its item was read as 1.
    pub(super) latency: Latency,
    /// Views whose count did not come.
    pub(super) unseen: u64,
}

impl<'a> Watcher<'a> {
    /// Sends and reads for so long.
    pub(super) fn run<'scope>(self, scope: &'scope Scope<'scope, '_>, how_long: Duration) -> Result<Seen>
    where
        'a: 'scope,
    {
        let start = Instant::now();
        let threads: Vec<_> =
            (0..WATCHERS).map(|nth| scope.spawn(move || self.one(nth, start, how_long))).collect();
        let mut seen = Seen { latency: Latency::new()?, unseen: 0 };
        for thread in threads {
            let part = thread.join().map_err(|_| anyhow!("a watcher panicked"))??;
            seen.latency.merge(&part.latency)?;
            seen.unseen += part.unseen;
        }
        Ok(seen)
    }

    fn one(self, nth: u32, start: Instant, how_long: Duration) -> Result<Seen> {
        let mut to = Connection::open(self.collector, PATIENCE)?;
        let mut from = Connection::open(self.counts, PATIENCE)?;
        let mut seen = Seen { latency: Latency::new()?, unseen: 0 };
        for number in (nth..).step_by(WATCHERS as usize) {
            let due = start + Duration::from_secs(1) * number / RATE;
            if due.duration_since(start) >= how_long {
                break;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let item = format!("watched-{}-{number}", self.name);
            let sent = Instant::now();
            let answer = to.send(&post(&json_of(&item, &item, number)))?;
            ensure!(answer.status == 202, "a watched view was answered {}", answer.status);
            let read = get(&format!("/v1/counts?site={SITE}&item={item}"));
            loop {
                let answer = from.send(&read)?;
                if answer.status == 200 && views(&answer.body) == Some(1) {
                    seen.latency.record(sent.elapsed());
                    break;
                }
                if sent.elapsed() > PATIENCE {
                    seen.unseen += 1;
                    break;
                }
                sleep(INTERVAL);
            }
        }
        Ok(seen)
    }
}

/// The number of views of the one item that was asked for.
fn views(body: &[u8]) -> Option<u64> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    answer.get("counts")?.get(0)?.get("views")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_found() {
        assert_eq!(views(br#"{"counts":[{"item":"a","views":1,"status":"ok"}]}"#), Some(1));
        assert_eq!(views(br#"{"counts":[{"item":"a","views":null,"status":"warming"}]}"#), None);
        assert_eq!(views(b""), None);
    }
}
