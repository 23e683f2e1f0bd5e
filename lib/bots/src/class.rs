//! What bots come for.

macro_rules! classes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal;)*) => {
        /// What a bot comes for. Where an agent names several, the first in this order is its class: what is said most
        /// plainly goes before what it is built from.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Class { $($(#[$doc])* $variant,)* }

        impl Class {
            /// Every class, in order.
            pub const ALL: &'static [Class] = &[$(Class::$variant),*];

            /// The name in settings and documents.
            pub fn as_str(self) -> &'static str {
                match self { $(Class::$variant => $text,)* }
            }

            /// The class of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Class::$variant),)* _ => None }
            }
        }
    };
}

classes! {
    /// Fetches a page because somebody asked an assistant just now.
    AiAssistant = "ai_assistant";
    /// Gathers text for models.
    AiCrawler = "ai_crawler";
    /// Builds a search index.
    Search = "search";
    /// Makes the little picture of a link in a message or post.
    Preview = "preview";
    /// Looks whether the page is up, fast or valid.
    Monitor = "monitor";
    /// Reads feeds for subscribers.
    FeedReader = "feed_reader";
    /// A browser without anybody before it, which says so.
    Automation = "automation";
    /// A program's HTTP library that no one gave a name of its own.
    Library = "library";
    /// Anything else on the lists: advertising, archives, research, scanners, tools for site owners.
    Other = "other";
}

impl Class {
    /// By the tags of crawler-user-agents. Some patterns have two: what is rarer and says more goes first.
    pub(crate) fn of_tags(tags: &str) -> Self {
        const TAGS: [(&str, Class); 7] = [
            ("ai-crawler", Class::AiCrawler),
            ("search-engine", Class::Search),
            ("social-preview", Class::Preview),
            ("monitoring", Class::Monitor),
            ("feed-reader", Class::FeedReader),
            ("browser-automation", Class::Automation),
            ("http-library", Class::Library),
        ];
        let has = |tag: &str| tags.split(',').any(|one| one == tag);
        TAGS.iter().find(|(tag, _)| has(tag)).map_or(Class::Other, |(_, class)| *class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_become_classes() {
        assert_eq!(Class::of_tags("ai-crawler,search-engine"), Class::AiCrawler);
        assert_eq!(Class::of_tags("advertising,search-engine"), Class::Search);
        assert_eq!(Class::of_tags("seo"), Class::Other);
        assert_eq!(Class::of_tags(""), Class::Other);
    }

    #[test]
    fn a_name_reads_back() {
        for class in Class::ALL {
            assert_eq!(Class::from_name(class.as_str()), Some(*class));
        }
        assert_eq!(Class::from_name("bot"), None);
    }
}
