#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod class;
mod list;
mod memo;
mod needle;
mod set;
mod version;

pub use class::Class;
pub use memo::Memo;
pub use version::{LIST_VERSION, SOURCES};

use set::Set;
use std::sync::LazyLock;

static SET: LazyLock<Set> = LazyLock::new(|| Set::new(&list::vendored()));

/// A bot that names itself in its user agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bot {
    /// What it comes for.
    pub class: Class,
    /// The pattern that it was known by, as it stands in its list. There are as many as the lists have.
    pub pattern: &'static str,
}

/// Which bot the user agent declares; none: no list knows it, so it may be a person. An empty one declares nothing.
///
/// The first call builds the set. To ask for the same agents again and again, keep a [`Memo`].
pub fn classify(user_agent: &str) -> Option<Bot> {
    SET.classify(user_agent)
}

/// Patterns in use: how many come from each list, in the order of [`SOURCES`] and then ours.
pub fn patterns() -> [usize; 3] {
    let listed = list::vendored();
    [list::Origin::CrawlerUserAgents, list::Origin::Isbot, list::Origin::Ours]
        .map(|origin| listed.iter().filter(|one| one.origin == origin).count())
}

/// Bytes that the set holds, about, without the few automata that are made when they are first asked.
pub fn memory_bytes() -> usize {
    SET.memory_bytes()
}
