//! The naive reference: reads a partition's log once, remembers everything, and shares no code with the heart.

use onlooker_event::{DeadReason, Facts, Reason, Verdict, View};

/// A record of `views`.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) append_ms: i64,
    /// None: garbage.
    pub(crate) view: Option<View>,
}

struct Counted {
    viewer: [u8; 16],
    item: String,
    id: Option<String>,
    time_s: i64,
    slice: i64,
}

/// The verdict and the slice of every record.
pub(crate) fn verdicts(log: &[Record], window_s: i64, slice_s: i64) -> Vec<(Verdict, i64)> {
    let mut counted: Vec<Counted> = Vec::new();
    let mut slice = 0;
    let mut verdicts = Vec::new();
    for record in log {
        slice = slice.max(record.append_ms / 1_000 / slice_s);
        let Some(view) = &record.view else {
            verdicts.push((Verdict::Dead(DeadReason::Malformed), slice));
            continue;
        };
        let (viewer, item) = (view.viewer.0, format!("{}:{}", view.site, view.item));
        let id = view.client_id.as_ref().map(|id| id.as_str().to_owned());
        let time_s = view.event_ms / 1_000;
        let remembered =
            || counted.iter().filter(|c| c.viewer == viewer && (c.slice == slice || c.slice == slice - 1));
        let verdict = if view.facts.has(Facts::PREFETCH) {
            Verdict::Ignored(Reason::Prefetch)
        } else if view.facts.has(Facts::SELF_VIEW) {
            Verdict::Ignored(Reason::SelfView)
        } else if id.is_some() && remembered().any(|c| c.id == id && c.item == item) {
            Verdict::Ignored(Reason::DuplicateId)
        } else if remembered().any(|c| c.item == item && (c.time_s - time_s).abs() < window_s) {
            Verdict::Ignored(Reason::RecentView)
        } else {
            Verdict::Counted
        };
        if verdict == Verdict::Counted {
            counted.push(Counted { viewer, item, id, time_s, slice });
        }
        verdicts.push((verdict, slice));
    }
    verdicts
}
