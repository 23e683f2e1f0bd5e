//! From folder to folder, without a network.

use super::{golden_rows, read_all, written};
use crate::carry::collect::Summary;
use crate::carry::export::take;
use crate::carry::format::Row;
use crate::carry::restore::{Done, note, put};
use crate::carry::source::Source;
use crate::carry::{Mark, Place, Rows, Slices};
use crate::clock::now_ms;
use crate::wiring::embedded::{EmbeddedConfig, Store};
use bytes::Bytes;
use onlooker_event::{CountKey, DayNumber, Digest128, ItemId, ItemKey, Scope, SiteId, ViewId, ViewerHash};
use onlooker_ports::{Archive, ArchiveCell, LogWriter, OutgoingBatch, Topic};
use onlooker_proto::{Counted, decode_counted, encode_counted};
use onlooker_sketch::Sketch;
use std::collections::BTreeMap;
use std::path::Path;

const SLICES: Slices = Slices { length_s: 3_600, skew_s: 60 };

fn now_slice() -> i64 {
    now_ms() / 1_000 / 3_600
}

fn item(name: &str) -> ItemKey {
    ItemKey::new(&SiteId::new("s").unwrap(), &ItemId::new(name).unwrap())
}

const DAY: i32 = 20_000;

/// A verdict of a view of `viewer`, in the present slice.
fn verdict(name: &str, viewer: u8, offset: i64, slice: i64) -> Vec<u8> {
    let view = Counted {
        view_id: ViewId([viewer; 16]),
        site: SiteId::new("s").unwrap(),
        item: ItemId::new(name).unwrap(),
        viewer: ViewerHash([viewer; 16]),
        event_ms: i64::from(DAY) * 86_400_000,
        source_partition: 0,
        source_offset: offset,
        slice,
        slice_s: 3_600,
        claim: Digest128([viewer; 16]),
        id_claim: None,
        rule_version: 1,
    };
    let mut payload = Vec::new();
    encode_counted(&view, &mut payload);
    payload
}

fn sketch_of(viewers: &[u8]) -> Bytes {
    let mut sketch = Sketch::new();
    viewers.iter().for_each(|viewer| _ = sketch.add(&[*viewer; 16]));
    sketch.to_redis().into()
}

fn folder(path: &Path, partitions: u32) -> EmbeddedConfig {
    EmbeddedConfig { dir: path.to_owned(), partitions, ..EmbeddedConfig::default() }
}

async fn export(store: &Store, file: &Path) -> Summary {
    take(&store.place(), SLICES, None, std::fs::File::create(file).unwrap()).await.unwrap()
}

async fn restore(store: &Store, file: &Path) -> anyhow::Result<Done> {
    let (source, about) = Source::open(file)?.verify().await?;
    let done = put(&store.place(), &source).await?;
    store.place().begin(&note(&about)).await?;
    Ok(done)
}

fn rows_of(file: &Path) -> BTreeMap<CountKey, Row> {
    let (_, rows, _) = read_all(&std::fs::read(file).unwrap()).unwrap();
    let n = rows.len();
    let rows: BTreeMap<_, _> = rows.into_iter().map(|row| (row.key.clone(), row)).collect();
    assert_eq!(rows.len(), n, "a key stands twice");
    rows
}

async fn write(archive: &impl Archive, cells: &[ArchiveCell]) {
    archive.write(cells).await.into_iter().for_each(|written| written.unwrap());
}

/// A folder in the middle of its work: of six views of `a` the archive has the first three, but of one scope's sketch
/// four; `b` is not in it at all; what `old` has was carried over.
async fn in_the_middle(path: &Path) -> Store {
    let store = Store::open(&folder(path, 1)).await.unwrap();
    let place = store.place();
    let (a, b) = (item("a"), item("b"));
    let mut batch = OutgoingBatch::default();
    for (offset, viewer) in (0..).zip([1, 2, 3, 4, 4, 5]) {
        batch.push(Topic::Counted, a.as_bytes(), &verdict("a", viewer, offset, now_slice()));
    }
    batch.push(Topic::Counted, a.as_bytes(), &verdict("a", 77, onlooker_proto::CARRIED_OVER, now_slice()));
    batch.push(Topic::Counted, b.as_bytes(), &verdict("b", 9, 6, now_slice()));
    batch.push(Topic::Counted, b.as_bytes(), b"nobody can read this");
    batch.push(Topic::Counted, b.as_bytes(), &verdict("b", 8, 8, now_slice() - 5));
    place.writer().append(batch).await.unwrap();
    let all = CountKey::new(Scope::All, a.as_bytes());
    let day = CountKey::new(Scope::Day(DayNumber(DAY)), a.as_bytes());
    let old = CountKey::new(Scope::All, item("old").as_bytes());
    let cells = [
        ArchiveCell::Number { key: all.clone(), n: 103, u: 3 },
        ArchiveCell::Sketch { key: all, bytes: sketch_of(&[100, 1, 2, 3]), t: 3 },
        ArchiveCell::Number { key: day.clone(), n: 3, u: 3 },
        ArchiveCell::Sketch { key: day, bytes: sketch_of(&[1, 2, 3, 4]), t: 4 },
        ArchiveCell::Number { key: old.clone(), n: 9, u: 0 },
        ArchiveCell::Sketch { key: old, bytes: sketch_of(&[20, 21]), t: 0 },
    ];
    write(place.archive(), &cells).await;
    place.archive().set_durable(0, 3).await.unwrap();
    store
}

#[tokio::test]
async fn an_export_is_exact_as_of_the_logs_end() {
    let (dir, file) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let store = in_the_middle(dir.path()).await;
    let summary = export(&store, file.path()).await;
    assert_eq!((summary.rows, summary.about.up_to.as_slice()), (5, &[10][..]));
    let rows = rows_of(file.path());
    let of = |scope, name: &str| &rows[&CountKey::new(scope, item(name).as_bytes())];
    let day = Scope::Day(DayNumber(DAY));
    let expected = [
        (Scope::All, "a", 106, sketch_of(&[100, 1, 2, 3, 4, 5])),
        (day, "a", 6, sketch_of(&[1, 2, 3, 4, 5])),
        (Scope::All, "b", 2, sketch_of(&[8, 9])),
        (day, "b", 2, sketch_of(&[8, 9])),
        (Scope::All, "old", 9, sketch_of(&[20, 21])),
    ];
    for (scope, name, views, sketch) in expected {
        let row = of(scope, name);
        assert_eq!(row.views, Some(views), "{scope:?} {name}");
        let found = Sketch::from_redis(row.sketch.as_deref().unwrap()).unwrap();
        assert!(found.register_eq(&Sketch::from_redis(&sketch).unwrap()), "{scope:?} {name}");
    }
    // Claims of the last two slices, those that were carried over before among them.
    let (_, _, verdicts) = read_all(&std::fs::read(file.path()).unwrap()).unwrap();
    let mut viewers: Vec<u8> =
        verdicts.iter().map(|verdict| decode_counted(Some(verdict)).unwrap().viewer.0[0]).collect();
    viewers.sort_unstable();
    assert_eq!(viewers, [1, 2, 3, 4, 4, 5, 9, 77]);
    store.close().await;
}

#[tokio::test]
async fn what_is_restored_is_exported_as_it_was() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let store = in_the_middle(&at("one")).await;
    export(&store, &at("first")).await;
    store.close().await;

    let other = Store::open(&folder(&at("two"), 3)).await.unwrap();
    let done = restore(&other, &at("first")).await.unwrap();
    assert_eq!(done, Done { rows: 5, rows_there: 0, verdicts: 8, verdicts_there: 0 });
    assert_eq!(Mark::read(&at("two")).unwrap(), None);
    // The same again changes nothing, also in another process.
    other.close().await;
    let other = Store::open(&folder(&at("two"), 3)).await.unwrap();
    let again = restore(&other, &at("first")).await.unwrap();
    assert_eq!(again, Done { rows: 0, rows_there: 5, verdicts: 0, verdicts_there: 8 });
    export(&other, &at("second")).await;
    assert_eq!(rows_of(&at("second")), rows_of(&at("first")));
    let verdicts = |name: &str| {
        let (_, _, mut verdicts) = read_all(&std::fs::read(at(name)).unwrap()).unwrap();
        verdicts.sort();
        verdicts
    };
    assert_eq!(verdicts("second"), verdicts("first"));

    // Another export does not mix with it, and counting ends it for good.
    std::fs::write(at("foreign"), written(&golden_rows(), &[])).unwrap();
    let error = restore(&other, &at("foreign")).await.unwrap_err().to_string();
    assert!(error.contains("another export was restored here before: 5 of its rows"), "{error}");
    let first = [ArchiveCell::Number { key: CountKey::new(Scope::All, item("old").as_bytes()), n: 10, u: 1 }];
    write(other.place().archive(), &first).await;
    let error = restore(&other, &at("first")).await.unwrap_err().to_string();
    assert!(error.contains("has counted views already"), "{error}");
    other.close().await;
}

#[tokio::test]
async fn nothing_is_written_of_a_damaged_file_and_a_half_restored_folder_does_not_run() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let mut bytes = written(&golden_rows(), &[]);
    let middle = bytes.len() - 50;
    bytes[middle] ^= 1;
    std::fs::write(at("damaged"), &bytes).unwrap();
    let store = Store::open(&folder(&at("folder"), 1)).await.unwrap();
    let error = restore(&store, &at("damaged")).await.unwrap_err().to_string();
    assert!(error.contains("is damaged at byte"), "{error}");
    assert_eq!(rows(&store).await, 0);
    assert_eq!(Mark::read(&at("folder")).unwrap(), None);

    store.place().hold().await.unwrap();
    let error = Mark::refuse(&at("folder")).unwrap_err().to_string();
    assert!(error.contains("is half restored"), "{error}");
    std::fs::write(at("whole"), written(&golden_rows(), &[])).unwrap();
    restore(&store, &at("whole")).await.unwrap();
    Mark::refuse(&at("folder")).unwrap();
    assert_eq!(rows(&store).await, 2);
    store.close().await;
}

async fn rows(store: &Store) -> usize {
    let (sink, mut batches) = tokio::sync::mpsc::channel::<Rows>(8);
    let place = store.place();
    let counting = async {
        let mut rows = 0;
        while let Some(batch) = batches.recv().await {
            rows += batch.len();
        }
        rows
    };
    let (scanned, rows) = tokio::join!(place.scan(sink), counting);
    scanned.unwrap();
    rows
}
