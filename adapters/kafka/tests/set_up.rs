//! Topics are created once, compared afterwards, and never silently changed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use onlooker_kafka::KafkaReader;
use onlooker_kafka::admin::{
    Drift, WantedTopic, apply_topics, commit_start, forget_group, group_positions, topic_id,
};
use onlooker_ports::conformance::log::LogUnderTest;
use onlooker_ports::{GroupEvent, GroupReader, LogWriter, OutgoingBatch, PortError, Position, Topic};
use onlooker_testkit::{shared, wait_until_async};
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use std::time::Duration;
use support::{KafkaLog, TOPICS, config, next, raw, spec};

const SOON: Duration = Duration::from_secs(120);

fn wanted(partitions: u32) -> Vec<WantedTopic> {
    TOPICS.map(|topic| WantedTopic { topic, spec: spec(partitions, 1) }).to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_created_once_and_drift_is_reported() {
    let config = config(&shared::kafka().bootstrap());
    let first = apply_topics(&config, &wanted(2), false).await.unwrap();
    assert!(first.iter().all(|report| report.created && report.drift.is_empty()), "{first:?}");
    let again = apply_topics(&config, &wanted(2), false).await.unwrap();
    assert!(again.iter().all(|report| !report.created && report.drift.is_empty()), "{again:?}");

    let mut other = wanted(2);
    let views = &mut other[0].spec;
    (views.partitions, views.retention_hours) = (4, 1);
    let drift = |fixed| {
        let drift = |setting: &str, wanted: &str, found: &str, fixed| Drift {
            setting: setting.into(),
            wanted: wanted.into(),
            found: found.into(),
            fixed,
        };
        vec![drift("partitions", "4", "2", false), drift("retention.ms", "3600000", "604800000", fixed)]
    };
    let reported = apply_topics(&config, &other, false).await.unwrap();
    assert_eq!(reported[0].drift, drift(false));
    assert!(reported[1..].iter().all(|report| report.drift.is_empty()), "{reported:?}");
    // Only reported: it is there the next time too, until somebody asks for more.
    let fixed = apply_topics(&config, &other, true).await.unwrap();
    assert_eq!(fixed[0].drift, drift(true));
    let left = apply_topics(&config, &other, false).await.unwrap();
    assert_eq!(left[0].drift, drift(false)[..1]);
    assert!(left[0].drift[0].to_string().contains("partitions is 2, wanted 4"), "{}", left[0].drift[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_copies_than_brokers_are_refused_by_name() {
    let mut config = config(&shared::kafka().bootstrap());
    config.request_timeout_ms = 2_000;
    let too_many = vec![WantedTopic { topic: Topic::Views, spec: spec(1, 3) }];
    let error = apply_topics(&config, &too_many, false).await.unwrap_err();
    assert!(matches!(error, PortError::Misconfigured { .. }), "{error}");
    assert!(error.to_string().contains("replication"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn start_is_committed_once() {
    let log = KafkaLog::create(config(&shared::kafka().bootstrap()), 3, 1).await;
    let group = format!("{}-start", log.config.topics.views);
    let from = [Position { partition: 1, offset: 7, note: "noted".into() }];
    let begun = commit_start(&log.config, Topic::Views, &group, &from).await.unwrap();
    assert_eq!(begun.iter().map(|p| (p.partition, p.offset)).collect::<Vec<_>>(), [(0, 0), (1, 7), (2, 0)]);
    assert_eq!(commit_start(&log.config, Topic::Views, &group, &from).await.unwrap(), []);
    let writer = log.writer().await;
    let mut batch = OutgoingBatch::default();
    (0..30).for_each(|n| batch.push(Topic::Views, format!("{n}").as_bytes(), b"v"));
    writer.append(batch).await.unwrap();
    let positions = group_positions(&log.config, Topic::Views, &group).await.unwrap();
    assert_eq!(positions.iter().map(|p| p.partition).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(positions.iter().map(|p| p.committed).collect::<Vec<_>>(), [Some(0), Some(7), Some(0)]);
    assert!(positions.iter().all(|p| p.earliest == 0));
    assert_eq!(positions.iter().map(|p| p.end).sum::<i64>(), 30);
    assert!(positions.iter().all(|p| p.lag() == (p.end - p.committed.unwrap()).max(0)));
    // Members see it, and a group that has members is left alone.
    let mut reader = log.reader(Topic::Views, "start").await;
    loop {
        if let Some(GroupEvent::Assigned { .. }) = next(&mut reader, SOON).await {
            break;
        }
    }
    assert_eq!(reader.committed(2).await.unwrap().map(|c| c.offset), Some(0));
    assert_eq!(reader.committed(1).await.unwrap().map(|c| (c.offset, c.note)), Some((7, "noted".into())));
    assert_eq!(commit_start(&log.config, Topic::Views, &group, &from).await.unwrap(), []);
    let refused = forget_group(&log.config, &group).await.unwrap_err();
    assert!(refused.to_string().contains("has members: stop them first"), "{refused}");
    // Without members it is forgotten, once or twice, and begins as if it had never been.
    reader.close(SOON).await;
    for _ in 0..2 {
        forget_group(&log.config, &group).await.unwrap();
        let positions = group_positions(&log.config, Topic::Views, &group).await.unwrap();
        assert_eq!(positions.iter().map(|p| p.committed).collect::<Vec<_>>(), [None, None, None]);
    }
    assert_eq!(commit_start(&log.config, Topic::Views, &group, &from).await.unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_made_anew_has_another_id() {
    let config = config(&shared::kafka().bootstrap());
    let missing = topic_id(&config, Topic::Views).await.unwrap_err();
    assert!(missing.is_transient() && missing.to_string().contains("topics apply"), "{missing}");
    apply_topics(&config, &wanted(1), false).await.unwrap();
    let id = topic_id(&config, Topic::Views).await.unwrap();
    assert_eq!(topic_id(&config, Topic::Views).await.unwrap(), id);
    assert_ne!(topic_id(&config, Topic::Counted).await.unwrap(), id);
    assert_eq!(id.len(), 22, "{id}");
    let admin: AdminClient<DefaultClientContext> = raw(&config).create().unwrap();
    admin.delete_topics(&[&config.topics.views], &AdminOptions::new()).await.unwrap();
    wait_until_async("the deletion", SOON, || async { topic_id(&config, Topic::Views).await.is_err() })
        .await
        .unwrap();
    apply_topics(&config, &wanted(1), false).await.unwrap();
    assert_ne!(topic_id(&config, Topic::Views).await.unwrap(), id);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_it_says_so_in_time() {
    let mut config = config("127.0.0.1:1");
    config.request_timeout_ms = 2_000;
    let begun = std::time::Instant::now();
    let error = apply_topics(&config, &wanted(1), false).await.unwrap_err();
    assert!(matches!(error, PortError::Unavailable { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    // A reader and a writer can be opened all the same: they wait for it.
    let mut reader = KafkaReader::open(&config, Topic::Views, "g").unwrap();
    let error = loop {
        if let Err(error) = reader.next(Duration::from_millis(100)).await {
            break error;
        }
        assert!(begun.elapsed() < SOON);
    };
    assert!(error.is_transient(), "{error}");
}
