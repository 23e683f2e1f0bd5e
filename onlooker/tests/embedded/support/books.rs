//! What lies in a folder that no process has open, and what must be true of it.

use super::LONG;
use onlooker_embedded::log::files::FileLayer;
use onlooker_embedded::log::{EmbeddedLog, LogConfig};
use onlooker_embedded::store::{Folder, RedbArchive};
use onlooker_event::{CountKey, DayNumber, ItemKey, Scope, View, partition_of};
use onlooker_ports::{Archived, GroupEvent, GroupReader, Topic};
use onlooker_proto::{Counted, Dead, decode_counted, decode_dead, decode_ignored, decode_view};
use onlooker_sketch::Sketch;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

/// A partition and an offset.
type Place = (i32, i64);
/// An hour of append time, since 1970.
type Hour = i64;
/// Counted views: event time in seconds, and the hour in which each was counted.
type Seen = Vec<(i64, Hour)>;

/// Sketch and number by the key that they count.
pub(crate) type Counts = BTreeMap<String, (Sketch, u64)>;

/// All records of the log and all rows of the archive.
pub(crate) struct Books {
    partitions: u32,
    pub(crate) views: Vec<(Place, View)>,
    /// When each of them was appended, by the log's clock.
    appended_ms: Vec<i64>,
    pub(crate) counted: Vec<(Place, Counted)>,
    /// Where the views stand that were ignored or could not be judged.
    ignored: Vec<Place>,
    dead: Vec<Place>,
    pub(crate) archived: BTreeMap<String, Archived>,
    durable: Vec<(i32, i64)>,
    /// Ends of `views.counted`.
    ends: Vec<i64>,
}

struct Record {
    place: Place,
    append_ms: i64,
    key: Vec<u8>,
    payload: Vec<u8>,
}

impl Books {
    /// Opens the folder, as the program would, and reads all of it.
    pub(crate) async fn of(folder: &Path) -> Self {
        let folder = Folder::open(folder).unwrap();
        let (log, report) = EmbeddedLog::open(&folder.log().unwrap(), 2, LogConfig::default()).unwrap();
        assert!(!report.created, "there was no log");
        let generation = format!("{:016x}", report.id);
        let archive = RedbArchive::open(&folder.archive(), &generation, 1 << 20).unwrap();
        let books = Self::read(&log, &archive).await;
        log.close().await;
        books
    }

    /// What was set aside in a folder.
    pub(crate) async fn dead(folder: &Path) -> Vec<Dead> {
        let folder = Folder::open(folder).unwrap();
        let (log, _) = EmbeddedLog::open(&folder.log().unwrap(), 2, LogConfig::default()).unwrap();
        let dead = records(&log, Topic::Dead).await;
        dead.iter().map(|r| decode_dead(Some(&r.payload)).unwrap()).collect()
    }

    pub(crate) async fn read<F: FileLayer>(log: &EmbeddedLog<F>, archive: &RedbArchive) -> Self {
        let view = |r: &Record| (r.place, decode_view(Some(&r.payload)).unwrap());
        let views = records(log, Topic::Views).await;
        let (appended_ms, views) = views.iter().map(|r| (r.append_ms, view(r))).unzip();
        let verdicts = records(log, Topic::Counted).await;
        let counted: Vec<_> =
            verdicts.iter().map(|r| (r.place, decode_counted(Some(&r.payload)).unwrap())).collect();
        for (record, (_, counted)) in verdicts.iter().zip(&counted) {
            let item = ItemKey::new(&counted.site, &counted.item);
            assert_eq!(record.key, item.as_bytes(), "a verdict's key is its item");
            assert_eq!(record.place.0, partition_of(&record.key, log.partitions()));
        }
        let ignored = records(log, Topic::Ignored).await;
        let ignored = ignored.iter().map(|r| decode_ignored(Some(&r.payload)).unwrap());
        let dead = records(log, Topic::Dead).await;
        let dead = dead.iter().map(|r| decode_dead(Some(&r.payload)).unwrap());
        Self {
            partitions: log.partitions(),
            views,
            appended_ms,
            counted,
            ignored: ignored.map(|i| (i.source_partition, i.source_offset)).collect(),
            dead: dead.map(|d| (d.source_partition, d.source_offset)).collect(),
            archived: rows(archive).await,
            durable: archive.all_durable().await.unwrap(),
            ends: log.ends(Topic::Counted),
        }
    }

    /// Every view that was read has exactly one outcome, and the one that the rule gives; every acknowledged id is
    /// there, once. For a folder that was closed after everything was judged.
    pub(crate) fn check_outcomes(&self, acknowledged: &HashSet<String>) {
        self.check_part(acknowledged);
        let judged = self.counted.len() + self.ignored.len() + self.dead.len();
        assert_eq!(judged, self.views.len(), "views without an outcome");
        let counted: HashSet<Place> = self.counted.iter().map(|(_, c)| source(c)).collect();
        let expected = self.rule();
        let missing: Vec<_> = expected.difference(&counted).take(5).collect();
        let extra: Vec<_> = counted.difference(&expected).take(5).collect();
        assert!(
            missing.is_empty() && extra.is_empty(),
            "not counted: {missing:?}; wrongly counted: {extra:?}"
        );
    }

    /// What holds at any moment: no view has two outcomes, no outcome is without its view, every acknowledged id is
    /// there.
    pub(crate) fn check_part(&self, acknowledged: &HashSet<String>) {
        let places: HashSet<Place> = self.views.iter().map(|(place, _)| *place).collect();
        let mut judged = HashSet::new();
        let counted = self.counted.iter().map(|(_, c)| source(c));
        for place in counted.chain(self.ignored.iter().copied()).chain(self.dead.iter().copied()) {
            assert!(places.contains(&place), "an outcome of a view that is not there: {place:?}");
            assert!(judged.insert(place), "the view at {place:?} has two outcomes");
        }
        let ids: HashSet<String> = self.ids().map(str::to_owned).collect();
        let lost: BTreeSet<_> = acknowledged.difference(&ids).take(5).collect();
        assert!(lost.is_empty(), "acknowledged and not in the log: {lost:?}");
    }

    /// Ids that clients gave their views.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.views.iter().filter_map(|(_, view)| Some(view.client_id.as_ref()?.as_str()))
    }

    /// The naive rule, read off the log once: a view counts unless an earlier counted one of the same viewer and item
    /// is less than 30 minutes away, or its id was counted before. Remembered is what was counted in the partition's
    /// present hour of append time and in the one before; that time never goes back.
    fn rule(&self) -> HashSet<Place> {
        let mut times: HashMap<(Vec<u8>, &str), Seen> = HashMap::new();
        let mut ids: HashMap<(Vec<u8>, &str, &str), Hour> = HashMap::new();
        let mut hours: HashMap<i32, Hour> = HashMap::new();
        let mut expected = HashSet::new();
        for ((place, view), append_ms) in self.views.iter().zip(&self.appended_ms) {
            let hour = hours.entry(place.0).or_insert(i64::MIN);
            *hour = (*hour).max(append_ms.div_euclid(3_600_000));
            let hour = *hour;
            let viewer = view.viewer.0.to_vec();
            let second = view.event_ms.div_euclid(1000);
            let id = view.client_id.as_ref().map(|id| (viewer.clone(), id.as_str(), view.item.as_str()));
            let seen = times.entry((viewer, view.item.as_str())).or_default();
            let retry = id.as_ref().is_some_and(|id| ids.get(id).is_some_and(|of| *of >= hour - 1));
            if !retry && seen.iter().all(|(t, of)| *of < hour - 1 || (t - second).abs() >= 1800) {
                seen.push((second, hour));
                ids.extend(id.map(|id| (id, hour)));
                expected.insert(*place);
            }
        }
        expected
    }

    /// Sketches and numbers as the verdicts say.
    pub(crate) fn rebuild(&self) -> Counts {
        let mut counts: HashMap<CountKey, (Sketch, u64)> = HashMap::new();
        for (_, counted) in &self.counted {
            let item = ItemKey::new(&counted.site, &counted.item);
            for scope in [Scope::All, Scope::Day(DayNumber::of_ms(counted.event_ms))] {
                let key = CountKey::new(scope, item.as_bytes());
                let (sketch, n) = counts.entry(key).or_insert_with(|| (Sketch::new(), 0));
                sketch.add(&counted.viewer.0);
                *n += 1;
            }
        }
        counts.into_iter().map(|(key, value)| (name(&key), value)).collect()
    }

    /// The archive has every sketch, register for register, and every number, and nothing else. For a folder that was
    /// closed in good order after everything was counted.
    pub(crate) fn check_counts(&self) -> Counts {
        let expected = self.rebuild();
        for (key, (sketch, n)) in &expected {
            let row = self.archived.get(key).unwrap_or_else(|| panic!("{key} is not in the archive"));
            assert_eq!(row.number.map(|(n, _)| n), Some(*n), "{key}");
            let (bytes, _) = row.sketch.as_ref().unwrap_or_else(|| panic!("{key} has no archived sketch"));
            let archived = Sketch::from_redis(bytes).unwrap_or_else(|error| panic!("{key}: {error}"));
            assert!(archived.register_eq(sketch), "{key}: the archived sketch differs from the log's");
        }
        assert_eq!(self.archived.len(), expected.len(), "rows that the log does not know");
        let durable: BTreeMap<_, _> = self.durable.iter().copied().collect();
        for (partition, end) in (0..).zip(&self.ends) {
            let durable = durable.get(&partition).copied().unwrap_or(0);
            assert_eq!(durable, *end, "partition {partition}: durable, and the log's end");
        }
        assert_eq!(self.ends.len(), self.partitions as usize);
        expected
    }
}

fn source(counted: &Counted) -> Place {
    (counted.source_partition, counted.source_offset)
}

fn name(key: &CountKey) -> String {
    String::from_utf8(key.as_bytes().to_vec()).unwrap()
}

async fn rows(archive: &RedbArchive) -> BTreeMap<String, Archived> {
    let (mut rows, mut after) = (BTreeMap::new(), None);
    loop {
        let more = archive.scan(after.as_ref(), 4_000).await.unwrap();
        let Some((last, _)) = more.last() else { return rows };
        after = Some(last.clone());
        rows.extend(more.into_iter().map(|(key, row)| (name(&key), row)));
    }
}

/// All records of a topic, partition by partition in their order.
async fn records<F: FileLayer>(log: &EmbeddedLog<F>, topic: Topic) -> Vec<Record> {
    let bounds = log.bounds(topic);
    let mut reader = log.reader(topic, "eyes");
    let mut left: HashSet<i32> = (0..).take(bounds.len()).collect();
    let mut read = Vec::new();
    let all = async {
        while !left.is_empty() {
            match reader.next(Duration::from_secs(1)).await.unwrap() {
                Some(GroupEvent::Assigned { partitions, .. }) => {
                    for partition in partitions {
                        let (start, _) = bounds[usize::try_from(partition).unwrap()];
                        reader.start(partition, start).await.unwrap();
                    }
                }
                Some(GroupEvent::Records(batch)) => read.extend(batch.iter().map(|record| Record {
                    place: (batch.partition, record.offset),
                    append_ms: record.append_ms,
                    key: record.key.unwrap_or_default().to_vec(),
                    payload: record.payload.unwrap_or_default().to_vec(),
                })),
                Some(GroupEvent::CaughtUp { partition, .. }) => _ = left.remove(&partition),
                Some(other) => panic!("{other:?} while reading {topic:?}"),
                None => {}
            }
        }
    };
    tokio::time::timeout(LONG, all).await.unwrap_or_else(|_| panic!("{topic:?} could not be read"));
    reader.close(Duration::from_secs(1)).await;
    read.sort_by_key(|record| record.place);
    read
}
