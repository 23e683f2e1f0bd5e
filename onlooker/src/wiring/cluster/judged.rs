//! Where a group of filters that lost its offsets has to go on.

use crate::config::Config;
use anyhow::{Context, Result, bail};
use onlooker_event::ViewId;
use onlooker_filter::heart::Note;
use onlooker_kafka::KafkaHistory;
use onlooker_kafka::admin::{GroupPosition, group_positions};
use onlooker_ports::{Position, Topic, VerdictHistory};
use onlooker_proto::{decode_counted, decode_dead, decode_ignored, decode_view};
use std::collections::BTreeMap;
use tokio::sync::mpsc;

/// One partition of the views, as its verdicts show it.
#[derive(Default)]
struct Judged {
    /// Behind the last view that has a verdict.
    next: i64,
    /// The newest slice of append time among them.
    slice: i64,
    /// What the last of these views is known by.
    mark: Mark,
}

/// What a view is known by, besides its place.
#[derive(Clone, Default, PartialEq, Eq)]
enum Mark {
    #[default]
    None,
    Id(ViewId),
    /// One that could not be read: its bytes, or the first of them.
    Bytes(Vec<u8>),
}

impl Mark {
    fn fits(&self, payload: Option<&[u8]>) -> bool {
        match self {
            Mark::None => true,
            Mark::Id(id) => decode_view(payload).is_ok_and(|view| view.view_id == *id),
            Mark::Bytes(bytes) => payload.unwrap_or_default().starts_with(bytes),
        }
    }
}

/// A verdict's view: where it stands, the slice there, and what it is known by.
struct Source {
    partition: i32,
    offset: i64,
    slice: i64,
    mark: Mark,
}

/// For each partition: behind the last view that has a verdict in the log. Verdicts and the filter's offset are
/// committed together, so that this is what was committed, as long as the log has kept the verdicts.
///
/// # Errors
/// Kafka cannot be reached, or verdicts of a partition are gone, so that nobody can tell.
pub(super) async fn judged_up_to(config: &Config) -> Result<Vec<Position>> {
    let mut judged = BTreeMap::new();
    for topic in [Topic::Counted, Topic::Ignored, Topic::Dead] {
        read(config, topic, &mut judged).await?;
    }
    let positions =
        group_positions(&config.cluster.kafka, Topic::Views, &config.cluster.kafka.groups.filter).await?;
    for position in &positions {
        let next = judged.get(&position.partition).map_or(0, |j: &Judged| j.next);
        if next > position.end {
            bail!(
                "partition {} of {} ends at offset {}, and the log has verdicts up to {next}: the topic was made anew, \
                 which is another log generation",
                position.partition,
                config.cluster.kafka.topics.get(Topic::Views),
                position.end,
            );
        }
        if position.committed.is_none() && next < position.earliest {
            bail!(
                "partition {} of {}: its views begin at offset {}, and the log has no verdict on one from {next} on: \
                 commit by hand where they were judged up to",
                position.partition,
                config.cluster.kafka.topics.get(Topic::Views),
                position.earliest,
            );
        }
    }
    check_views(config, &positions, &judged).await?;
    let slice_s = config.filter.slice_s;
    let position = |(partition, judged): (i32, Judged)| {
        let note = Note { slice: judged.slice, slice_s };
        Position { partition, offset: judged.next, note: note.write() }
    };
    Ok(judged.into_iter().map(position).collect())
}

/// Whether the last view with a verdict is the one that the verdict is on. If the topic was made anew and has grown since,
/// the old one's verdicts would let the filters pass over views that nobody has judged.
async fn check_views(
    config: &Config,
    positions: &[GroupPosition],
    judged: &BTreeMap<i32, Judged>,
) -> Result<()> {
    let known = positions.iter().filter(|position| position.committed.is_none()).filter_map(|position| {
        let last = judged.get(&position.partition)?.next - 1;
        (position.earliest <= last && last < position.end).then_some((position.partition, last))
    });
    let places: Vec<_> = known.collect();
    let kafka = &config.cluster.kafka;
    for batch in KafkaHistory::of(kafka, Topic::Views).read_at(&places).await? {
        for record in batch.iter() {
            if judged.get(&batch.partition).is_some_and(|judged| !judged.mark.fits(record.payload)) {
                bail!(
                    "partition {} of {}: the verdict on offset {} is on another view than the one that stands there: the \
                     topic was made anew, which is another log generation. If no filter has worked on the new topic, \
                     commit offset 0 for all its partitions in group {}",
                    batch.partition,
                    kafka.topics.get(Topic::Views),
                    record.offset,
                    kafka.groups.filter,
                );
            }
        }
    }
    Ok(())
}

async fn read(config: &Config, topic: Topic, judged: &mut BTreeMap<i32, Judged>) -> Result<()> {
    let history = KafkaHistory::of(&config.cluster.kafka, topic);
    let (sink, mut batches) = mpsc::channel(4);
    let reading = async {
        let ends = history.ends().await?;
        history.read(0, &ends, sink).await
    };
    let noting = async {
        while let Some(batch) = batches.recv().await {
            let records = batch.iter();
            for view in records.filter_map(|r| source(config, topic, r.payload)) {
                let one = judged.entry(view.partition).or_default();
                one.slice = one.slice.max(view.slice);
                if view.offset >= one.next {
                    (one.next, one.mark) = (view.offset.saturating_add(1), view.mark);
                }
            }
        }
    };
    let (read, ()) = tokio::join!(reading, noting);
    read.with_context(|| format!("reading {}", config.cluster.kafka.topics.get(topic)))
}

/// The view that a verdict is on. None: it is on something else, or cannot be read.
fn source(config: &Config, topic: Topic, payload: Option<&[u8]>) -> Option<Source> {
    let slice_s = config.filter.slice_s;
    match topic {
        Topic::Views => None,
        Topic::Counted => decode_counted(payload).ok().map(|c| {
            // The length may have been changed since: then it is the one that the slice covers to the end.
            let slice = Note { slice: c.slice, slice_s: c.slice_s }.in_slices_of(slice_s);
            let (partition, offset, mark) = (c.source_partition, c.source_offset, Mark::Id(c.view_id));
            Source { partition, offset, slice, mark }
        }),
        Topic::Ignored => decode_ignored(payload).ok().map(|i| {
            let (partition, offset, mark) = (i.source_partition, i.source_offset, Mark::Id(i.view_id));
            Source { partition, offset, slice: i.slice, mark }
        }),
        // Counters set records aside as well.
        Topic::Dead => decode_dead(payload)
            .ok()
            .filter(|dead| dead.source_topic == config.cluster.kafka.topics.get(Topic::Views))
            .map(|d| {
                let slice = (d.source_append_ms / 1_000).div_euclid(slice_s.max(1).into());
                let (partition, offset) = (d.source_partition, d.source_offset);
                Source { partition, offset, slice, mark: Mark::Bytes(d.payload.into()) }
            }),
    }
}
