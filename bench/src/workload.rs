//! The views that benchmarks are fed with: made from a seed, so that every run has the same ones.

use onlooker_event::{Facts, ItemId, SiteId, View, ViewId, ViewerHash};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The site of all views.
pub(crate) const SITE: &str = "bench";

/// A browser's, so that a record has the size of a real one: about 150 bytes.
const AGENT: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";

/// What the views look like as a whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Items; the popularity of number r, from 1, is 1 / r^`exponent`.
    pub(crate) items: u32,
    /// The exponent of Zipf's law.
    pub(crate) exponent: f64,
    /// Viewers, each as likely as any other.
    pub(crate) viewers: u32,
    /// Share of the views that repeat an earlier view of the last `within_ms`.
    pub(crate) repeats: f64,
    /// How far back a repeat goes. Milliseconds.
    pub(crate) within_ms: i64,
    /// Views a second, by their own times.
    pub(crate) per_second: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            items: 100_000,
            exponent: 1.05,
            viewers: 300_000,
            repeats: 0.10,
            within_ms: 60_000,
            per_second: 20_000,
        }
    }
}

/// One view, as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// Who: below `Shape::viewers`.
    pub(crate) viewer: u32,
    /// At what: below `Shape::items`.
    pub(crate) item: u32,
    /// When, in milliseconds since 1970.
    pub(crate) at_ms: i64,
}

/// An endless row of views.
#[derive(Debug)]
pub(crate) struct Workload {
    shape: Shape,
    zipf: Zipf,
    random: StdRng,
    start_ms: i64,
    made: i64,
    /// The views of the last `within_ms`, as a ring.
    recent: Vec<(u32, u32)>,
}

impl Workload {
    /// Views from `start_ms` on.
    pub(crate) fn new(shape: Shape, seed: u64, start_ms: i64) -> Self {
        let zipf = Zipf::new(shape.items, shape.exponent);
        Self { shape, zipf, random: StdRng::seed_from_u64(seed), start_ms, made: 0, recent: Vec::new() }
    }

    fn ring(&self) -> usize {
        let ring = i64::from(self.shape.per_second) * self.shape.within_ms / 1000;
        usize::try_from(ring).unwrap_or(1).max(1)
    }
}

impl Iterator for Workload {
    type Item = Look;

    fn next(&mut self) -> Option<Look> {
        let at_ms = self.start_ms + self.made * 1000 / i64::from(self.shape.per_second.max(1));
        let ring = self.ring();
        let repeat = !self.recent.is_empty() && self.random.random_bool(self.shape.repeats);
        let (viewer, item) = if repeat {
            self.recent[self.random.random_range(0..self.recent.len())]
        } else {
            (self.random.random_range(0..self.shape.viewers), self.zipf.sample(&mut self.random))
        };
        if self.recent.len() < ring {
            self.recent.push((viewer, item));
        } else {
            let slot = usize::try_from(self.made).unwrap_or(0) % ring;
            self.recent[slot] = (viewer, item);
        }
        self.made += 1;
        Some(Look { viewer, item, at_ms })
    }
}

/// Numbers by Zipf's law, exactly: the distribution's sums, searched by halves.
#[derive(Debug)]
pub(crate) struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    /// Over `0..items`, the first the most likely.
    pub(crate) fn new(items: u32, exponent: f64) -> Self {
        let mut sum = 0.0;
        let add = |rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        };
        Self { sums: (1..=items.max(1)).map(add).collect() }
    }

    /// One number.
    pub(crate) fn sample(&self, random: &mut impl Rng) -> u32 {
        let total = self.sums.last().copied().unwrap_or(1.0);
        let at = random.random_range(0.0..total);
        let found = self.sums.partition_point(|sum| *sum <= at);
        u32::try_from(found.min(self.sums.len() - 1)).unwrap_or(0)
    }
}

/// An item's id.
pub(crate) fn item_name(item: u32) -> String {
    format!("article-{item:06}")
}

/// A viewer's keyed hash: as evenly spread as the collector's.
pub(crate) fn viewer_hash(viewer: u32) -> ViewerHash {
    let (low, high) = (mix(u64::from(viewer)), mix(!u64::from(viewer)));
    ViewerHash((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
}

/// The finaliser of splitmix64.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A view's id: the number of the view in a UUID of version 7.
fn view_id(number: u64, at_ms: i64) -> ViewId {
    let time = u128::from(at_ms.cast_unsigned() & 0xffff_ffff_ffff) << 80;
    ViewId((time | 0x7 << 76 | 0b10 << 62 | u128::from(number & 0x3fff_ffff_ffff_ffff)).to_be_bytes())
}

/// The view as the collector would record it.
///
/// # Errors
/// Never for numbers of a [`Workload`]: their names are valid ids.
pub(crate) fn view(look: Look, number: u64) -> Result<View, onlooker_event::IdError> {
    Ok(View {
        view_id: view_id(number, look.at_ms),
        site: SiteId::new(SITE)?,
        item: ItemId::new(&item_name(look.item))?,
        viewer: viewer_hash(look.viewer),
        key_version: 1,
        event_ms: look.at_ms,
        received_ms: look.at_ms,
        client_id: None,
        user_agent: Some(AGENT.into()),
        referrer: None,
        facts: Facts::default(),
    })
}

/// The view as a page sends it: about 150 bytes of JSON, the viewer named by the page's session.
pub(crate) fn json(look: Look, number: u64) -> String {
    json_of(&item_name(look.item), &format!("{number:020}"), look.viewer)
}

/// The same of any item, with the client's own id for it.
pub(crate) fn json_of(item: &str, id: &str, viewer: u32) -> String {
    format!(
        r#"{{"site":"{SITE}","item":"{item}","id":"{id}","session":"session-{viewer:08}","referrer":"https://www.example.org/news/2026/11"}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn views_have_the_shape_that_was_asked_for() {
        let shape = Shape::default();
        let looks: Vec<Look> = Workload::new(shape, 1, 1_000_000).take(200_000).collect();
        assert_eq!(looks, Workload::new(shape, 1, 1_000_000).take(200_000).collect::<Vec<_>>());
        assert_eq!((looks[0].at_ms, looks[199_999].at_ms), (1_000_000, 1_009_999));
        let mut per_item = HashMap::new();
        looks.iter().for_each(|l| *per_item.entry(l.item).or_insert(0u32) += 1);
        // Zipf 1.05 over 100,000: the first has 1 / 9.2 of all, and twice as much (2^1.05) as the second.
        let share = f64::from(per_item[&0]) / 200_000.0;
        assert!((0.10..0.12).contains(&share), "{share}");
        let ratio = f64::from(per_item[&0]) / f64::from(per_item[&1]);
        assert!((1.9..2.3).contains(&ratio), "{ratio}");
        let pairs: HashSet<_> = looks.iter().map(|l| (l.viewer, l.item)).collect();
        let repeated = 1.0 - pairs.len() as f64 / 200_000.0;
        assert!((0.10..0.13).contains(&repeated), "{repeated}");
    }

    #[test]
    fn records_have_the_size_of_real_ones() {
        let look = Look { viewer: 7, item: 99_999, at_ms: 1_796_036_400_000 };
        let mut record = Vec::new();
        onlooker_proto::encode_view(&view(look, 1_000_000).unwrap(), &mut record);
        assert!((140..=160).contains(&record.len()), "{}", record.len());
        assert!(onlooker_proto::decode_view(Some(&record)).is_ok());
        assert!((140..=160).contains(&json(look, 7).len()), "{}", json(look, 7).len());
    }

    #[test]
    fn viewers_are_told_apart() {
        let hashes: HashSet<_> = (0..100_000).map(viewer_hash).collect();
        assert_eq!(hashes.len(), 100_000);
    }
}
