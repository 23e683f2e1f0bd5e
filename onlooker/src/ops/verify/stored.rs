//! What is stored for a count, what the log gives for it, and how the two differ.

use super::Difference;
use onlooker_event::CountKey;
use onlooker_ports::{Archived, KeyView};
use onlooker_sketch::Sketch;

/// A stored number or sketch, and what the log gives for it.
pub(super) struct Check {
    place: &'static str,
    /// The log's records below this offset are added up.
    pub(super) below: i64,
    /// What is stored says that it is of the records below this offset.
    own: i64,
    stored: Stored,
    views: u64,
    sketch: Sketch,
}

enum Stored {
    Views(u64),
    Sketch(Box<Sketch>),
    /// The registers are in order, and the count that its header carries, and that Redis answers, is not theirs.
    WrongHeader(Box<Sketch>, u64),
    Damaged,
    /// Nothing is stored, and has to be if the log has a record below the offset.
    NoViews,
    NoSketch,
}

fn check(place: &'static str, below: i64, own: i64, stored: Stored) -> Check {
    Check { place, below, own, stored, views: 0, sketch: Sketch::new() }
}

fn sketch(bytes: &[u8]) -> Stored {
    let Ok(sketch) = Sketch::from_redis(bytes) else { return Stored::Damaged };
    let sketch = Box::new(sketch);
    match header_count(bytes) {
        Some(count) if count != sketch.count() => Stored::WrongHeader(sketch, count),
        _ => Stored::Sketch(sketch),
    }
}

/// The count that a sketch's header carries; none where it is marked as stale.
fn header_count(bytes: &[u8]) -> Option<u64> {
    let count = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    (count >> 63 == 0).then_some(count)
}

/// A cell is of the records below its own offset, and nothing of the count lies between that and what is durable: else
/// something newer was acknowledged, and the archive has lost it.
pub(super) fn of_archive(archived: Archived, durable: i64) -> Vec<Check> {
    let number = match archived.number {
        Some((n, u)) => check("archive", u.max(durable), u, Stored::Views(n)),
        None => check("archive", durable, 0, Stored::NoViews),
    };
    let sketch = match archived.sketch {
        Some((bytes, t)) => check("archive", t.max(durable), t, sketch(&bytes)),
        None => check("archive", durable, 0, Stored::NoSketch),
    };
    vec![number, sketch]
}

/// What is present is of all records below where the counters stand, or, after a loss, of more: what the archive had is
/// ahead of a partition that is counted again. What is absent was evicted, if it may be.
pub(super) fn of_counters(seen: &KeyView, applied: i64, archived: &Archived) -> Vec<Check> {
    let number =
        seen.number.map(|number| check("counters", applied.max(number.u), number.u, Stored::Views(number.n)));
    // A clean sketch says no offset, and is the one in the archive.
    let own = seen.sketch_dirty.or(archived.sketch.as_ref().map(|(_, t)| *t)).unwrap_or(0);
    let stored = match (&seen.sketch, seen.sketch_dirty) {
        (Some(bytes), _) => Some(sketch(bytes)),
        // A changed sketch may not be evicted: somebody removed it.
        (None, Some(_)) => Some(Stored::NoSketch),
        (None, None) => None,
    };
    let sketch = stored.map(|stored| {
        let said = seen.sketch_dirty.unwrap_or(0);
        check("counters", applied.max(own), said, stored)
    });
    number.into_iter().chain(sketch).collect()
}

/// A partition that stands behind the log's end: what is appended up to there will not be counted.
pub(super) fn ahead(place: &str, partition: i32, at: i64, end: i64) -> Option<Difference> {
    (at > end).then(|| Difference {
        key: "(partition)".to_owned(),
        partition,
        place: place.to_owned(),
        what: "offset".to_owned(),
        direction: "ahead".to_owned(),
        below: at,
        stored: u64::try_from(at).ok(),
        from_log: u64::try_from(end).unwrap_or(0),
        registers_higher: 0,
        registers_lower: 0,
    })
}

impl Check {
    /// One more record below the offset.
    pub(super) fn add(&mut self, viewer: &[u8]) {
        self.views += 1;
        if !matches!(self.stored, Stored::Views(_) | Stored::NoViews) {
            self.sketch.add(viewer);
        }
    }

    /// `partial`: the log has not all that the stored count may hold. `end`: the log's end, asked for after the stores.
    pub(super) fn differs(
        &self,
        key: &CountKey,
        partition: i32,
        partial: bool,
        end: i64,
    ) -> Option<Difference> {
        let told = |what: &str, direction: &str, stored, from_log, (higher, lower)| {
            Some(Difference {
                key: String::from_utf8_lossy(key.as_bytes()).into_owned(),
                partition,
                place: self.place.to_owned(),
                what: what.to_owned(),
                direction: direction.to_owned(),
                below: self.below,
                stored,
                from_log,
                registers_higher: higher,
                registers_lower: lower,
            })
        };
        // It may be right today. Nothing replaces it before the log has come there.
        let is_ahead = self.own > end;
        match &self.stored {
            Stored::Views(n) if *n == self.views || (partial && *n > self.views) => {
                if is_ahead {
                    told("views", "ahead", Some(*n), self.views, (0, 0))
                } else {
                    None
                }
            }
            Stored::Views(n) => {
                let direction = if *n > self.views { "too many" } else { "too few" };
                told("views", direction, Some(*n), self.views, (0, 0))
            }
            Stored::NoViews | Stored::NoSketch if self.views == 0 => None,
            Stored::NoViews => told("views", "missing", None, self.views, (0, 0)),
            Stored::NoSketch => told("sketch", "missing", None, self.sketch.count(), (0, 0)),
            Stored::Damaged => told("sketch", "damaged", None, self.sketch.count(), (0, 0)),
            Stored::Sketch(stored) | Stored::WrongHeader(stored, _) => {
                let (ours, theirs) = (self.sketch.registers(), stored.registers());
                let pairs = || theirs.iter().zip(ours.iter());
                let higher = pairs().filter(|(stored, built)| stored > built).count();
                let lower = pairs().filter(|(stored, built)| stored < built).count();
                let direction = match (higher, lower) {
                    (_, 0) if higher == 0 || partial => match self.stored {
                        Stored::WrongHeader(_, count) => {
                            return told("sketch", "damaged", Some(count), stored.count(), (higher, lower));
                        }
                        _ if is_ahead => "ahead",
                        _ => return None,
                    },
                    (_, 0) => "too many",
                    (0, _) => "too few",
                    _ => "other members",
                };
                told("sketch", direction, Some(stored.count()), self.sketch.count(), (higher, lower))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use onlooker_event::Scope;
    use onlooker_ports::Number;

    const END: i64 = 100;

    /// What is said of a count whose item the log has at these offsets, each from a viewer of its own.
    fn said(checks: Vec<Check>, offsets: &[i64]) -> Vec<(String, String, String)> {
        let key = CountKey::new(Scope::All, b"s:i");
        let mut said = Vec::new();
        for mut check in checks {
            let below = check.below;
            for offset in offsets.iter().filter(|offset| **offset < below) {
                check.add(&offset.to_le_bytes());
            }
            let found = check.differs(&key, 0, false, END);
            said.extend(found.map(|found| (found.place, found.what, found.direction)));
        }
        said
    }

    fn of(offsets: &[i64]) -> Vec<u8> {
        let mut sketch = Sketch::new();
        for offset in offsets {
            sketch.add(&offset.to_le_bytes());
        }
        sketch.to_redis()
    }

    fn number(n: u64, u: i64) -> Option<Number> {
        Some(Number { n, u, changed_s: 0 })
    }

    fn one(place: &str, what: &str, direction: &str) -> Vec<(String, String, String)> {
        vec![(place.to_owned(), what.to_owned(), direction.to_owned())]
    }

    #[test]
    fn what_came_from_the_archive_is_ahead_of_a_partition_that_is_counted_again() {
        let archived = Archived { sketch: Some((of(&[1, 5]).into(), 6)), number: Some((2, 6)) };
        let dirty = KeyView {
            number: number(2, 6),
            sketch: Some(of(&[1, 5]).into()),
            sketch_dirty: Some(6),
            ..KeyView::default()
        };
        assert_eq!(said(of_counters(&dirty, 3, &archived), &[1, 5, 9]), []);
        let clean = KeyView { sketch_dirty: None, ..dirty };
        assert_eq!(said(of_counters(&clean, 3, &archived), &[1, 5, 9]), []);
        // The partition has passed them, and knows more.
        let few = of_counters(&clean, 10, &archived);
        let two = ["views", "sketch"].map(|what| one("counters", what, "too few").remove(0));
        assert_eq!(said(few, &[1, 5, 9]), two);
    }

    #[test]
    fn a_changed_sketch_that_is_gone_is_missing() {
        let nothing = Archived::default();
        let gone = KeyView { sketch_dirty: Some(6), ..KeyView::default() };
        assert_eq!(said(of_counters(&gone, 6, &nothing), &[1, 5]), one("counters", "sketch", "missing"));
        assert_eq!(said(of_counters(&KeyView::default(), 6, &nothing), &[1, 5]), []);
    }

    #[test]
    fn a_header_that_is_not_of_its_registers_is_damage() {
        let mut bytes = of(&[1, 5]);
        bytes[8..16].copy_from_slice(&2_u64.to_le_bytes());
        let archived =
            |bytes: Vec<u8>| Archived { sketch: Some((Bytes::from(bytes), 6)), number: Some((2, 6)) };
        assert_eq!(said(of_archive(archived(bytes.clone()), 6), &[1, 5]), []);
        bytes[8..16].copy_from_slice(&1_000_000_u64.to_le_bytes());
        assert_eq!(said(of_archive(archived(bytes), 6), &[1, 5]), one("archive", "sketch", "damaged"));
    }

    #[test]
    fn an_offset_behind_the_end_of_the_log_is_told_though_the_count_is_right() {
        let micros = 1_796_086_419_384_093;
        let archived = Archived { sketch: Some((of(&[1, 5]).into(), 6)), number: Some((2, micros)) };
        assert_eq!(said(of_archive(archived, 6), &[1, 5]), one("archive", "views", "ahead"));
        assert_eq!(ahead("counters", 3, END, END), None);
        let stands = ahead("counters", 3, END + 1, END).unwrap();
        assert_eq!((stands.key.as_str(), stands.stored, stands.from_log), ("(partition)", Some(101), 100));
    }
}
