//! What is written is read, and whatever is wrong with a file is noticed.

use super::{GOLDEN, about, golden_rows, read_all, written};
use crate::carry::format::{FRAME_HEAD, Kind, Row, VERSION};
use crate::carry::read::{ReadError, Reader};
use bytes::Bytes;
use onlooker_event::CountKey;

#[test]
fn a_file_of_version_1_is_read_for_ever() {
    let (found, rows, verdicts) = read_all(GOLDEN).unwrap();
    assert_eq!(found, about());
    assert_eq!(rows, golden_rows());
    assert_eq!(verdicts, [Bytes::from(vec![b'x'; 40])]);
}

#[test]
fn what_is_written_is_read() {
    let mut rows = golden_rows();
    // Several frames, of what packs well and of what does not.
    let noise: Vec<u8> = (0..12_304_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for n in 0..300 {
        let name = format!("*:s:{}", "n".repeat(n % 90 + 1));
        let sketch = (n % 2 == 0).then(|| Bytes::from(noise.clone()));
        rows.push(Row { key: CountKey::parse(name.into()).unwrap(), views: Some(n as u64), sketch });
    }
    let verdicts: Vec<Bytes> = (0..5_000).map(|n: usize| Bytes::from(vec![b'v'; n % 400])).collect();
    let bytes = written(&rows, &verdicts);
    assert_eq!(read_all(&bytes).unwrap(), (about(), rows, verdicts));
    assert_eq!(read_all(&written(&[], &[])).unwrap(), (about(), vec![], vec![]));
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_noticed() {
    for length in 0..GOLDEN.len() {
        match read_all(&GOLDEN[..length]) {
            Err(ReadError::Foreign) => assert_eq!(length, 0),
            Err(ReadError::Truncated(at)) => assert_eq!(at, length as u64),
            other => panic!("{length} bytes: {other:?}"),
        }
    }
    let longer = [GOLDEN, b"x"].concat();
    let error = read_all(&longer).unwrap_err().to_string();
    assert_eq!(error, format!("is damaged at byte {}: something follows the end", GOLDEN.len()));
}

#[test]
fn a_changed_byte_is_noticed_and_placed() {
    for at in 0..GOLDEN.len() {
        for change in [1, 0x80] {
            let mut bytes = GOLDEN.to_vec();
            bytes[at] ^= change;
            let error = read_all(&bytes).expect_err("a byte was changed");
            match (&error, at) {
                (ReadError::Foreign, 0..8) | (ReadError::Newer(_), 8..12) => {}
                (ReadError::Damaged { at: 8, .. }, 8) => {}
                (ReadError::Damaged { at: said, .. }, 12..) => {
                    assert!(*said <= at as u64, "byte {at}: {error}");
                }
                // A length that says more than there is.
                (ReadError::Truncated(_), 12..) => {}
                _ => panic!("byte {at}: {error}"),
            }
        }
    }
}

#[test]
fn a_part_that_is_missing_or_stands_elsewhere_is_noticed() {
    let frames = frames(GOLDEN);
    let [about, rows, verdicts, end] = frames.as_slice() else { panic!("{} frames", frames.len()) };
    let head = &GOLDEN[..12];
    for order in
        [vec![about, verdicts, end], vec![about, verdicts, rows, end], vec![about, rows, rows, verdicts, end]]
    {
        let parts: Vec<u8> = order.into_iter().flatten().copied().collect();
        let error = read_all(&[head, &parts].concat()).unwrap_err().to_string();
        assert!(error.contains("a part is missing or stands elsewhere"), "{error}");
    }
}

fn frames(file: &[u8]) -> Vec<Vec<u8>> {
    let (mut rest, mut frames) = (&file[12..], Vec::new());
    while !rest.is_empty() {
        let stored = u32::from_le_bytes(rest[12..16].try_into().unwrap()) as usize;
        let (frame, more) = rest.split_at(FRAME_HEAD + stored);
        frames.push(frame.to_vec());
        rest = more;
    }
    frames
}

#[test]
fn other_files_and_newer_ones_are_refused_by_name() {
    let error = |bytes: &[u8]| Reader::begin(bytes).err().unwrap().to_string();
    assert_eq!(error(b"PK\x03\x04 and so on, for long enough"), "is no export of Onlooker");
    let mut newer = GOLDEN.to_vec();
    newer[8] = 2;
    let text = error(&newer);
    assert!(text.starts_with("has format version 2") && text.contains(&format!("up to {VERSION}")), "{text}");
    assert_eq!(Kind::of(9), None);
}
