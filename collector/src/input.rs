//! From a request's bytes to its views: by content, whatever its headers call it.

use crate::fields::shown;
use crate::head::tolerant;
use crate::memory::Share;
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use onlooker_stage::http::{ApiError, ErrorDetail};
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::io::Read;

/// The first bytes of gzip (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Unpacked at a time.
const PIECE: usize = 64 << 10;

/// Unpacks gzip, in at most `max` bytes, each counted in `share` before it is there. A body that is gzip inside gzip is
/// refused: nothing honest sends that.
pub(crate) fn unpack(body: Bytes, max: usize, share: &mut Share<'_>) -> Result<Bytes, ApiError> {
    if !body.starts_with(&GZIP) {
        return Ok(body);
    }
    let mut reader = MultiGzDecoder::new(&body[..]).take(max as u64 + 1);
    let mut out = Vec::new();
    loop {
        share.grow(PIECE)?;
        if out.capacity() - out.len() < PIECE {
            // Never more room than the limit asks for: doubling alone would end at twice of it.
            let room = (2 * out.capacity()).clamp(out.len() + PIECE, (max + 1).max(out.len() + PIECE));
            out.reserve_exact(room - out.len());
        }
        match (&mut reader).take(PIECE as u64).read_to_end(&mut out) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => return Err(bad_gzip(format!("the body is not whole gzip: {error}"))),
        }
    }
    if out.len() > max {
        let detail = ErrorDetail::new("body_too_large", "the unpacked body is too large, in bytes");
        return Err(detail.limit(max).got("more").with_status(StatusCode::PAYLOAD_TOO_LARGE));
    }
    if out.starts_with(&GZIP) {
        return Err(bad_gzip("the body is gzip inside gzip".into()));
    }
    Ok(out.into())
}

fn bad_gzip(problem: String) -> ApiError {
    ErrorDetail::new("bad_gzip", problem).with_status(StatusCode::BAD_REQUEST)
}

/// The views of a request, each as the text of what should be a JSON object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Views<'a> {
    /// One object.
    One(&'a str),
    /// An array, or lines: each with its own outcome.
    Many(Vec<&'a str>),
}

/// A text of the body: UTF-8, with U+FFFD where it is not.
pub(crate) fn as_text(body: &[u8]) -> Cow<'_, str> {
    let text = tolerant(body);
    // A form's `data=` field, as some old beacons send it: percent-encoded JSON, or base64 of it.
    match text.trim_start().strip_prefix("data=") {
        None => text,
        Some(field) => Cow::Owned(form_field(field)),
    }
}

fn form_field(field: &str) -> String {
    let field = field.split('&').next().unwrap_or_default().trim().replace('+', " ");
    let decoded = percent_encoding::percent_decode_str(&field).decode_utf8_lossy().into_owned();
    if decoded.trim_start().starts_with(['{', '[']) {
        return decoded;
    }
    // In a form a plus sign is a space; in base64 it is a digit.
    let base64 = decoded.replace(' ', "+");
    let bytes = STANDARD.decode(&base64).or_else(|_| URL_SAFE_NO_PAD.decode(&base64)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Splits a request's text into views. An error is about the request as a whole.
pub(crate) fn views(text: &str, max_items: usize) -> Result<Views<'_>, ErrorDetail> {
    let text = text.trim_ascii();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim_ascii_start();
    match text.as_bytes().first() {
        None => {
            let message = "the body is empty; send a view, an array of views, or one view a line";
            Err(ErrorDetail::new("empty_body", message))
        }
        Some(b'[') => array(text, max_items),
        Some(b'{') if text.contains('\n') && serde_json::from_str::<&RawValue>(text).is_err() => {
            lines(text, max_items)
        }
        Some(b'{') => Ok(Views::One(text)),
        Some(_) => {
            let message = "the body is neither a JSON object, nor an array, nor lines of objects";
            Err(ErrorDetail::new("malformed", message).got(shown(text)))
        }
    }
}

fn array(text: &str, max_items: usize) -> Result<Views<'_>, ErrorDetail> {
    let mut json = serde_json::Deserializer::from_str(text);
    let elements = json.deserialize_seq(Elements { max_items }).and_then(|found| json.end().map(|()| found));
    let (elements, count) =
        elements.map_err(|e| ErrorDetail::new("malformed", format!("not a JSON array of views: {e}")))?;
    check_count(count, max_items)?;
    Ok(Views::Many(elements))
}

fn lines(text: &str, max_items: usize) -> Result<Views<'_>, ErrorDetail> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    check_count(lines.clone().count(), max_items)?;
    Ok(Views::Many(lines.collect()))
}

fn check_count(count: usize, max: usize) -> Result<(), ErrorDetail> {
    if count == 0 {
        return Err(ErrorDetail::new("empty_body", "the array has no views"));
    }
    if count > max {
        let detail = ErrorDetail::new("too_many_items", "the request has too many views");
        return Err(detail.limit(max).got(count));
    }
    Ok(())
}

/// Collects an array's elements unread, and only counts those beyond the limit: four megabytes of `{},` would become
/// twenty of pointers.
struct Elements {
    max_items: usize,
}

impl<'de> Visitor<'de> for Elements {
    type Value = (Vec<&'de str>, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let (mut elements, mut count) = (Vec::new(), 0);
        while let Some(element) = seq.next_element::<&RawValue>()? {
            count += 1;
            if count <= self.max_items {
                elements.push(element.get());
            }
        }
        Ok((elements, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn unpack(body: impl Into<Bytes>, max: usize) -> Result<Bytes, (u16, &'static str)> {
        let memory = Memory::new(8 << 20);
        super::unpack(body.into(), max, &mut memory.share())
            .map_err(|error| (error.status().as_u16(), error.detail().code))
    }

    #[test]
    fn an_object_an_array_and_lines_are_told_apart() {
        let a = r#"{"item":"a"}"#;
        assert_eq!(views(r#" {"item":"a"} "#, 10).unwrap(), Views::One(a));
        assert_eq!(
            views("\u{feff}{\n\"item\":\n\"a\"\n}", 10).unwrap(),
            Views::One("{\n\"item\":\n\"a\"\n}")
        );
        assert_eq!(views(r#"[{"item":"a"}, 7 ]"#, 10).unwrap(), Views::Many(vec![a, "7"]));
        assert_eq!(views("{\"item\":\"a\"}\r\n\r\n{oops\n", 10).unwrap(), Views::Many(vec![a, "{oops"]));
    }

    #[test]
    fn what_is_no_request_is_named() {
        let code = |text| views(text, 10).map_err(|error| error.code);
        for (text, expected) in [
            ("[]", "empty_body"),
            ("", "empty_body"),
            (" \n", "empty_body"),
            ("hello", "malformed"),
            ("[{}", "malformed"),
        ] {
            assert_eq!(code(text), Err(expected), "{text}");
        }
        for many in [format!("[{}]", ["{}"; 11].join(",")), ["{}"; 11].join("\n")] {
            let error = views(&many, 10).unwrap_err();
            assert_eq!(
                (error.code, error.limit, error.got),
                ("too_many_items", Some(10_usize.into()), Some(11_usize.into()))
            );
        }
    }

    #[test]
    fn gzip_is_bounded() {
        let plain = Bytes::from_static(b"{}");
        assert_eq!(unpack(plain.clone(), 10), Ok(plain.clone()));
        assert_eq!(unpack(gzip(b"{}"), 2), Ok(plain), "as large as the limit");
        let two = [gzip(b"{\"a\":"), gzip(b"1}")].concat();
        assert_eq!(unpack(two, 10), Ok(Bytes::from_static(b"{\"a\":1}")), "two members are one body");
        let bomb = gzip(&vec![0; 64 << 20]);
        assert!(bomb.len() < 100_000);
        assert_eq!(unpack(bomb, 4 << 20), Err((413, "body_too_large")));
        let whole = gzip(b"{\"item\":\"a\"}");
        assert_eq!(unpack(whole[..whole.len() - 6].to_vec(), 100), Err((400, "bad_gzip")));
        assert_eq!(unpack(gzip(&gzip(b"{}")), 100), Err((400, "bad_gzip")));
        assert_eq!(unpack(gzip(&vec![0; 64 << 20]), 32 << 20), Err((503, "overloaded")), "memory is short");
    }

    #[test]
    fn unpacking_takes_no_more_room_than_it_says() {
        let text = vec![b' '; 3 << 20];
        let memory = Memory::new(8 << 20);
        let mut share = memory.share();
        let out = super::unpack(gzip(&text).into(), 4 << 20, &mut share).unwrap();
        assert_eq!(out.len(), text.len());
        let held = memory.used();
        assert!((out.len()..out.len() + 3 * PIECE).contains(&held), "{held}");
    }

    #[test]
    fn a_forms_data_field_is_read() {
        for body in ["data=%7B%22item%22%3A%22a%22%7D", "data=eyJpdGVtIjoiYSJ9&v=1"] {
            let text = as_text(body.as_bytes());
            assert_eq!(text, r#"{"item":"a"}"#, "{body}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_bring_it_down(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let text = as_text(&bytes);
            let _ = views(&text, 10);
            let _ = unpack(bytes.clone(), 100);
            let _ = unpack([&GZIP[..], &bytes].concat(), 100);
        }

        #[test]
        fn nothing_like_json_brings_it_down(text in r#"[\[\]{}":,a-z\\u0-9 \n]{0,60}"#) {
            let _ = views(&text, 10);
        }
    }
}
