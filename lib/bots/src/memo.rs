//! Answers that were given before.

use crate::{Bot, classify};
use std::collections::HashMap;
use std::mem;

/// Agents of one half. A site sees some thousands of agents, most of its views from a few hundred.
const HALF: usize = 4_096;
/// Longer ones are asked each time: they are rare, and would be most of the memory.
const LONGEST: usize = 512;

type Answers = HashMap<Box<str>, Option<Bot>, foldhash::fast::RandomState>;

/// [`classify`] with a memory of bounded size: at most twice 4,096 agents of at most 512 bytes, so some 5 MB if
/// somebody tries. It keeps whole agents, so an answer never depends on what was asked before.
#[derive(Debug, Clone, Default)]
pub struct Memo {
    newer: Answers,
    older: Answers,
}

impl Memo {
    /// As [`classify`].
    pub fn classify(&mut self, user_agent: &str) -> Option<Bot> {
        if let Some(answer) = self.newer.get(user_agent) {
            return *answer;
        }
        if user_agent.len() > LONGEST {
            return classify(user_agent);
        }
        let answer = self.older.get(user_agent).copied().unwrap_or_else(|| classify(user_agent));
        if self.newer.len() >= HALF {
            // What was not asked for while the half filled is forgotten.
            self.older = mem::take(&mut self.newer);
        }
        self.newer.insert(user_agent.into(), answer);
        answer
    }

    /// Agents in memory.
    pub fn len(&self) -> usize {
        self.newer.len() + self.older.len()
    }

    /// Nothing was asked yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_as_without_and_stays_small() {
        let mut memo = Memo::default();
        for round in 0..2 {
            for n in 0..3 * HALF {
                let agent = if n % 3 == 0 { format!("curl/{n}") } else { format!("Mozilla/5.0 {n}") };
                assert_eq!(memo.classify(&agent).is_some(), n % 3 == 0, "{round} {n}");
                assert!(memo.len() <= 2 * HALF);
            }
        }
        let long = "x".repeat(LONGEST + 1);
        let before = memo.len();
        assert_eq!(memo.classify(&long), None);
        assert_eq!(memo.len(), before);
    }
}
