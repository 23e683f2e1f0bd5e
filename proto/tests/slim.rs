//! The borrowing readers and writers agree with the full ones, on anything.
#![allow(clippy::unwrap_used)]

use onlooker_event::{ClientId, Digest128, Facts, ItemId, Reason, SiteId, View, ViewId, ViewerHash};
use onlooker_proto::{
    ClaimRef, Counted, Ignored, ViewRef, decode_counted, decode_view, encode_counted, encode_ignored,
    encode_view, put_counted_tail, put_ignored_tail, put_verdict_head,
};
use proptest::prelude::*;

fn views() -> impl Strategy<Value = View> {
    let ids =
        ("[a-z0-9][a-z0-9._-]{0,20}", "[ -~\u{e4}\u{20ac}]{1,30}x", prop::option::of("[a-z0-9-]{1,20}"));
    let numbers =
        (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u32>(), any::<i64>(), any::<i64>(), any::<u32>());
    let texts = (prop::option::of("[ -~]{1,40}"), prop::option::of("[ -~\u{e4}]{1,40}"));
    (ids, numbers, texts).prop_filter_map("ids that the collector takes", |(ids, numbers, texts)| {
        Some(View {
            view_id: ViewId(numbers.0),
            site: SiteId::new(&ids.0).ok()?,
            item: ItemId::new(&ids.1).ok()?,
            viewer: ViewerHash(numbers.1),
            key_version: numbers.2,
            event_ms: numbers.3,
            received_ms: numbers.4,
            client_id: ids.2.and_then(|id| ClientId::new(&id).ok()),
            user_agent: texts.0.map(Into::into),
            referrer: texts.1.map(Into::into),
            facts: Facts(numbers.5),
        })
    })
}

/// The slim reader may say "ask the other one"; if it says more, it is what the other one says.
fn agree(bytes: &[u8]) -> Result<Option<View>, TestCaseError> {
    let full = decode_view(Some(bytes));
    let Some(slim) = ViewRef::read(bytes) else { return Ok(full.ok()) };
    let full = full.map_err(|e| TestCaseError::fail(format!("{slim:?} was read, but: {e}")))?;
    prop_assert_eq!(slim.view_id, full.view_id);
    prop_assert_eq!(slim.site, full.site.as_str());
    prop_assert_eq!(slim.item, full.item.as_str());
    prop_assert_eq!(slim.viewer, full.viewer);
    prop_assert_eq!(slim.event_ms, full.event_ms);
    prop_assert_eq!(slim.client_id, full.client_id.as_ref().map(ClientId::as_str));
    prop_assert_eq!(slim.facts, full.facts);
    Ok(Some(full))
}

/// Another writer's or another reader's view of the same bytes: cut, doubled, with bytes changed.
fn damaged(mut bytes: Vec<u8>, changes: &[(usize, u8)], cut: usize, twice: bool) -> Vec<u8> {
    for (at, byte) in changes {
        let len = bytes.len();
        bytes[at % len] = *byte;
    }
    if twice {
        bytes.extend_from_within(..);
    }
    let keep = bytes.len() - cut.min(bytes.len());
    bytes.truncate(keep);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_a_collector_writes_is_read_without_the_full_reader(view in views()) {
        let mut bytes = Vec::new();
        encode_view(&view, &mut bytes);
        prop_assert!(ViewRef::read(&bytes).is_some());
        prop_assert_eq!(agree(&bytes)?, Some(view));
    }

    #[test]
    fn damaged_views_are_read_alike(
        view in views(),
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        cut in prop_oneof![Just(0usize), 0usize..40],
        twice: bool,
    ) {
        let mut bytes = Vec::new();
        encode_view(&view, &mut bytes);
        agree(&damaged(bytes, &changes, cut, twice))?;
    }

    #[test]
    fn garbage_is_read_alike(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        agree(&bytes)?;
    }

    #[test]
    fn verdicts_are_written_alike(
        view in views(),
        (partition, offset, slice, slice_s) in (any::<i32>(), any::<i64>(), any::<i64>(), any::<u32>()),
        (claim, id_claim) in (any::<[u8; 16]>(), prop::option::of((any::<[u8; 16]>(), any::<u32>()))),
        (rule_version, reason) in (any::<u32>(), 0..Reason::ALL.len()),
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = Vec::new();
        encode_view(&view, &mut bytes);
        let slim = ViewRef::read(&bytes).unwrap();
        let mut head = Vec::new();
        put_verdict_head(&mut head, &slim, partition, offset);

        let counted = Counted {
            view_id: view.view_id,
            site: view.site.clone(),
            item: view.item.clone(),
            viewer: view.viewer,
            event_ms: view.event_ms,
            source_partition: partition,
            source_offset: offset,
            slice,
            slice_s,
            claim: Digest128(claim),
            id_claim: id_claim.map(|(id, fingerprint)| (Digest128(id), fingerprint)),
            rule_version,
        };
        let mut full = Vec::new();
        encode_counted(&counted, &mut full);
        let mut fast = head.clone();
        put_counted_tail(&mut fast, (slice, slice_s), counted.claim, counted.id_claim, rule_version);
        prop_assert_eq!(&fast, &full);

        // And the claim is read alike, damaged or not.
        for bytes in [fast.clone(), damaged(fast, &changes, 0, false)] {
            let Some(slim) = ClaimRef::read(&bytes) else { continue };
            let Ok(full) = decode_counted(Some(&bytes)) else { continue };
            let expected = ClaimRef {
                event_ms: full.event_ms,
                source_partition: full.source_partition,
                source_offset: full.source_offset,
                slice: full.slice,
                slice_s: full.slice_s,
                claim: full.claim,
                id_claim: full.id_claim,
            };
            prop_assert_eq!(slim, expected);
        }

        let ignored = Ignored {
            view_id: view.view_id,
            site: view.site,
            item: view.item,
            viewer: view.viewer,
            event_ms: view.event_ms,
            source_partition: partition,
            source_offset: offset,
            reason: Reason::ALL[reason],
            rule_version,
            slice,
        };
        full.clear();
        encode_ignored(&ignored, &mut full);
        put_ignored_tail(&mut head, ignored.reason, rule_version, slice);
        prop_assert_eq!(head, full);
    }
}
