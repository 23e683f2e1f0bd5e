//! The browser fetched or prerendered the page ahead of anybody looking; the collector saw it in the headers.

use onlooker_event::{Facts, Reason};

pub(super) fn judge(facts: Facts) -> Option<Reason> {
    facts.has(Facts::PREFETCH).then_some(Reason::Prefetch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_fact_counts() {
        assert_eq!(judge(Facts::PREFETCH.with(Facts::TRUSTED)), Some(Reason::Prefetch));
        assert_eq!(judge(Facts::TRUSTED.with(Facts::BAD_VIEWER)), None);
    }
}
