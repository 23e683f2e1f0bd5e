//! Files that no crash leaves behind.

use super::{append, dir, open, read_all, small, views_segment};
use crate::log::files::Simulated;
use crate::log::segment::{index_path, segment_path};
use crate::log::{LogConfig, OpenError, TornTail};
use onlooker_ports::Topic;
use std::path::Path;

/// A log of one partition with these values, each an entry of its own, closed in good order.
async fn log_of(values: &[&str], config: &LogConfig) -> Simulated {
    let disk = Simulated::new(7);
    let (log, _) = open(&disk, 1, config).unwrap();
    for value in values {
        append(&log, value).await.unwrap();
    }
    log.close().await;
    disk
}

fn find(content: &[u8], value: &str) -> usize {
    content.windows(value.len()).position(|window| window == value.as_bytes()).unwrap()
}

fn flip(disk: &Simulated, path: &Path, at: usize) {
    let mut content = disk.read(path).unwrap();
    content[at] ^= 1;
    disk.replace(path, content);
}

fn refusal(disk: &Simulated, config: &LogConfig) -> OpenError {
    open(disk, 1, config).expect_err("it is refused")
}

#[tokio::test]
async fn a_damaged_middle_is_refused_and_left_alone() {
    let disk = log_of(&["first", "second", "third"], &small()).await;
    let path = views_segment(0);
    let at = find(&disk.read(&path).unwrap(), "second");
    flip(&disk, &path, at);
    let before = disk.read(&path);
    let error = refusal(&disk, &small());
    let OpenError::Damaged { path: named, position, detail } = &error else { panic!("{error}") };
    assert_eq!(named, &path);
    assert!((*position as usize) < at && at - (*position as usize) < 200, "{position} {at}");
    assert!(detail.contains("[1]"), "the offset is named: {detail}");
    assert!(error.to_string().contains("Restore the file"), "{error}");
    assert_eq!(disk.read(&path), before);
}

#[tokio::test]
async fn the_last_record_of_a_closed_log_is_no_torn_tail() {
    let disk = log_of(&["first", "second"], &small()).await;
    let path = views_segment(0);
    let at = find(&disk.read(&path).unwrap(), "second");
    flip(&disk, &path, at);
    let error = refusal(&disk, &small());
    assert!(error.to_string().contains("is damaged at byte"), "{error}");
}

#[tokio::test]
async fn a_torn_tail_is_cut_off_and_reported() {
    let disk = log_of(&["first", "second"], &small()).await;
    let path = views_segment(0);
    let whole = disk.read(&path).unwrap();
    let pieces = [vec![0xff; 100], whole[whole.len() - 150..].to_vec(), vec![0; 8_192]].concat();
    for tail in [vec![0; 1], vec![0; 8_192], vec![0xff; 100], pieces] {
        disk.replace(&path, [whole.as_slice(), &tail].concat());
        let (log, report) = open(&disk, 1, &small()).unwrap();
        // Zeros at the end are room that was made ahead.
        let bytes = tail.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
        let expected = TornTail { path: path.clone(), position: whole.len() as u64, bytes };
        assert_eq!(report.torn, if bytes > 0 { vec![expected] } else { Vec::new() });
        assert_eq!(disk.read(&path).as_ref(), Some(&whole));
        let expected = vec!["first".to_owned(), "second".to_owned()];
        assert_eq!(read_all(&log, Topic::Views).await.unwrap(), [(0, expected)]);
        log.close().await;
    }
}

#[tokio::test]
async fn a_record_that_looks_like_an_entry_is_none() {
    let disk = log_of(&["first"], &small()).await;
    let path = views_segment(0);
    let whole = disk.read(&path).unwrap();
    let header = whole.len() - 64;
    // An entry's own bytes at another place.
    disk.replace(&path, [&whole, &whole[header..]].concat());
    let (log, report) = open(&disk, 1, &small()).unwrap();
    assert_eq!(report.torn.len(), 1);
    log.close().await;
    // The same behind a torn one.
    disk.replace(&path, [&whole, &[1; 8][..], &whole[header..]].concat());
    let (log, report) = open(&disk, 1, &small()).unwrap();
    assert!((60..=72).contains(&report.torn[0].bytes), "{:?}", report.torn);
    assert_eq!(read_all(&log, Topic::Views).await.unwrap(), [(0, vec!["first".to_owned()])]);
}

fn several() -> Vec<String> {
    (0..40).map(|n| format!("{n:02}{}", "x".repeat(500))).collect()
}

async fn log_of_several() -> (Simulated, Vec<String>) {
    let values = several();
    let texts: Vec<&str> = values.iter().map(String::as_str).collect();
    let disk = log_of(&texts, &small()).await;
    assert!(super::segments(&disk, &dir().join("views")).len() > 3);
    (disk, values)
}

#[tokio::test]
async fn an_index_is_a_cache() {
    let (disk, values) = log_of_several().await;
    let index = index_path(&views_segment(1));
    let whole = disk.read(&index).unwrap();
    let mut cases = vec![Vec::new(), whole[..whole.len() / 2].to_vec(), [&whole[..], b"more"].concat()];
    cases.extend((0..whole.len()).step_by(5).map(|at| {
        let mut flipped = whole.clone();
        flipped[at] ^= 4;
        flipped
    }));
    cases.push(disk.read(&index_path(&views_segment(0))).unwrap());
    for (number, case) in cases.into_iter().enumerate() {
        disk.replace(&index, case);
        let (log, report) = open(&disk, 1, &small()).unwrap();
        assert_eq!(report.indexed_anew, 1, "case {number}");
        assert_eq!(read_all(&log, Topic::Views).await.unwrap(), [(0, values.clone())]);
        log.close().await;
        assert_eq!(disk.read(&index).as_ref(), Some(&whole), "it is written again");
    }
}

#[tokio::test]
async fn a_damaged_older_file_is_refused_or_fails_the_read() {
    let (disk, _) = log_of_several().await;
    let path = views_segment(1);
    let at = find(&disk.read(&path).unwrap(), "xxxx") + 100;
    flip(&disk, &path, at);
    // Through its index it is not read, and so opens; whoever reads it is told.
    let (log, _) = open(&disk, 1, &small()).unwrap();
    let error = read_all(&log, Topic::Views).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("00001.log is damaged at byte"), "{error}");
    log.close().await;
    disk.replace(&index_path(&path), Vec::new());
    let error = refusal(&disk, &small());
    assert!(error.to_string().contains("00001.log is damaged at byte"), "{error}");
}

#[tokio::test]
async fn missing_files_are_noticed() {
    let (disk, _) = log_of_several().await;
    let path = views_segment(1);
    let content = disk.read(&path).unwrap();
    disk.replace(&path, content[..content.len() - 8].to_vec());
    let error = refusal(&disk, &small());
    assert!(error.to_string().contains("the file ends here"), "{error}");
    disk.replace(&path, content[..10].to_vec());
    let error = refusal(&disk, &small());
    assert!(error.to_string().contains("header"), "{error}");
    remove(&disk, &path);
    let error = refusal(&disk, &small());
    assert!(error.to_string().contains("the file is missing"), "{error}");
    for number in super::segments(&disk, &dir().join("views")) {
        remove(&disk, &views_segment(number));
    }
    let error = refusal(&disk, &small());
    assert!(error.to_string().contains("the journal is missing"), "{error}");
}

fn remove(disk: &Simulated, path: &Path) {
    use crate::log::files::FileLayer;
    disk.remove(path).unwrap();
}

#[tokio::test]
async fn files_of_another_folder_are_noticed() {
    let (disk, other) = (log_of(&["ours"], &small()).await, log_of(&["theirs"], &small()).await);
    disk.replace(&views_segment(0), other.read(&views_segment(0)).unwrap());
    let error = refusal(&disk, &small());
    assert!(error.to_string().contains("different folders"), "{error}");
    let verdicts = segment_path(&dir().join("verdicts"), 0);
    disk.replace(&views_segment(0), disk.read(&verdicts).unwrap());
    let error = refusal(&disk, &small());
    assert!(error.to_string().contains("belongs elsewhere"), "{error}");
}

#[tokio::test]
async fn what_is_newer_or_counted_otherwise_is_refused() {
    let disk = log_of(&["first"], &small()).await;
    let error = open(&disk, 2, &small()).expect_err("another number of partitions");
    assert!(error.to_string().contains("has 1 partitions and was to be opened with 2: set 1"), "{error}");
    let path = views_segment(0);
    let whole = disk.read(&path).unwrap();
    let mut newer = whole.clone();
    newer[8] = 3;
    disk.replace(&path, newer);
    let error = refusal(&disk, &small());
    assert!(error.to_string().contains("has format version 3, and this program knows up to 2"), "{error}");
    disk.replace(&path, whole);
    let config = LogConfig { segment_bytes: 1, ..LogConfig::default() };
    let error = refusal(&disk, &config);
    assert!(error.to_string().starts_with("segment_bytes must be"), "{error}");
}

#[test]
fn the_configuration_is_read_strictly() {
    let config: LogConfig = toml::from_str("durability = \"process\"\nsegment_bytes = 8192").unwrap();
    assert_eq!((config.segment_bytes, config.queue_bytes), (8192, LogConfig::default().queue_bytes));
    assert_eq!(LogConfig::default().faults(), []);
    let unknown = toml::from_str::<LogConfig>("segment_byte = 1").unwrap_err().to_string();
    assert!(unknown.contains("segment_byte"), "{unknown}");
}

/// Whatever happens to a file: no panic, and never a record that was not written, or one in another's place.
#[tokio::test]
async fn no_damage_shows_what_was_not_written() {
    let (disk, values) = log_of_several().await;
    let count = super::segments(&disk, &dir().join("views")).len() as u64;
    let originals: Vec<Vec<u8>> = (0..count).map(|n| disk.read(&views_segment(n)).unwrap()).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % limit.max(1) as u64) as usize
    };
    let (mut refused, mut failed, mut whole) = (0, 0, 0);
    for round in 0..600 {
        let victim = below(originals.len());
        let mut content = originals[victim].clone();
        match round % 5 {
            0 => content.truncate(below(content.len())),
            1 => {
                let at = below(content.len());
                content[at] ^= 1 << below(8);
            }
            2 => {
                let (from, to) = (below(content.len()), below(content.len()));
                content[from.min(to)..from.max(to)].fill(0);
            }
            3 => {
                let at = below(content.len());
                content.splice(at..at, std::iter::repeat_n(0x4f, 1 + below(40)));
            }
            _ => {
                // A part of another file, or of this one, in the wrong place.
                let other = &originals[below(originals.len())];
                let (from, at) = (below(other.len()) & !7, below(content.len()) & !7);
                let length = (other.len() - from).min(content.len() - at);
                content[at..at + length].copy_from_slice(&other[from..from + length]);
            }
        }
        for (number, original) in originals.iter().enumerate() {
            let content = if number == victim { content.clone() } else { original.clone() };
            disk.replace(&views_segment(number as u64), content);
            // Half of the time the files themselves are read.
            if round % 2 == 0 {
                disk.replace(&index_path(&views_segment(number as u64)), Vec::new());
            }
        }
        match open(&disk, 1, &small()) {
            Err(OpenError::Damaged { .. } | OpenError::Newer { .. } | OpenError::Partitions { .. }) => {
                refused += 1
            }
            Err(error) => panic!("round {round}: {error}"),
            Ok((log, _)) => {
                match read_all(&log, Topic::Views).await {
                    Ok(read) => {
                        let read = &read[0].1;
                        assert_eq!(read[..], values[..read.len()], "round {round}");
                        whole += 1;
                    }
                    Err(_) => failed += 1,
                }
                log.close().await;
            }
        }
    }
    assert!(refused > 100 && failed > 10 && whole > 10, "{refused} {failed} {whole}");
}
