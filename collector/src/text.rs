//! Texts out of JSON, tolerant where a browser's strings are broken.

use std::borrow::Cow;

/// What a JSON value is, as far as an id goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scalar<'a> {
    /// A string, or an integer that JavaScript keeps exactly, as its decimal digits.
    Text(Cow<'a, str>),
    /// `null`.
    Null,
    /// A number that is not a safe integer, a boolean, an array or an object.
    Other,
}

/// The largest integer that a JavaScript number holds exactly.
pub(crate) const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// Reads one raw JSON value.
pub(crate) fn scalar(raw: &str) -> Scalar<'_> {
    match raw.as_bytes().first() {
        Some(b'"') => Scalar::Text(unquote(raw)),
        Some(b'n') => Scalar::Null,
        Some(b'-' | b'0'..=b'9') => integer(raw).map_or(Scalar::Other, Scalar::Text),
        _ => Scalar::Other,
    }
}

/// A number's digits, if it is an integer of at most 2^53 - 1 either way, written as one.
fn integer(raw: &str) -> Option<Cow<'_, str>> {
    let digits = raw.strip_prefix('-').unwrap_or(raw);
    let small = digits.len() <= 16 && digits.bytes().all(|b| b.is_ascii_digit());
    let value: u64 = small.then(|| digits.parse().ok()).flatten()?;
    // -0 is 0 to some and "-0" to others.
    (value <= MAX_SAFE_INTEGER && raw != "-0").then_some(Cow::Borrowed(raw))
}

/// The content of a JSON string whose syntax was already checked. Half of a surrogate pair, as JavaScript writes it when
/// it cuts a text inside an emoji, becomes U+FFFD; a strict reader would refuse the whole request for it.
fn unquote(raw: &str) -> Cow<'_, str> {
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = &rest[at + 1..];
        let mut taken = 1;
        match escape.as_bytes().first() {
            Some(b'n') => out.push('\n'),
            Some(b't') => out.push('\t'),
            Some(b'r') => out.push('\r'),
            Some(b'b') => out.push('\u{8}'),
            Some(b'f') => out.push('\u{c}'),
            Some(b'u') => {
                let unit = hex4(&escape[1..]);
                taken = 5;
                let low = unit
                    .filter(|u| (0xD800..0xDC00).contains(u))
                    .and_then(|_| escape.get(5..)?.strip_prefix("\\u"))
                    .and_then(hex4)
                    .filter(|u| (0xDC00..0xE000).contains(u));
                match (unit, low) {
                    (Some(high), Some(low)) => {
                        taken = 11;
                        let code = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                        out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                    (unit, _) => {
                        out.push(unit.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                }
            }
            // '"', '\\' and '/' stand for themselves.
            Some(other) => out.push(char::from(*other)),
            None => taken = 0,
        }
        rest = escape.get(taken..).unwrap_or_default();
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn hex4(text: &str) -> Option<u32> {
    text.get(..4).and_then(|digits| u32::from_str_radix(digits, 16).ok())
}

/// Free text for the record: at most `max` bytes, control characters replaced, none if empty.
pub(crate) fn free_text(text: &str, max: usize) -> Option<Cow<'_, str>> {
    let cut = cut(text, max);
    if cut.is_empty() {
        return None;
    }
    // Without a way out of the loop it runs over 32 bytes at a time.
    let plain = cut.bytes().fold(true, |plain, b| plain & (b' '..=b'~').contains(&b));
    if plain || !cut.contains(char::is_control) {
        return Some(Cow::Borrowed(cut));
    }
    let mut replaced = cut.replace(char::is_control, "\u{FFFD}");
    replaced.truncate(self::cut(&replaced, max).len());
    (!replaced.is_empty()).then_some(Cow::Owned(replaced))
}

/// At most `max` bytes of the text, in whole characters.
fn cut(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(raw: &str) -> String {
        match scalar(raw) {
            Scalar::Text(text) => text.into_owned(),
            other => panic!("{raw}: {other:?}"),
        }
    }

    #[test]
    fn half_a_pair_becomes_a_replacement_character() {
        assert_eq!(text(r#""hi \ud83d""#), "hi \u{FFFD}");
        assert_eq!(text(r#""\ud83d\ude00!""#), "\u{1F600}!");
        assert_eq!(text(r#""\ud83d\u0041""#), "\u{FFFD}A");
        assert_eq!(text(r#""\ude00x""#), "\u{FFFD}x");
        assert_eq!(text(r#""a\u0000b\n\/\\\"""#), "a\0b\n/\\\"");
    }

    #[test]
    fn numbers_are_ids_only_where_javascript_keeps_them() {
        assert_eq!(text("9007199254740991"), "9007199254740991");
        assert_eq!(text("0"), "0");
        assert_eq!(text("-7"), "-7");
        for other in ["9007199254740993", "1161888007138312192", "1e3", "1.0", "-0", "true", "[]", "{}"] {
            assert_eq!(scalar(other), Scalar::Other, "{other}");
        }
        assert_eq!(scalar("null"), Scalar::Null);
    }

    proptest! {
        #[test]
        fn agrees_with_a_strict_reader(s in any::<String>()) {
            let raw = serde_json::to_string(&s).unwrap();
            prop_assert_eq!(text(&raw), s);
        }

        #[test]
        fn free_text_is_cut_at_a_character(s in "[a-zü€\u{1F600}\u{0}\u{85}]{0,30}", max in 0usize..40) {
            if let Some(text) = free_text(&s, max) {
                prop_assert!(text.len() <= max && !text.chars().any(char::is_control));
            }
        }
    }
}
