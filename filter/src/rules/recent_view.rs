//! The viewer's view of the item was counted less than a window away, before or after in event time. *Any* counted
//! view, not just the last: else somebody who alternates two times has every view counted.

use super::Question;
use onlooker_event::Reason;

pub(super) fn judge(question: &Question<'_>) -> Option<Reason> {
    let near = |counted_s: u32| counted_s.abs_diff(question.time_s) < question.window_s;
    question.times.any(near).then_some(Reason::RecentView)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Memory;

    #[test]
    fn a_window_has_an_open_end_on_both_sides() {
        let judged = |time_s| {
            let times = Memory { older: &[10_000], newer: &[20_000] };
            judge(&Question { time_s, window_s: 1_800, times, id: None })
        };
        for (time_s, repeat) in [
            (8_200, false),
            (8_201, true),
            (10_000, true),
            (11_799, true),
            (11_800, false),
            (18_200, false),
            (18_201, true),
            (21_799, true),
            (21_800, false),
        ] {
            assert_eq!(judged(time_s).is_some(), repeat, "{time_s}");
        }
    }
}
