//! What must be true of the whole system, computed from the logs alone.

use super::{LONG, System};
use onlooker_event::{CountKey, DayNumber, ItemKey, Scope, partition_of};
use onlooker_sketch::Sketch;
use onlooker_testkit::wait_for;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Sketch and number per key, as the log says.
pub(crate) type Expected = BTreeMap<String, (Sketch, u64)>;

/// Builds every sketch and number from `views.counted`.
pub(crate) fn rebuild(system: &System) -> Expected {
    let mut expected: HashMap<CountKey, (Sketch, u64)> = HashMap::new();
    for (_, counted) in system.log().counted() {
        let item = ItemKey::new(&counted.site, &counted.item);
        for scope in [Scope::All, Scope::Day(DayNumber::of_ms(counted.event_ms))] {
            let entry =
                expected.entry(CountKey::new(scope, item.as_bytes())).or_insert_with(|| (Sketch::new(), 0));
            entry.0.add(&counted.viewer.0);
            entry.1 += 1;
        }
    }
    let name = |key: &CountKey| String::from_utf8(key.as_bytes().to_vec()).unwrap();
    expected.into_iter().map(|(key, value)| (name(&key), value)).collect()
}

/// The outcomes of all views.
pub(crate) struct Ledger;

impl Ledger {
    /// Waits until every view in `views` has an outcome; then checks that it has exactly one, that it is the rule's, and
    /// that every acknowledged id is there. Returns how many views there are.
    pub(crate) fn check(system: &System, acknowledged: &HashSet<String>) -> usize {
        let log = system.log();
        let views = wait_for("every view to have an outcome", LONG, || {
            let views = log.records("views");
            let outcomes = log.records("views.counted").len()
                + log.records("views.ignored").len()
                + log.records("views.dead").len();
            (outcomes >= views.len()).then_some(views)
        })
        .unwrap();
        let counted = log.counted();
        let mut outcomes: HashMap<(i32, i64), usize> = HashMap::new();
        let ignored = log.ignored();
        let dead: Vec<_> = log.dead().into_iter().filter(|d| d.source_topic.ends_with(".views")).collect();
        let counted_at = counted.iter().map(|(_, c)| (c.source_partition, c.source_offset));
        let ignored_at = ignored.iter().map(|i| (i.source_partition, i.source_offset));
        let dead_at = dead.iter().map(|d| (d.source_partition, d.source_offset));
        for source in counted_at.chain(ignored_at).chain(dead_at) {
            *outcomes.entry(source).or_default() += 1;
        }
        for read in &views {
            let n = outcomes.remove(&(read.partition, read.offset)).unwrap_or(0);
            assert_eq!(n, 1, "view at {}/{} has {n} outcomes", read.partition, read.offset);
        }
        assert!(outcomes.is_empty(), "outcomes of views that are not there: {outcomes:?}");
        let ids: HashSet<String> =
            log.views().iter().filter_map(|(_, v)| Some(v.client_id.as_ref()?.to_string())).collect();
        let lost: BTreeSet<_> = acknowledged.difference(&ids).take(5).collect();
        assert!(lost.is_empty(), "acknowledged and not in the log: {lost:?}");
        Self::check_verdicts(system);
        for (read, counted) in &counted {
            let item = ItemKey::new(&counted.site, &counted.item);
            assert_eq!(read.key, item.as_bytes());
            assert_eq!(read.partition, partition_of(item.as_bytes(), system.partitions));
        }
        views.len()
    }

    /// The naive rule, read off the log once: a view counts unless an earlier counted one of the same viewer and item is
    /// less than 30 minutes away, or its id was counted before. (No test runs long enough for memory to be dropped.)
    fn check_verdicts(system: &System) {
        let mut times: HashMap<(Vec<u8>, String), Vec<i64>> = HashMap::new();
        let mut ids: HashSet<(Vec<u8>, String, String)> = HashSet::new();
        let mut expected = HashSet::new();
        for (read, view) in system.log().views() {
            let viewer = view.viewer.0.to_vec();
            let second = view.event_ms.div_euclid(1000);
            let seen = times.entry((viewer.clone(), view.item.to_string())).or_default();
            let repeat = seen.iter().any(|t| (t - second).abs() < 1800);
            let id = view.client_id.map(|id| (viewer, id.to_string(), view.item.to_string()));
            let retry = id.as_ref().is_some_and(|id| ids.contains(id));
            if !repeat && !retry {
                seen.push(second);
                ids.extend(id);
                expected.insert((read.partition, read.offset));
            }
        }
        let counted: HashSet<_> =
            system.log().counted().iter().map(|(_, c)| (c.source_partition, c.source_offset)).collect();
        let missing: Vec<_> = expected.difference(&counted).take(5).collect();
        let extra: Vec<_> = counted.difference(&expected).take(5).collect();
        assert!(
            missing.is_empty() && extra.is_empty(),
            "not counted: {missing:?}; wrongly counted: {extra:?}"
        );
    }

    /// Waits until the archive has everything, then compares every sketch register for register and every number, in the
    /// archive and, where present, in Redis.
    pub(crate) async fn check_counts(system: &System) -> Expected {
        let expected = rebuild(system);
        let archive = system.archive().await;
        let begun = std::time::Instant::now();
        let mut pause = tokio::time::interval(std::time::Duration::from_millis(300));
        loop {
            let rows = archive.rows().await;
            let differs = expected.iter().find_map(|(key, (sketch, n))| {
                let row = rows.get(key);
                let number = row.and_then(|r| r.views).map_or(0, |(n, _)| n);
                if number != i64::try_from(*n).unwrap() {
                    return Some(format!("{key}: archived number is {number}, the log says {n}"));
                }
                let bytes = row.and_then(|r| r.blob.clone()).map(|(b, _)| b);
                let archived = bytes.as_deref().map(Sketch::from_redis);
                match archived {
                    Some(Ok(archived)) if archived.register_eq(sketch) => None,
                    Some(Ok(archived)) => {
                        let (ours, theirs) = (sketch.registers(), archived.registers());
                        let pairs = || theirs.iter().zip(ours.iter());
                        let higher = pairs().filter(|(archived, log)| archived > log).count();
                        let lower = pairs().filter(|(archived, log)| archived < log).count();
                        Some(format!(
                            "{key}: of the archived sketch {higher} registers are too high, {lower} too low"
                        ))
                    }
                    Some(Err(error)) => Some(format!("{key}: what is archived is no sketch: {error}")),
                    None => Some(format!("{key}: no sketch is archived")),
                }
            });
            let Some(difference) = differs else {
                assert_eq!(rows.len(), expected.len(), "rows that the log does not know");
                break;
            };
            assert!(begun.elapsed() < LONG, "{difference}");
            pause.tick().await;
        }
        for (partition, durable) in archive.durable().await {
            let end = system.log().end("views.counted", partition);
            assert!(
                durable <= end,
                "partition {partition} is durable up to {durable}, the log ends at {end}"
            );
        }
        for (key, bytes) in system.counters_eyes().sketches() {
            let held = Sketch::from_redis(&bytes).unwrap_or_else(|e| panic!("{key}: {e}"));
            let (sketch, _) =
                expected.get(&key).unwrap_or_else(|| panic!("{key} is in redis and not in the log"));
            assert!(held.register_eq(sketch), "{key}: the sketch in redis differs from the log's");
        }
        expected
    }
}
