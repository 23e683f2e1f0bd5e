//! Names of keys, and where a cluster keeps them.

mod layout;
mod tag;

pub use layout::Layout;
pub(crate) use tag::slot_of_tag;

use onlooker_event::CountKey;
use onlooker_ports::PortError;

use self::tag::Tag;

/// Slot and key names of one partition.
#[derive(Debug, Clone)]
pub(crate) struct Names<'a> {
    prefix: &'a str,
    tag: &'a Tag,
}

impl Names<'_> {
    pub(crate) fn slot(&self) -> u16 {
        self.tag.slot
    }

    fn key(&self, kind: &str) -> Vec<u8> {
        let Self { prefix, tag } = self;
        let mut key = Vec::with_capacity(prefix.len() + kind.len() + tag.text.len() + 24);
        for part in [prefix, kind, ":{", &tag.text, "}"] {
            key.extend_from_slice(part.as_bytes());
        }
        key
    }

    fn key_with(&self, kind: &str, rest: &[u8]) -> Vec<u8> {
        let mut key = self.key(kind);
        key.push(b':');
        key.extend_from_slice(rest);
        key
    }

    pub(crate) fn fapplied(&self) -> Vec<u8> {
        self.key("fapplied")
    }

    /// Common beginning of the slices' keys; the slice's number follows.
    pub(crate) fn seen_stem(&self) -> Vec<u8> {
        self.key_with("seen", b"")
    }

    pub(crate) fn seen(&self, slice: i64) -> Vec<u8> {
        self.key_with("seen", slice.to_string().as_bytes())
    }

    pub(crate) fn staged(&self, name: &str, slice: i64) -> Vec<u8> {
        self.key_with("staged", format!("{name}:{slice}").as_bytes())
    }

    pub(crate) fn staged_parts(&self, name: &str) -> Vec<u8> {
        self.key_with("staged", format!("{name}:n").as_bytes())
    }

    pub(crate) fn applied(&self) -> Vec<u8> {
        self.key("applied")
    }

    pub(crate) fn sketch_stem(&self) -> Vec<u8> {
        self.key_with("sketch", b"")
    }

    pub(crate) fn sketch(&self, key: &CountKey) -> Vec<u8> {
        self.key_with("sketch", key.as_bytes())
    }

    pub(crate) fn dirty_sketches(&self) -> Vec<u8> {
        self.key("dirtyS")
    }

    pub(crate) fn totals(&self) -> Vec<u8> {
        self.key("totals")
    }

    pub(crate) fn dirty_numbers(&self) -> Vec<u8> {
        self.key("dirtyN")
    }

    pub(crate) fn wanted(&self) -> Vec<u8> {
        self.key("wanted")
    }

    pub(crate) fn absent(&self, key: &CountKey) -> Vec<u8> {
        self.key_with("absent", key.as_bytes())
    }

    pub(crate) fn round(&self) -> Vec<u8> {
        self.key("round")
    }

    pub(crate) fn hold(&self) -> Vec<u8> {
        self.key("hold")
    }

    pub(crate) fn resume(&self) -> Vec<u8> {
        self.key("resume")
    }

    pub(crate) fn selftest(&self, name: &str) -> Vec<u8> {
        self.key_with("selftest", name.as_bytes())
    }
}

/// All names of one layout under one prefix.
#[derive(Debug, Clone)]
pub(crate) struct Namespace {
    prefix: Box<str>,
    layout: Layout,
    tags: Box<[Tag]>,
}

impl Namespace {
    pub(crate) fn new(prefix: &str, layout: Layout) -> Self {
        let tags = (0..layout.partitions()).map(|p| Tag::find(&layout, p)).collect();
        Self { prefix: prefix.into(), layout, tags }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Names of a partition's keys; none for a partition that the layout does not have.
    pub(crate) fn partition(&self, partition: i32) -> Option<Names<'_>> {
        let tag = self.tags.get(usize::try_from(partition).ok()?)?;
        Some(Names { prefix: &self.prefix, tag })
    }

    /// Names of all partitions, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = Names<'_>> {
        self.tags.iter().map(|tag| Names { prefix: &self.prefix, tag })
    }

    /// The same; a partition that the layout does not have is an error.
    pub(crate) fn require(&self, server: &'static str, partition: i32) -> Result<Names<'_>, PortError> {
        self.partition(partition).ok_or_else(|| PortError::Misconfigured {
            server,
            detail: format!("partition {partition} of a log with {}", self.layout.partitions()),
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::tag::SLOTS;
    use super::*;
    use bytes::Bytes;

    fn namespace(prefix: &str, partitions: u32) -> Namespace {
        Namespace::new(prefix, Layout::new("1", partitions).unwrap())
    }

    #[test]
    fn partitions_load_a_cluster_evenly() {
        for partitions in [3u32, 6, 12, 24, 32, 64, 100, 256, 1000] {
            let names = namespace("", partitions);
            for nodes in [2u32, 3, 4, 5].into_iter().filter(|n| partitions >= 4 * n || partitions % n == 0) {
                let mut load = vec![0u32; nodes as usize];
                for p in 0..partitions {
                    let slot = u32::from(names.partition(p.cast_signed()).unwrap().slot());
                    load[(slot * nodes / SLOTS) as usize] += 1;
                }
                let even = f64::from(partitions) / f64::from(nodes);
                for n in &load {
                    let off = (f64::from(*n) - even).abs();
                    assert!(off <= (0.2 * even).max(1.0), "{partitions} on {nodes}: {load:?}");
                }
            }
        }
    }

    #[test]
    fn tags_are_a_function_of_the_layout() {
        let (a, b) = (namespace("", 8), namespace("x:", 8));
        let mut slots: Vec<u16> = a.tags.iter().map(|tag| tag.slot).collect();
        assert_eq!(slots, b.tags.iter().map(|tag| tag.slot).collect::<Vec<_>>());
        slots.dedup();
        assert_eq!(slots.len(), 8);
        // Data that was written by an earlier build stands under these very names.
        let names: Vec<&str> = a.tags.iter().map(|tag| &*tag.text).collect();
        assert_eq!(names[..2], ["1.0.42", "1.1.30"]);
        assert_ne!(
            names,
            Namespace::new("", Layout::new("2", 8).unwrap())
                .tags
                .iter()
                .map(|t| &*t.text)
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn user_text_never_moves_the_tag() {
        let space = namespace("shadow:", 4);
        let names = space.partition(2).unwrap();
        for item in ["s:{0}", "s:}{", "s:{}", "s:a:b"] {
            let key = CountKey::parse(Bytes::from(format!("*:{item}"))).unwrap();
            for name in [names.sketch(&key), names.absent(&key)] {
                let open = name.iter().position(|b| *b == b'{').unwrap();
                let close = name.iter().position(|b| *b == b'}').unwrap();
                assert_eq!(slot_of_tag(&name[open + 1..close]), names.slot(), "{item}");
                assert!(name.ends_with(key.as_bytes()));
            }
        }
        assert!(space.partition(4).is_none() && space.partition(-1).is_none());
    }
}
