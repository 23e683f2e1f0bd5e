//! Validated identifiers.

use std::fmt;

/// Longest item id, in bytes of UTF-8.
pub const MAX_ITEM_BYTES: usize = 1024;
/// Longest site name, in bytes.
pub const MAX_SITE_BYTES: usize = 64;
/// Longest client-sent view id, in bytes of UTF-8.
pub const MAX_CLIENT_ID_BYTES: usize = 128;

/// Why an id was refused. `Display` names the limit and what came, never the id itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// No bytes, or white space alone.
    #[error("is empty")]
    Empty,
    /// More bytes than the limit.
    #[error("is {got} bytes long, the limit is {limit} bytes")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
        /// The length that came, in bytes.
        got: usize,
    },
    /// A control character (U+0000 to U+001F, U+007F to U+009F) or U+FFFD, at this byte.
    #[error("has a control or replacement character at byte {at}")]
    BadCharacter {
        /// Byte position of the first such character.
        at: usize,
    },
    /// What a script writes for "no value": `undefined`, `null`, `NaN`, `[object Object]` and the like.
    #[error("is a placeholder that scripts write for a missing value")]
    Placeholder,
    /// A site's name is made of a-z, 0-9, '.', '_' and '-', and starts with a letter or digit.
    #[error("may only have a-z, 0-9, '.', '_', '-' and must start with a letter or a digit")]
    BadSiteName,
}

/// What scripts send when they meant to send nothing. Compared without case and surrounding quotes.
const PLACEHOLDERS: [&str; 10] =
    ["undefined", "null", "none", "nan", "[object object]", "true", "false", "nil", "[]", "{}"];

const LONGEST_PLACEHOLDER: usize = "[object object]".len();

/// True for the words that a script writes in place of a missing value (any case, quoted or not).
pub(crate) fn is_placeholder(text: &str) -> bool {
    let bare = text.trim().trim_matches(['"', '\'']);
    if bare.len() > LONGEST_PLACEHOLDER {
        return false;
    }
    PLACEHOLDERS.iter().any(|p| bare.eq_ignore_ascii_case(p))
}

fn check_text(text: &str, limit: usize) -> Result<(), IdError> {
    // Nearly every id is printable ASCII without blanks: one pass over its bytes, instead of three over its characters.
    // Without a way out of the loop it runs over 32 bytes at a time.
    if !text.is_empty()
        && text.len() <= limit
        && text.bytes().fold(true, |plain, b| plain & b.is_ascii_graphic())
    {
        return Ok(());
    }
    if text.trim().is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > limit {
        return Err(IdError::TooLong { limit, got: text.len() });
    }
    // U+FFFD stands where a lone surrogate or a broken byte was: two different ids would become one.
    if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_control() || *c == '\u{FFFD}') {
        return Err(IdError::BadCharacter { at });
    }
    Ok(())
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Box<str>);

        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// A configured site: 1 to 64 bytes of `a-z 0-9 . _ -`, so that it needs no escaping in any key.
    SiteId
}

text_id! {
    /// What is looked at: 1 to 1,024 bytes of UTF-8, opaque, kept byte for byte.
    ItemId
}

text_id! {
    /// An id that a client gave its own view, so that a retried request counts once: 1 to 128 bytes of UTF-8.
    ClientId
}

impl SiteId {
    /// Checks a site's name.
    pub fn new(text: &str) -> Result<Self, IdError> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }

    /// The same without keeping it.
    pub fn check(text: &str) -> Result<(), IdError> {
        check_text(text, MAX_SITE_BYTES)?;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        if !text.chars().all(|c| plain(c) || matches!(c, '.' | '_' | '-')) || !text.starts_with(plain) {
            return Err(IdError::BadSiteName);
        }
        Ok(())
    }
}

impl ItemId {
    /// Checks an item id. White space at the ends is kept: an item id is opaque.
    pub fn new(text: &str) -> Result<Self, IdError> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }

    /// The same without keeping it.
    pub fn check(text: &str) -> Result<(), IdError> {
        check_text(text, MAX_ITEM_BYTES)?;
        if is_placeholder(text) {
            return Err(IdError::Placeholder);
        }
        Ok(())
    }
}

impl ClientId {
    /// Checks a client's view id.
    pub fn new(text: &str) -> Result<Self, IdError> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }

    /// The same without keeping it.
    pub fn check(text: &str) -> Result<(), IdError> {
        check_text(text, MAX_CLIENT_ID_BYTES)?;
        if is_placeholder(text) {
            return Err(IdError::Placeholder);
        }
        Ok(())
    }
}

/// What back ends send for somebody who is not logged in. An item may be called so, a person may not: everybody without
/// a name would be one and the same viewer.
const NOBODY: [&str; 10] = [
    "0",
    "-1",
    "id",
    "guest",
    "anonymous",
    "unknown",
    "distinct_id",
    "distinctid",
    "not_authenticated",
    "00000000-0000-0000-0000-000000000000",
];

/// A viewer id that a trusted back end named is usable: not empty, no placeholder, no control character.
/// Such an id is hashed at once and never stored, so it has no type of its own.
pub fn usable_viewer(text: &str) -> Result<(), IdError> {
    check_text(text, MAX_ITEM_BYTES)?;
    let bare = text.trim().trim_matches(['"', '\'']);
    if is_placeholder(text) || NOBODY.iter().any(|word| bare.eq_ignore_ascii_case(word)) {
        return Err(IdError::Placeholder);
    }
    Ok(())
}

/// The id of one view: a UUIDv7 (RFC 9562), 16 bytes, minted by the collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewId(pub [u8; 16]);

/// The keyed hash of a viewer: the first 16 bytes of an HMAC-SHA-256. Says nothing without the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewerHash(pub [u8; 16]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_and_control_characters_are_refused() {
        for bad in ["undefined", "null", "\"null\"", "None", "NaN", "[object Object]", "true", " undefined "]
        {
            assert_eq!(ItemId::new(bad), Err(IdError::Placeholder), "{bad}");
        }
        assert_eq!(ItemId::new("a\u{0}b"), Err(IdError::BadCharacter { at: 1 }));
        assert_eq!(ItemId::new("a\u{FFFD}"), Err(IdError::BadCharacter { at: 1 }));
        assert_eq!(ItemId::new("   "), Err(IdError::Empty));
        assert_eq!(ItemId::new(""), Err(IdError::Empty));
        assert!(ItemId::new("0").is_ok(), "item 0 exists on many sites");
    }

    #[test]
    fn words_for_nobody_are_no_viewers() {
        for nobody in ["0", "\"0\"", "Anonymous", "guest", "-1", "None", "[object Object]"] {
            assert_eq!(usable_viewer(nobody), Err(IdError::Placeholder), "{nobody}");
        }
        for somebody in ["00", "10", "guest-7", "ada"] {
            assert_eq!(usable_viewer(somebody), Ok(()), "{somebody}");
        }
    }

    #[test]
    fn limits_are_in_bytes() {
        let face = "\u{1F600}";
        assert!(ItemId::new(&face.repeat(256)).is_ok());
        assert_eq!(ItemId::new(&face.repeat(257)), Err(IdError::TooLong { limit: 1024, got: 1028 }));
    }

    #[test]
    fn site_names_need_no_escaping() {
        assert!(SiteId::new("blog.example.com").is_ok());
        for bad in ["a:b", "A", "-a", "a b", "ü", ""] {
            assert!(SiteId::new(bad).is_err(), "{bad}");
        }
    }
}
