//! The log on a disk that forgets, fills up and fails.

mod damage;
mod faults;
mod loss;
mod retention;
mod traces;

use super::files::{Disk, Faults, FileLayer, Simulated};
use super::{EmbeddedLog, EmbeddedReader, LogConfig, OpenError, OpenReport};
use onlooker_ports::{GroupEvent, GroupReader, LogWriter, OutgoingBatch, PortError, Topic};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

fn dir() -> PathBuf {
    PathBuf::from("/log")
}

/// Small files, so that much happens in them.
fn small() -> LogConfig {
    LogConfig { segment_bytes: 4_096, ..LogConfig::default() }
}

type Opened = Result<(EmbeddedLog<Simulated>, OpenReport), OpenError>;

fn open(disk: &Simulated, partitions: u32, config: &LogConfig) -> Opened {
    EmbeddedLog::open_on(disk.clone(), &dir(), partitions, config.clone())
}

fn views(values: impl IntoIterator<Item = String>) -> OutgoingBatch {
    let mut batch = OutgoingBatch::default();
    values.into_iter().for_each(|value| batch.push(Topic::Views, value.as_bytes(), value.as_bytes()));
    batch
}

async fn append(log: &EmbeddedLog<Simulated>, value: &str) -> Result<(), PortError> {
    log.writer().append(views([value.to_owned()])).await
}

/// A sole reader that has been told of all its partitions.
async fn joined<F: FileLayer>(log: &EmbeddedLog<F>, topic: Topic, group: &str) -> EmbeddedReader<F> {
    let mut reader = log.reader(topic, group);
    match reader.next(SOON).await.unwrap() {
        Some(GroupEvent::Assigned { partitions, .. }) => {
            assert_eq!(partitions.len(), log.partitions() as usize);
            reader
        }
        other => panic!("{other:?}"),
    }
}

/// All that can be read of a topic: each partition's first offset and its values.
async fn read_all<F: FileLayer>(
    log: &EmbeddedLog<F>,
    topic: Topic,
) -> Result<Vec<(i64, Vec<String>)>, PortError> {
    let all = read_with_gaps(log, topic).await?;
    assert!(all.iter().flat_map(|(_, values)| values).all(|value| value != LEFT_OUT));
    Ok(all)
}

/// Stands for a record whose offset was left out.
const LEFT_OUT: &str = "left out";

async fn read_with_gaps<F: FileLayer>(
    log: &EmbeddedLog<F>,
    topic: Topic,
) -> Result<Vec<(i64, Vec<String>)>, PortError> {
    let mut reader = joined(log, topic, "everything").await;
    let mut all = Vec::new();
    for (partition, (start, end)) in log.bounds(topic).into_iter().enumerate() {
        let partition = i32::try_from(partition).unwrap();
        reader.start(partition, start).await?;
        let mut values: Vec<String> = Vec::new();
        loop {
            match reader.next(SOON).await? {
                Some(GroupEvent::Records(batch)) => {
                    for record in batch.iter() {
                        assert_eq!(record.offset, start + values.len() as i64);
                        values.push(String::from_utf8(record.payload.unwrap().to_vec()).unwrap());
                    }
                }
                Some(GroupEvent::CaughtUp { next_offset, .. }) => {
                    assert_eq!((next_offset, values.len() as i64), (end, end - start));
                    break;
                }
                Some(GroupEvent::OutOfRange { earliest, end: told, .. }) if told == end => {
                    values.resize((earliest - start) as usize, LEFT_OUT.to_owned());
                    reader.start(partition, earliest).await?;
                }
                other => panic!("{other:?}"),
            }
        }
        reader.stop(partition).await?;
        all.push((start, values));
    }
    Ok(all)
}

/// Ends a log in the middle of whatever it does, and the disk in the given way.
fn crash(disk: &Simulated, log: EmbeddedLog<Simulated>, end: fn(&Simulated)) {
    disk.set_faults(Faults { operations_left: Some(0), ..Faults::default() });
    drop(log);
    end(disk);
}

fn views_segment(number: u64) -> PathBuf {
    super::segment::segment_path(&dir().join("views"), number)
}

/// The numbers of a journal's segments, in order.
fn segments(files: &impl FileLayer, journal: &Path) -> Vec<u64> {
    let names = files.list(journal).unwrap();
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| super::segment::number_of(name)).collect();
    numbers.sort_unstable();
    numbers
}

#[tokio::test]
async fn a_folder_has_one_user() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("deep").join("log");
    let (log, report) = EmbeddedLog::open(&path, 2, LogConfig::default()).unwrap();
    assert!(report.created);
    let second = EmbeddedLog::open(&path, 2, LogConfig::default()).unwrap_err();
    assert!(second.to_string().ends_with("is in use by another process"), "{second}");
    log.close().await;
    let (log, report) = EmbeddedLog::open(&path, 2, LogConfig::default()).unwrap();
    assert_eq!((report.created, report.torn, report.id), (false, Vec::new(), log.id()));
    assert_eq!(segments(&Disk, &path.join("views")), [0]);
}

#[tokio::test]
async fn a_handle_outlives_its_log_without_harm() {
    let disk = Simulated::new(1);
    let (log, _) = open(&disk, 1, &small()).unwrap();
    let (writer, mut reader) = (log.writer(), joined(&log, Topic::Views, "g").await);
    writer.append(views(["a".to_owned()])).await.unwrap();
    reader.start(0, 0).await.unwrap();
    log.close().await;
    assert!(!writer.is_reachable());
    let refused = writer.append(views(["b".to_owned()])).await.unwrap_err();
    assert!(refused.is_transient(), "{refused}");
    let event = reader.next(SOON).await.unwrap();
    assert!(event.is_some(), "what was there is still read");
    let (log, _) = open(&disk, 1, &small()).unwrap();
    assert_eq!(read_all(&log, Topic::Views).await.unwrap(), [(0, vec!["a".to_owned()])]);
}
