//! Who gets how many views: few items most of them (Zipf's law).

/// Ranks that are looked at one by one; those behind are taken together, ever more of them.
const SINGLE: f64 = 200.0;
const STEP: f64 = 1.04;

/// Items in groups of about the same share of all views: (items, share of one of them).
#[derive(Debug, Clone)]
pub(super) struct Popularity(Vec<(f64, f64)>);

impl Popularity {
    /// Of so many items, with this exponent.
    pub(super) fn new(items: f64, exponent: f64) -> Self {
        let (mut groups, mut rank) = (Vec::new(), 1.0_f64);
        while rank <= items {
            let next = if rank < SINGLE { rank + 1.0 } else { (rank * STEP).floor().min(items + 1.0) };
            let middle = (rank + next - 1.0) / 2.0;
            groups.push((next - rank, middle.powf(-exponent)));
            rank = next;
        }
        let all: f64 = groups.iter().map(|(items, weight)| items * weight).sum();
        Self(groups.into_iter().map(|(items, weight)| (items, weight / all)).collect())
    }

    /// How many different items are among so many views.
    pub(super) fn distinct(&self, views: f64) -> f64 {
        self.sum(views, |_| 1.0)
    }

    /// The sum of a value over the items that are among so many views, by the views of each.
    pub(super) fn sum(&self, views: f64, value: impl Fn(f64) -> f64) -> f64 {
        let group = |(items, share): &(f64, f64)| {
            let each = views * share;
            items * (1.0 - (-each).exp()) * value(each.max(1.0))
        };
        self.0.iter().map(group).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_no_more_items_are_seen_than_there_are() {
        for items in [1.0, 199.0, 200.0, 201.0, 123_456.0, 1e10] {
            let popularity = Popularity::new(items, 1.05);
            let count: f64 = popularity.0.iter().map(|(items, _)| items).sum();
            assert!((count / items - 1.0).abs() < 1e-9, "{items}: {count}");
            let all: f64 = popularity.0.iter().map(|(items, share)| items * share).sum();
            assert!((all - 1.0).abs() < 1e-9, "{items}: {all}");
            assert!(popularity.distinct(1e15) <= items * 1.000_001);
            assert!(popularity.distinct(10.0) <= 10.0);
        }
    }

    #[test]
    fn groups_are_as_good_as_single_ranks() {
        let weight = |rank: u32| f64::from(rank).powf(-1.05);
        let all: f64 = (1..=200_000).map(weight).sum();
        let seen: f64 = (1..=200_000).map(|rank| 1.0 - (-50_000.0 * weight(rank) / all).exp()).sum();
        let grouped = Popularity::new(200_000.0, 1.05).distinct(50_000.0);
        assert!((grouped / seen - 1.0).abs() < 0.001, "{grouped} and {seen}");
    }
}
