//! The lists in `data/`, read.

use crate::Class;
use std::collections::{HashMap, HashSet};

const CRAWLER_USER_AGENTS: &str = include_str!("../data/crawler-user-agents.tsv");
const ISBOT: &str = include_str!("../data/isbot.tsv");
const CLASSES: &str = include_str!("../data/classes.tsv");
const LEFT_OUT: &str = include_str!("../data/left-out.tsv");

/// Where a pattern comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    CrawlerUserAgents,
    Isbot,
    Ours,
}

/// One pattern of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) pattern: &'static str,
    pub(crate) class: Class,
    pub(crate) origin: Origin,
}

impl Listed {
    /// The first list means its case; the others were written for matching without.
    pub(crate) fn ignores_case(&self) -> bool {
        self.origin != Origin::CrawlerUserAgents
    }
}

/// All patterns that are used.
pub(crate) fn vendored() -> Vec<Listed> {
    let ours: Vec<(&str, Class)> = rows(CLASSES)
        .filter_map(|row| row.split_once('\t'))
        .filter_map(|(class, pattern)| Some((pattern, Class::from_name(class)?)))
        .collect();
    let classes: HashMap<&str, Class> = ours.iter().copied().collect();
    let left_out: HashSet<&str> = rows(LEFT_OUT).filter_map(|row| Some(row.split_once('\t')?.0)).collect();
    let first =
        rows(CRAWLER_USER_AGENTS).filter_map(|row| row.split_once('\t')).map(|(pattern, tags)| Listed {
            pattern,
            class: classes.get(pattern).copied().unwrap_or_else(|| Class::of_tags(tags)),
            origin: Origin::CrawlerUserAgents,
        });
    let second = rows(ISBOT).map(|pattern| Listed {
        pattern,
        class: classes.get(pattern).copied().unwrap_or(Class::Other),
        origin: Origin::Isbot,
    });
    let mut listed: Vec<Listed> = first.chain(second).filter(|one| !left_out.contains(one.pattern)).collect();
    let known: HashSet<&str> = listed.iter().map(|one| one.pattern).collect();
    let more = ours.into_iter().filter(|(pattern, _)| !known.contains(pattern));
    listed.extend(more.map(|(pattern, class)| Listed { pattern, class, origin: Origin::Ours }));
    listed
}

/// Blanks at a row's end belong to patterns.
fn rows(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|row| !row.is_empty() && !row.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_our_tables_says_something() {
        let vendored: HashSet<&str> = rows(CRAWLER_USER_AGENTS)
            .filter_map(|row| Some(row.split_once('\t')?.0))
            .chain(rows(ISBOT))
            .collect();
        for row in rows(CLASSES) {
            let (class, _) = row.split_once('\t').unwrap();
            assert_ne!(Class::from_name(class), None, "{row}");
        }
        for row in rows(LEFT_OUT) {
            let (pattern, why) = row.split_once('\t').unwrap();
            assert!(vendored.contains(pattern) && !why.is_empty(), "{row}");
        }
        let patterns: Vec<_> = rows(CLASSES).filter_map(|row| Some(row.split_once('\t')?.1)).collect();
        let once: HashSet<_> = patterns.iter().collect();
        assert_eq!(once.len(), patterns.len(), "a pattern stands in classes.tsv twice");
    }

    #[test]
    fn a_class_of_ours_goes_before_the_lists_tags() {
        let listed = vendored();
        let class = |pattern: &str| listed.iter().find(|one| one.pattern == pattern).unwrap().class;
        assert_eq!(class("ChatGPT-User"), Class::AiAssistant);
        assert_eq!(class("NetNewsWire"), Class::FeedReader);
        assert!(listed.iter().all(|one| one.pattern != "Butterfly"));
    }
}
