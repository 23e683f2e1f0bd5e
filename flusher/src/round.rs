//! One round of one partition without I/O: it says what to ask next, and takes the answer.
//!
//! A snapshot is written with the offset as its timestamp, so of two writes the more complete one wins, whoever makes it
//! and however late it lands. That is why any number of rounds may run at once and a round may be dropped anywhere.

use onlooker_event::CountKey;
use onlooker_ports::{ArchiveCell, Dirty, Number, NumberRead, SketchRead};

/// What has to be asked, one after the other.
#[derive(Debug, PartialEq)]
pub enum Ask<'a> {
    /// The store: what is dirty, and where do you stand? In one step: a loss between the two could hide an item.
    Begin,
    /// The store: these changed numbers, if you do not stand below `applied`.
    ReadNumbers {
        /// Where the round began.
        applied: i64,
        /// Which.
        keys: &'a [CountKey],
    },
    /// The store: these changed sketches, if you do not stand below `applied`.
    ReadSketches {
        /// Where the round began.
        applied: i64,
        /// Which.
        keys: &'a [CountKey],
    },
    /// The archive: these cells; those of an item stand next to each other.
    Write(&'a [ArchiveCell]),
    /// The store: these are archived.
    SettleNumbers(&'a [(CountKey, Number)]),
    /// The store: these are archived.
    SettleSketches(&'a [(CountKey, i64)]),
    /// The archive: everything below this offset is in.
    SetDurable(i64),
    /// Nothing: the round is over.
    End(Ending),
}

/// An answer to what was asked.
#[derive(Debug)]
pub enum Answer {
    /// To `Begin`.
    Began(Option<Dirty>),
    /// To `ReadNumbers`.
    Numbers(Option<Vec<NumberRead>>),
    /// To `ReadSketches`.
    Sketches(Option<Vec<SketchRead>>),
    /// To `Write`: which cells were acknowledged, in order.
    Written(Vec<bool>),
    /// To a `Settle`.
    Settled,
    /// To `SetDurable`.
    DurableSet,
    /// No answer, or one that says nothing. The round is given up: the next one does what is left.
    Doubt,
}

/// How a round ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All that was dirty is archived, and everything below this offset is durable.
    Durable(i64),
    /// The store stands nowhere: it lost everything, or no counter has run yet.
    Lost,
    /// The store fell below where the round began: it lost data meanwhile.
    Stale,
    /// Some cells could not be archived; they are dirty still.
    Incomplete,
    /// A changed sketch or number is absent or damaged: a person has to look.
    Corrupt,
    /// A server did not answer.
    GivenUp,
}

impl Ending {
    /// Every ending, for metrics; the offset says nothing there.
    pub const ALL: &'static [Ending] = &[
        Ending::Durable(0),
        Ending::Lost,
        Ending::Stale,
        Ending::Incomplete,
        Ending::Corrupt,
        Ending::GivenUp,
    ];

    /// The name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Durable(_) => "durable",
            Ending::Lost => "lost",
            Ending::Stale => "stale",
            Ending::Incomplete => "incomplete",
            Ending::Corrupt => "corrupt",
            Ending::GivenUp => "given_up",
        }
    }
}

/// What a round did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// Numbers that the archive acknowledged.
    pub numbers: u64,
    /// Sketches that the archive acknowledged.
    pub sketches: u64,
    /// Their bytes.
    pub sketch_bytes: u64,
    /// Cells that it did not acknowledge.
    pub failed: u64,
    /// Keys that were dirty when the round began.
    pub dirty: u64,
    /// Keys under which a changed sketch or number is absent, or no sketch.
    pub corrupt: Vec<CountKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Begin,
    ReadNumbers,
    ReadSketches,
    Write,
    SettleNumbers,
    SettleSketches,
    SetDurable,
    End(Ending),
}

/// One key of the round, and what of it is dirty.
#[derive(Debug, Clone)]
struct Key {
    key: CountKey,
    number: bool,
    sketch: bool,
}

/// A round. Memory: the keys that are dirty, and one page's sketches.
#[derive(Debug)]
pub struct Round {
    page_keys: usize,
    last_durable: Option<i64>,
    step: Step,
    applied: i64,
    keys: Vec<Key>,
    /// The page is `keys[first..last]`.
    first: usize,
    last: usize,
    number_keys: Vec<CountKey>,
    sketch_keys: Vec<CountKey>,
    numbers: Vec<NumberRead>,
    cells: Vec<ArchiveCell>,
    settle_numbers: Vec<(CountKey, Number)>,
    settle_sketches: Vec<(CountKey, i64)>,
    done: Done,
}

impl Round {
    /// A round that reads at most `page_keys` keys at once, and need not say again that `last_durable` is durable.
    pub fn new(page_keys: usize, last_durable: Option<i64>) -> Self {
        Self {
            page_keys: page_keys.max(1),
            last_durable,
            step: Step::Begin,
            applied: 0,
            keys: Vec::new(),
            first: 0,
            last: 0,
            number_keys: Vec::new(),
            sketch_keys: Vec::new(),
            numbers: Vec::new(),
            cells: Vec::new(),
            settle_numbers: Vec::new(),
            settle_sketches: Vec::new(),
            done: Done::default(),
        }
    }

    /// What has to be asked now.
    pub fn ask(&self) -> Ask<'_> {
        match self.step {
            Step::Begin => Ask::Begin,
            Step::ReadNumbers => Ask::ReadNumbers { applied: self.applied, keys: &self.number_keys },
            Step::ReadSketches => Ask::ReadSketches { applied: self.applied, keys: &self.sketch_keys },
            Step::Write => Ask::Write(&self.cells),
            Step::SettleNumbers => Ask::SettleNumbers(&self.settle_numbers),
            Step::SettleSketches => Ask::SettleSketches(&self.settle_sketches),
            Step::SetDurable => Ask::SetDurable(self.applied),
            Step::End(ending) => Ask::End(ending),
        }
    }

    /// What was done so far.
    pub fn done(&self) -> &Done {
        &self.done
    }

    /// Takes the answer to what `ask` asks.
    pub fn answer(&mut self, answer: Answer) {
        self.step = match (self.step, answer) {
            (Step::Begin, Answer::Began(None)) => Step::End(Ending::Lost),
            (Step::Begin, Answer::Began(Some(dirty))) => self.begin(dirty),
            (Step::ReadNumbers, Answer::Numbers(None)) | (Step::ReadSketches, Answer::Sketches(None)) => {
                Step::End(Ending::Stale)
            }
            (Step::ReadNumbers, Answer::Numbers(Some(found))) if found.len() == self.number_keys.len() => {
                self.numbers = found;
                if self.sketch_keys.is_empty() { self.fill(Vec::new()) } else { Step::ReadSketches }
            }
            (Step::ReadSketches, Answer::Sketches(Some(found))) if found.len() == self.sketch_keys.len() => {
                self.fill(found)
            }
            (Step::Write, Answer::Written(acknowledged)) if acknowledged.len() == self.cells.len() => {
                self.written(&acknowledged)
            }
            (Step::SettleNumbers, Answer::Settled) => self.after_numbers(),
            (Step::SettleSketches, Answer::Settled) => self.next_page(),
            (Step::SetDurable, Answer::DurableSet) => Step::End(Ending::Durable(self.applied)),
            (Step::End(ending), _) => Step::End(ending),
            // A write without an answer is not repeated here: its keys are dirty still, and the next round writes a
            // snapshot that is at least as complete.
            _ => Step::End(Ending::GivenUp),
        };
    }

    fn begin(&mut self, dirty: Dirty) -> Step {
        self.applied = dirty.applied;
        self.done.dirty = (dirty.numbers.len() + dirty.sketches.len()) as u64;
        let number = |key| Key { key, number: true, sketch: false };
        let sketch = |key| Key { key, number: false, sketch: true };
        let mut keys: Vec<Key> = dirty.numbers.into_iter().map(number).collect();
        keys.extend(dirty.sketches.into_iter().map(sketch));
        // By item first, so that an item's cells travel to the archive together.
        keys.sort_unstable_by(|a, b| {
            let item = a.key.item_bytes().cmp(b.key.item_bytes());
            item.then_with(|| a.key.as_bytes().cmp(b.key.as_bytes()))
        });
        keys.dedup_by(|later, kept| {
            let same = later.key == kept.key;
            if same {
                kept.number |= later.number;
                kept.sketch |= later.sketch;
            }
            same
        });
        self.keys = keys;
        self.next_page()
    }

    fn next_page(&mut self) -> Step {
        self.first = self.last;
        if self.first == self.keys.len() {
            return self.all_read();
        }
        self.last = self.first;
        while let Some(key) = self.keys.get(self.last) {
            // An item is not torn apart, unless it alone fills a page twice.
            let first_of_item =
                self.last == self.first || self.keys[self.last - 1].key.item_bytes() != key.key.item_bytes();
            let size = self.last - self.first;
            if (size >= self.page_keys && first_of_item) || size >= 2 * self.page_keys {
                break;
            }
            self.last += 1;
        }
        let page = &self.keys[self.first..self.last];
        let keys =
            |wanted: fn(&Key) -> bool| page.iter().filter(|k| wanted(k)).map(|k| k.key.clone()).collect();
        (self.number_keys, self.sketch_keys) = (keys(|k| k.number), keys(|k| k.sketch));
        self.numbers.clear();
        if self.number_keys.is_empty() { Step::ReadSketches } else { Step::ReadNumbers }
    }

    /// Makes the page's cells.
    fn fill(&mut self, sketches: Vec<SketchRead>) -> Step {
        self.cells.clear();
        let (mut numbers, mut sketches) = (self.numbers.iter(), sketches.into_iter());
        for key in &self.keys[self.first..self.last] {
            match if key.number { numbers.next() } else { None } {
                None | Some(NumberRead::Clean) => {}
                Some(NumberRead::Corrupt) => self.done.corrupt.push(key.key.clone()),
                Some(NumberRead::Found(Number { n, u, .. })) => {
                    self.cells.push(ArchiveCell::Number { key: key.key.clone(), n: *n, u: *u });
                }
            }
            match if key.sketch { sketches.next() } else { None } {
                None | Some(SketchRead::Clean) => {}
                // What is absent or damaged is never written: in the archive it would win over the last good copy.
                Some(SketchRead::Corrupt) => self.done.corrupt.push(key.key.clone()),
                Some(SketchRead::Found { bytes, .. }) if onlooker_sketch::validate(&bytes).is_err() => {
                    self.done.corrupt.push(key.key.clone());
                }
                Some(SketchRead::Found { t, bytes }) => {
                    self.cells.push(ArchiveCell::Sketch { key: key.key.clone(), bytes, t });
                }
            }
        }
        if self.cells.is_empty() { self.next_page() } else { Step::Write }
    }

    /// Only what the archive has acknowledged is settled; the rest stays dirty.
    fn written(&mut self, acknowledged: &[bool]) -> Step {
        self.settle_numbers.clear();
        self.settle_sketches.clear();
        let mut numbers = self.number_keys.iter().zip(&self.numbers);
        for (cell, acknowledged) in self.cells.drain(..).zip(acknowledged) {
            if !acknowledged {
                self.done.failed += 1;
                continue;
            }
            match cell {
                ArchiveCell::Number { key, .. } => {
                    // The whole number as it was read; cells stand in the order of the keys.
                    if let Some((_, NumberRead::Found(number))) = numbers.find(|(other, _)| **other == key) {
                        self.settle_numbers.push((key, *number));
                        self.done.numbers += 1;
                    }
                }
                ArchiveCell::Sketch { key, bytes, t } => {
                    self.settle_sketches.push((key, t));
                    self.done.sketches += 1;
                    self.done.sketch_bytes += bytes.len() as u64;
                }
            }
        }
        if self.settle_numbers.is_empty() && self.settle_sketches.is_empty() {
            // Not one of a whole page: the archive is away, and every further page would wait for it in vain.
            return Step::End(Ending::GivenUp);
        }
        if self.settle_numbers.is_empty() { self.after_numbers() } else { Step::SettleNumbers }
    }

    fn after_numbers(&mut self) -> Step {
        if self.settle_sketches.is_empty() { self.next_page() } else { Step::SettleSketches }
    }

    /// Durable only when all of what was dirty is acknowledged: the counter commits it, and starts there after a loss.
    fn all_read(&self) -> Step {
        if !self.done.corrupt.is_empty() {
            return Step::End(Ending::Corrupt);
        }
        if self.done.failed > 0 {
            return Step::End(Ending::Incomplete);
        }
        if self.last_durable == Some(self.applied) {
            return Step::End(Ending::Durable(self.applied));
        }
        Step::SetDurable
    }
}

#[cfg(test)]
mod tests {
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
}
