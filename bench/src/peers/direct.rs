//! What a service without our guarantees does: consume, claim by SET NX EX, PFADD and HINCRBY, commit now and then.
//! A crash counts some views twice and others never; it keeps a sketch and number for all time and none for the day.

use super::Running;
use crate::log::TopicView;
use crate::resp::{Pipeline, Resp};
use crate::servers::Servers;
use anyhow::{Context, Result};
use onlooker_event::{ItemKey, dedup_key};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use std::time::Duration;

/// The key that says that all is counted.
pub(crate) const DONE: &[u8] = b"direct:done";
/// The hash of the numbers.
pub(crate) const TOTALS: &[u8] = b"direct:totals";

/// Arguments of the peer.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    bootstrap: String,
    #[arg(long)]
    topic: String,
    #[arg(long)]
    partitions: u32,
    #[arg(long)]
    dedup: u16,
    #[arg(long)]
    counters: u16,
    /// Commands that are sent before an answer is awaited
    #[arg(long)]
    pipeline: usize,
}

/// Starts it on a filled topic.
pub(crate) fn start(
    name: &'static str,
    servers: &Servers,
    topic: &TopicView,
    pipeline: usize,
) -> Result<Running> {
    let args = [
        "direct".to_owned(),
        format!("--bootstrap={}", servers.kafka.bootstrap()),
        format!("--topic={}", topic.name),
        format!("--partitions={}", topic.partitions),
        format!("--dedup={}", servers.dedup.port()),
        format!("--counters={}", servers.counters.port()),
        format!("--pipeline={pipeline}"),
    ];
    Running::start(name, &args)
}

pub(super) fn run(args: &Args) -> Result<()> {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", &args.bootstrap).set("group.id", format!("{}-direct", args.topic));
    client.set("enable.auto.commit", "false").set("enable.partition.eof", "true");
    let consumer: BaseConsumer = client.create()?;
    let mut list = TopicPartitionList::new();
    for p in 0..args.partitions.cast_signed() {
        list.add_partition_offset(&args.topic, p, Offset::Beginning)?;
    }
    consumer.assign(&list)?;
    let mut redis = Stores {
        dedup: Resp::connect(args.dedup)?,
        counters: Resp::connect(args.counters)?,
        each: args.pipeline <= 1,
        batch: Vec::new(),
    };
    let (mut open, mut since_commit) = (args.partitions, 0);
    while open > 0 {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                let value = message.payload().context("a record without a value")?;
                redis.batch.push(claim(value)?);
                if redis.batch.len() >= args.pipeline {
                    redis.flush()?;
                }
                since_commit += 1;
                if since_commit == 10_000 {
                    consumer.commit_consumer_state(CommitMode::Async)?;
                    since_commit = 0;
                }
            }
            Some(Err(KafkaError::PartitionEOF(_))) => open -= 1,
            Some(Err(error)) => return Err(error.into()),
            None => {}
        }
    }
    redis.flush()?;
    redis.counters.call(&[b"SET", DONE, b"1"])?;
    // What it took is read while it lives.
    loop {
        std::thread::park();
    }
}

/// What is needed of a view: the claim's key, the item and the viewer.
fn claim(value: &[u8]) -> Result<([u8; 16], ItemKey, [u8; 16])> {
    let view = onlooker_proto::decode_view(Some(value))?;
    let item = ItemKey::new(&view.site, &view.item);
    Ok((dedup_key(view.viewer, item.as_bytes()).0, item, view.viewer.0))
}

struct Stores {
    dedup: Resp,
    counters: Resp,
    /// Whether every command's answer is awaited.
    each: bool,
    batch: Vec<([u8; 16], ItemKey, [u8; 16])>,
}

impl Stores {
    fn flush(&mut self) -> Result<()> {
        let mut claims = Pipeline::default();
        for (key, _, _) in &self.batch {
            claims.push(&[b"SET", key, b"", b"NX", b"EX", b"1800"]);
        }
        let fresh = self.dedup.run(&mut claims)?;
        let mut counts = Pipeline::default();
        for ((_, item, viewer), _) in self.batch.drain(..).zip(fresh).filter(|(_, reply)| reply.is_some()) {
            counts.push(&[b"PFADD", &[b"direct:", item.as_bytes()].concat(), &viewer]);
            if self.each {
                self.counters.run(&mut counts)?;
            }
            counts.push(&[b"HINCRBY", TOTALS, item.as_bytes(), b"1"]);
        }
        self.counters.run(&mut counts).map(drop)
    }
}
