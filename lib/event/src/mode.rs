//! How a site's item ids are read. Whoever takes an item id from outside, to write or to look up, reads it here, so
//! that what was counted is found again.

use crate::id::MAX_ITEM_BYTES;
use crate::{IdError, ItemId};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::Write;
use unicode_normalization::UnicodeNormalization;

/// How item ids are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemMode {
    /// Byte for byte.
    #[default]
    Opaque,
    /// As a URL or its path, in one spelling: see [`canonical_path`].
    Url,
}

/// A longer text cannot become an item id: no spelling of a character takes more than 16 times its shortest one.
const MAX_SPELLED_BYTES: usize = 16 * MAX_ITEM_BYTES;

impl ItemMode {
    /// The text in the spelling that is stored, checked.
    pub fn read(self, text: &str) -> Result<Cow<'_, str>, IdError> {
        let text = match self {
            ItemMode::Opaque => Cow::Borrowed(text),
            ItemMode::Url if text.len() > MAX_SPELLED_BYTES => {
                return Err(IdError::TooLong { limit: MAX_ITEM_BYTES, got: text.len() });
            }
            ItemMode::Url => canonical_path(text),
        };
        ItemId::check(&text)?;
        Ok(text)
    }
}

/// One spelling for all spellings of a URL's path: `/%C3%BCber`, `/%c3%bcber`, `/über` and `/u%CC%88ber` are `/über`.
///
/// Characters beyond ASCII stand unencoded and composed (NFC), and so do letters, digits, `-`, `.`, `_` and `~`
/// (RFC 3986 §6.2.2, RFC 3987 §5.3.2). What separates parts of a URL stays as it came, since `/a%2Fb` is another path
/// than `/a/b`. Bytes that are no UTF-8 stay encoded, in upper case; what may not stand in a URL is encoded. Nothing is
/// known of dot segments, trailing slashes and letter case. Applying it twice changes nothing more.
pub fn canonical_path(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|b| b.is_ascii() && b != b'%' && !must_be_encoded(b)) {
        return Cow::Borrowed(text);
    }
    let mut out = Canonical { plain: String::new(), done: String::with_capacity(text.len()) };
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.plain.push_str(&rest[..at]);
        let run = encoded_run(&rest[at..]);
        if run == 0 {
            // A percent sign that encodes nothing is a character like others.
            out.encode(b'%');
            rest = &rest[at + 1..];
        } else {
            out.decode(&rest[at..at + run]);
            rest = &rest[at + run..];
        }
    }
    out.plain.push_str(rest);
    out.compose();
    Cow::Owned(out.done)
}

/// Length in bytes of the run of `%XX` that the text begins with.
fn encoded_run(text: &str) -> usize {
    let triplet = |t: &[u8]| t[0] == b'%' && t[1].is_ascii_hexdigit() && t[2].is_ascii_hexdigit();
    3 * text.as_bytes().chunks_exact(3).take_while(|t| triplet(t)).count()
}

struct Canonical {
    /// Decoded and not composed yet: up to the next encoded byte, with whose digits no accent may be composed.
    plain: String,
    done: String,
}

impl Canonical {
    fn decode(&mut self, run: &str) {
        let bytes: Vec<u8> = percent_decode_str(run).collect();
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                let plain = c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~') || !c.is_ascii();
                // Encoded, a control character is harmless; decoded, the whole id would be refused for it.
                if plain && !c.is_control() && c != char::REPLACEMENT_CHARACTER {
                    self.plain.push(c);
                } else {
                    c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| self.encode(byte));
                }
            }
            chunk.invalid().iter().for_each(|byte| self.encode(*byte));
        }
    }

    fn encode(&mut self, byte: u8) {
        self.compose();
        put_encoded(byte, &mut self.done);
    }

    fn compose(&mut self) {
        for c in self.plain.nfc() {
            match u8::try_from(c) {
                Ok(byte) if must_be_encoded(byte) => put_encoded(byte, &mut self.done),
                _ => self.done.push(c),
            }
        }
        self.plain.clear();
    }
}

fn put_encoded(byte: u8, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(out, "%{byte:02X}");
}

/// ASCII that no part of a URL holds. Control characters are left for the check of ids to refuse.
fn must_be_encoded(byte: u8) -> bool {
    matches!(byte, b' ' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spellings_of_a_path_are_one() {
        for spelling in
            ["/%C3%BCber", "/%c3%bcber", "/über", "/u%CC%88ber", "/u\u{308}ber", "/%75\u{308}b%65r"]
        {
            assert_eq!(canonical_path(spelling), "/über", "{spelling}");
        }
        for (spelling, canonical) in [
            ("/plain/path?q=1#top", "/plain/path?q=1#top"),
            ("/a b", "/a%20b"),
            ("/a%20b", "/a%20b"),
            ("/100%", "/100%25"),
            ("/100%25", "/100%25"),
            ("/%zz%4", "/%25zz%254"),
            ("/%7euser/%2d", "/~user/-"),
            ("/{x}|y", "/%7Bx%7D%7Cy"),
            ("/\u{1FEF}", "/%60"),
        ] {
            assert_eq!(canonical_path(spelling), canonical, "{spelling}");
        }
    }

    #[test]
    fn what_separates_parts_stays_apart() {
        for path in ["/a%2Fb", "/a%3Fb", "/a%23b", "/a%26b%3Dc", "/%00", "/%C2%80", "/%EF%BF%BD"] {
            assert_eq!(canonical_path(path), path);
            assert_eq!(canonical_path(&path.to_lowercase()).to_uppercase(), path.to_uppercase(), "{path}");
        }
    }

    #[test]
    fn bytes_that_are_no_utf8_stay_encoded() {
        for (spelling, canonical) in [
            ("/caf%e9", "/caf%E9"),
            ("/%C0%AF", "/%C0%AF"),
            ("/%C3%C3%BC", "/%C3ü"),
            ("/%F0%9F%98", "/%F0%9F%98"),
        ] {
            assert_eq!(canonical_path(spelling), canonical, "{spelling}");
        }
    }

    #[test]
    fn an_opaque_id_is_kept_byte_for_byte() {
        assert_eq!(ItemMode::Opaque.read("/%C3%BCber").unwrap(), "/%C3%BCber");
        assert_eq!(ItemMode::Url.read("/%C3%BCber").unwrap(), "/über");
    }

    #[test]
    fn limits_hold_for_the_stored_spelling() {
        let encoded = "%61".repeat(MAX_ITEM_BYTES);
        assert_eq!(ItemMode::Url.read(&encoded).unwrap().len(), MAX_ITEM_BYTES);
        let got = MAX_ITEM_BYTES + 1;
        let long = ItemMode::Url.read(&"%61".repeat(got)).unwrap_err();
        assert_eq!(long, IdError::TooLong { limit: MAX_ITEM_BYTES, got });
        assert!(matches!(
            ItemMode::Url.read(&"a".repeat(1 << 20)),
            Err(IdError::TooLong { got: 0x10_0000, .. })
        ));
        assert_eq!(ItemMode::Url.read("/a\0b"), Err(IdError::BadCharacter { at: 2 }));
    }

    proptest! {
        #[test]
        fn a_canonical_path_stays(text in "([/a-zA-Z{}| ?#%]|%[0-9a-fA-F]{2}|[\u{c0}-\u{17f}\u{300}-\u{310}\u{1fef}]){0,20}") {
            let once = canonical_path(&text).into_owned();
            prop_assert_eq!(canonical_path(&once), once.as_str());
        }

        #[test]
        fn encoding_a_path_changes_nothing(text in "[/a-zü€\u{1F600}\u{308}é]{0,12}") {
            let all = text.bytes().fold(String::new(), |out, b| out + &format!("%{b:02x}")).replace("%2f", "/");
            prop_assert_eq!(canonical_path(&all), canonical_path(&text));
        }

        #[test]
        fn anything_is_read_or_refused(text in any::<String>()) {
            let _ = ItemMode::Url.read(&text);
        }
    }
}
