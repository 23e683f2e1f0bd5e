//! The file's format, and a folder's counts carried to another one and on.

mod folder;
mod format;

use super::format::{About, Row};
use super::read::{Part, ReadError, Reader};
use super::write::Writer;
use bytes::Bytes;
use onlooker_event::CountKey;

/// Written by another program, from docs/export-format.md.
const GOLDEN: &[u8] = include_bytes!("../../../tests/data/export_v1.bin");

fn about() -> About {
    About {
        made_ms: 1_700_000_000_000,
        program: "0.1.0".into(),
        from: "embedded".into(),
        generation: "g".into(),
        up_to: vec![3, 0],
        newest_ms: 1_699_999_999_000,
        slice: 472_222,
        slice_s: 3_600,
        identity: Some("00112233aabbccdd".into()),
    }
}

fn key(text: &'static str) -> CountKey {
    CountKey::parse(Bytes::from_static(text.as_bytes())).unwrap()
}

fn golden_rows() -> Vec<Row> {
    let sketch = Bytes::from_static(b"HYLL\x01\0\0\0\x03\0\0\0\0\0\0\0\x7f\xff");
    vec![
        Row { key: key("*:s:a"), views: Some(7), sketch: Some(sketch) },
        Row { key: key("20261130:s:a"), views: Some(1), sketch: None },
    ]
}

/// Rows and verdicts, if the file is whole.
fn read_all(bytes: &[u8]) -> Result<(About, Vec<Row>, Vec<Bytes>), ReadError> {
    let mut reader = Reader::begin(bytes)?;
    let (mut rows, mut verdicts) = (Vec::new(), Vec::new());
    while let Some(part) = reader.next()? {
        match part {
            Part::Rows(more) => rows.extend(more),
            Part::Verdicts(more) => verdicts.extend(more),
        }
    }
    Ok((reader.about().clone(), rows, verdicts))
}

fn written(rows: &[Row], verdicts: &[Bytes]) -> Vec<u8> {
    let mut writer = Writer::begin(Vec::new(), &about()).unwrap();
    rows.iter().for_each(|row| writer.row(row).unwrap());
    verdicts.iter().for_each(|verdict| writer.verdict(verdict).unwrap());
    let (bytes, of_rows, of_verdicts) = writer.finish().unwrap();
    assert_eq!((of_rows, of_verdicts), (rows.len() as u64, verdicts.len() as u64));
    bytes
}
