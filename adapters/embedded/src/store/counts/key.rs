//! Keys, cut into scope and item.

use bytes::Bytes;
use onlooker_event::CountKey;

/// Bytes of an item that stand inline.
const INLINE: usize = 22;

/// The item's part of a key, `site:item`; short ones without an allocation. 24 bytes.
pub(super) enum ItemName {
    Inline(u8, [u8; INLINE]),
    Heap(Box<[u8]>),
}

impl ItemName {
    pub(super) fn new(bytes: &[u8]) -> Self {
        match u8::try_from(bytes.len()) {
            Ok(len) if bytes.len() <= INLINE => {
                let mut inline = [0; INLINE];
                inline[..bytes.len()].copy_from_slice(bytes);
                Self::Inline(len, inline)
            }
            _ => Self::Heap(bytes.into()),
        }
    }

    /// No item's.
    pub(super) const NONE: Self = Self::Inline(0, [0; INLINE]);

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Self::Heap(bytes) => bytes,
        }
    }

    /// Bytes that a name of this length takes from the allocator.
    pub(super) fn heap_bytes(len: usize) -> usize {
        if len <= INLINE { 0 } else { super::allocation(len) }
    }
}

/// A scope as a number: 0 for all time, else the day as the decimal number YYYYMMDD. Below 2^27.
pub(super) type ScopeCode = u32;
pub(super) const ALL: ScopeCode = 0;

/// Scope and item of a key.
#[inline]
pub(super) fn split(key: &CountKey) -> (ScopeCode, &[u8]) {
    let bytes = key.as_bytes();
    // A key's form is checked when it is made: one star, or eight digits.
    if bytes.first() == Some(&b'*') {
        return (ALL, bytes.get(2..).unwrap_or_default());
    }
    let day = bytes.iter().take(8).fold(0, |n, digit| n * 10 + u32::from(digit & 15));
    (day, bytes.get(9..).unwrap_or_default())
}

/// Appends the key's bytes.
pub(super) fn join(scope: ScopeCode, item: &[u8], out: &mut Vec<u8>) {
    if scope == ALL {
        out.extend_from_slice(b"*:");
    } else {
        let mut digits = [b'0'; 8];
        let mut rest = scope;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        out.extend_from_slice(&digits);
        out.push(b':');
    }
    out.extend_from_slice(item);
}

/// Many keys in one buffer: listing what changed is then a copy for each and no allocation.
#[derive(Default)]
pub(super) struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    pub(super) fn push(&mut self, scope: ScopeCode, item: &[u8]) {
        join(scope, item, &mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn finish(self) -> Vec<CountKey> {
        let bytes = Bytes::from(self.bytes);
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        // Each came from a key, so none is refused.
        begins.zip(&self.ends).filter_map(|(from, to)| CountKey::parse(bytes.slice(from..*to)).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_event::{DayNumber, Scope};

    #[test]
    fn keys_are_cut_and_joined() {
        let mut keys = Keys::default();
        let mut expected = Vec::new();
        for item in [&b"s:a"[..], b"site:a:{b}", &[b's', b':', b'x'].repeat(40)] {
            for scope in [Scope::All, Scope::Day(DayNumber(0)), Scope::Day(DayNumber(2_932_896))] {
                let key = CountKey::new(scope, item);
                let (code, name) = split(&key);
                assert_eq!((code == ALL, name), (scope == Scope::All, item));
                assert!(code < 1 << 27);
                keys.push(code, name);
                expected.push(key);
                assert_eq!(ItemName::new(item).bytes(), item);
            }
        }
        assert_eq!(keys.finish(), expected);
        assert_eq!(size_of::<ItemName>(), 24);
    }
}
