//! A disk that is full, fails, or is slow.

use super::{SOON, append, crash, open, read_all, small, views};
use crate::log::files::{Faults, Simulated};
use crate::log::{Durability, LogConfig};
use onlooker_ports::{CommitError, Position};
use onlooker_ports::{GroupEvent, GroupReader, LogWriter, OutgoingBatch, PortError, Topic, Transactor};

fn is_full(outcome: &Result<(), PortError>) -> bool {
    matches!(outcome, Err(PortError::Full { .. }))
}

/// Whatever room is left, in whatever part of an entry or header the disk is full.
#[tokio::test]
async fn a_full_disk_refuses_and_goes_on() {
    for durability in [Durability::Power, Durability::Process] {
        let config = LogConfig { durability, ..small() };
        for room in (0..3_000).step_by(37) {
            let disk = Simulated::new(room);
            let (log, _) = open(&disk, 1, &config).unwrap();
            disk.set_faults(Faults { room: Some(room), ..Faults::default() });
            let mut expected = Vec::new();
            let mut refused = 0;
            for n in 0..12 {
                let value = format!("{n:02}{}", "x".repeat(400));
                let outcome = append(&log, &value).await;
                match outcome {
                    Ok(()) => expected.push(value),
                    outcome => {
                        assert!(is_full(&outcome), "{outcome:?}");
                        refused += 1;
                    }
                }
                assert_eq!(log.writer().is_reachable(), refused == 0);
            }
            assert!(refused > 0);
            disk.set_faults(Faults::default());
            for n in 12..24 {
                let value = format!("{n:02}{}", "x".repeat(400));
                append(&log, &value).await.unwrap();
                expected.push(value);
            }
            assert!(log.writer().is_reachable());
            assert_eq!(read_all(&log, Topic::Views).await.unwrap(), [(0, expected.clone())]);
            log.close().await;
            let (log, report) = open(&disk, 1, &config).unwrap();
            assert_eq!(report.torn, []);
            assert_eq!(read_all(&log, Topic::Views).await.unwrap(), [(0, expected)]);
        }
    }
}

#[tokio::test]
async fn what_could_not_be_cut_off_is_left_behind() {
    let disk = Simulated::new(3);
    let (log, _) = open(&disk, 1, &small()).unwrap();
    append(&log, "first").await.unwrap();
    disk.set_faults(Faults { room: Some(30), failing_cuts: 1, ..Faults::default() });
    assert!(is_full(&append(&log, &"second".repeat(20_000)).await));
    disk.set_faults(Faults::default());
    append(&log, "third").await.unwrap();
    let expected = [(0, vec!["first".to_owned(), "third".to_owned()])];
    assert_eq!(read_all(&log, Topic::Views).await.unwrap(), expected);
    log.close().await;
    let (log, _) = open(&disk, 1, &small()).unwrap();
    assert_eq!(read_all(&log, Topic::Views).await.unwrap(), expected);
}

/// A sync that failed once may "succeed" the next time without having written anything.
#[tokio::test]
async fn after_a_failed_sync_nothing_is_believed() {
    for failures in 1..5 {
        let disk = Simulated::new(u64::from(failures));
        let (log, _) = open(&disk, 1, &small()).unwrap();
        append(&log, "first").await.unwrap();
        disk.set_faults(Faults { failing_syncs: failures, ..Faults::default() });
        let mut refused = 0;
        while refused < failures {
            let error = append(&log, "lost").await.unwrap_err();
            assert!(error.is_transient() && error.to_string().contains("sync"), "{error}");
            refused += 1;
        }
        append(&log, "second").await.unwrap();
        let expected = [(0, vec!["first".to_owned(), "second".to_owned()])];
        assert_eq!(read_all(&log, Topic::Views).await.unwrap(), expected);
        // Without closing: what the failed sync dropped is not there, what was acknowledged afterwards is.
        crash(&disk, log, Simulated::power_loss);
        let (log, _) = open(&disk, 1, &small()).unwrap();
        assert_eq!(read_all(&log, Topic::Views).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn positions_survive_a_failed_sync() {
    let disk = Simulated::new(5);
    let (log, _) = open(&disk, 1, &small()).unwrap();
    let mut reader = log.reader(Topic::Views, "g");
    let Some(GroupEvent::Assigned { membership, .. }) = reader.next(SOON).await.unwrap() else { panic!() };
    let position = |offset| Position { partition: 0, offset, note: format!("A={offset}") };
    let mut transactor = log.transactor(Topic::Views);
    let mut verdict = OutgoingBatch::default();
    verdict.push(Topic::Counted, b"k", b"verdict");
    transactor.commit(&verdict, &[position(1)], &membership).await.unwrap();
    // Not synced, and then dropped by the system.
    reader.commit(&[position(2)]).await.unwrap();
    disk.set_faults(Faults { failing_syncs: 1, ..Faults::default() });
    let outcome = transactor.commit(&verdict, &[position(3)], &membership).await;
    assert!(matches!(outcome, Err(CommitError::Unknown(_))), "{outcome:?}");
    assert_eq!(reader.committed(0).await.unwrap().unwrap().offset, 2);
    transactor.commit(&verdict, &[position(4)], &membership).await.unwrap();
    drop((reader, transactor));
    crash(&disk, log, Simulated::power_loss);
    let (log, _) = open(&disk, 1, &small()).unwrap();
    assert_eq!(log.committed("g", Topic::Views)[0].as_ref().unwrap().note, "A=4");
    assert_eq!(log.ends(Topic::Counted), [2]);
}

/// `process`: what was acknowledged is written once more, since the failed sync may have dropped it.
#[tokio::test]
async fn what_was_only_written_is_rescued_when_a_sync_fails() {
    let disk = Simulated::new(9);
    let config = LogConfig { durability: Durability::Process, ..small() };
    let (log, _) = open(&disk, 1, &config).unwrap();
    let values: Vec<String> = (0..30).map(|n| format!("{n:02}{}", "x".repeat(400))).collect();
    disk.set_faults(Faults { failing_syncs: 1, ..Faults::default() });
    for value in &values {
        append(&log, value).await.unwrap();
    }
    assert_eq!(read_all(&log, Topic::Views).await.unwrap(), [(0, values.clone())]);
    log.close().await;
    disk.power_loss();
    let (log, _) = open(&disk, 1, &config).unwrap();
    assert_eq!(read_all(&log, Topic::Views).await.unwrap(), [(0, values)]);
}

#[tokio::test]
async fn a_log_that_failed_tries_by_itself() {
    let disk = Simulated::new(11);
    let (log, _) = open(&disk, 1, &small()).unwrap();
    disk.set_faults(Faults { room: Some(0), ..Faults::default() });
    assert!(is_full(&append(&log, "lost").await));
    assert!(!log.writer().is_reachable());
    disk.set_faults(Faults::default());
    let begun = std::time::Instant::now();
    while !log.writer().is_reachable() {
        tokio::task::yield_now().await;
        assert!(begun.elapsed() < SOON, "waited in vain for a try");
    }
    assert_eq!(log.ends(Topic::Views), [0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_at_once() {
    let disk = Simulated::new(13);
    let config = LogConfig { queue_bytes: 10_000, ..small() };
    let (log, _) = open(&disk, 1, &config).unwrap();
    let waiting: Vec<_> = (0..400)
        .map(|n| {
            let writer = log.writer();
            let value = format!("{n:03}{}", "x".repeat(997));
            tokio::spawn(async move { (value.clone(), writer.append(views([value])).await) })
        })
        .collect();
    let mut acknowledged = Vec::new();
    for task in waiting {
        match task.await.unwrap() {
            (value, Ok(())) => acknowledged.push(value),
            (_, outcome) => assert!(is_full(&outcome), "{outcome:?}"),
        }
    }
    log.writer().flush(SOON).await.unwrap();
    let mut found = read_all(&log, Topic::Views).await.unwrap().remove(0).1;
    acknowledged.sort();
    found.sort();
    assert_eq!(found, acknowledged);
    // One that is larger than the queue has its turn when nothing else waits.
    append(&log, &"y".repeat(50_000)).await.unwrap();
}

/// One sync serves all who came while the last one was under way.
#[tokio::test(flavor = "multi_thread")]
async fn appends_share_syncs() {
    let disk = Simulated::new(15);
    let (log, _) = open(&disk, 4, &LogConfig::default()).unwrap();
    let before = disk.syncs();
    let writer = log.writer();
    let appends = (0..2_000).map(|n| writer.append(views([format!("{n}")])));
    let mut joined = tokio::task::JoinSet::new();
    let owned: Vec<_> = (0..2_000)
        .map(|n| {
            let writer = log.writer();
            async move { writer.append(views([format!("{n}")])).await }
        })
        .collect();
    drop(appends);
    owned.into_iter().for_each(|append| drop(joined.spawn(append)));
    while let Some(outcome) = joined.join_next().await {
        outcome.unwrap().unwrap();
    }
    let syncs = disk.syncs() - before;
    assert!(syncs < 2_000, "{syncs} syncs of 2,000 appends");
    assert_eq!(log.ends(Topic::Views).into_iter().sum::<i64>(), 2_000);
}

/// A sync failed, the process died, and the entry came back whole from the system's memory: shown once, it stays.
#[tokio::test]
async fn what_a_restart_shows_is_durable() {
    let disk = Simulated::new(17);
    let (log, _) = open(&disk, 1, &small()).unwrap();
    append(&log, "first").await.unwrap();
    disk.set_faults(Faults { failing_syncs: 1, ..Faults::default() });
    append(&log, "unknown").await.unwrap_err();
    crash(&disk, log, Simulated::kill);
    let expected = [(0, vec!["first".to_owned(), "unknown".to_owned()])];
    let (log, _) = open(&disk, 1, &small()).unwrap();
    assert_eq!(read_all(&log, Topic::Views).await.unwrap(), expected);
    crash(&disk, log, Simulated::power_loss);
    let (log, _) = open(&disk, 1, &small()).unwrap();
    assert_eq!(read_all(&log, Topic::Views).await.unwrap(), expected);
}

#[tokio::test]
async fn a_refused_append_leaves_nothing_behind() {
    let disk = Simulated::new(19);
    let config = LogConfig { durability: Durability::Process, ..small() };
    let (log, _) = open(&disk, 1, &config).unwrap();
    append(&log, "first").await.unwrap();
    disk.set_faults(Faults { room: Some(100), ..Faults::default() });
    assert!(is_full(&append(&log, "second").await));
    crash(&disk, log, Simulated::kill);
    let (log, report) = open(&disk, 1, &config).unwrap();
    assert_eq!(report.torn, []);
    assert_eq!(read_all(&log, Topic::Views).await.unwrap(), [(0, vec!["first".to_owned()])]);
}
