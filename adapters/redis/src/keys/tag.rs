//! Hash tags: where a cluster keeps a partition.

use super::Layout;

/// Hash slots of a Redis Cluster.
pub(super) const SLOTS: u32 = 16_384;

/// CRC-16/XMODEM (polynomial 0x1021, start 0) of each byte.
const CRC: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The hash slot of a hash tag: its CRC-16 modulo 16,384.
pub(crate) fn slot_of_tag(tag: &[u8]) -> u16 {
    let step = |crc: u16, byte: &u8| (crc << 8) ^ CRC[usize::from(crc >> 8) ^ usize::from(*byte)];
    tag.iter().fold(0, step) % 16_384
}

/// A partition's hash tag and its slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(super) text: Box<str>,
    pub(super) slot: u16,
}

impl Tag {
    /// `GENERATION.PARTITION` plus the first of the suffixes `.0`, `.1`, … whose slot lies near the middle of the
    /// partition's share of the slots. The middle and not its edge: nodes own ranges of slots, and a tag beside a
    /// border of shares would fall to one node or the other by chance.
    pub(super) fn find(layout: &Layout, partition: u32) -> Self {
        let share = SLOTS / layout.partitions();
        let middle = (2 * partition + 1) * (SLOTS / 2) / layout.partitions();
        let reach = (share / 8).max(1);
        let stem = format!("{}.{partition}.", layout.generation());
        let candidate = |suffix: u32| {
            let text = format!("{stem}{suffix}");
            let slot = slot_of_tag(text.as_bytes());
            Self { text: text.into(), slot }
        };
        // About SLOTS / (2 · reach) tries; the bound is never met, and keeps the search total.
        let near = |tag: &Tag| u32::from(tag.slot).abs_diff(middle) <= reach;
        (0..SLOTS * 16).map(candidate).find(near).unwrap_or_else(|| candidate(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot_of_tag(b"123456789"), 0x31C3, "CRC-16/XMODEM's check value, below 16,384");
        // CLUSTER KEYSLOT of redis-server.
        assert_eq!(slot_of_tag(b"foo"), 12_182);
        assert_eq!(slot_of_tag(b""), 0);
    }
}
