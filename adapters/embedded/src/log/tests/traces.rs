//! Traces on disk, and files from before there were any.

use super::{append, crash, dir, joined, open, read_all, segments, small, views_segment};
use crate::log::EmbeddedLog;
use crate::log::files::Simulated;
use crate::log::format::{SegmentHeader, VERSION};
use crate::log::{LogConfig, OpenError};
use onlooker_event::TraceParent;
use onlooker_ports::{GroupEvent, GroupReader, LogWriter, OutgoingBatch, Topic};

fn trace(n: u8) -> TraceParent {
    let mut bytes = [n; TraceParent::BYTES];
    bytes[24] = n % 4;
    TraceParent::from_bytes(&bytes).unwrap()
}

async fn append_traced(log: &EmbeddedLog<Simulated>, value: &str, trace: Option<TraceParent>) {
    let mut batch = OutgoingBatch::default();
    batch.push(Topic::Views, b"key", value.as_bytes());
    batch.trace_last(trace.as_ref());
    log.writer().append(batch).await.unwrap();
}

async fn traces(log: &EmbeddedLog<Simulated>, records: usize) -> Vec<Option<TraceParent>> {
    let mut reader = joined(log, Topic::Views, "traces").await;
    reader.start(0, 0).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < records {
        match reader.next(super::SOON).await.unwrap() {
            Some(GroupEvent::Records(batch)) => {
                seen.extend(batch.iter().map(|record| record.trace.copied()));
            }
            other => panic!("{other:?}"),
        }
    }
    seen
}

#[tokio::test]
async fn traces_survive_what_records_survive() {
    let disk = Simulated::new(11);
    let (log, _) = open(&disk, 1, &small()).unwrap();
    let told: Vec<_> = (0..40u8).map(|n| (n % 3 == 1).then(|| trace(n))).collect();
    for (n, trace) in told.iter().enumerate() {
        append_traced(&log, &format!("{n:0300}"), *trace).await;
    }
    assert!(segments(&disk, &dir().join("views")).len() > 2, "some are read from files");
    assert_eq!(traces(&log, told.len()).await, told);
    crash(&disk, log, Simulated::power_loss);
    let (log, _) = open(&disk, 1, &small()).unwrap();
    assert_eq!(traces(&log, told.len()).await, told);
    log.close().await;
}

/// Makes a segment what the first version would have written: only its header says another version.
fn make_old(disk: &Simulated, number: u64) {
    let path = views_segment(number);
    let mut content = disk.read(&path).unwrap();
    let mut header = SegmentHeader::decode(&content).unwrap();
    header.version = 1;
    let header = header.encode();
    content[..header.len()].copy_from_slice(&header);
    disk.replace(&path, content);
}

fn version_of(disk: &Simulated, number: u64) -> u16 {
    SegmentHeader::decode(&disk.read(&views_segment(number)).unwrap()).unwrap().version
}

#[tokio::test]
async fn older_files_are_read_and_take_no_more() {
    let disk = Simulated::new(12);
    let (log, _) = open(&disk, 1, &LogConfig::default()).unwrap();
    append(&log, "old").await.unwrap();
    log.close().await;
    make_old(&disk, 0);

    // Opened and closed it is what it was: the older program can still have it.
    let (log, _) = open(&disk, 1, &LogConfig::default()).unwrap();
    assert_eq!(read_all(&log, Topic::Views).await.unwrap(), [(0, vec!["old".to_owned()])]);
    log.close().await;
    assert_eq!((segments(&disk, &dir().join("views")), version_of(&disk, 0)), (vec![0], 1));
    let before = disk.read(&views_segment(0));

    let (log, _) = open(&disk, 1, &LogConfig::default()).unwrap();
    append_traced(&log, "new", Some(trace(7))).await;
    append_traced(&log, "newer", None).await;
    assert_eq!(disk.read(&views_segment(0)), before);
    assert_eq!(segments(&disk, &dir().join("views")), [0, 1]);
    assert_eq!((version_of(&disk, 0), version_of(&disk, 1)), (1, VERSION));
    assert_eq!(traces(&log, 3).await, [None, Some(trace(7)), None]);
    log.close().await;
    let (log, _) = open(&disk, 1, &LogConfig::default()).unwrap();
    assert_eq!(traces(&log, 3).await, [None, Some(trace(7)), None]);
    log.close().await;
}

#[tokio::test]
async fn a_damaged_trace_is_damage() {
    let disk = Simulated::new(13);
    let (log, _) = open(&disk, 1, &LogConfig::default()).unwrap();
    append_traced(&log, "value", Some(trace(7))).await;
    append(&log, "behind").await.unwrap();
    log.close().await;
    let path = views_segment(0);
    let mut content = disk.read(&path).unwrap();
    let at = content.windows(8).position(|window| window == [7; 8]).unwrap();
    content[at] ^= 1;
    disk.replace(&path, content);
    let error = open(&disk, 1, &LogConfig::default()).expect_err("it is refused");
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
}
