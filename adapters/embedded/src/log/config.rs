//! How the log is kept.

use onlooker_ports::Topic;
use serde::{Deserialize, Serialize};

/// What `Ok` of an append or a transaction means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The records are on the disk (`fdatasync`, and the folder too if a file was made): they survive the loss of power
    /// and everything below. Rests on a disk that writes what it says it has written.
    #[default]
    Power,
    /// The operating system has the records: they survive the death of the process in any way (`kill -9`, a crash, out
    /// of memory). A loss of power or a crash of the system loses what it had not written yet, usually the last 30
    /// seconds; what is left is a log that opens, ends earlier, and contains no half of a transaction.
    Process,
}

/// Limits and promises of the log. Each journal (views; verdicts) is bounded by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// What survives what.
    pub durability: Durability,
    /// A file is closed and the next begun at about this size. Retention removes whole files, and an unclean stop means
    /// that one file is read at the next start. Bytes.
    pub segment_bytes: u64,
    /// How long views are kept after the filter has read them. Hours.
    pub views_retention_hours: u64,
    /// How long verdicts are kept after the counter has read them. The filter's memory is rebuilt from them: not less
    /// than two of its slices. Hours.
    pub verdicts_retention_hours: u64,
    /// Views beyond this size are removed before their time, the oldest first; never what a group has not read.
    /// Bytes; 0: no limit.
    pub views_retention_bytes: u64,
    /// The same for verdicts, read by the counter. Choose it so that two of the filter's slices fit: what its memory
    /// would be rebuilt from is removed as well. Bytes; 0: no limit.
    pub verdicts_retention_bytes: u64,
    /// A journal that has this size and holds nothing that may be removed takes no more: appends are refused as if the
    /// disk were full. Bytes; 0: the disk alone is the limit.
    pub limit_bytes: u64,
    /// Bytes of records that may wait to be written, in each journal; more are refused at once.
    pub queue_bytes: usize,
    /// Bytes of the newest records that are kept in memory for readers, in each journal.
    pub tail_bytes: usize,
    /// Records in one batch that a reader hands out, at most.
    pub batch_records: usize,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            durability: Durability::Power,
            segment_bytes: 64 << 20,
            views_retention_hours: 168,
            verdicts_retention_hours: 720,
            views_retention_bytes: 0,
            verdicts_retention_bytes: 0,
            limit_bytes: 0,
            queue_bytes: 32 << 20,
            tail_bytes: 4 << 20,
            batch_records: 5_000,
        }
    }
}

impl LogConfig {
    /// What is wrong, each with its key; empty if nothing is.
    pub fn faults(&self) -> Vec<(&'static str, &'static str)> {
        let mut faults = Vec::new();
        let mut check = |good: bool, key, problem| {
            if !good {
                faults.push((key, problem));
            }
        };
        let segment = (4096..=1 << 30).contains(&self.segment_bytes);
        check(segment, "segment_bytes", "must be between 4 KiB and 1 GiB");
        check(self.views_retention_hours > 0, "views_retention_hours", "must be at least 1");
        check(self.verdicts_retention_hours > 0, "verdicts_retention_hours", "must be at least 1");
        check(
            (1 << 10..=1 << 30).contains(&self.queue_bytes),
            "queue_bytes",
            "must be between 1 KiB and 1 GiB",
        );
        check((1..=1 << 20).contains(&self.batch_records), "batch_records", "must be between 1 and 1048576");
        let roomy = self.limit_bytes == 0 || self.limit_bytes >= 2 * self.segment_bytes;
        check(roomy, "limit_bytes", "must be 0 or at least twice segment_bytes");
        faults
    }
}

/// A journal: the files that are appended to by one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What the collector appends.
    Views,
    /// What the filter appends, and all committed positions.
    Verdicts,
}

impl Kind {
    pub(crate) const ALL: &[Kind] = &[Kind::Views, Kind::Verdicts];

    /// Where a topic's records are.
    pub(crate) fn of(topic: Topic) -> Self {
        match topic {
            Topic::Views => Kind::Views,
            Topic::Counted | Topic::Ignored | Topic::Dead => Kind::Verdicts,
        }
    }

    pub(crate) fn topics(self) -> &'static [Topic] {
        match self {
            Kind::Views => &[Topic::Views],
            Kind::Verdicts => &[Topic::Counted, Topic::Ignored, Topic::Dead],
        }
    }

    /// Its folder's name, and how files and log lines name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Views => "views",
            Kind::Verdicts => "verdicts",
        }
    }

    pub(crate) fn index(self) -> usize {
        match self {
            Kind::Views => 0,
            Kind::Verdicts => 1,
        }
    }

    /// The place of a topic's partition in tables of this journal; the topic must be one of its own.
    pub(crate) fn slot(self, topic: Topic, partition: u32, partitions: u32) -> usize {
        let place = self.topics().iter().position(|other| *other == topic).unwrap_or(0);
        place * partitions as usize + partition as usize
    }
}

/// A topic as a byte in files. Never renumbered.
pub(crate) fn topic_code(topic: Topic) -> u8 {
    match topic {
        Topic::Views => 0,
        Topic::Counted => 1,
        Topic::Ignored => 2,
        Topic::Dead => 3,
    }
}

pub(crate) fn topic_of(code: u8) -> Option<Topic> {
    [Topic::Views, Topic::Counted, Topic::Ignored, Topic::Dead].into_iter().find(|t| topic_code(*t) == code)
}

/// A topic in log lines.
pub(crate) fn topic_name(topic: Topic) -> &'static str {
    match topic {
        Topic::Views => "views",
        Topic::Counted => "counted",
        Topic::Ignored => "ignored",
        Topic::Dead => "dead",
    }
}
