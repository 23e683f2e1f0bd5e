//! Settings of the room.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The `[counter]` section.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct CounterConfig {
    /// Records that one step applies, at most. The store serves nobody else meanwhile: about 5 µs a record.
    pub batch_records: usize,
    /// Steps of all partitions together that wait in the store at once, at most. Readers wait behind them.
    pub applies_at_once: usize,
    /// How long a record may wait for company before it is applied, in milliseconds. A full batch does not wait. A step
    /// costs the store some 20 µs whatever is in it, so small ones are dear.
    pub linger_ms: u64,
    /// Bytes of archived sketches that one step restores, at most (but at least one sketch).
    pub base_bytes: usize,
    /// Keys (item and scope) whose numbers the process remembers, all partitions together; about 200 bytes each.
    pub known_keys: usize,
    /// Hot sketches whose registers the process remembers, to leave out members that change nothing; 8 KiB each.
    pub hot_sketches: usize,
    /// Members in one batch that make a sketch hot.
    pub hot_members: usize,
    /// Without records, how often the store is asked whether it stands where it did, in milliseconds. So long may a
    /// loss on a quiet partition go unnoticed.
    pub idle_ms: u64,
    /// How often readers' wishes are looked at, in milliseconds.
    pub wanted_ms: u64,
    /// Wishes that are served at once, at most.
    pub wanted_keys: usize,
    /// How long the archive may take for a wish, in milliseconds. Counting waits meanwhile.
    pub wanted_read_ms: u64,
    /// How long readers may believe that nobody knows a key, in seconds.
    pub absent_s: u64,
    /// How often the archive is asked what is durable, to commit it to the log, in milliseconds.
    pub durable_ms: u64,
    /// What to do when the log no longer has the records that come next.
    pub lost_records: LostRecords,
    /// A partition waits, and readiness says so, rather than give up more than this share of (at least 1,000) records
    /// as unreadable. 100 lets everything through.
    pub dead_limit_percent: u8,
    /// The store is in this process and begins empty: that is no news.
    #[serde(skip)]
    pub volatile: bool,
    /// The topic's name, for records that are set aside.
    #[serde(skip)]
    pub source_topic: String,
    /// How many partitions the log's keys were spread over; 0: records are not asked whether they lie where they belong.
    #[serde(skip)]
    pub partitions: u32,
    /// When a partition has records to read and none came for this long, reading is begun anew; in seconds.
    pub stall_s: u64,
    /// Time to finish what was begun when shutdown is requested, in milliseconds.
    pub drain_ms: u64,
}

/// What to do when retention has passed the offset at which the store stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LostRecords {
    /// Stand still and say so, until a person has looked.
    Stop,
    /// Go on at the first record that is left. The records between are never counted.
    Skip,
}

impl Default for CounterConfig {
    fn default() -> Self {
        Self {
            batch_records: 200,
            applies_at_once: 2,
            linger_ms: 20,
            base_bytes: 512 << 10,
            known_keys: 400_000,
            hot_sketches: 4_096,
            hot_members: 16,
            idle_ms: 3_000,
            wanted_ms: 200,
            wanted_keys: 200,
            wanted_read_ms: 500,
            absent_s: 60,
            durable_ms: 30_000,
            lost_records: LostRecords::Stop,
            dead_limit_percent: 50,
            volatile: false,
            source_topic: "views.counted".into(),
            partitions: 0,
            stall_s: 180,
            drain_ms: 10_000,
        }
    }
}

impl CounterConfig {
    /// Everything that is wrong with it, as (key, problem).
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let at_least_1 = [
            ("batch_records", self.batch_records as u64),
            ("applies_at_once", self.applies_at_once as u64),
            ("base_bytes", self.base_bytes as u64),
            ("known_keys", self.known_keys as u64),
            ("hot_members", self.hot_members as u64),
            ("idle_ms", self.idle_ms),
            ("wanted_ms", self.wanted_ms),
            ("wanted_keys", self.wanted_keys as u64),
            ("wanted_read_ms", self.wanted_read_ms),
            ("absent_s", self.absent_s),
            ("durable_ms", self.durable_ms),
            ("stall_s", self.stall_s),
        ];
        let zeros = at_least_1.iter().filter(|(_, value)| *value == 0);
        let mut faults: Vec<_> = zeros.map(|(key, _)| (*key, "must be at least 1".to_owned())).collect();
        if self.batch_records > 100_000 {
            faults
                .push(("batch_records", "must be at most 100000: the store serves nobody meanwhile".into()));
        }
        if self.applies_at_once > 65_536 {
            faults
                .push(("applies_at_once", format!("must be at most 65536, and is {}", self.applies_at_once)));
        }
        if self.dead_limit_percent > 100 {
            faults.push(("dead_limit_percent", "must be 0 to 100".into()));
        }
        faults
    }

    pub(crate) fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_are_reported_at_once() {
        assert_eq!(CounterConfig::default().faults(), []);
        let config = CounterConfig {
            batch_records: 0,
            idle_ms: 0,
            dead_limit_percent: 101,
            ..CounterConfig::default()
        };
        let keys: Vec<_> = config.faults().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["batch_records", "idle_ms", "dead_limit_percent"]);
    }
}
