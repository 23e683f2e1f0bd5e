//! Keys: byte strings that two different inputs never share.

use crate::{ItemId, SiteId, ViewerHash};
use bytes::Bytes;
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

const DAY_MS: i64 = 86_400_000;

/// `site:item`, the Kafka key of `views.counted`. Unambiguous, since a site's name has no colon.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemKey(Bytes);

impl ItemKey {
    /// Joins site and item.
    pub fn new(site: &SiteId, item: &ItemId) -> Self {
        let (site, item) = (site.as_str(), item.as_str());
        let mut bytes = Vec::with_capacity(site.len() + 1 + item.len());
        bytes.extend_from_slice(site.as_bytes());
        bytes.push(b':');
        bytes.extend_from_slice(item.as_bytes());
        Self(bytes.into())
    }

    /// Reads a key's bytes; the ids are checked as on entry.
    pub fn parse(bytes: Bytes) -> Result<Self, KeyError> {
        split(&bytes).map(|_| Self(bytes.clone()))
    }

    /// The bytes `site:item`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Site and item as text.
    pub fn parts(&self) -> (&str, &str) {
        // Checked by every constructor; the fallback keeps this total.
        split(&self.0).unwrap_or(("", ""))
    }
}

fn split(bytes: &[u8]) -> Result<(&str, &str), KeyError> {
    let text = std::str::from_utf8(bytes).map_err(|_| KeyError)?;
    let (site, item) = text.split_once(':').ok_or(KeyError)?;
    if site.is_empty() || item.is_empty() {
        return Err(KeyError);
    }
    Ok((site, item))
}

/// Bytes that are no `ItemKey` or `CountKey`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a key of the form [scope:]site:item")]
pub struct KeyError;

/// Days since 1970-01-01 (UTC).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DayNumber(pub i32);

impl DayNumber {
    /// The UTC day of a time in milliseconds.
    pub fn of_ms(ms: i64) -> Self {
        Self(i32::try_from(ms.div_euclid(DAY_MS)).unwrap_or(i32::MAX))
    }

    /// The day as `YYYYMMDD`; a day outside year 0 to 9999 is clamped to that range.
    pub fn compact(self) -> [u8; 8] {
        let (y, m, d) = civil(self.0.clamp(-719_528, 2_932_896));
        let number = y * 10_000 + m * 100 + d;
        let mut out = [b'0'; 8];
        let mut rest = number;
        for digit in out.iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
        }
        out
    }

    /// Reads `YYYYMMDD`.
    pub fn parse_compact(text: &[u8]) -> Option<Self> {
        if text.len() != 8 || !text.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let number = text.iter().fold(0i32, |n, c| n * 10 + i32::from(c - b'0'));
        let date = jiff::civil::Date::new(
            i16::try_from(number / 10_000).ok()?,
            i8::try_from(number / 100 % 100).ok()?,
            i8::try_from(number % 100).ok()?,
        )
        .ok()?;
        let days = jiff::civil::date(1970, 1, 1).until(date).ok()?.get_days();
        Some(Self(days))
    }
}

/// Year, month, day of a day number (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`).
fn civil(days: i32) -> (i32, i32, i32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + i32::from(month <= 2), month, day)
}

/// What a sketch and its number cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// All time.
    All,
    /// One UTC day of event time.
    Day(DayNumber),
}

/// Names one sketch and one number: `*:site:item` for all time, `YYYYMMDD:site:item` for a day.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CountKey(Bytes);

impl CountKey {
    /// The key of an item in a scope. `item` is the bytes of an `ItemKey`.
    pub fn new(scope: Scope, item: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(9 + item.len());
        Self::write(scope, item, &mut bytes);
        Self(bytes.into())
    }

    /// Appends such a key's bytes to `out`: for looking a key up without making one.
    pub fn write(scope: Scope, item: &[u8], out: &mut Vec<u8>) {
        match scope {
            Scope::All => out.push(b'*'),
            Scope::Day(day) => out.extend_from_slice(&day.compact()),
        }
        out.push(b':');
        out.extend_from_slice(item);
    }

    /// Reads a key's bytes.
    pub fn parse(bytes: Bytes) -> Result<Self, KeyError> {
        let at = bytes.iter().position(|b| *b == b':').ok_or(KeyError)?;
        let scope_ok = &bytes[..at] == b"*" || DayNumber::parse_compact(&bytes[..at]).is_some();
        if !scope_ok {
            return Err(KeyError);
        }
        split(&bytes[at + 1..])?;
        Ok(Self(bytes))
    }

    /// The whole key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The whole key, shared.
    pub fn bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// Names the key in logs without telling it: XXH3 of its bytes, 64 bits.
    pub fn log_hash(&self) -> u64 {
        xxh3_64(&self.0)
    }

    fn colon(&self) -> usize {
        self.0.iter().position(|b| *b == b':').unwrap_or(0)
    }

    /// The scope's text: `*` or `YYYYMMDD`.
    pub fn scope_bytes(&self) -> &[u8] {
        &self.0[..self.colon()]
    }

    /// The item's part, `site:item`: what decides its partition.
    pub fn item_bytes(&self) -> &[u8] {
        &self.0[self.colon() + 1..]
    }
}

/// Makes many keys in one allocation, which they share: none costs one of its own, and all are freed together.
#[derive(Debug, Default)]
pub struct CountKeys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The last day and its text.
    day: Option<(DayNumber, [u8; 8])>,
}

impl CountKeys {
    /// With room for so many keys, and for so many bytes of them.
    pub fn with_capacity(keys: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(keys), day: None }
    }

    /// Adds the key of an item in a scope. `item` is the bytes of an `ItemKey`.
    #[inline]
    pub fn push(&mut self, scope: Scope, item: &[u8]) {
        match scope {
            Scope::All => self.bytes.push(b'*'),
            Scope::Day(day) => {
                let text = match self.day {
                    Some((last, text)) if last == day => text,
                    _ => day.compact(),
                };
                self.day = Some((day, text));
                self.bytes.extend_from_slice(&text);
            }
        }
        self.bytes.push(b':');
        self.bytes.extend_from_slice(item);
        self.ends.push(self.bytes.len());
    }

    /// The keys, in the order in which they came.
    pub fn finish(self) -> Vec<CountKey> {
        let bytes = Bytes::from(self.bytes);
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(from, to)| CountKey(bytes.slice(from..*to))).collect()
    }
}

/// A 128-bit hash (XXH3, seed 0) that stands for a viewer's view of an item, or for a client's id, in the dedup state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest128(pub [u8; 16]);

/// The dedup key of (viewer, item). `item` is the bytes of an `ItemKey`.
pub fn dedup_key(viewer: ViewerHash, item: &[u8]) -> Digest128 {
    digest(b'v', viewer, item)
}

/// The dedup key of a client's view id and the fingerprint of the item that it came with: the same id on another
/// item is another view. `id` is the text of a `ClientId`.
pub fn client_id_key(viewer: ViewerHash, id: &str, item: &[u8]) -> (Digest128, u32) {
    #[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are the fingerprint")]
    let fingerprint = xxh3_64(item) as u32;
    (digest(b'i', viewer, id.as_bytes()), fingerprint)
}

/// XXH3 (128 bits, seed 0, big endian) of the tag, the viewer and the text.
fn digest(tag: u8, viewer: ViewerHash, text: &[u8]) -> Digest128 {
    const HEAD: usize = 17;
    const SHORT: usize = 240;
    let hash = if text.len() <= SHORT - HEAD {
        // One pass over a short buffer takes half the time of the streaming form.
        let mut buffer = [0; SHORT];
        let len = HEAD + text.len();
        buffer[0] = tag;
        buffer[1..HEAD].copy_from_slice(&viewer.0);
        buffer[HEAD..len].copy_from_slice(text);
        xxh3_128(&buffer[..len])
    } else {
        let mut hash = Xxh3::new();
        hash.update(&[tag]);
        hash.update(&viewer.0);
        hash.update(text);
        hash.digest128()
    };
    Digest128(hash.to_be_bytes())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn short_ids_never_share_a_key() {
        // Exhaustive over short strings of the characters that separate keys.
        let alphabet = ['a', '{', '}', ':', '1'];
        let mut words = vec![String::new()];
        for _ in 0..3 {
            let longer: Vec<_> =
                words.iter().flat_map(|w| alphabet.iter().map(move |c| format!("{w}{c}"))).collect();
            words.extend(longer);
        }
        words.sort();
        words.dedup();
        let mut seen = HashMap::new();
        for site in &words {
            let Ok(site) = SiteId::new(site) else { continue };
            for item in &words {
                let Ok(item) = ItemId::new(item) else { continue };
                let key = ItemKey::new(&site, &item);
                let old = seen.insert(key, (site.clone(), item.clone()));
                assert!(old.is_none(), "{site} {item} and {old:?}");
            }
        }
        assert!(seen.len() > 1000);
    }

    #[test]
    fn dedup_keys_never_change() {
        // They stand in `views.counted` and in the dedup store.
        let viewer = ViewerHash([7; 16]);
        let hex = |d: Digest128| d.0.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(dedup_key(viewer, b"s:a")), "1c76d40d457d214a97547f698f646a6b");
        assert_eq!(hex(dedup_key(viewer, &[b'x'; 1000])), "12298248e3cada83a646a24bad6c2336");
        let (id, fingerprint) = client_id_key(viewer, "c1", b"s:a");
        assert_eq!((hex(id).as_str(), fingerprint), ("280d14b3dbf67fd8fdfcc372ae11841c", 3_054_606_844));
    }

    proptest! {
        #[test]
        fn short_and_long_keys_are_hashed_alike(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut all = vec![b'v'];
            all.extend_from_slice(&[7; 16]);
            all.extend_from_slice(&text);
            prop_assert_eq!(dedup_key(ViewerHash([7; 16]), &text).0, xxh3_128(&all).to_be_bytes());
        }
    }

    #[test]
    fn days_are_written_and_read() {
        for (ms, text) in [
            (0, "19700101"),
            (-1, "19691231"),
            (951_782_400_000, "20000229"),
            (1_796_036_400_000, "20261130"),
        ] {
            assert_eq!(std::str::from_utf8(&DayNumber::of_ms(ms).compact()).unwrap(), text);
        }
    }

    proptest! {
        #[test]
        fn compact_days_agree_with_a_calendar_library(day in -700_000i32..2_900_000) {
            let text = DayNumber(day).compact();
            prop_assert_eq!(DayNumber::parse_compact(&text), Some(DayNumber(day)));
        }
    }

    #[test]
    fn count_keys_split() {
        let item = ItemKey::new(&SiteId::new("s").unwrap(), &ItemId::new("a:{b}").unwrap());
        let key = CountKey::new(Scope::Day(DayNumber(20_787)), item.as_bytes());
        assert_eq!(key.as_bytes(), b"20261130:s:a:{b}");
        assert_eq!((key.scope_bytes(), key.item_bytes()), (&b"20261130"[..], &b"s:a:{b}"[..]));
        assert_eq!(CountKey::parse(key.bytes()).unwrap(), key);
        assert!(CountKey::parse(Bytes::from_static(b"2026113:s:a")).is_err());
        assert!(CountKey::parse(Bytes::from_static(b"*:s")).is_err());
    }

    #[test]
    fn keys_made_together_are_those_made_alone() {
        let mut keys = CountKeys::default();
        let mut expected = Vec::new();
        for item in [&b"s:a"[..], b"s:a:b"] {
            for scope in
                [Scope::All, Scope::Day(DayNumber(5)), Scope::Day(DayNumber(5)), Scope::Day(DayNumber(6))]
            {
                keys.push(scope, item);
                expected.push(CountKey::new(scope, item));
            }
        }
        assert_eq!(keys.finish(), expected);
        assert!(CountKeys::with_capacity(9, 9).finish().is_empty());
    }
}
