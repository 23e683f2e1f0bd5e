//! The log's promises on three brokers, of which one is lost.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use onlooker_ports::conformance::log as suite;
use onlooker_ports::conformance::log::LogUnderTest;
use onlooker_ports::{GroupEvent, GroupReader, LogWriter, OutgoingBatch, Topic};
use onlooker_testkit::kafka::KafkaCluster;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{KafkaLog, config};

const SOON: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_brokers_may_be_lost() {
    let cluster = Arc::new(KafkaCluster::start().unwrap());
    let log = KafkaLog::create(config(&cluster.bootstrap()), 6, 3).await;
    let writer = Arc::new(log.writer().await);
    let mut reader = log.reader(Topic::Views, "loss").await;
    let over = Arc::new(AtomicBool::new(false));
    let appending = {
        let (writer, over) = (Arc::clone(&writer), Arc::clone(&over));
        tokio::spawn(async move {
            let mut acknowledged = BTreeSet::new();
            let (mut number, mut longest) = (0, Duration::ZERO);
            while !over.load(Ordering::Relaxed) {
                let mut batch = OutgoingBatch::default();
                for n in number..number + 50 {
                    batch.push(Topic::Views, format!("key-{n}").as_bytes(), n.to_string().as_bytes());
                }
                let begun = Instant::now();
                writer.append(batch).await.unwrap();
                longest = longest.max(begun.elapsed());
                acknowledged.extend(number..number + 50);
                number += 50;
            }
            (acknowledged, longest)
        })
    };
    // The reader runs along, over every election.
    let reading = tokio::spawn(async move {
        let mut seen: BTreeSet<i32> = BTreeSet::new();
        let mut duplicates = 0;
        let mut positions = std::collections::BTreeMap::new();
        let mut wanted = None;
        let (ask, mut asked) = tokio::sync::oneshot::channel::<usize>();
        let task = tokio::spawn(async move {
            loop {
                if wanted.is_some_and(|wanted| seen.len() >= wanted) {
                    return (seen, duplicates);
                }
                if wanted.is_none() {
                    wanted = asked.try_recv().ok();
                }
                match reader.next(Duration::from_millis(100)).await {
                    Ok(Some(GroupEvent::Assigned { partitions, .. })) => {
                        for partition in partitions {
                            let from = positions.get(&partition).copied().unwrap_or(0);
                            reader.start(partition, from).await.unwrap();
                        }
                    }
                    Ok(Some(GroupEvent::Records(batch))) => {
                        for record in batch.iter() {
                            let value = std::str::from_utf8(record.payload.unwrap()).unwrap();
                            duplicates += usize::from(!seen.insert(value.parse().unwrap()));
                        }
                        positions.insert(batch.partition, batch.next_offset().unwrap());
                    }
                    Ok(_) => {}
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
            }
        });
        (ask, task)
    });
    let nodes = cluster.nodes().len();
    for broker in 0..nodes {
        let cluster = Arc::clone(&cluster);
        let outage = move || {
            let node = &cluster.nodes()[broker];
            node.kill().unwrap();
            node.restart().unwrap();
        };
        tokio::task::spawn_blocking(outage).await.unwrap();
        // The next one may only go when this one's copies are in sync again: an append to each partition needs two.
        let mut batch = OutgoingBatch::default();
        (0..60).for_each(|n| batch.push(Topic::Dead, format!("{n}").as_bytes(), b"v"));
        writer.append(batch).await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    let (acknowledged, longest) = appending.await.unwrap();
    assert!(acknowledged.len() >= 100, "{}", acknowledged.len());
    assert!(longest < SOON, "{longest:?}");
    let (ask, task) = reading.await.unwrap();
    ask.send(acknowledged.len()).unwrap();
    let (seen, duplicates) = tokio::time::timeout(SOON, task).await.unwrap().unwrap();
    assert!(acknowledged.is_subset(&seen), "acknowledged records are missing");
    assert_eq!(
        duplicates, 0,
        "an idempotent producer writes nothing twice, and a reader reads nothing twice"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance() {
    if !onlooker_testkit::full() {
        return;
    }
    let cluster = KafkaCluster::start().unwrap();
    let brokers = cluster.bootstrap();
    suite::all(async |partitions| KafkaLog::create(config(&brokers), partitions, 3).await).await;
}
