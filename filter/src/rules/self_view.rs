//! The owner looked at their own item. Only a trusted back end can say so: the collector drops the fact from others.

use onlooker_event::{Facts, Reason};

pub(super) fn judge(facts: Facts) -> Option<Reason> {
    facts.has(Facts::SELF_VIEW).then_some(Reason::SelfView)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::of_facts;

    #[test]
    fn a_prefetch_comes_first() {
        assert_eq!(judge(Facts::SELF_VIEW), Some(Reason::SelfView));
        assert_eq!(of_facts(Facts::SELF_VIEW.with(Facts::PREFETCH)), Some(Reason::Prefetch));
        assert_eq!(of_facts(Facts::TRUSTED), None);
    }
}
