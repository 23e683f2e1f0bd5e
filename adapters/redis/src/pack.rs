//! Arguments of scripts as one MessagePack array (<https://github.com/msgpack/msgpack/blob/master/spec.md>).
//!
//! One long argument instead of thousands of short ones: Redis then neither parses nor allocates each of them, and
//! the strings are made where they are needed, in Lua.

/// A flat array of byte strings and small numbers, under construction.
pub(crate) struct Packer {
    bytes: Vec<u8>,
    items: u32,
}

/// `array 32`: the mark, then the number of items (big-endian), patched in at the end.
const ARRAY32: [u8; 5] = [0xdd, 0, 0, 0, 0];

impl Packer {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let mut buffer = Vec::with_capacity(ARRAY32.len() + bytes);
        buffer.extend_from_slice(&ARRAY32);
        Self { bytes: buffer, items: 0 }
    }

    /// Appends the head of a byte string of this length; exactly so many bytes must follow by [`Self::raw`].
    fn head(&mut self, len: usize) {
        self.items += 1;
        // `raw`, later called `str`, in its four widths; Lua strings are bytes, so that no text is implied.
        match len {
            0..=31 => self.bytes.push(0xa0 | len.to_le_bytes()[0]),
            32..=0xff => self.bytes.extend_from_slice(&[0xd9, len.to_le_bytes()[0]]),
            0x100..=0xffff => {
                self.bytes.push(0xda);
                self.bytes.extend_from_slice(&u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
            }
            _ => {
                self.bytes.push(0xdb);
                self.bytes.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
            }
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.head(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// One byte string made of two parts.
    pub(crate) fn joined(&mut self, left: &[u8], right: &[u8]) {
        self.head(left.len() + right.len());
        self.bytes.extend_from_slice(left);
        self.bytes.extend_from_slice(right);
    }

    /// One byte string: the numbers, little-endian, 4 bytes each.
    pub(crate) fn words(&mut self, words: &[u32]) {
        self.head(words.len() * 4);
        self.bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    pub(crate) fn number(&mut self, number: usize) {
        self.items += 1;
        self.bytes.push(0xce);
        self.bytes.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes());
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes[1..5].copy_from_slice(&self.items.to_be_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_use_the_narrowest_head_that_fits() {
        for (len, head) in [
            (0usize, vec![0xa0u8]),
            (31, vec![0xbf]),
            (32, vec![0xd9, 32]),
            (255, vec![0xd9, 255]),
            (256, vec![0xda, 1, 0]),
            (65_536, vec![0xdb, 0, 1, 0, 0]),
        ] {
            let mut packer = Packer::with_capacity(0);
            packer.bytes(&vec![7; len]);
            let bytes = packer.finish();
            assert_eq!(bytes[..5], [0xdd, 0, 0, 0, 1]);
            assert_eq!(bytes[5..5 + head.len()], head, "{len}");
            assert_eq!(bytes.len(), 5 + head.len() + len);
        }
    }

    #[test]
    fn items_are_counted_and_numbers_fixed_in_width() {
        let mut packer = Packer::with_capacity(16);
        packer.joined(b"ab", b"c");
        packer.words(&[1, 0x0203_0405]);
        packer.number(258);
        let expected =
            [&[0xdd, 0, 0, 0, 3][..], b"\xa3abc", &[0xa8, 1, 0, 0, 0, 5, 4, 3, 2], &[0xce, 0, 0, 1, 2]];
        assert_eq!(packer.finish(), expected.concat());
    }
}
