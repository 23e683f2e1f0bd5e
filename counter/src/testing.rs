//! Records for the tests.

use onlooker_event::{Digest128, ItemId, SiteId, ViewId, ViewerHash};
use onlooker_ports::RecordRef;
use onlooker_proto::{Counted, encode_counted};

/// Key and payload of a record of `views.counted`, of site `s`.
pub(crate) fn counted(item: &str, viewer: u8, event_ms: i64) -> (Vec<u8>, Vec<u8>) {
    counted_by(item, [viewer; 16], event_ms)
}

/// The same with a whole viewer.
pub(crate) fn counted_by(item: &str, viewer: [u8; 16], event_ms: i64) -> (Vec<u8>, Vec<u8>) {
    let view = Counted {
        view_id: ViewId([9; 16]),
        site: SiteId::new("s").unwrap(),
        item: ItemId::new(item).unwrap(),
        viewer: ViewerHash(viewer),
        event_ms,
        source_partition: 0,
        source_offset: 1,
        slice: 2,
        slice_s: 3600,
        claim: Digest128([8; 16]),
        id_claim: None,
        rule_version: 1,
    };
    let mut payload = Vec::new();
    encode_counted(&view, &mut payload);
    (format!("s:{item}").into_bytes(), payload)
}

/// A record that borrows its parts.
pub(crate) fn record_of<'a>(offset: i64, key: &'a [u8], payload: &'a [u8]) -> RecordRef<'a> {
    RecordRef { offset, append_ms: offset * 1000, key: Some(key), payload: Some(payload), trace: None }
}
