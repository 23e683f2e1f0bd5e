//! Where a group of filters that lost its offsets has to go on.

use crate::config::Config;
use anyhow::{Context, Result, bail};
use onlooker_filter::heart::Note;
use onlooker_kafka::KafkaHistory;
use onlooker_kafka::admin::group_positions;
use onlooker_ports::{Position, Topic, VerdictHistory};
use onlooker_proto::{decode_counted, decode_dead, decode_ignored};
use std::collections::BTreeMap;
use tokio::sync::mpsc;

/// One partition of the views, as its verdicts show it.
#[derive(Default)]
struct Judged {
    /// Behind the last view that has a verdict.
    next: i64,
    /// The newest slice of append time among them.
    slice: i64,
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
    let slice_s = config.filter.slice_s;
    let position = |(partition, judged): (i32, Judged)| {
        let note = Note { slice: judged.slice, slice_s };
        Position { partition, offset: judged.next, note: note.write() }
    };
    Ok(judged.into_iter().map(position).collect())
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
            for (partition, offset, slice) in records.filter_map(|r| source(config, topic, r.payload)) {
                let one = judged.entry(partition).or_default();
                one.next = one.next.max(offset.saturating_add(1));
                one.slice = one.slice.max(slice);
            }
        }
    };
    let (read, ()) = tokio::join!(reading, noting);
    read.with_context(|| format!("reading {}", config.cluster.kafka.topics.get(topic)))
}

/// The view that a verdict is on: partition, offset, slice. None: it is on something else, or cannot be read.
fn source(config: &Config, topic: Topic, payload: Option<&[u8]>) -> Option<(i32, i64, i64)> {
    let slice_s = config.filter.slice_s;
    match topic {
        Topic::Views => None,
        Topic::Counted => decode_counted(payload).ok().map(|c| {
            // The length may have been changed since: then it is the one that the slice covers to the end.
            let slice = Note { slice: c.slice, slice_s: c.slice_s }.in_slices_of(slice_s);
            (c.source_partition, c.source_offset, slice)
        }),
        Topic::Ignored => {
            decode_ignored(payload).ok().map(|i| (i.source_partition, i.source_offset, i.slice))
        }
        // Counters set records aside as well.
        Topic::Dead => decode_dead(payload)
            .ok()
            .filter(|dead| dead.source_topic == config.cluster.kafka.topics.get(Topic::Views))
            .map(|d| {
                let slice = (d.source_append_ms / 1_000).div_euclid(slice_s.max(1).into());
                (d.source_partition, d.source_offset, slice)
            }),
    }
}
