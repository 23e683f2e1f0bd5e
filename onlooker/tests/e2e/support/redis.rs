//! What a Redis holds, read by a client of the test's own.

use redis::{Commands, Connection};
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

pub(crate) struct RedisEyes(Mutex<Connection>);

impl RedisEyes {
    pub(crate) fn new(url: &str) -> Self {
        Self(Mutex::new(redis::Client::open(url).unwrap().get_connection().unwrap()))
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        let mut connection = self.0.lock().unwrap();
        let mut keys: Vec<String> = connection.scan().unwrap().map(Result::unwrap).collect();
        keys.sort();
        keys
    }

    /// Sketches by the key that they count, as raw bytes.
    pub(crate) fn sketches(&self) -> BTreeMap<String, Vec<u8>> {
        let keys = self.keys();
        let mut connection = self.0.lock().unwrap();
        let mut sketches = BTreeMap::new();
        for key in keys.iter().filter(|k| k.starts_with("sketch:{")) {
            let bytes: Option<Vec<u8>> = connection.get(key).unwrap();
            // Evicted between the two looks.
            if let Some(bytes) = bytes {
                let (_, name) = key.split_once("}:").unwrap();
                assert!(sketches.insert(name.to_owned(), bytes).is_none(), "{key} stands in two partitions");
            }
        }
        sketches
    }

    pub(crate) fn flush_all(&self) {
        redis::cmd("FLUSHALL").exec(&mut *self.0.lock().unwrap()).unwrap();
    }

    pub(crate) fn ttl(&self, key: &str) -> i64 {
        self.0.lock().unwrap().ttl(key).unwrap()
    }

    /// Calls of each command since the server's start.
    pub(crate) fn calls(&self) -> HashMap<String, u64> {
        let info: String =
            redis::cmd("INFO").arg("commandstats").query(&mut *self.0.lock().unwrap()).unwrap();
        info.lines()
            .filter_map(|line| {
                let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
                Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
            })
            .collect()
    }

    pub(crate) fn evicted(&self) -> u64 {
        let info: String = redis::cmd("INFO").arg("stats").query(&mut *self.0.lock().unwrap()).unwrap();
        let line = info.lines().find_map(|l| l.strip_prefix("evicted_keys:")).unwrap();
        line.trim().parse().unwrap()
    }

    pub(crate) fn command(&self, words: &[&str]) -> redis::Value {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query(&mut *self.0.lock().unwrap()).unwrap()
    }
}
