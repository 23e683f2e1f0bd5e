//! What a round asks, step by step.

use super::*;
use bytes::Bytes;
use onlooker_event::{DayNumber, Scope};
use onlooker_sketch::Sketch;

fn key(item: &str, day: Option<i32>) -> CountKey {
    let scope = day.map_or(Scope::All, |d| Scope::Day(DayNumber(d)));
    CountKey::new(scope, format!("s:{item}").as_bytes())
}

fn sketch() -> Bytes {
    let mut sketch = Sketch::new();
    sketch.add(b"ada");
    sketch.to_redis().into()
}

fn number(u: i64) -> Number {
    Number { n: 1, u, changed_s: 5 }
}

fn begun(page_keys: usize, numbers: &[CountKey], sketches: &[CountKey]) -> Round {
    let mut round = Round::new(page_keys, None);
    assert_eq!(round.ask(), Ask::Begin);
    let dirty = Dirty { applied: 100, sketches: sketches.to_vec(), numbers: numbers.to_vec() };
    round.answer(Answer::Began(Some(dirty)));
    round
}

#[test]
fn an_items_cells_travel_together_and_durable_comes_last() {
    let (a, a_day, b) = (key("a", None), key("a", Some(20_000)), key("b", None));
    let mut round = begun(2, &[b.clone(), a.clone(), a_day.clone()], &[a_day.clone(), a.clone()]);
    assert_eq!(round.ask(), Ask::ReadNumbers { applied: 100, keys: &[a.clone(), a_day.clone()] });
    round.answer(Answer::Numbers(Some(vec![NumberRead::Found(number(7)), NumberRead::Clean])));
    assert_eq!(round.ask(), Ask::ReadSketches { applied: 100, keys: &[a.clone(), a_day.clone()] });
    let found = |t| SketchRead::Found { t, bytes: sketch() };
    round.answer(Answer::Sketches(Some(vec![found(8), found(9)])));
    let cell = |key: &CountKey, t| ArchiveCell::Sketch { key: key.clone(), bytes: sketch(), t };
    let first = ArchiveCell::Number { key: a.clone(), n: 1, u: 7 };
    assert_eq!(round.ask(), Ask::Write(&[first, cell(&a, 8), cell(&a_day, 9)]));
    round.answer(Answer::Written(vec![true; 3]));
    assert_eq!(round.ask(), Ask::SettleNumbers(&[(a.clone(), number(7))]));
    round.answer(Answer::Settled);
    assert_eq!(round.ask(), Ask::SettleSketches(&[(a, 8), (a_day, 9)]));
    round.answer(Answer::Settled);
    assert_eq!(round.ask(), Ask::ReadNumbers { applied: 100, keys: std::slice::from_ref(&b) });
    round.answer(Answer::Numbers(Some(vec![NumberRead::Found(number(99))])));
    assert_eq!(round.ask(), Ask::Write(&[ArchiveCell::Number { key: b.clone(), n: 1, u: 99 }]));
    round.answer(Answer::Written(vec![true]));
    round.answer(Answer::Settled);
    assert_eq!(round.ask(), Ask::SetDurable(100));
    round.answer(Answer::DurableSet);
    assert_eq!(round.ask(), Ask::End(Ending::Durable(100)));
    assert_eq!((round.done().numbers, round.done().sketches, round.done().dirty), (2, 2, 5));
}

#[test]
fn a_partial_failure_settles_what_was_acknowledged_alone_and_nothing_is_durable() {
    let (a, b) = (key("a", None), key("b", None));
    let mut round = begun(9, &[a.clone(), b.clone()], std::slice::from_ref(&a));
    round.answer(Answer::Numbers(Some(vec![NumberRead::Found(number(1)), NumberRead::Found(number(2))])));
    round.answer(Answer::Sketches(Some(vec![SketchRead::Found { t: 3, bytes: sketch() }])));
    round.answer(Answer::Written(vec![false, true, true]));
    assert_eq!(round.ask(), Ask::SettleNumbers(&[(b, number(2))]));
    round.answer(Answer::Settled);
    assert_eq!(round.ask(), Ask::SettleSketches(&[(a, 3)]));
    round.answer(Answer::Settled);
    assert_eq!(round.ask(), Ask::End(Ending::Incomplete));
    assert_eq!(round.done().failed, 1);
}

#[test]
fn what_is_absent_or_damaged_is_never_written() {
    let (a, b, c) = (key("a", None), key("b", None), key("c", None));
    let sketches = [a.clone(), b.clone(), c.clone()];
    let mut round = begun(9, std::slice::from_ref(&c), &sketches);
    round.answer(Answer::Numbers(Some(vec![NumberRead::Corrupt])));
    let mut damaged = sketch().to_vec();
    damaged.pop();
    round.answer(Answer::Sketches(Some(vec![
        SketchRead::Corrupt,
        SketchRead::Found { t: 3, bytes: damaged.into() },
        SketchRead::Found { t: 4, bytes: sketch() },
    ])));
    assert_eq!(round.ask(), Ask::Write(&[ArchiveCell::Sketch { key: c.clone(), bytes: sketch(), t: 4 }]));
    round.answer(Answer::Written(vec![true]));
    round.answer(Answer::Settled);
    assert_eq!(round.ask(), Ask::End(Ending::Corrupt));
    assert_eq!(round.done().corrupt, [a, b, c]);
}

#[test]
fn a_store_that_lost_data_ends_the_round() {
    let mut round = Round::new(9, None);
    round.answer(Answer::Began(None));
    assert_eq!(round.ask(), Ask::End(Ending::Lost));
    let mut round = begun(9, &[key("a", None)], &[]);
    round.answer(Answer::Numbers(None));
    assert_eq!(round.ask(), Ask::End(Ending::Stale));
    let mut round = begun(9, &[], &[key("a", None)]);
    round.answer(Answer::Sketches(None));
    assert_eq!(round.ask(), Ask::End(Ending::Stale));
}

#[test]
fn doubt_gives_the_round_up_at_every_step() {
    for doubt_at in 0..6 {
        let a = key("a", None);
        let mut round = Round::new(9, None);
        let dirty = Dirty { applied: 1, sketches: vec![a.clone()], numbers: vec![a.clone()] };
        let answers = [
            Answer::Began(Some(dirty)),
            Answer::Numbers(Some(vec![NumberRead::Found(number(1))])),
            Answer::Sketches(Some(vec![SketchRead::Found { t: 1, bytes: sketch() }])),
            Answer::Written(vec![true, true]),
            Answer::Settled,
            Answer::Settled,
        ];
        for answer in answers.into_iter().take(doubt_at) {
            round.answer(answer);
        }
        round.answer(Answer::Doubt);
        assert_eq!(round.ask(), Ask::End(Ending::GivenUp), "{doubt_at}");
    }
}

#[test]
fn an_archive_that_acknowledges_nothing_ends_the_round() {
    let mut round = begun(1, &[key("a", None), key("b", None)], &[]);
    round.answer(Answer::Numbers(Some(vec![NumberRead::Found(number(1))])));
    round.answer(Answer::Written(vec![false]));
    assert_eq!(round.ask(), Ask::End(Ending::GivenUp));
}

#[test]
fn what_is_durable_already_is_not_said_again() {
    let mut round = Round::new(9, Some(100));
    round.answer(Answer::Began(Some(Dirty { applied: 100, sketches: vec![], numbers: vec![] })));
    assert_eq!(round.ask(), Ask::End(Ending::Durable(100)));
    let round = begun(9, &[], &[]);
    assert_eq!(round.ask(), Ask::SetDurable(100));
}

#[test]
fn an_item_of_many_days_is_read_in_pages() {
    let keys: Vec<_> = (0..10).map(|day| key("a", Some(day))).collect();
    let mut round = begun(2, &keys, &[]);
    let mut read = Vec::new();
    while let Ask::ReadNumbers { keys, .. } = round.ask() {
        assert!(keys.len() <= 4);
        read.extend_from_slice(keys);
        round.answer(Answer::Numbers(Some(vec![NumberRead::Clean; keys.len()])));
    }
    assert_eq!(read, keys);
    assert_eq!(round.ask(), Ask::SetDurable(100));
}
