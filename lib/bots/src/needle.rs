//! What must occur in an agent for a pattern to match: found in one pass for all patterns, so that a pattern is asked
//! only where it has a chance.

use regex_syntax::hir::{Class, Hir, HirKind};
use std::mem;

/// Texts in lower case, one of which is in whatever the pattern matches. None: nothing is certain.
pub(crate) fn needles(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    match hir.kind() {
        HirKind::Capture(capture) => needles(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => needles(&repetition.sub),
        HirKind::Alternation(branches) => {
            let all: Option<Vec<_>> = branches.iter().map(needles).collect();
            all.map(|sets| sets.into_iter().flatten().collect())
        }
        HirKind::Concat(parts) => of_concat(parts),
        _ => fixed(hir).map(|text| vec![text]),
    }
}

/// Of all that is certain in a row of parts, what is longest.
fn of_concat(parts: &[Hir]) -> Option<Vec<Vec<u8>>> {
    let mut found: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut run = Vec::new();
    for part in parts {
        if let Some(text) = fixed(part) {
            run.extend(text);
            continue;
        }
        if !run.is_empty() {
            found.push(vec![mem::take(&mut run)]);
        }
        found.extend(needles(part));
    }
    if !run.is_empty() {
        found.push(vec![run]);
    }
    found.into_iter().max_by_key(|set| set.iter().map(Vec::len).min())
}

/// The part's text in lower case, if it has but one.
fn fixed(hir: &Hir) -> Option<Vec<u8>> {
    match hir.kind() {
        HirKind::Literal(literal) => Some(literal.0.to_ascii_lowercase()),
        // `[wW]`, and what ignoring case makes of `w`.
        HirKind::Class(Class::Bytes(class)) => {
            let mut letters = class.iter().flat_map(|range| range.start()..=range.end());
            let first = letters.next()?.to_ascii_lowercase();
            letters.all(|letter| letter.to_ascii_lowercase() == first).then(|| vec![first])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::hir;

    fn of(pattern: &str) -> Option<Vec<String>> {
        let found = needles(&hir(pattern, false).unwrap())?;
        Some(found.into_iter().map(|text| String::from_utf8(text).unwrap()).collect())
    }

    #[test]
    fn the_longest_certain_text_is_taken() {
        assert_eq!(of("Googlebot\\/"), Some(vec!["googlebot/".to_owned()]));
        assert_eq!(of("[wW]get"), Some(vec!["wget".to_owned()]));
        assert_eq!(of("^[a-z.0-9]*bot"), Some(vec!["bot".to_owned()]));
        assert_eq!(of("Spider[\\s\\S]*spider\\.com"), Some(vec!["spider.com".to_owned()]));
        assert_eq!(of("Chirp|gotosocial"), Some(vec!["chirp".to_owned(), "gotosocial".to_owned()]));
    }

    #[test]
    fn nothing_is_made_up() {
        assert_eq!(of("[0-9]+"), None);
        assert_eq!(of("(bot)?"), None);
        assert_eq!(of("a|[0-9]"), None);
    }
}
