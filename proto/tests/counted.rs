//! The counter's borrowing reader agrees with the full one, on anything.
#![allow(clippy::unwrap_used)]

use onlooker_event::{Digest128, ItemId, SiteId, ViewId, ViewerHash};
use onlooker_proto::{Counted, CountedRef, decode_counted, encode_counted};
use proptest::prelude::*;

fn records() -> impl Strategy<Value = Counted> {
    let ids = ("[a-z0-9][a-z0-9._-]{0,20}", "[ -~\u{e4}\u{20ac}]{1,30}x");
    let bytes = (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<[u8; 16]>());
    let id_claim = prop::option::of((any::<[u8; 16]>(), any::<u32>()));
    let numbers = (any::<i64>(), any::<i32>(), any::<i64>(), any::<i64>(), any::<u32>(), any::<u32>());
    (ids, bytes, id_claim, numbers).prop_filter_map(
        "ids that the collector takes",
        |(ids, bytes, id_claim, n)| {
            Some(Counted {
                view_id: ViewId(bytes.0),
                site: SiteId::new(&ids.0).ok()?,
                item: ItemId::new(&ids.1).ok()?,
                viewer: ViewerHash(bytes.1),
                event_ms: n.0,
                source_partition: n.1,
                source_offset: n.2,
                slice: n.3,
                slice_s: n.4,
                claim: Digest128(bytes.2),
                id_claim: id_claim.map(|(id, fingerprint)| (Digest128(id), fingerprint)),
                rule_version: n.5,
            })
        },
    )
}

/// It may say "ask the other one"; if it says more, it is what the other one says.
fn agree(bytes: &[u8]) -> Result<Option<Counted>, TestCaseError> {
    let full = decode_counted(Some(bytes));
    let Some(slim) = CountedRef::read(bytes) else { return Ok(full.ok()) };
    if !slim.has_valid_ids() {
        return Ok(full.ok());
    }
    let full = full.map_err(|e| TestCaseError::fail(format!("{slim:?} was read, but: {e}")))?;
    prop_assert_eq!((slim.site, slim.item), (full.site.as_str().as_bytes(), full.item.as_str().as_bytes()));
    prop_assert_eq!((slim.viewer, slim.event_ms), (full.viewer, full.event_ms));
    prop_assert_eq!(slim.source_offset, full.source_offset);
    Ok(Some(full))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_a_filter_writes_is_read_without_the_full_reader(record in records()) {
        let mut bytes = Vec::new();
        encode_counted(&record, &mut bytes);
        prop_assert!(CountedRef::read(&bytes).is_some_and(|slim| slim.has_valid_ids()));
        prop_assert_eq!(agree(&bytes)?, Some(record));
    }

    #[test]
    fn damaged_records_are_read_alike(
        record in records(),
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        cut in prop_oneof![Just(0usize), 0usize..60],
        twice: bool,
    ) {
        let mut bytes = Vec::new();
        encode_counted(&record, &mut bytes);
        for (at, byte) in changes {
            let len = bytes.len();
            bytes[at % len] = byte;
        }
        if twice {
            bytes.extend_from_within(..);
        }
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        agree(&bytes)?;
    }

    #[test]
    fn garbage_is_read_alike(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        agree(&bytes)?;
    }
}
