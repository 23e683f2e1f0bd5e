//! A system to look at.

use super::finding::Finding;
use crate::carry::Rows;
use anyhow::Result;
use onlooker_event::CountKey;
use onlooker_ports::{Archive, CountObserver, CountRepair, LogObserver, LogWriter, Topic};
use std::collections::BTreeMap;
use std::future::Future;
use tokio::sync::mpsc;

/// What verdicts depend on besides the log. Seconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct JudgedBy {
    /// A counted view is remembered for one to two slices of append time.
    pub(crate) slice_s: u32,
    /// A viewer's views of an item less than this apart are one, by site.
    pub(crate) windows_s: BTreeMap<String, u32>,
    /// The version of the viewers' key that this configuration has, if it has any.
    pub(crate) key_version: Option<u32>,
}

/// A cluster or a folder. Nothing is asked of a server before it is needed, so that one that is down hides no other.
pub(crate) trait Sight: Send + Sync + 'static {
    type Log: LogObserver;
    type Writer: LogWriter;
    type Counts: CountObserver + CountRepair;
    type Archive: Archive;

    /// The log's generation.
    fn generation(&self) -> &str;
    /// Partitions of `views` and of `views.counted`.
    fn partitions(&self) -> u32;
    fn log(&self) -> &Self::Log;
    /// Appends to the log.
    fn writer(&self) -> Result<&Self::Writer>;
    fn counts(&self) -> &Self::Counts;
    fn archive(&self) -> &Self::Archive;
    /// The topic as its users call it.
    fn topic(&self, topic: Topic) -> String;
    /// Where a sketch stands in a Redis Cluster: slot and key; none where there is no such thing.
    fn location(&self, partition: i32, key: &CountKey) -> Option<(u16, String)>;
    /// What its views are judged by.
    fn judged_by(&self) -> Result<JudgedBy>;
    /// Each server: whether it answers.
    fn servers(&self) -> impl Future<Output = Vec<Finding>> + Send;
    /// Servers and settings that contradict what counting rests on, or should be looked at, and those that are well.
    fn settings(&self) -> impl Future<Output = Vec<Finding>> + Send;
    /// All rows of the archive that belong to this log.
    fn scan(&self, sink: mpsc::Sender<Rows>) -> impl Future<Output = Result<()>> + Send;
}
