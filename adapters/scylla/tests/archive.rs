//! The archive's promises on one Cassandra node, and what the tables look like to others.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use onlooker_ports::conformance::archive as suite;
use onlooker_ports::{Archive, ArchiveCell, Archived, PortError};
use onlooker_scylla::{ScyllaArchive, ScyllaConfig, apply, check};
use onlooker_testkit::shared;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use support::{archive, config};

fn config_named(keyspace: &str) -> ScyllaConfig {
    let mut config = config(vec![shared::cassandra().address()], 1);
    config.keyspace = keyspace.to_owned();
    config
}

/// A session beside the archive's own, to look and to alter.
async fn by_hand(config: &ScyllaConfig) -> Session {
    SessionBuilder::new().known_nodes(&config.nodes).build().await.unwrap()
}

#[tokio::test]
async fn conformance() {
    let config = config_named("conformance");
    let archive = archive(&config).await;
    suite::all(&archive, "a", 0).await;
    // Another generation of the log shares tables and nothing else.
    let other = ScyllaArchive::new(&config, "other").unwrap();
    suite::all(&other, "a", 0).await;
}

#[tokio::test]
async fn a_schema_is_created_once_and_drift_is_reported() {
    let mut config = config_named("drift");
    let missing = check(&config).await.unwrap();
    assert_eq!(missing.drift.len(), 1);
    assert!(missing.is_broken());

    config.replication.clear();
    let error = apply(&config).await.unwrap_err();
    assert!(error.to_string().contains("the cluster has datacenter1"), "{error}");
    config = config_named("drift");
    let created = apply(&config).await.unwrap().created;
    assert_eq!(created, ["keyspace drift", "table counts", "table durable", "table logs"]);
    let again = apply(&config).await.unwrap();
    assert_eq!((again.created, again.drift), (vec![], vec![]));

    let session = by_hand(&config).await;
    session.query_unpaged("ALTER TABLE drift.counts WITH default_time_to_live = 60", ()).await.unwrap();
    session.query_unpaged("ALTER TABLE drift.counts ADD note text", ()).await.unwrap();
    session.query_unpaged("ALTER TABLE drift.durable DROP off", ()).await.unwrap();
    config.replication.insert("elsewhere".into(), 3);
    let report = check(&config).await.unwrap();
    let mut subjects: Vec<_> = report.drift.iter().map(|d| (d.subject.as_str(), d.breaks)).collect();
    subjects.sort();
    let expected = [
        ("counts default_time_to_live", true),
        ("counts.note", false),
        ("durable.off", true),
        ("replication", false),
    ];
    assert_eq!(subjects, expected);
}

#[tokio::test]
async fn tables_that_are_not_there_are_named() {
    let archive = ScyllaArchive::new(&config_named("nowhere"), "test").unwrap();
    let error = archive.connect().await.unwrap_err();
    let PortError::Misconfigured { server, detail } = error else { panic!("{error:?}") };
    assert_eq!(server, "archive");
    assert!(detail.contains("nowhere") && detail.contains("onlooker schema apply"), "{detail}");
}

#[tokio::test]
async fn a_misspelt_data_centre_is_named() {
    let mut config = config_named("nowhere");
    config.local_dc = Some("datacentre1".into());
    let error = ScyllaArchive::new(&config, "test").unwrap().connect().await.unwrap_err();
    assert!(error.to_string().contains("the cluster has datacenter1"), "{error}");
    assert!(!error.is_transient());
}

#[tokio::test]
async fn a_recreated_topic_is_noticed() {
    let config = config_named("logs");
    let first = archive(&config).await;
    // Two instances start at once.
    let (one, two) = tokio::join!(first.claim_log("topic-1", 8), first.claim_log("topic-1", 8));
    assert_eq!((one, two), (Ok(()), Ok(())));
    assert_eq!(first.claim_log("topic-1", 8).await, Ok(()));
    for (id, partitions) in [("topic-2", 8), ("topic-1", 16)] {
        let error = first.claim_log(id, partitions).await.unwrap_err();
        assert!(error.to_string().contains("a log name of its own"), "{error}");
        assert!(!error.is_transient());
    }
    let second = ScyllaArchive::new(&config, "second").unwrap();
    assert_eq!(second.claim_log("topic-2", 16).await, Ok(()));
}

#[tokio::test]
async fn a_column_added_while_reading_moves_nothing() {
    let config = config_named("altered");
    let archive = archive(&config).await;
    let keys: Vec<_> = (0..400).map(|i| suite::key("alter", &i.to_string(), None)).collect();
    let cells: Vec<_> = keys
        .iter()
        .flat_map(|key| {
            [
                ArchiveCell::Number { key: key.clone(), n: 3, u: 9 },
                ArchiveCell::Sketch { key: key.clone(), bytes: "bytes".into(), t: 8 },
            ]
        })
        .collect();
    let expected = Archived { sketch: Some(("bytes".into(), 8)), number: Some((3, 9)) };
    let session = by_hand(&config).await;
    let alter = async {
        // In the alphabet before, between and behind the columns that are read.
        for column in ["aaa", "lll", "zzz"] {
            session.query_unpaged(format!("ALTER TABLE altered.counts ADD {column} text"), ()).await.unwrap();
        }
    };
    tokio::pin!(alter);
    let mut rounds_after = 0;
    let mut altered = false;
    while rounds_after < 3 {
        let round = async {
            assert!(archive.write(&cells).await.iter().all(Result::is_ok));
            for found in archive.read(&keys).await.unwrap() {
                assert_eq!(found, expected);
            }
        };
        tokio::pin!(round);
        if !altered {
            tokio::select! {
                () = &mut alter => altered = true,
                () = &mut round => continue,
            }
        }
        round.await;
        rounds_after += 1;
    }
}

#[tokio::test]
async fn a_cell_that_is_refused_is_told_apart() {
    let config = config_named("partial");
    let archive = archive(&config).await;
    let good = suite::key("partial", "good", None);
    let bad = suite::key("partial", "bad", None);
    let cells = [
        ArchiveCell::Number { key: good.clone(), n: 1, u: 1 },
        // More than the column can hold.
        ArchiveCell::Number { key: bad.clone(), n: u64::MAX, u: 1 },
        ArchiveCell::Sketch { key: good.clone(), bytes: "x".into(), t: 1 },
    ];
    let results = archive.write(&cells).await;
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    let found = archive.read(&[good, bad]).await.unwrap();
    assert_eq!(found[0], Archived { sketch: Some(("x".into(), 1)), number: Some((1, 1)) });
    assert_eq!(found[1], Archived::default());
}
