//! What has to come out: counted from the same views, in their order, by no code of the pipeline but the sketch.

use crate::workload::{Look, SITE, item_name, viewer_hash};
use onlooker_sketch::Sketch;
use std::collections::{BTreeMap, HashMap};

/// The window of the filter's rule, in milliseconds: the default of a site.
const WINDOW_MS: i64 = 30 * 60 * 1000;

/// The views that count.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// The times at which a viewer's view of an item was counted.
    seen: HashMap<(u32, u32), Vec<i64>>,
    /// Counted views of each item.
    per_item: BTreeMap<u32, u64>,
    counted: u64,
    views: u64,
}

impl Model {
    /// Judges all of these.
    pub(crate) fn of(looks: impl IntoIterator<Item = Look>) -> Self {
        let mut model = Self::default();
        looks.into_iter().for_each(|look| _ = model.judge(look));
        model
    }

    /// Judges one view as the filter must: it is a repeat if a counted one of the same viewer and item is less than a
    /// window away. True: it counts.
    pub(crate) fn judge(&mut self, look: Look) -> bool {
        self.views += 1;
        let times = self.seen.entry((look.viewer, look.item)).or_default();
        if times.iter().any(|t| (t - look.at_ms).abs() < WINDOW_MS) {
            return false;
        }
        times.push(look.at_ms);
        self.counted += 1;
        *self.per_item.entry(look.item).or_default() += 1;
        true
    }

    /// All views.
    pub(crate) fn views(&self) -> u64 {
        self.views
    }

    /// Views that count.
    pub(crate) fn counted(&self) -> u64 {
        self.counted
    }

    /// Each item that was viewed, with its counted views.
    pub(crate) fn items(&self) -> impl Iterator<Item = (u32, u64)> {
        self.per_item.iter().map(|(item, views)| (*item, *views))
    }

    /// The sketches of these items: one member for each viewer who was counted.
    pub(crate) fn sketches(&self, items: &[u32]) -> BTreeMap<u32, Sketch> {
        let mut sketches: BTreeMap<u32, Sketch> = items.iter().map(|i| (*i, Sketch::new())).collect();
        for (viewer, item) in self.seen.keys() {
            if let Some(sketch) = sketches.get_mut(item) {
                sketch.add(&viewer_hash(*viewer).0);
            }
        }
        sketches
    }
}

/// The key of an item's count for all time.
pub(crate) fn count_key(item: u32) -> String {
    format!("*:{SITE}:{}", item_name(item))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_within_the_window_do_not_count() {
        let look = |viewer, at_ms| Look { viewer, item: 3, at_ms };
        let model =
            Model::of([look(1, 0), look(1, WINDOW_MS - 1), look(2, 5), look(1, WINDOW_MS), look(1, 9)]);
        assert_eq!((model.views(), model.counted()), (5, 3));
        assert_eq!(model.items().collect::<Vec<_>>(), [(3, 3)]);
        assert_eq!(model.sketches(&[3, 4])[&3].count(), 2);
        assert!(model.sketches(&[4])[&4].is_empty());
    }
}
