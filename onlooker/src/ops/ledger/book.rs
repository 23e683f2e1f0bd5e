//! The sums: each view and each outcome is entered once, in any order.
//!
//! What is held besides the sums is only what has not met its other half: views that were read before their outcome, and
//! outcomes that were read before their view.

use onlooker_event::{DeadReason, Reason};
use std::collections::{BTreeMap, HashMap};

const HOUR_MS: i64 = 3_600_000;

/// What became of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Counted,
    Ignored(Reason),
    Dead(DeadReason),
}

/// A site's hour of receive time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Page {
    /// Hours since 1970.
    hour: i64,
    site: usize,
}

/// What was entered on a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) accepted: u64,
    pub(super) counted: u64,
    /// By reason.
    pub(super) ignored: BTreeMap<Reason, u64>,
    pub(super) dead: u64,
    /// Not judged yet.
    pub(super) pending: u64,
    /// Passed by the filter, and without an outcome.
    pub(super) missing: u64,
    /// Outcomes of views that had one already.
    pub(super) extra: u64,
}

impl Sums {
    fn enter(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Counted => self.counted += 1,
            Outcome::Ignored(reason) => *self.ignored.entry(reason).or_default() += 1,
            Outcome::Dead(_) => self.dead += 1,
        }
    }

    /// By how much it does not close: above 0 views without an outcome, else, below 0, outcomes too many.
    pub(super) fn open(&self) -> i64 {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        if self.missing > 0 { signed(self.missing) } else { -signed(self.extra) }
    }
}

/// Views and outcomes of one partition of `views` that have not met.
#[derive(Debug, Default)]
struct Partition {
    /// Where the ledger begins.
    first: i64,
    /// Every view below was entered.
    next: i64,
    views: HashMap<i64, Page>,
    outcomes: HashMap<i64, Outcome>,
}

/// A ledger of all sites.
#[derive(Debug, Default)]
pub(super) struct Book {
    sites: Vec<String>,
    numbers: HashMap<String, usize>,
    pages: BTreeMap<Page, Sums>,
    partitions: Vec<Partition>,
}

impl Book {
    /// Empty; begins at these offsets of `views`.
    pub(super) fn new(first: &[i64]) -> Self {
        let partition = |first: &i64| Partition { first: *first, next: *first, ..Partition::default() };
        Self { partitions: first.iter().map(partition).collect(), ..Self::default() }
    }

    fn page(&mut self, site: &str, received_ms: i64) -> Page {
        let site = match self.numbers.get(site) {
            Some(number) => *number,
            None => {
                self.sites.push(site.to_owned());
                self.numbers.insert(site.to_owned(), self.sites.len() - 1);
                self.sites.len() - 1
            }
        };
        Page { hour: received_ms.div_euclid(HOUR_MS), site }
    }

    fn partition(&mut self, partition: i32) -> Option<&mut Partition> {
        self.partitions.get_mut(usize::try_from(partition).ok()?)
    }

    /// Enters a view. `judged`: the filter had passed it when outcomes were last read.
    pub(super) fn view(&mut self, at: (i32, i64), site: &str, received_ms: i64, judged: bool) {
        let page = self.page(site, received_ms);
        let Some(partition) = self.partition(at.0) else { return };
        if at.1 < partition.next {
            return;
        }
        partition.next = at.1 + 1;
        let outcome = partition.outcomes.remove(&at.1);
        if outcome.is_none() && judged {
            partition.views.insert(at.1, page);
        }
        let sums = self.pages.entry(page).or_default();
        sums.accepted += 1;
        match outcome {
            Some(outcome) => sums.enter(outcome),
            None => sums.pending += u64::from(!judged),
        }
    }

    /// Enters an outcome; `whose` says site and receive time, and is asked only if the view had one already.
    pub(super) fn outcome(
        &mut self,
        of: (i32, i64),
        outcome: Outcome,
        whose: impl FnOnce() -> (String, i64),
    ) {
        let Some(partition) = self.partition(of.0) else { return };
        if of.1 < partition.first {
            return;
        }
        if let Some(page) = partition.views.remove(&of.1) {
            self.pages.entry(page).or_default().enter(outcome);
            return;
        }
        let read = of.1 < partition.next;
        if !read && partition.outcomes.insert(of.1, outcome).is_none() {
            return;
        }
        let (site, received_ms) = whose();
        let page = self.page(&site, received_ms);
        self.pages.entry(page).or_default().extra += 1;
    }

    /// Where the views of a partition go on.
    pub(super) fn next(&self, partition: i32) -> i64 {
        let of = usize::try_from(partition).ok().and_then(|at| self.partitions.get(at));
        of.map_or(0, |partition| partition.next)
    }

    /// All views of a partition below `next` were entered, as far as retention left them.
    pub(super) fn passed(&mut self, partition: i32, next: i64) {
        if let Some(partition) = self.partition(partition) {
            partition.next = partition.next.max(next);
            let next = partition.next;
            partition.outcomes.retain(|offset, _| *offset >= next);
        }
    }

    /// Forgets hours before this time, and what is open there.
    pub(super) fn forget(&mut self, before_ms: i64) {
        let hour = before_ms.div_euclid(HOUR_MS);
        self.pages.retain(|page, _| page.hour >= hour);
        for partition in &mut self.partitions {
            partition.views.retain(|_, page| page.hour >= hour);
        }
    }

    /// Site, begin of the hour, sums; by hour and site. Call it when all outcomes were read of what was passed as judged.
    pub(super) fn sheet(&self) -> Vec<(&str, i64, Sums)> {
        let mut pages = self.pages.clone();
        for page in self.partitions.iter().flat_map(|partition| partition.views.values()) {
            pages.entry(*page).or_default().missing += 1;
        }
        let site = |page: &Page| self.sites.get(page.site).map_or("", String::as_str);
        let mut sheet: Vec<_> =
            pages.into_iter().map(|(page, sums)| (site(&page), page.hour * HOUR_MS, sums)).collect();
        sheet.sort_by_key(|(site, hour, _)| (*hour, *site));
        sheet
    }

    /// Views without an outcome: some of them, the oldest of each partition.
    pub(super) fn examples(&self, most: usize) -> Vec<(i32, i64)> {
        let of = |(partition, of): (i32, &Partition)| {
            let mut offsets: Vec<i64> = of.views.keys().copied().collect();
            offsets.sort_unstable();
            offsets.into_iter().take(most).map(move |offset| (partition, offset))
        };
        (0..).zip(&self.partitions).flat_map(of).take(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 12 * HOUR_MS;

    fn sums(book: &Book) -> Vec<Sums> {
        book.sheet().into_iter().map(|(.., sums)| sums).collect()
    }

    fn nobody() -> (String, i64) {
        panic!("asked for a view that had no outcome")
    }

    #[test]
    fn it_does_not_matter_which_half_is_read_first() {
        for first in [true, false] {
            let mut book = Book::new(&[10, 20]);
            let outcomes = |book: &mut Book| {
                book.outcome((0, 10), Outcome::Counted, nobody);
                book.outcome((0, 11), Outcome::Ignored(Reason::RecentView), nobody);
                book.outcome((1, 20), Outcome::Dead(DeadReason::Empty), nobody);
                // Of before the ledger begins.
                book.outcome((0, 9), Outcome::Counted, nobody);
            };
            if first {
                outcomes(&mut book);
            }
            for at in [(0, 10), (0, 11), (1, 20)] {
                book.view(at, "blog", NOON, true);
            }
            if !first {
                assert_eq!(sums(&book)[0].missing, 3);
                outcomes(&mut book);
            }
            let [all] = &sums(&book)[..] else { panic!("one page") };
            let ignored = all.ignored.get(&Reason::RecentView).copied();
            assert_eq!((all.accepted, all.counted, ignored, all.dead), (3, 1, Some(1), 1));
            assert_eq!((all.pending, all.missing, all.extra, all.open()), (0, 0, 0, 0));
        }
    }

    #[test]
    fn what_does_not_add_up_is_told() {
        let mut book = Book::new(&[0]);
        (0..3).for_each(|offset| book.view((0, offset), "blog", NOON, true));
        book.view((0, 3), "blog", NOON, false);
        book.outcome((0, 1), Outcome::Counted, nobody);
        let whose = || ("blog".to_owned(), NOON);
        book.outcome((0, 1), Outcome::Counted, whose);
        let [all] = &sums(&book)[..] else { panic!("one page") };
        assert_eq!((all.accepted, all.counted, all.pending, all.missing, all.extra), (4, 1, 1, 2, 1));
        assert_eq!((all.open(), book.examples(5)), (2, vec![(0, 0), (0, 2)]));
        // Twice before the view was read.
        let mut book = Book::new(&[0]);
        book.outcome((0, 0), Outcome::Counted, nobody);
        book.outcome((0, 0), Outcome::Ignored(Reason::Prefetch), whose);
        book.view((0, 0), "blog", NOON, true);
        assert_eq!(sums(&book)[0].open(), -1);
    }

    #[test]
    fn hours_and_sites_have_pages_of_their_own() {
        let mut book = Book::new(&[0]);
        book.view((0, 0), "blog", NOON, true);
        book.view((0, 1), "blog", NOON - 1, true);
        book.view((0, 2), "shop", NOON, true);
        let pages: Vec<_> = book.sheet().into_iter().map(|(site, hour, _)| (site, hour / HOUR_MS)).collect();
        assert_eq!(pages, [("blog", 11), ("blog", 12), ("shop", 12)]);
        book.forget(NOON);
        assert_eq!((book.sheet().len(), book.examples(9)), (2, vec![(0, 0), (0, 2)]));
    }
}
