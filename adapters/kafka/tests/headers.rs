//! The header `traceparent`, as programs see it that are not ours.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use onlooker_event::TraceParent;
use onlooker_ports::conformance::log::LogUnderTest;
use onlooker_ports::{GroupEvent, GroupReader, LogWriter, OutgoingBatch, Topic};
use onlooker_testkit::shared;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use std::time::{Duration, Instant};
use support::{KafkaLog, config, next, raw};

const SOON: Duration = Duration::from_secs(120);
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// All headers of the first records, as any client reads them.
fn headers(log: &KafkaLog, records: usize) -> Vec<Vec<(String, String)>> {
    let consumer: BaseConsumer = raw(&log.config).set("group.id", "none").create().unwrap();
    let mut all = TopicPartitionList::new();
    all.add_partition_offset(&log.config.topics.views, 0, Offset::Beginning).unwrap();
    consumer.assign(&all).unwrap();
    let (begun, mut found) = (Instant::now(), Vec::new());
    while found.len() < records {
        assert!(begun.elapsed() < SOON, "waited in vain, there are {found:?}");
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) else { continue };
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
        let headers = message.headers().map(|headers| {
            headers.iter().map(|header| (header.key.to_owned(), text(header.value))).collect()
        });
        found.push(headers.unwrap_or_default());
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn other_programs_find_the_trace() {
    let log = KafkaLog::create(config(&shared::kafka().bootstrap()), 1, 1).await;
    let mut batch = OutgoingBatch::default();
    for traced in [false, true, false] {
        batch.push(Topic::Views, b"k", b"v");
        batch.trace_last(TraceParent::parse(TRACE.as_bytes()).filter(|_| traced).as_ref());
    }
    log.writer().await.append(batch).await.unwrap();
    let found = tokio::task::spawn_blocking(move || headers(&log, 3)).await.unwrap();
    let traced = vec![("traceparent".to_owned(), TRACE.to_owned())];
    assert_eq!(found, [vec![], traced, vec![]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_other_programs_are_read_or_left_alone() {
    let log = KafkaLog::create(config(&shared::kafka().bootstrap()), 1, 1).await;
    let producer: BaseProducer = raw(&log.config).create().unwrap();
    let header = |key, value| Header { key, value };
    let cases = [
        (vec![header("traceparent", Some(TRACE))], true),
        (vec![header("other", Some("x")), header("traceparent", Some(TRACE)), header("more", None)], true),
        (vec![header("traceparent", Some("nonsense"))], false),
        (vec![header("traceparent", None)], false),
        (vec![header("traceparent", Some(""))], false),
        (vec![header("other", Some(TRACE))], false),
        (vec![], false),
    ];
    for (headers, _) in &cases {
        let headers = headers.iter().fold(OwnedHeaders::new(), |all, header| all.insert(header.clone()));
        let record = BaseRecord::to(&log.config.topics.views).partition(0).key("k").payload("v");
        producer.send(record.headers(headers)).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(SOON).unwrap();
    let mut reader = log.reader(Topic::Views, "headers").await;
    let mut found = Vec::new();
    while found.len() < cases.len() {
        match next(&mut reader, SOON).await.unwrap() {
            GroupEvent::Assigned { .. } => reader.start(0, 0).await.unwrap(),
            GroupEvent::Records(batch) => {
                found.extend(batch.iter().map(|record| record.trace.map(ToString::to_string)));
            }
            _ => {}
        }
    }
    let expected: Vec<_> = cases.iter().map(|(_, traced)| traced.then(|| TRACE.to_owned())).collect();
    assert_eq!(found, expected);
}
