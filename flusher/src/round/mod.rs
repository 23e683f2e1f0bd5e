//! One round of one partition without I/O: it says what to ask next, and takes the answer.
//!
//! A snapshot is written with the offset as its timestamp, so of two writes the more complete one wins, whoever makes it
//! and however late it lands. That is why any number of rounds may run at once and a round may be dropped anywhere.

#[cfg(test)]
mod tests;
mod words;

pub use words::{Answer, Ask, Done, Ending};

use onlooker_event::CountKey;
use onlooker_ports::{ArchiveCell, Dirty, Number, NumberRead, SketchRead};

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
