//! The client's id was counted before, on the same item: a request that was sent again, however long after.
//! The same id on another item is another view, which is judged on its own.

use super::{Memory, Question};
use onlooker_event::Reason;

pub(super) fn judge(question: &Question<'_>) -> Option<Reason> {
    let (fingerprint, counted) = question.id?;
    counted.any(|other| other == fingerprint).then_some(Reason::DuplicateId)
}

/// The id was counted, but never on this item: a client that does not make its ids unique.
pub(crate) fn is_reuse(fingerprint: u32, counted: Memory<'_>) -> bool {
    counted.any(|_| true) && !counted.any(|other| other == fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_id_on_the_same_item_is_a_retry() {
        let counted = Memory { older: &[7], newer: &[9] };
        let question = |fingerprint| Question {
            time_s: 5_000,
            window_s: 10,
            times: Memory::default(),
            id: Some((fingerprint, counted)),
        };
        assert_eq!(judge(&question(7)), Some(Reason::DuplicateId));
        assert_eq!(judge(&question(9)), Some(Reason::DuplicateId));
        assert_eq!(judge(&question(8)), None);
        assert_eq!(judge(&Question { id: None, ..question(7) }), None);
        assert!(is_reuse(8, counted));
        assert!(!is_reuse(9, counted));
        assert!(!is_reuse(8, Memory::default()));
    }
}
