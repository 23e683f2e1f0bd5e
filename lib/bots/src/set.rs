//! All patterns as one.

use crate::Bot;
use crate::list::Listed;
use crate::needle::needles;
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use regex_automata::Input;
use regex_automata::dfa::{Automaton, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::Hir;
use std::mem::size_of;
use std::sync::OnceLock;

/// States of one pattern's automaton take no more than this.
const MOST_DFA_BYTES: usize = 1 << 20;

/// Finds which patterns match, in one pass over the agent.
#[derive(Debug)]
pub(crate) struct Set {
    entries: Vec<Entry>,
    /// Finds needles in an agent in lower case. None: there is no needle.
    finder: Option<AhoCorasick>,
    /// The entries that each needle belongs to.
    owners: Vec<Vec<u16>>,
    /// Entries without a needle, which are always asked.
    always: Vec<u16>,
}

#[derive(Debug)]
struct Entry {
    bot: Bot,
    test: Test,
}

/// How a candidate is asked.
#[derive(Debug)]
enum Test {
    /// It is its needle, in any case.
    Found,
    /// It is this text, in this case.
    Text(Vec<u8>),
    /// It is more than a text. The automaton is made when it is first asked.
    Pattern { ignores_case: bool, dfa: OnceLock<Option<Box<dense::DFA<Vec<u32>>>>> },
}

impl Set {
    /// A pattern that cannot be read matches nothing; the tests see that there is none.
    pub(crate) fn new(listed: &[Listed]) -> Self {
        let mut set = Self { entries: Vec::new(), finder: None, owners: Vec::new(), always: Vec::new() };
        let mut found: Vec<Vec<u8>> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for one in listed {
            let Ok(entry) = u16::try_from(set.entries.len()) else { break };
            let plain = plain(one.pattern);
            let needles = match &plain {
                Some(text) => vec![text.to_ascii_lowercase()],
                None => match hir(one.pattern, false) {
                    Some(hir) => needles(&hir).unwrap_or_default(),
                    None => continue,
                },
            };
            if needles.is_empty() {
                set.always.push(entry);
            }
            for needle in needles {
                let place = *places.entry(needle).or_insert_with_key(|needle| {
                    found.push(needle.clone());
                    set.owners.push(Vec::new());
                    found.len() - 1
                });
                set.owners[place].push(entry);
            }
            let test = match plain {
                Some(_) if one.ignores_case() => Test::Found,
                Some(text) => Test::Text(text),
                None => Test::Pattern { ignores_case: one.ignores_case(), dfa: OnceLock::new() },
            };
            set.entries.push(Entry { bot: Bot { class: one.class, pattern: one.pattern }, test });
        }
        // A full automaton would be faster and take some ten times the memory.
        let mut builder = AhoCorasick::builder();
        builder.prefilter(false).kind(Some(AhoCorasickKind::ContiguousNFA));
        set.finder = builder.build(&found).ok();
        set
    }

    /// The first class in their order of all patterns that match; of that class the first pattern.
    pub(crate) fn classify(&self, agent: &str) -> Option<Bot> {
        let mut best: Option<(Bot, u16)> = None;
        let mut ask = |entry: u16| {
            let candidate = &self.entries[usize::from(entry)];
            let better = best.is_none_or(|(bot, place)| (candidate.bot.class, entry) < (bot.class, place));
            if better && candidate.matches(agent.as_bytes()) {
                best = Some((candidate.bot, entry));
            }
        };
        self.always.iter().copied().for_each(&mut ask);
        let lower = agent.to_ascii_lowercase();
        let mut asked = vec![0_u64; self.owners.len() / 64 + 1];
        for found in self.finder.iter().flat_map(|finder| finder.find_overlapping_iter(&lower)) {
            let place = found.pattern().as_usize();
            let bit = 1 << (place % 64);
            // A text can repeat one needle as often as it likes.
            if asked[place / 64] & bit == 0 {
                asked[place / 64] |= bit;
                self.owners[place].iter().copied().for_each(&mut ask);
            }
        }
        best.map(|(bot, _)| bot)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let owners =
            self.owners.iter().map(|owners| size_of::<Vec<u16>>() + owners.capacity() * size_of::<u16>());
        self.entries.capacity() * size_of::<Entry>()
            + owners.sum::<usize>()
            + self.finder.as_ref().map_or(0, AhoCorasick::memory_usage)
    }
}

impl Entry {
    fn matches(&self, agent: &[u8]) -> bool {
        match &self.test {
            Test::Found => true,
            Test::Text(text) => agent.windows(text.len()).any(|part| part == text),
            Test::Pattern { ignores_case, dfa } => {
                let dfa = dfa.get_or_init(|| automaton(self.bot.pattern, *ignores_case).map(Box::new));
                let found = dfa.as_ref().map(|dfa| dfa.try_search_fwd(&Input::new(agent).earliest(true)));
                found.is_some_and(|end| end.is_ok_and(|end| end.is_some()))
            }
        }
    }
}

/// The text that the pattern stands for, if it is but a text, as most are: what reads patterns is asked for the others.
fn plain(pattern: &str) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => text.push(bytes.next().filter(u8::is_ascii_punctuation)?),
            b'^' | b'$' | b'.' | b'*' | b'+' | b'?' | b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'|' => {
                return None;
            }
            byte => text.push(byte),
        }
    }
    Some(text)
}

/// The pattern, read for bytes: user agents are ASCII but for strays, and so `\w` and `\d` are.
pub(crate) fn hir(pattern: &str, ignores_case: bool) -> Option<Hir> {
    let mut parser = ParserBuilder::new();
    parser.unicode(false).utf8(false).case_insensitive(ignores_case);
    parser.build().parse(pattern).ok()
}

/// Linear in the agent's length, whatever it is: an agent is anybody's input.
fn automaton(pattern: &str, ignores_case: bool) -> Option<dense::DFA<Vec<u32>>> {
    let syntax = syntax::Config::new().unicode(false).utf8(false).case_insensitive(ignores_case);
    let config = dense::Config::new()
        .dfa_size_limit(Some(MOST_DFA_BYTES))
        .determinize_size_limit(Some(2 * MOST_DFA_BYTES));
    dense::Builder::new()
        .configure(config)
        .syntax(syntax)
        .thompson(thompson::Config::new().utf8(false))
        .build(pattern)
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;
    use crate::list::{Origin, vendored};
    use regex_syntax::hir::HirKind;

    fn set(rows: &[(&'static str, Class, Origin)]) -> Set {
        let listed = |&(pattern, class, origin)| Listed { pattern, class, origin };
        Set::new(&rows.iter().map(listed).collect::<Vec<_>>())
    }

    #[test]
    fn no_pattern_is_refused_and_hardly_one_is_always_asked() {
        let listed = vendored();
        let set = Set::new(&listed);
        assert_eq!(set.entries.len(), listed.len());
        assert!(set.finder.is_some());
        let always: Vec<_> = set.always.iter().map(|&at| set.entries[usize::from(at)].bot.pattern).collect();
        assert_eq!(always, [""; 0]);
        let patterns = listed.iter().filter(|one| automaton(one.pattern, one.ignores_case()).is_none());
        assert_eq!(patterns.map(|one| one.pattern).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn case_counts_where_the_list_means_it() {
        let set = set(&[
            ("Fever", Class::FeedReader, Origin::CrawlerUserAgents),
            ("wget", Class::Library, Origin::Isbot),
            ("^[a-z]*bot", Class::Other, Origin::Isbot),
        ]);
        let class = |agent| set.classify(agent).map(|bot| bot.class);
        assert_eq!(class("Fever 1"), Some(Class::FeedReader));
        assert_eq!(class("fever 1"), None);
        assert_eq!(class("WGET/1"), Some(Class::Library));
        assert_eq!(class("MyBot"), Some(Class::Other));
        assert_eq!(class("1 MyBot"), None);
    }

    #[test]
    fn the_class_that_says_most_wins() {
        let set = set(&[
            ("curl", Class::Library, Origin::Ours),
            ("bot", Class::Other, Origin::Ours),
            ("seek", Class::Search, Origin::Ours),
            ("seekbot", Class::Search, Origin::Ours),
        ]);
        let bot = set.classify("curl (seekbot)").unwrap();
        assert_eq!((bot.class, bot.pattern), (Class::Search, "seek"));
    }

    #[test]
    fn what_is_but_a_text_is_read_as_the_reader_of_patterns_reads_it() {
        let texts =
            vendored().iter().filter_map(|one| Some((one.pattern, plain(one.pattern)?))).collect::<Vec<_>>();
        assert!(texts.len() > 1_500, "{}", texts.len());
        for (pattern, text) in texts {
            let hir = hir(pattern, false).unwrap();
            let HirKind::Literal(literal) = hir.kind() else { panic!("{pattern}") };
            assert_eq!(*literal.0, *text, "{pattern}");
        }
        assert_eq!(plain("a\\b"), None);
        assert_eq!(plain("a.b"), None);
        assert_eq!(plain("a\\.b").as_deref(), Some(&b"a.b"[..]));
    }

    #[test]
    fn strange_agents_are_only_texts() {
        let whole = Set::new(&vendored());
        for agent in ["", "\0", "\u{1F980}", &"bot".repeat(10_000), &"[".repeat(512)] {
            assert_eq!(whole.classify(agent).is_some(), agent.contains("bot"), "{}", agent.len());
        }
    }
}
