//! How a number of views stands in a hash field.

use onlooker_ports::Number;

/// ```text
///  0        8        16    20
/// +--------+--------+-----+
/// |   u    |   n    |  c  |   little-endian
/// +--------+--------+-----+
/// ```
/// u (signed, 8 bytes): the records below this offset are counted. n (8 bytes): the views. c (4 bytes): append time of
/// the last record that changed it, in seconds since 1970. u comes first because scripts compare it alone.
pub(crate) const NUMBER_BYTES: usize = 20;

pub(crate) fn encode(number: Number) -> [u8; NUMBER_BYTES] {
    let mut out = [0; NUMBER_BYTES];
    out[..8].copy_from_slice(&number.u.to_le_bytes());
    out[8..16].copy_from_slice(&number.n.to_le_bytes());
    out[16..].copy_from_slice(&number.changed_s.to_le_bytes());
    out
}

pub(crate) fn decode(bytes: &[u8]) -> Option<Number> {
    let (u, rest) = bytes.split_first_chunk::<8>()?;
    let (n, rest) = rest.split_first_chunk::<8>()?;
    let changed_s = u32::from_le_bytes(rest.try_into().ok()?);
    Some(Number { n: u64::from_le_bytes(*n), u: i64::from_le_bytes(*u), changed_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_key_catalogue() {
        let number = Number { n: 0x0102, u: -2, changed_s: 0xA0B0_C0D0 };
        let bytes = encode(number);
        let u = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(bytes, [&u[..], &[2, 1, 0, 0, 0, 0, 0, 0], &[0xd0, 0xc0, 0xb0, 0xa0]].concat()[..]);
        assert_eq!(decode(&bytes), Some(number));
        assert_eq!(decode(&bytes[..19]), None);
        assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
    }
}
