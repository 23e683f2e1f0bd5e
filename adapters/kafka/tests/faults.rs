//! What happens when the broker is away, slow, or comes back; each with a broker of its own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use onlooker_kafka::{KafkaConfig, KafkaReader, KafkaTransactor, KafkaWriter};
use onlooker_ports::conformance::log::LogUnderTest;
use onlooker_ports::{
    CommitError, GroupEvent, GroupReader, LogWriter, OutgoingBatch, PortError, Position, Topic, Transactor,
};
use onlooker_testkit::kafka::KafkaServer;
use onlooker_testkit::{wait_until, wait_until_async};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use support::{KafkaLog, config};

const SOON: Duration = Duration::from_secs(120);
const TICK: Duration = Duration::from_millis(100);
const BRIEF: Duration = Duration::from_millis(10);

fn one(topic: Topic, key: &str, value: &str) -> OutgoingBatch {
    let mut batch = OutgoingBatch::default();
    batch.push(topic, key.as_bytes(), value.as_bytes());
    batch
}

/// Appends until it is acknowledged: what a client does that was told 503.
async fn append_at_last(writer: &KafkaWriter, batch: OutgoingBatch) {
    let begun = Instant::now();
    while let Err(error) = writer.append(batch.clone()).await {
        assert!(error.is_transient(), "{error}");
        assert!(begun.elapsed() < SOON, "appending works in the end: {error}");
    }
}

/// A member that keeps all values it was given, and what the partitions' positions are.
struct Collector {
    reader: KafkaReader,
    values: Vec<String>,
    next: BTreeMap<i32, i64>,
    errors: Vec<PortError>,
}

impl Collector {
    fn new(reader: KafkaReader) -> Self {
        Self { reader, values: Vec::new(), next: BTreeMap::new(), errors: Vec::new() }
    }

    async fn step(&mut self) {
        match self.reader.next(TICK).await {
            Ok(Some(GroupEvent::Assigned { partitions, .. })) => {
                for partition in partitions {
                    // Goes on where it was, whoever held the partition meanwhile.
                    let offset = self.next.get(&partition).copied().unwrap_or(0);
                    self.reader.start(partition, offset).await.unwrap();
                }
            }
            Ok(Some(GroupEvent::Records(batch))) => {
                for record in batch.iter() {
                    let next = self.next.entry(batch.partition).or_default();
                    assert!(record.offset >= *next, "a record came twice");
                    *next = record.offset + 1;
                    let value = record.payload.map(|value| String::from_utf8_lossy(value).into_owned());
                    self.values.push(value.unwrap_or_else(|| "null".into()));
                }
            }
            Ok(_) => {}
            Err(error) => self.errors.push(error),
        }
    }

    async fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            self.step().await;
            assert!(begun.elapsed() < SOON, "waited in vain for {what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_queue_is_refused_at_once_and_a_frozen_broker_in_time() {
    let server = KafkaServer::start().unwrap();
    let small = KafkaConfig { queue_records: 10, delivery_timeout_ms: 4_000, ..config(&server.bootstrap()) };
    let log = KafkaLog::create(small, 2, 1).await;
    let writer = Arc::new(log.writer().await);
    append_at_last(&writer, one(Topic::Views, "k", "before")).await;
    assert!(writer.is_reachable());
    server.pause().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    let begun = Instant::now();
    for n in 0..1_000 {
        let writer = Arc::clone(&writer);
        tasks.spawn(async move {
            let outcome = writer.append(one(Topic::Views, "k", &format!("frozen-{n}"))).await;
            (outcome.unwrap_err(), begun.elapsed())
        });
    }
    let outcomes = tasks.join_all().await;
    let full = |error: &PortError| matches!(error, PortError::Full { .. });
    let refused: Vec<_> = outcomes.iter().filter(|(error, _)| full(error)).collect();
    assert_eq!(refused.len(), 990);
    assert!(refused.iter().all(|(_, after)| *after < Duration::from_secs(3)), "at once");
    let timed_out = outcomes.iter().filter(|(error, _)| !full(error));
    assert!(timed_out.clone().all(|(error, _)| matches!(error, PortError::Unavailable { .. })));
    assert!(timed_out.clone().all(|(_, after)| *after < Duration::from_secs(15)), "within the time-out");
    assert_eq!(timed_out.count(), 10);
    assert!(!writer.is_reachable());
    // A batch that does not fit is refused whole, and takes nobody's place.
    let mut large = OutgoingBatch::default();
    (0..11).for_each(|_| large.push(Topic::Views, b"k", b"v"));
    assert!(matches!(writer.append(large).await, Err(PortError::Full { .. })));
    server.resume().unwrap();
    // Found out without an append: readiness keeps them away until then.
    wait_until_async("the broker", SOON, || async { writer.is_reachable() }).await.unwrap();
    append_at_last(&writer, one(Topic::Views, "k", "after")).await;
    writer.flush(Duration::from_secs(1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_goes_on_after_a_restart() {
    let server = KafkaServer::start().unwrap();
    let settings = KafkaConfig { delivery_timeout_ms: 3_000, ..config(&server.bootstrap()) };
    let log = KafkaLog::create(settings, 2, 1).await;
    let writer = Arc::new(log.writer().await);
    let mut collector = Collector::new(log.reader(Topic::Views, "restart").await);
    let mut acknowledged = BTreeSet::new();
    for round in 0..3 {
        let before = format!("before-{round}");
        append_at_last(&writer, one(Topic::Views, "k", &before)).await;
        acknowledged.insert(before);
        collector.until("what was appended", |c| acknowledged.iter().all(|v| c.values.contains(v))).await;
        server.kill().unwrap();
        let begun = Instant::now();
        let error = writer.append(one(Topic::Views, "k", "during")).await.unwrap_err();
        assert!(matches!(error, PortError::Unavailable { .. }), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(15), "bounded");
        collector.until("that it is told", |c| !c.errors.is_empty()).await;
        assert!(collector.errors.iter().all(PortError::is_transient), "{:?}", collector.errors);
        collector.errors.clear();
        server.restart().unwrap();
        let after = format!("after-{round}");
        append_at_last(&writer, one(Topic::Views, "k", &after)).await;
        acknowledged.insert(after);
    }
    collector.until("what was appended", |c| acknowledged.iter().all(|v| c.values.contains(v))).await;
}

/// A transaction is what it says, whatever happens to the broker meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn outcomes_of_transactions_are_true() {
    let server = Arc::new(KafkaServer::start().unwrap());
    let log = KafkaLog::create(config(&server.bootstrap()), 1, 1).await;
    let mut source = log.reader(Topic::Views, "truth").await;
    let mut membership = None;
    let mut transactor = log.transactor(Topic::Views).await;
    let begun = Arc::new(AtomicI64::new(0));
    let killer = {
        let (server, begun) = (Arc::clone(&server), Arc::clone(&begun));
        std::thread::spawn(move || {
            for outage in 1..=2 {
                // In the middle of one, as far as can be told from here.
                wait_until("transactions", SOON, || begun.load(Ordering::Relaxed) > outage * 10).unwrap();
                server.kill().unwrap();
                server.restart().unwrap();
            }
        })
    };
    let mut visible = BTreeSet::new();
    let mut outcomes = BTreeMap::new();
    let mut number = 0i64;
    while !killer.is_finished() || number < 40 {
        // A broker's restart costs the membership now and then.
        while let Some(event) = source.next(Duration::from_millis(1)).await.unwrap_or(None) {
            match event {
                GroupEvent::Assigned { membership: new, .. } => membership = Some(new),
                GroupEvent::Revoked { .. } => membership = None,
                _ => {}
            }
        }
        let Some(membership) = &membership else { continue };
        number += 1;
        begun.store(number, Ordering::Relaxed);
        let mut outputs = OutgoingBatch::default();
        (0..20).for_each(|n| outputs.push(Topic::Counted, b"k", format!("{number}/{n}").as_bytes()));
        let position = Position { partition: 0, offset: number, note: String::new() };
        let outcome = transactor.commit(&outputs, &[position], membership).await;
        let committed = match &outcome {
            Ok(()) => true,
            Err(CommitError::Aborted(_) | CommitError::Port(_)) => false,
            Err(CommitError::Unknown(_)) => {
                let begun = Instant::now();
                loop {
                    assert!(begun.elapsed() < SOON, "the committed offset is found out");
                    if let Ok(found) = source.committed(0).await {
                        break found.is_some_and(|found| found.offset == number);
                    }
                }
            }
        };
        if committed {
            visible.insert(number);
        }
        outcomes.insert(number, format!("{outcome:?}"));
    }
    killer.join().unwrap();
    assert!(visible.len() > 10, "{outcomes:?}");
    let mut collector = Collector::new(log.reader(Topic::Counted, "truth").await);
    let expected = visible.len() * 20;
    collector.until("the outputs", |c| c.values.len() >= expected).await;
    for _ in 0..10 {
        collector.step().await;
    }
    let found: BTreeSet<i64> =
        collector.values.iter().map(|v| v.split('/').next().unwrap().parse().unwrap()).collect();
    assert_eq!(found, visible, "{outcomes:?}");
    assert_eq!(collector.values.len(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_ends_in_time_without_a_broker() {
    let server = KafkaServer::start().unwrap();
    let log = KafkaLog::create(config(&server.bootstrap()), 1, 1).await;
    let mut reader = Collector::new(log.reader(Topic::Views, "close").await);
    let writer = log.writer().await;
    append_at_last(&writer, one(Topic::Views, "k", "v")).await;
    let transactor = log.transactor(Topic::Views).await;
    reader.until("the record", |c| c.values.len() == 1).await;
    server.kill().unwrap();
    let begun = Instant::now();
    let lost = writer.append(one(Topic::Views, "k", "v"));
    assert!(tokio::time::timeout(TICK, lost).await.is_err());
    assert!(writer.flush(TICK).await.is_err());
    reader.reader.close(Duration::from_secs(2)).await;
    assert!(reader.reader.start(0, 0).await.is_err());
    assert!(reader.reader.committed(0).await.is_err());
    drop((reader, writer, transactor));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_topic_is_named_and_waited_for() {
    let server = KafkaServer::start().unwrap();
    let config = config(&server.bootstrap());
    let writer = KafkaWriter::open(&config).unwrap();
    let error = writer.append(one(Topic::Views, "k", "v")).await.unwrap_err();
    let told = |error: &PortError| error.is_transient() && error.to_string().contains("topics apply");
    assert!(told(&error), "{error}");
    let mut reader = Collector::new(KafkaReader::open(&config, Topic::Views, "missing").unwrap());
    reader.until("the reason", |c| c.errors.iter().any(told)).await;
    let mut transactor = KafkaTransactor::open(&config, Topic::Views).unwrap();
    let log = KafkaLog::create(config.clone(), 1, 1).await;
    append_at_last(&writer, one(Topic::Views, "k", "v")).await;
    reader.until("the record", |c| c.values.contains(&"v".to_owned())).await;
    let mut other = log.reader(Topic::Counted, "other").await;
    let membership = loop {
        if let Ok(Some(GroupEvent::Assigned { membership, .. })) = other.next(TICK).await {
            break membership;
        }
    };
    transactor.commit(&one(Topic::Counted, "k", "v"), &[], &membership).await.unwrap();
    drop(other);
}

/// Frozen for longer than its session, a broker is fenced, and answers for a moment that there are no brokers.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_forgot_itself_is_found_again_by_every_client() {
    // Rare heartbeats: it is long until it knows itself again, at its start too.
    let server = KafkaServer::builder().property("broker.heartbeat.interval.ms", "3000").start().unwrap();
    let short = KafkaConfig {
        request_timeout_ms: 5_000,
        delivery_timeout_ms: 5_000,
        transaction_timeout_ms: 5_000,
        ..config(&server.bootstrap())
    };
    let log = KafkaLog::create(short, 1, 1).await;
    let writer = log.writer().await;
    append_at_last(&writer, one(Topic::Views, "k", "0")).await;
    let mut members = Vec::new();
    for n in 0..6 {
        let mut member = Collector::new(log.reader(Topic::Views, &format!("forgotten-{n}")).await);
        member.until("the first record", |member| !member.values.is_empty()).await;
        members.push(member);
    }
    for round in 1..=3 {
        server.pause().unwrap();
        // The fault's length: beyond the broker's session.
        tokio::time::sleep(Duration::from_secs(3)).await;
        server.resume().unwrap();
        // Questions in the moment when the broker does not know itself.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            for member in &mut members {
                let _metadata = tokio::time::timeout(BRIEF, member.reader.partitions()).await;
                let _bounds = tokio::time::timeout(BRIEF, member.reader.bounds(0)).await;
            }
        }
        append_at_last(&writer, one(Topic::Views, "k", &round.to_string())).await;
        for member in &mut members {
            member
                .until("what came after the freeze", |member| member.values.contains(&round.to_string()))
                .await;
            let begun = Instant::now();
            while let Err(error) = member.reader.bounds(0).await {
                assert!(begun.elapsed() < SOON, "nobody knows the log's bounds: {error}");
            }
        }
    }
}
