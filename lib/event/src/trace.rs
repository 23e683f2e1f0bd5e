//! Where a request stands in somebody's trace, as W3C Trace Context says it in the header `traceparent`:
//!
//! ```text
//! 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//! │  │                                │                └ flags: 01 sampled, 02 the trace id is random
//! │  └ trace id, 16 bytes             └ parent id, 8 bytes
//! └ version
//! ```
//!
//! <https://www.w3.org/TR/trace-context-2/>

use std::fmt;
use std::str::FromStr;

/// Names a trace. Never all zeros. It names a request, and nobody who made one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId([u8; 16]);

impl TraceId {
    /// From its bytes; none if all are zero, which is no id.
    pub fn new(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 32];
        put_hex(&self.0, &mut text);
        f.write_str(as_str(&text))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is no trace id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a trace id is 32 hexadecimal digits, not all zero")]
pub struct TraceIdError;

impl FromStr for TraceId {
    type Err = TraceIdError;

    /// Reads 32 hexadecimal digits. A person may write them in capitals, a header may not.
    fn from_str(text: &str) -> Result<Self, TraceIdError> {
        let lower = text.to_ascii_lowercase();
        bytes_of(lower.as_bytes()).and_then(Self::new).ok_or(TraceIdError)
    }
}

/// A place in a trace: what a record carries from room to room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace_id: TraceId,
    parent_id: [u8; 8],
    flags: u8,
}

const SAMPLED: u8 = 1;
const RANDOM: u8 = 2;

impl TraceParent {
    /// Bytes of the header's text.
    pub const TEXT_BYTES: usize = 55;
    /// Bytes of the short form.
    pub const BYTES: usize = 25;

    /// A place in a trace; none if the parent's id is all zeros. Of the flags those are kept that mean something.
    pub fn new(trace_id: TraceId, parent_id: [u8; 8], flags: u8) -> Option<Self> {
        (parent_id != [0; 8]).then_some(Self { trace_id, parent_id, flags: flags & (SAMPLED | RANDOM) })
    }

    /// Reads a header's value. None if it is not one: it is then as if there were no header. Of a later version it is
    /// read what this one knows.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (head, rest) = text.split_at_checked(Self::TEXT_BYTES)?;
        if (head[2], head[35], head[52]) != (b'-', b'-', b'-') {
            return None;
        }
        let [version] = bytes_of(&head[..2])?;
        match (version, rest.first()) {
            // Never a version.
            (0xff, _) | (0, Some(_)) => return None,
            (_, None | Some(b'-')) => {}
            _ => return None,
        }
        let [flags] = bytes_of(&head[53..])?;
        Self::new(TraceId::new(bytes_of(&head[3..35])?)?, bytes_of(&head[36..52])?, flags)
    }

    /// The header's value, of version 00.
    pub fn text(&self) -> [u8; Self::TEXT_BYTES] {
        let mut text = *b"00-................................-................-..";
        put_hex(&self.trace_id.0, &mut text[3..35]);
        put_hex(&self.parent_id, &mut text[36..52]);
        put_hex(&[self.flags], &mut text[53..]);
        text
    }

    /// The short form: trace id, parent id, flags.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [self.flags; Self::BYTES];
        bytes[..16].copy_from_slice(&self.trace_id.0);
        bytes[16..24].copy_from_slice(&self.parent_id);
        bytes
    }

    /// From the short form.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (trace_id, parent_id) = (bytes[..16].try_into().ok()?, bytes[16..24].try_into().ok()?);
        Self::new(TraceId::new(trace_id)?, parent_id, bytes[24])
    }

    /// The trace.
    pub fn trace_id(&self) -> TraceId {
        self.trace_id
    }

    /// The span from which this comes. Never all zeros.
    pub fn parent_id(&self) -> [u8; 8] {
        self.parent_id
    }

    /// The flags that mean something: 1 sampled, 2 the trace id is random.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Whether whoever sent it recorded the trace.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(as_str(&self.text()))
    }
}

fn put_hex(bytes: &[u8], out: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(out.chunks_exact_mut(2)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

/// Hexadecimal digits are ASCII.
fn as_str(text: &[u8]) -> &str {
    std::str::from_utf8(text).unwrap_or_default()
}

/// Lower-case digits only, as the specification wants them.
fn bytes_of<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parse(text: &str) -> Option<String> {
        TraceParent::parse(text.as_bytes()).map(|parent| parent.to_string())
    }

    #[test]
    fn a_header_is_read_and_written() {
        let parent = TraceParent::parse(GOOD.as_bytes()).expect("the specification's own");
        assert_eq!(parent.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.parent_id(), [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        assert!(parent.is_sampled());
        assert_eq!(parent.to_string(), GOOD);
        assert_eq!(TraceParent::from_bytes(&parent.to_bytes()), Some(parent));
    }

    /// The cases of the specification and of its test suite.
    #[test]
    fn what_the_specification_refuses_is_none() {
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            // All zeros are no ids.
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            // Capitals, other letters, other separators.
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00F067AA0BA902B7-01",
            "0x-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473.-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b.-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            // Too short and too long ids.
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47361-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b71-01",
            // Version 00 has nothing behind the flags, and ff is no version.
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            // A later version has a dash there, if anything.
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        for later in ["cc", "01", "fe"] {
            let plain = format!("{later}{}", &GOOD[2..]);
            assert_eq!(parse(&plain).as_deref(), Some(GOOD), "{plain}");
            assert_eq!(parse(&format!("{plain}-what-comes")).as_deref(), Some(GOOD), "{plain}");
            assert_eq!(parse(&format!("{plain}-")).as_deref(), Some(GOOD), "{plain}");
        }
    }

    #[test]
    fn unknown_flags_are_not_passed_on() {
        for (told, kept) in
            [("00", "00"), ("01", "01"), ("02", "02"), ("03", "03"), ("ff", "03"), ("fc", "00")]
        {
            let text = format!("{}{told}", &GOOD[..53]);
            assert_eq!(parse(&text), Some(format!("{}{kept}", &GOOD[..53])), "{told}");
        }
    }

    #[test]
    fn people_may_write_capitals() {
        let id: TraceId = "4BF92F3577B34DA6A3CE929D0E0E4736".parse().expect("32 digits");
        assert_eq!(id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        for bad in ["", "4bf9", "00000000000000000000000000000000", "4bf92f3577b34da6a3ce929d0e0e473x"] {
            assert_eq!(bad.parse::<TraceId>(), Err(TraceIdError), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_bring_it_down(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = TraceParent::parse(&bytes);
        }

        #[test]
        fn what_is_written_is_read(
            trace in any::<[u8; 16]>(),
            parent in any::<[u8; 8]>(),
            flags in 0u8..4,
        ) {
            let Some(parent) = TraceId::new(trace).and_then(|id| TraceParent::new(id, parent, flags)) else {
                return Ok(());
            };
            prop_assert_eq!(TraceParent::parse(&parent.text()), Some(parent));
            prop_assert_eq!(TraceParent::from_bytes(&parent.to_bytes()), Some(parent));
        }
    }
}
