//! What a heart asks, step by step.

use crate::group::{Grouped, Grouper};
use crate::heart::{Heart, Limits};
use crate::known::Bounds;
use crate::testing::counted_by;
use crate::words::{Answer, Ask, Told, Work};
use bytes::Bytes;
use onlooker_event::{CountKey, DayNumber, Scope};
use onlooker_ports::{ApplyOutcome, Archived, Base, BatchBuilder, CountLookup, Held, Number, SketchAdd};
use onlooker_sketch::Sketch;

fn heart_at(offset: i64, base_bytes: usize) -> Heart {
    let mut heart = Heart::new(Limits { base_bytes, hot_from: 3 }, Bounds::new(1000, 10));
    heart.answer(Answer::Applied(Some(offset)));
    assert_eq!(heart.ask(), Ask::Start { offset });
    heart.answer(Answer::Started);
    heart
}

fn member(viewer: u32) -> [u8; 16] {
    let mut member = [3; 16];
    member[..4].copy_from_slice(&viewer.to_be_bytes());
    member
}

/// Views of items by viewers from an offset on, all of day 0.
fn records(from: i64, views: &[(&str, u32)]) -> (Grouped, i64) {
    let mut batch = BatchBuilder::new(0);
    for (offset, (item, viewer)) in (from..).zip(views) {
        let (key, payload) = counted_by(item, member(*viewer), 0);
        batch.push(offset, offset * 1000, Some(&key), Some(&payload));
    }
    let mut grouper = Grouper::new(0, "views.counted");
    batch.build().iter().for_each(|record| grouper.push(record));
    let grouped = grouper.take().unwrap();
    let to = grouped.to;
    (grouped, to)
}

fn work(heart: &mut Heart, from: i64, views: &[(&str, u32)]) {
    let (grouped, to) = records(from, views);
    heart.answer(Answer::Work(Work::Records { grouped: Box::new(grouped), to }));
}

fn all(item: &str) -> CountKey {
    CountKey::new(Scope::All, format!("s:{item}").as_bytes())
}

fn day(item: &str) -> CountKey {
    CountKey::new(Scope::Day(DayNumber(0)), format!("s:{item}").as_bytes())
}

fn sketch(viewers: std::ops::Range<u32>) -> Bytes {
    let mut sketch = Sketch::new();
    viewers.for_each(|viewer| _ = sketch.add(&member(viewer)));
    sketch.to_redis().into()
}

fn held(n: u64, u: i64) -> Held {
    Held { number: Some(Number { n, u, changed_s: 1 }), sketch: true }
}

fn found(heart: &mut Heart, held: Vec<Held>) {
    heart.answer(Answer::Found(CountLookup::Found(held)));
}

fn done(heart: &mut Heart) {
    heart.answer(Answer::Outcome(ApplyOutcome::Done));
}

/// What the step under way says: offsets, (key, n, u), and (key, members, base's timestamp).
type Step = ((i64, i64), Vec<(CountKey, u64, i64)>, Vec<(CountKey, usize, Option<i64>)>);

fn step(heart: &Heart) -> Step {
    let Ask::Apply(step) = heart.ask() else { panic!("{:?}", heart.ask()) };
    let numbers = step.numbers.iter().map(|(key, number)| (key.clone(), number.n, number.u)).collect();
    let sketch = |s: &SketchAdd| (s.key.clone(), s.members.len(), s.base.as_ref().map(|b| b.ts));
    ((step.from, step.to), numbers, step.sketches.iter().map(sketch).collect())
}

#[test]
fn a_start_where_the_store_stands_touches_nothing_else() {
    let heart = heart_at(70, 1000);
    assert_eq!(heart.ask(), Ask::Work { from: 70 });
}

#[test]
fn a_store_that_stands_nowhere_begins_at_what_is_durable() {
    let mut heart = Heart::new(Limits { base_bytes: 1, hot_from: 1 }, Bounds::new(10, 0));
    heart.answer(Answer::Applied(None));
    assert_eq!(heart.ask(), Ask::Durable);
    heart.answer(Answer::Durable(Some(40)));
    assert_eq!(heart.ask(), Ask::End);
    heart.answer(Answer::End(90));
    assert_eq!(heart.ask(), Ask::Init { durable: 40, whole_at: 90 });
    // Another counter was quicker: where it put the store is where this one goes on.
    heart.answer(Answer::Initialised(55));
    assert_eq!(heart.ask(), Ask::Start { offset: 55 });
}

#[test]
fn what_is_known_is_not_asked_again() {
    let mut heart = heart_at(10, 1000);
    work(&mut heart, 10, &[("a", 1), ("a", 2)]);
    assert_eq!(heart.ask(), Ask::Lookup { from: 10, keys: &[all("a"), day("a")] });
    found(&mut heart, vec![held(5, 9), held(2, 9)]);
    let numbers = vec![(all("a"), 7, 12), (day("a"), 4, 12)];
    assert_eq!(step(&heart), ((10, 12), numbers, vec![(all("a"), 2, None), (day("a"), 2, None)]));
    done(&mut heart);
    assert_eq!(heart.take_told().applied, Some((2, 10_000)));
    work(&mut heart, 12, &[("a", 1)]);
    assert_eq!(step(&heart).1, [(all("a"), 8, 13), (day("a"), 5, 13)]);
}

#[test]
fn one_reading_serves_number_and_sketch_and_records_below_its_offsets_are_not_counted_again() {
    let mut heart = heart_at(10, 100_000);
    work(&mut heart, 10, &[("a", 1), ("a", 2), ("a", 3)]);
    found(&mut heart, vec![Held::default(), held(2, 9)]);
    // The day's key is there, all of it.
    assert_eq!(heart.ask(), Ask::Read { keys: &[all("a")], for_readers: false });
    // The archive is ahead of the store, which has lost something.
    let row = Archived { sketch: Some((sketch(0..9), 14)), number: Some((20, 12)) };
    heart.answer(Answer::Archived(vec![row]));
    let numbers = vec![(all("a"), 21, 13), (day("a"), 5, 13)];
    assert_eq!(step(&heart), ((10, 13), numbers, vec![(all("a"), 3, Some(14)), (day("a"), 3, None)]));
}

#[test]
fn a_sketch_that_was_evicted_after_the_look_up_is_read_again() {
    let mut heart = heart_at(10, 100_000);
    work(&mut heart, 10, &[("a", 1)]);
    // The number is absent, the sketch is not: its blob comes along and must not be used.
    found(&mut heart, vec![Held { number: None, sketch: true }, held(2, 9)]);
    heart.answer(Answer::Archived(vec![Archived { sketch: Some((sketch(0..2), 3)), number: Some((4, 9)) }]));
    assert_eq!(step(&heart).2, [(all("a"), 1, None), (day("a"), 1, None)]);
    heart.answer(Answer::Outcome(ApplyOutcome::Missing(vec![0])));
    assert_eq!(heart.ask(), Ask::Read { keys: &[all("a")], for_readers: false });
    // An archive that does not answer is asked again, on top of the same offset.
    heart.answer(Answer::Doubt);
    assert_eq!(heart.ask(), Ask::Read { keys: &[all("a")], for_readers: false });
    heart.answer(Answer::Archived(vec![Archived { sketch: Some((sketch(0..8), 9)), number: Some((4, 9)) }]));
    assert_eq!(step(&heart).2, [(all("a"), 1, Some(9)), (day("a"), 1, None)]);
    done(&mut heart);
    // The base is gone with its batch.
    work(&mut heart, 11, &[("a", 2)]);
    assert_eq!(step(&heart).2, [(all("a"), 1, None), (day("a"), 1, None)]);
}

#[test]
fn a_gap_or_a_doubt_forgets_everything() {
    let outcome = |outcome| Answer::Outcome(outcome);
    for (answer, gaps) in [(outcome(ApplyOutcome::Gap(Some(3))), 1), (Answer::Doubt, 0)] {
        let mut heart = heart_at(10, 1000);
        work(&mut heart, 10, &[("a", 1), ("a", 2), ("a", 3)]);
        found(&mut heart, vec![held(5, 9); 2]);
        done(&mut heart);
        work(&mut heart, 13, &[("a", 1)]);
        assert_eq!(step(&heart).2, [], "its registers are known");
        heart.answer(answer);
        assert_eq!((heart.ask(), heart.known_keys()), (Ask::Applied, 0));
        assert_eq!(heart.take_told().gaps, gaps);
        heart.answer(Answer::Applied(Some(13)));
        heart.answer(Answer::Started);
        work(&mut heart, 13, &[("a", 1)]);
        found(&mut heart, vec![held(8, 13); 2]);
        assert_eq!(step(&heart).2, [(all("a"), 1, None), (day("a"), 1, None)]);
    }
}

#[test]
fn a_store_that_is_full_is_asked_again() {
    let mut heart = heart_at(10, 1000);
    work(&mut heart, 10, &[("a", 1)]);
    found(&mut heart, vec![held(5, 9); 2]);
    let before = step(&heart);
    heart.answer(Answer::Refused);
    assert_eq!(step(&heart), before);
}

#[test]
fn records_from_below_are_refused() {
    let mut heart = heart_at(10, 1000);
    work(&mut heart, 9, &[("a", 1)]);
    assert_eq!(heart.ask(), Ask::Applied);
}

#[test]
fn large_bases_go_before_in_steps_of_their_own() {
    let mut heart = heart_at(10, 3000);
    work(&mut heart, 10, &[("a", 1), ("b", 1)]);
    found(&mut heart, vec![Held { sketch: false, ..held(5, 9) }; 4]);
    let row = Archived { sketch: Some((sketch(0..500), 9)), number: Some((5, 9)) };
    assert!((1000..3000).contains(&row.sketch.as_ref().unwrap().0.len()));
    heart.answer(Answer::Archived(vec![row; 4]));
    let mut restored = Vec::new();
    while step(&heart).0 == (10, 10) {
        let ((..), numbers, sketches) = step(&heart);
        assert_eq!(numbers, []);
        assert!(sketches.iter().all(|(_, members, base)| (*members, *base) == (0, Some(9))));
        restored.extend(sketches.into_iter().map(|(key, ..)| key));
        done(&mut heart);
    }
    assert_eq!(restored, [all("a"), day("a"), all("b"), day("b")]);
    let (offsets, _, sketches) = step(&heart);
    assert_eq!(offsets, (10, 12));
    assert!(sketches.iter().all(|(_, members, base)| (*members, *base) == (1, None)));
    done(&mut heart);
    let told = heart.take_told();
    assert_eq!((told.created, told.restored), (4, 4));
}

#[test]
fn members_that_raise_nothing_are_left_out_but_their_views_count() {
    let mut heart = heart_at(0, 1000);
    let views: Vec<_> = (0..3).map(|viewer| ("a", viewer)).collect();
    work(&mut heart, 0, &views);
    found(&mut heart, vec![held(0, 0); 2]);
    assert_eq!(step(&heart).2, [(all("a"), 3, None), (day("a"), 3, None)]);
    // Not before the store has them.
    done(&mut heart);
    work(&mut heart, 3, &views);
    assert_eq!(step(&heart), ((3, 6), vec![(all("a"), 6, 6), (day("a"), 6, 6)], vec![]));
    done(&mut heart);
    let told = heart.take_told();
    assert_eq!((told.sent, told.spared), (6, 6));
}

#[test]
fn a_damaged_archived_sketch_is_left_out_and_told() {
    let mut heart = heart_at(10, 1000);
    work(&mut heart, 10, &[("a", 1)]);
    found(&mut heart, vec![Held::default(); 2]);
    let damaged = Archived { sketch: Some((Bytes::from_static(b"HYLL?"), 9)), number: Some((4, 9)) };
    let good = Archived { sketch: Some((sketch(0..2), 9)), number: Some((4, 9)) };
    heart.answer(Answer::Archived(vec![damaged, good]));
    let numbers = vec![(all("a"), 5, 11), (day("a"), 5, 11)];
    assert_eq!(step(&heart), ((10, 11), numbers, vec![(day("a"), 1, Some(9))]));
    assert_eq!(heart.take_told().damaged_archived, [all("a")]);
    done(&mut heart);
    work(&mut heart, 11, &[("a", 2)]);
    assert_eq!(step(&heart).2, [(day("a"), 1, None)], "nor read again with every batch");
}

#[test]
fn what_the_store_calls_corrupt_is_left_out_of_the_same_step() {
    let mut heart = heart_at(10, 1000);
    work(&mut heart, 10, &[("a", 1)]);
    found(&mut heart, vec![held(4, 9); 2]);
    heart.answer(Answer::Outcome(ApplyOutcome::Corrupt(vec![0])));
    let numbers = vec![(all("a"), 5, 11), (day("a"), 5, 11)];
    assert_eq!(step(&heart), ((10, 11), numbers, vec![(day("a"), 1, None)]));
    assert_eq!(heart.take_told(), Told { sent: 2, corrupt_stored: vec![all("a")], ..Told::default() });
}

#[test]
fn wishes_are_looked_up_first_and_an_archive_that_is_away_is_not_waited_for() {
    let mut heart = heart_at(10, 100_000);
    let keys = vec![all("a"), all("nobody"), all("a"), all("there")];
    let wishes = |keys| Answer::Work(Work::Wishes { keys, now_s: 99 });
    heart.answer(wishes(keys.clone()));
    let asked = [all("a"), all("nobody"), all("there")];
    assert_eq!(heart.ask(), Ask::Lookup { from: 10, keys: &asked });
    found(&mut heart, vec![Held::default(), Held::default(), held(3, 9)]);
    assert_eq!(heart.ask(), Ask::Read { keys: &asked[..2], for_readers: true });
    heart.answer(Answer::Doubt);
    assert_eq!(heart.ask(), Ask::Work { from: 10 });

    heart.answer(wishes(keys));
    found(&mut heart, vec![Held::default(), Held::default(), held(3, 9)]);
    let row = Archived { sketch: Some((sketch(0..9), 8)), number: Some((20, 9)) };
    heart.answer(Answer::Archived(vec![row, Archived::default()]));
    assert_eq!(step(&heart), ((10, 10), vec![(all("a"), 20, 10)], vec![(all("a"), 0, Some(8))]));
    assert_eq!(heart.take_told().absent, [all("nobody")]);
    done(&mut heart);
    // All there: nothing to apply.
    heart.answer(wishes(vec![all("there")]));
    found(&mut heart, vec![held(3, 9)]);
    assert_eq!(heart.ask(), Ask::Work { from: 10 });
}

#[test]
fn lost_records_are_skipped_by_a_step_and_the_log_is_read_from_there() {
    let mut heart = heart_at(10, 1000);
    heart.answer(Answer::Work(Work::Skip { to: 50 }));
    assert_eq!(step(&heart), ((10, 50), vec![], vec![]));
    done(&mut heart);
    assert_eq!(heart.ask(), Ask::Start { offset: 50 });
}

#[test]
fn a_base_without_a_blob_says_that_the_archive_was_asked() {
    let mut heart = heart_at(0, 1000);
    work(&mut heart, 0, &[("new", 1)]);
    found(&mut heart, vec![Held::default(); 2]);
    heart.answer(Answer::Archived(vec![Archived::default(); 2]));
    let Ask::Apply(step) = heart.ask() else { panic!() };
    assert!(step.sketches.iter().all(|s| s.base == Some(Base::default())));
}
