//! The rules, one a file. In the order of `Reason`s below the first match wins; a view that matches none counts.
//!
//! A rule sees the view and what the partition's own log says about it, nothing else: so a verdict is a function of
//! the log, and a replay decides as the first run did.

mod duplicate_id;
mod prefetch;
mod recent_view;
mod self_view;

use onlooker_event::{Facts, Reason};

pub(crate) use duplicate_id::is_reuse;

/// Stamped on every verdict. Raise it with every change to what a rule says.
pub const RULE_SET_VERSION: u32 = 1;

/// What is remembered of one key: values counted in the slice before, and in the current one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Memory<'a> {
    pub(crate) older: &'a [u32],
    pub(crate) newer: &'a [u32],
}

impl Memory<'_> {
    fn any(&self, is: impl Fn(u32) -> bool + Copy) -> bool {
        self.newer.iter().chain(self.older).any(|value| is(*value))
    }
}

/// A view that the facts alone did not settle, with what is remembered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    /// Event time in whole seconds since 1970.
    pub(crate) time_s: u32,
    /// The site's window in seconds.
    pub(crate) window_s: u32,
    /// Times of counted views of this (viewer, item).
    pub(crate) times: Memory<'a>,
    /// The client's id, if it sent one: the item's fingerprint, and those that were counted under the id.
    pub(crate) id: Option<(u32, Memory<'a>)>,
}

/// The rules that need no memory. What they ignore is not looked up and never claims anything: a page that was
/// prefetched and is then looked at counts.
pub(crate) fn of_facts(facts: Facts) -> Option<Reason> {
    prefetch::judge(facts).or_else(|| self_view::judge(facts))
}

/// The rules that look back.
pub(crate) fn of_memory(question: &Question<'_>) -> Option<Reason> {
    duplicate_id::judge(question).or_else(|| recent_view::judge(question))
}
