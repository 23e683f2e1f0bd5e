//! The naive reference: reads a partition's log once, remembers everything, and shares no code with the heart.

use onlooker_event::{DeadReason, Digest128, Facts, Reason, Verdict, View, client_id_key, dedup_key};
use std::collections::BTreeMap;

/// A record of `views`.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) append_ms: i64,
    /// None: garbage.
    pub(crate) view: Option<View>,
}

/// What is to be remembered: values by slice and key, in no order.
pub(crate) type Memory = BTreeMap<(i64, Digest128), Vec<u32>>;

#[derive(Debug)]
struct Counted {
    /// In the log; -1: in the log before it.
    offset: i64,
    key: Digest128,
    id_key: Option<(Digest128, u32)>,
    viewer: [u8; 16],
    item: String,
    id: Option<String>,
    time_s: i64,
    slice: i64,
}

/// One partition's log, read so far.
#[derive(Debug)]
pub(crate) struct Reference {
    window_s: i64,
    slice_s: i64,
    counted: Vec<Counted>,
    slice: i64,
    /// Records so far.
    records: i64,
}

impl Reference {
    pub(crate) fn new(window_s: i64, slice_s: i64) -> Self {
        Self { window_s, slice_s, counted: Vec::new(), slice: 0, records: 0 }
    }

    /// The log goes on in this slice from another one, with the views that were counted there.
    pub(crate) fn goes_on(&mut self, slice: i64, counted: &[(View, i64)]) {
        self.slice = slice;
        counted.iter().for_each(|(view, slice)| self.count(view, *slice, -1));
    }

    /// What the store has to remember where it stands at this offset and slice.
    pub(crate) fn memory(&self, offset: i64, slice: i64) -> Memory {
        let mut memory = Memory::new();
        let below = self.counted.iter().filter(|c| c.offset < offset && c.slice >= slice - 1);
        for counted in below {
            let time_s = u32::try_from(counted.time_s).unwrap();
            memory.entry((counted.slice, counted.key)).or_default().push(time_s);
            if let Some((key, value)) = counted.id_key {
                memory.entry((counted.slice, key)).or_default().push(value);
            }
        }
        memory.values_mut().for_each(|values| values.sort_unstable());
        memory
    }

    fn count(&mut self, view: &View, slice: i64, offset: i64) {
        let item = format!("{}:{}", view.site, view.item);
        let id = view.client_id.as_ref();
        self.counted.push(Counted {
            offset,
            key: dedup_key(view.viewer, item.as_bytes()),
            id_key: id.map(|id| client_id_key(view.viewer, id.as_str(), item.as_bytes())),
            viewer: view.viewer.0,
            item,
            id: view.client_id.as_ref().map(|id| id.as_str().to_owned()),
            time_s: view.event_ms / 1_000,
            slice,
        });
    }

    /// The verdict and the slice of the next record.
    pub(crate) fn judge(&mut self, record: &Record) -> (Verdict, i64) {
        self.slice = self.slice.max(record.append_ms / 1_000 / self.slice_s);
        let (slice, offset) = (self.slice, self.records);
        self.records += 1;
        let Some(view) = &record.view else { return (Verdict::Dead(DeadReason::Malformed), slice) };
        let (viewer, item) = (view.viewer.0, format!("{}:{}", view.site, view.item));
        let id = view.client_id.as_ref().map(|id| id.as_str());
        let time_s = view.event_ms / 1_000;
        let remembered = || {
            let of_slice = |c: &&Counted| c.slice == slice || c.slice == slice - 1;
            self.counted.iter().filter(move |c| c.viewer == viewer && of_slice(c))
        };
        let verdict = if view.facts.has(Facts::PREFETCH) {
            Verdict::Ignored(Reason::Prefetch)
        } else if view.facts.has(Facts::SELF_VIEW) {
            Verdict::Ignored(Reason::SelfView)
        } else if id.is_some() && remembered().any(|c| c.id.as_deref() == id && c.item == item) {
            Verdict::Ignored(Reason::DuplicateId)
        } else if remembered().any(|c| c.item == item && (c.time_s - time_s).abs() < self.window_s) {
            Verdict::Ignored(Reason::RecentView)
        } else {
            Verdict::Counted
        };
        if verdict == Verdict::Counted {
            self.count(view, slice, offset);
        }
        (verdict, slice)
    }
}

/// The verdict and the slice of every record.
pub(crate) fn verdicts(log: &[Record], window_s: i64, slice_s: i64) -> Vec<(Verdict, i64)> {
    let mut reference = Reference::new(window_s, slice_s);
    log.iter().map(|record| reference.judge(record)).collect()
}
