//! The fields of bytes that are, or were to be, a message.

use std::fmt::Write;

/// Names of the fields of `View`, by number.
const NAMES: [&str; 13] = [
    "",
    "version",
    "view_id",
    "site",
    "item",
    "viewer",
    "key_version",
    "event_ms",
    "received_ms",
    "client_id",
    "user_agent",
    "referrer",
    "facts",
];
/// Fields that are shown when asked for alone.
const HEADERS: [u64; 2] = [10, 11];

/// One line a field, as far as the bytes can be read as fields.
pub(super) fn fields(payload: &[u8], headers: bool) -> String {
    let mut out = String::new();
    let mut rest = payload;
    while !rest.is_empty() {
        let at = payload.len() - rest.len();
        let Some((number, value)) = field(&mut rest) else {
            let _ = writeln!(out, "  from byte {at} on there is no field");
            break;
        };
        let name = usize::try_from(number).ok().and_then(|number| NAMES.get(number)).copied().unwrap_or("");
        let value = match value {
            _ if HEADERS.contains(&number) && !headers => "(not shown without --with-headers)".to_owned(),
            Value::Number(number) => number.to_string(),
            Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if !text.chars().any(char::is_control) => format!("{text:?}"),
                _ => crate::import::hex(bytes),
            },
        };
        let _ = writeln!(out, "  field {number:<3} {name:<12} {value}");
    }
    out
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let tag = varint(rest)?;
    let fixed = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
    let value = match tag & 7 {
        0 => Value::Number(varint(rest)?),
        1 => Value::Number(fixed(take(rest, 8)?)),
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            Value::Bytes(take(rest, length)?)
        }
        5 => Value::Number(fixed(take(rest, 4)?)),
        _ => return None,
    };
    (tag >> 3 > 0).then_some((tag >> 3, value))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (bytes, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(bytes)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *take(rest, 1)?.first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Sixteen bytes a line, with their characters.
pub(super) fn hexdump(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (line, bytes) in bytes.chunks(16).enumerate() {
        let mut digits = String::new();
        for (n, byte) in bytes.iter().enumerate() {
            let gap = if n == 8 { "  " } else { " " };
            let _ = write!(digits, "{gap}{byte:02x}");
        }
        let text: String = bytes
            .iter()
            .map(|byte| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' })
            .collect();
        let _ = writeln!(out, "  {:08x} {digits:<49}  |{text}|", line * 16);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_is_named_and_the_rest_is_located() {
        let text = fields(b"\x08\x63\x12\x03abc\x52\x02UA\xff", false);
        assert_eq!(
            text,
            "  field 1   version      99\n  field 2   view_id      \"abc\"\n  field 10  user_agent   (not shown without \
             --with-headers)\n  from byte 11 on there is no field\n"
        );
        assert!(fields(b"\x52\x02UA", true).contains("\"UA\""));
        assert_eq!(fields(b"", false), "");
    }

    #[test]
    fn bytes_are_dumped_in_lines_of_sixteen() {
        let text = hexdump(b"0123456789abcdef\x00\xff");
        assert_eq!(
            text,
            "  00000000  30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66  |0123456789abcdef|\n  \
             00000010  00 ff                                             |..|\n"
        );
    }
}
