//! What all handles of a log share.

use super::config::{Kind, LogConfig};
use super::files::FileLayer;
use super::groups::Groups;
use super::journal::Journal;
use onlooker_ports::Topic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub(crate) struct Shared<F: FileLayer> {
    pub(crate) partitions: u32,
    pub(crate) config: LogConfig,
    pub(crate) groups: Arc<Groups>,
    /// In the order of `Kind::ALL`.
    pub(crate) journals: [Arc<Journal<F>>; 2],
    keyless: AtomicU32,
}

impl<F: FileLayer> Shared<F> {
    pub(crate) fn new(
        partitions: u32,
        config: LogConfig,
        groups: Arc<Groups>,
        journals: [Arc<Journal<F>>; 2],
    ) -> Self {
        Self { partitions, config, groups, journals, keyless: AtomicU32::new(0) }
    }

    pub(crate) fn of(&self, kind: Kind) -> &Arc<Journal<F>> {
        &self.journals[kind.index()]
    }

    pub(crate) fn journal(&self, topic: Topic) -> &Arc<Journal<F>> {
        self.of(Kind::of(topic))
    }

    /// A partition's first offset and its end.
    pub(crate) fn bounds(&self, topic: Topic, partition: u32) -> (i64, i64) {
        let journal = self.journal(topic);
        let slot = journal.kind.slot(topic, partition, self.partitions);
        let state = journal.state();
        (state.slots[slot].start, state.slots[slot].end)
    }

    /// Where records without a key go: all of a batch to one partition, batch after batch to all.
    pub(crate) fn keyless(&self) -> u32 {
        self.keyless.fetch_add(1, Ordering::Relaxed)
    }
}
