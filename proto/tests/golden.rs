//! What older writers wrote stays readable: these bytes are added to and never edited.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use onlooker_event::{
    ClientId, DeadReason, Digest128, Facts, ItemId, Reason, SiteId, View, ViewId, ViewerHash,
};
use onlooker_proto::{
    ClaimRef, Counted, Dead, DeadEntry, DeadMark, DecodeError, Ignored, MarkStep, ViewRef, decode_counted,
    decode_dead, decode_dead_entry, decode_ignored, decode_view, encode_counted, encode_dead,
    encode_dead_mark, encode_ignored, encode_view,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

const VIEW_ID: [u8; 16] = *b"\x01\x93\x7d\x00\x11\x22\x73\x33\x84\x44\x55\x55\x66\x66\x77\x77";

fn view() -> View {
    View {
        view_id: ViewId(VIEW_ID),
        site: SiteId::new("blog").unwrap(),
        item: ItemId::new("/\u{fc}ber:1").unwrap(),
        viewer: ViewerHash([0xab; 16]),
        key_version: 3,
        event_ms: 1_796_036_400_123,
        received_ms: 1_796_036_400_456,
        client_id: Some(ClientId::new("c-1").unwrap()),
        user_agent: Some("UA/1".into()),
        referrer: Some("r".into()),
        facts: Facts::PREFETCH.with(Facts::TRUSTED),
    }
}

const VIEW: &str = "0801121001937d001122733384445555666677771a04626c6f6722082fc3bc6265723a312a10abababababababababababababababab300338fba7f2e0a23440c8aaf2e0a2344a03632d31520455412f315a01726009";
const BARE_VIEW: &str = "0801121001937d001122733384445555666677771a04626c6f6722082fc3bc6265723a312a10abababababababababababababababab38ffffffffffffffffff01";

#[test]
fn view_1() {
    let mut out = Vec::new();
    encode_view(&view(), &mut out);
    assert_eq!(hex(&out), VIEW);
    assert_eq!(decode_view(Some(&unhex(VIEW))).unwrap(), view());
}

#[test]
fn view_1_without_optional_fields() {
    let bare = View {
        client_id: None,
        user_agent: None,
        referrer: None,
        facts: Facts(0),
        key_version: 0,
        event_ms: -1,
        received_ms: 0,
        ..view()
    };
    let mut out = Vec::new();
    encode_view(&bare, &mut out);
    assert_eq!(hex(&out), BARE_VIEW);
    assert_eq!(decode_view(Some(&unhex(BARE_VIEW))).unwrap(), bare);
}

fn counted() -> Counted {
    Counted {
        view_id: ViewId(VIEW_ID),
        site: SiteId::new("blog").unwrap(),
        item: ItemId::new("42").unwrap(),
        viewer: ViewerHash([0xab; 16]),
        event_ms: 1_796_036_400_123,
        source_partition: 5,
        source_offset: 123_456_789_012,
        slice: 498_899,
        slice_s: 3600,
        claim: Digest128([0xc1; 16]),
        id_claim: Some((Digest128([0xd2; 16]), 0xdead_beef)),
        rule_version: 1,
    }
}

const COUNTED: &str = "0801121001937d001122733384445555666677771a04626c6f67220234322a10abababababababababababababababab30fba7f2e0a23438054094b4e4f4cb0348d3b91e5210c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c15a10d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d265efbeadde680170901c";
/// Written before `slice_s` was added.
const COUNTED_BEFORE_SLICE_S: &str = "0801121001937d001122733384445555666677771a04626c6f67220234322a10abababababababababababababababab30fba7f2e0a23438054094b4e4f4cb0348d3b91e5210c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c16801";

#[test]
fn counted_1() {
    let mut out = Vec::new();
    encode_counted(&counted(), &mut out);
    assert_eq!(hex(&out), COUNTED);
    assert_eq!(decode_counted(Some(&unhex(COUNTED))).unwrap(), counted());
    assert_eq!(ClaimRef::read(&out).unwrap().id_claim, counted().id_claim);
}

#[test]
fn counted_1_before_slice_s() {
    let old = Counted { slice_s: 0, id_claim: None, ..counted() };
    assert_eq!(decode_counted(Some(&unhex(COUNTED_BEFORE_SLICE_S))).unwrap(), old);
}

const IGNORED: &str = "0801121001937d001122733384445555666677771a04626c6f67220234322a10abababababababababababababababab30fba7f2e0a2344804500158d3b91e";

#[test]
fn ignored_1() {
    let ignored = Ignored {
        view_id: ViewId(VIEW_ID),
        site: SiteId::new("blog").unwrap(),
        item: ItemId::new("42").unwrap(),
        viewer: ViewerHash([0xab; 16]),
        event_ms: 1_796_036_400_123,
        source_partition: 0,
        source_offset: 0,
        reason: Reason::SelfView,
        rule_version: 1,
        slice: 498_899,
    };
    let mut out = Vec::new();
    encode_ignored(&ignored, &mut out);
    assert_eq!(hex(&out), IGNORED);
    assert_eq!(decode_ignored(Some(&unhex(IGNORED))).unwrap(), ignored);
}

const DEAD: &str = "080110021a0a6e6f2076657273696f6e220576696577732802304d38fba7f2e0a23442026b004a02fffe";

#[test]
fn dead_1() {
    let dead = Dead {
        reason: DeadReason::Malformed,
        detail: "no version".into(),
        source_topic: "views".into(),
        source_partition: 2,
        source_offset: 77,
        source_append_ms: 1_796_036_400_123,
        key: Bytes::from_static(b"k\x00"),
        payload: Bytes::from_static(b"\xff\xfe"),
    };
    let mut out = Vec::new();
    encode_dead(&dead, &mut out);
    assert_eq!(hex(&out), DEAD);
    assert_eq!(decode_dead(Some(&unhex(DEAD))).unwrap(), dead);
}

const BEGUN: &str =
    "08015001580360c0843d6a10cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd7210efefefefefefefefefefefefefefefef";
const RETRIED: &str = "08015002580360c0843d6a10cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd";
const DISCARDED: &str = "080150036a10cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd";

#[test]
fn dead_mark_1() {
    let mark = |step, replaces| DeadMark {
        step,
        letter_partition: 3,
        letter_offset: 1_000_000,
        attempt: [0xcd; 16],
        replaces,
    };
    let marks = [
        (mark(MarkStep::Begun, Some([0xef; 16])), BEGUN),
        (mark(MarkStep::Retried, None), RETRIED),
        (DeadMark { letter_partition: 0, letter_offset: 0, ..mark(MarkStep::Discarded, None) }, DISCARDED),
    ];
    for (mark, bytes) in marks {
        let mut out = Vec::new();
        encode_dead_mark(&mark, &mut out);
        assert_eq!(hex(&out), bytes);
        assert_eq!(decode_dead_entry(Some(&unhex(bytes))).unwrap(), DeadEntry::Mark(mark));
        // Who knows letters alone must not take it for the outcome of a view.
        let refused = decode_dead(Some(&out)).unwrap_err();
        assert_eq!(refused.reason(), DeadReason::InvalidField, "{refused}");
    }
}

#[test]
fn letters_and_marks_are_told_apart() {
    let letter = decode_dead(Some(&unhex(DEAD))).unwrap();
    assert_eq!(decode_dead_entry(Some(&unhex(DEAD))).unwrap(), DeadEntry::Letter(letter));
    let mark = unhex(DISCARDED);
    let cases: [(Vec<u8>, DeadReason); 6] = [
        (vec![], DeadReason::Empty),
        (b"garbage".to_vec(), DeadReason::Malformed),
        (mark[..mark.len() - 1].to_vec(), DeadReason::Malformed),
        ([&[0x08, 2], &mark[2..]].concat(), DeadReason::NewerVersion),
        // A step that a later program may know.
        (unhex(&DISCARDED.replacen("5003", "5009", 1)), DeadReason::InvalidField),
        // An attempt of 15 bytes.
        (unhex(&DISCARDED.replacen("6a10cd", "6a0f", 1)), DeadReason::InvalidField),
    ];
    for (bytes, reason) in cases {
        let error = decode_dead_entry(Some(&bytes)).unwrap_err();
        assert_eq!(error.reason(), reason, "{} gave {error}", hex(&bytes));
    }
    assert_eq!(decode_dead_entry(None), Err(DecodeError::Empty));
}

#[test]
fn what_cannot_be_read_says_why() {
    let view = unhex(VIEW);
    let future = |rest: &[u8]| [&[0x08, 2], rest].concat();
    let cases: [(Vec<u8>, DeadReason); 9] = [
        (vec![], DeadReason::Empty),
        (b"garbage".to_vec(), DeadReason::Malformed),
        (view[..view.len() - 1].to_vec(), DeadReason::Malformed),
        // Without the version.
        (view[2..].to_vec(), DeadReason::Malformed),
        // The same fields, a newer version.
        (future(&view[2..]), DeadReason::NewerVersion),
        // A newer version whose field 2 has become an integer.
        (future(&[0x10, 5]), DeadReason::NewerVersion),
        // A newer version with nothing else.
        (future(&[]), DeadReason::NewerVersion),
        // A view id of 15 bytes.
        (unhex(&VIEW.replace("121001937d00", "120f937d00")), DeadReason::InvalidField),
        // An item with a NUL: U+00FC (two bytes) became two control characters.
        (unhex(&VIEW.replace("c3bc", "0000")), DeadReason::InvalidField),
    ];
    for (bytes, reason) in cases {
        let error = decode_view(Some(&bytes)).unwrap_err();
        assert_eq!(error.reason(), reason, "{} gave {error}", hex(&bytes));
        assert_eq!(ViewRef::read(&bytes), None, "{}", hex(&bytes));
    }
    assert_eq!(decode_view(None), Err(DecodeError::Empty));
}

#[test]
fn a_field_added_later_is_no_obstacle() {
    // Field 15 (bytes), 16 (a varint), 17 (eight bytes), 18 (four bytes).
    let added = unhex("7a03616263 80019601 89010102030405060708 950101020304");
    let bytes = [unhex(VIEW), added].concat();
    assert_eq!(decode_view(Some(&bytes)).unwrap(), view());
    assert_eq!(ViewRef::read(&bytes).unwrap().item, view().item.as_str());
}

#[test]
fn unknown_reasons_are_refused_by_name() {
    let error = decode_ignored(Some(&unhex(&IGNORED.replace("4804", "4863")))).unwrap_err();
    assert_eq!(
        error,
        DecodeError::InvalidField { field: "reason", problem: "has the unknown number 99".into() }
    );
}
