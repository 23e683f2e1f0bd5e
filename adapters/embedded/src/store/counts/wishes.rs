//! What readers asked for and did not find, and what nobody knows. Both are bounded: made-up ids cost no memory.

use super::allocation;
use bytes::Bytes;
use foldhash::{HashMap, HashSet};
use onlooker_event::CountKey;
use std::time::{Duration, Instant};

/// Most wishes of one partition at a time.
const MOST_WANTED: usize = 10_000;
/// Most bytes of their keys.
const WANTED_BYTES: usize = 1 << 20;
/// How long wishes stay after the last one if no counter takes them.
const WANTED_FOR: Duration = Duration::from_secs(60);
/// Most bytes of marks of unknown keys, of one partition.
const ABSENT_BYTES: usize = 1 << 20;

/// A wish or a mark costs what its key does and a place in a table.
fn cost(key: &[u8]) -> usize {
    allocation(key.len()) + 48
}

#[derive(Default)]
pub(super) struct Wishes {
    keys: HashSet<Box<[u8]>>,
    bytes: usize,
    last: Option<Instant>,
}

impl Wishes {
    fn expire(&mut self, now: Instant) {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) > WANTED_FOR) {
            *self = Self::default();
        }
    }

    pub(super) fn add(&mut self, key: &CountKey, now: Instant) {
        self.expire(now);
        let bytes = key.as_bytes();
        if self.keys.len() >= MOST_WANTED || self.bytes + cost(bytes) > WANTED_BYTES {
            return;
        }
        self.last = Some(now);
        // A copy: the key may be a slice of a whole request.
        if self.keys.insert(bytes.into()) {
            self.bytes += cost(bytes);
        }
    }

    pub(super) fn take(&mut self, at_most: usize, now: Instant) -> Vec<CountKey> {
        self.expire(now);
        if self.keys.is_empty() {
            return Vec::new();
        }
        let taken: Vec<Box<[u8]>> = self.keys.iter().take(at_most).cloned().collect();
        for key in &taken {
            self.keys.remove(key);
            self.bytes -= cost(key);
        }
        taken.into_iter().filter_map(|key| CountKey::parse(Bytes::from(key)).ok()).collect()
    }
}

/// Keys that the archive does not know, each until some moment.
#[derive(Default)]
pub(super) struct Absent {
    until: HashMap<Box<[u8]>, Instant>,
    bytes: usize,
}

impl Absent {
    pub(super) fn insert(&mut self, key: &CountKey, until: Instant) {
        let bytes = key.as_bytes();
        if self.bytes + cost(bytes) > ABSENT_BYTES {
            self.expire(Instant::now());
        }
        if self.bytes + cost(bytes) <= ABSENT_BYTES && self.until.insert(bytes.into(), until).is_none() {
            self.bytes += cost(bytes);
        }
    }

    fn expire(&mut self, now: Instant) {
        let mut bytes = 0;
        self.until.retain(|key, until| {
            let stays = *until > now;
            bytes += if stays { cost(key) } else { 0 };
            stays
        });
        self.bytes = bytes;
        self.until.shrink_to_fit();
    }

    #[inline]
    pub(super) fn remove(&mut self, key: &CountKey) {
        if !self.until.is_empty() && self.until.remove(key.as_bytes()).is_some() {
            self.bytes -= cost(key.as_bytes());
        }
    }

    pub(super) fn contains(&self, key: &CountKey, now: Instant) -> bool {
        self.until.get(key.as_bytes()).is_some_and(|until| *until > now)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> CountKey {
        CountKey::parse(Bytes::from(format!("*:s:{n}"))).unwrap()
    }

    #[test]
    fn wishes_expire_and_are_bounded() {
        let (mut wishes, now) = (Wishes::default(), Instant::now());
        (0..20_000).for_each(|n| wishes.add(&key(n), now));
        assert_eq!(wishes.take(usize::MAX, now).len(), MOST_WANTED);
        assert_eq!(wishes.bytes, 0);
        wishes.add(&key(1), now);
        assert_eq!(wishes.take(9, now + WANTED_FOR * 2), []);
        let long = |n: u32| CountKey::parse(Bytes::from(format!("*:s:{n}{}", "x".repeat(1_000)))).unwrap();
        (0..20_000).for_each(|n| wishes.add(&long(n), now));
        assert!(wishes.bytes <= WANTED_BYTES && wishes.take(usize::MAX, now).len() > 900);
    }

    #[test]
    fn marks_expire_and_are_bounded() {
        let (mut absent, now) = (Absent::default(), Instant::now());
        let later = now + Duration::from_secs(60);
        absent.insert(&key(0), now);
        assert!(!absent.contains(&key(0), now), "its time is over");
        (0..30_000).for_each(|n| absent.insert(&key(n), later));
        assert!(absent.contains(&key(1), now) && absent.bytes() <= ABSENT_BYTES);
        assert!(!absent.contains(&key(1), later));
        absent.remove(&key(1));
        assert!(!absent.contains(&key(1), now));
        absent.expire(later);
        assert_eq!(absent.bytes(), 0);
    }
}
