//! From a request's bytes to raw views: by content, whatever its headers call it.

use crate::text::free_text;
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use onlooker_stage::http::{ApiError, ErrorDetail};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::io::Read;

/// The first bytes of gzip (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Unpacks gzip, in at most `max` bytes. A body that is gzip inside gzip is refused: nothing honest sends that.
pub(crate) fn unpack(body: Bytes, max: usize) -> Result<Bytes, ApiError> {
    if !body.starts_with(&GZIP) {
        return Ok(body);
    }
    // A guess that a bomb cannot drive up: the buffer grows with what really comes out.
    let mut out = Vec::with_capacity((body.len() * 4).min(max));
    let mut reader = MultiGzDecoder::new(&body[..]).take(max as u64 + 1);
    if let Err(error) = reader.read_to_end(&mut out) {
        let detail = ErrorDetail::new("bad_gzip", format!("the body is not whole gzip: {error}"));
        return Err(detail.with_status(StatusCode::BAD_REQUEST));
    }
    if out.len() > max {
        let detail = ErrorDetail::new("body_too_large", "the unpacked body is too large, in bytes")
            .limit(max)
            .got("more");
        return Err(detail.with_status(StatusCode::PAYLOAD_TOO_LARGE));
    }
    if out.starts_with(&GZIP) {
        let detail = ErrorDetail::new("bad_gzip", "the body is gzip inside gzip");
        return Err(detail.with_status(StatusCode::BAD_REQUEST));
    }
    Ok(out.into())
}

/// A view as it was sent; texts are looked at later, one by one, so that one broken text spoils one view.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RawView<'a> {
    #[serde(borrow)]
    pub(crate) site: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) key: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) session: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) referrer: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) viewer: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) ip: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) ua: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) at: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) owner: Option<&'a RawValue>,
}

/// The views of a request.
#[derive(Debug)]
pub(crate) enum Views<'a> {
    /// One object.
    One(RawView<'a>),
    /// An array, or lines: each with its own outcome.
    Many(Vec<Result<RawView<'a>, ErrorDetail>>),
}

/// A text of the body: UTF-8, with U+FFFD where it is not.
pub(crate) fn as_text(body: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(body);
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
    let text = text.trim_matches([' ', '\t', '\r', '\n', '\u{feff}']);
    match text.as_bytes().first() {
        None => Err(ErrorDetail::new(
            "empty_body",
            "the body is empty; send a view, an array of views, or one view a line",
        )),
        Some(b'[') => array(text, max_items),
        Some(b'{') => match serde_json::from_str(text) {
            Ok(view) => Ok(Views::One(view)),
            Err(_) if text.contains('\n') => lines(text, max_items),
            Err(error) => Err(malformed(&error)),
        },
        Some(_) => Err(ErrorDetail::new(
            "malformed",
            "the body is neither a JSON object, nor an array, nor lines of objects",
        )
        .got(free_text(text, 40).map(String::from).unwrap_or_default())),
    }
}

fn array(text: &str, max_items: usize) -> Result<Views<'_>, ErrorDetail> {
    let raw: Vec<&RawValue> = serde_json::from_str(text).map_err(|e| malformed(&e))?;
    check_count(raw.len(), max_items)?;
    Ok(Views::Many(raw.into_iter().map(|r| one(r.get())).collect()))
}

fn lines(text: &str, max_items: usize) -> Result<Views<'_>, ErrorDetail> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    check_count(lines.clone().count(), max_items)?;
    Ok(Views::Many(lines.map(one).collect()))
}

fn check_count(count: usize, max: usize) -> Result<(), ErrorDetail> {
    if count == 0 {
        return Err(ErrorDetail::new("empty_body", "the array has no views"));
    }
    if count > max {
        return Err(ErrorDetail::new("too_many_items", "the request has too many views")
            .limit(max)
            .got(count));
    }
    Ok(())
}

fn one(text: &str) -> Result<RawView<'_>, ErrorDetail> {
    serde_json::from_str(text).map_err(|e| malformed(&e))
}

fn malformed(error: &serde_json::Error) -> ErrorDetail {
    ErrorDetail::new("malformed", format!("not a JSON object of a view: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn count(text: &str) -> usize {
        match views(text, 10).unwrap() {
            Views::One(_) => 1,
            Views::Many(many) => many.len(),
        }
    }

    #[test]
    fn an_object_an_array_and_lines_are_told_apart() {
        assert_eq!(count(r#" {"item":"a"} "#), 1);
        assert_eq!(count("{\n\"item\":\n\"a\"\n}"), 1, "one object over several lines");
        assert_eq!(count(r#"[{"item":"a"},{"item":"b"}]"#), 2);
        assert_eq!(count("{\"item\":\"a\"}\r\n\r\n{\"item\":\"b\"}\n"), 2);
        assert!(matches!(views("[]", 10), Err(e) if e.code == "empty_body"));
        assert!(matches!(views("", 10), Err(e) if e.code == "empty_body"));
        assert!(matches!(views("hello", 10), Err(e) if e.code == "malformed"));
        let many = format!("[{}]", vec!["{}"; 11].join(","));
        assert!(
            matches!(views(&many, 10), Err(e) if e.code == "too_many_items" && e.got == Some(11_usize.into()))
        );
    }

    #[test]
    fn one_broken_line_spoils_one_view() {
        let Views::Many(many) = views("{\"item\":\"a\"}\n{oops\n{\"item\":\"b\"}", 10).unwrap() else {
            panic!()
        };
        assert_eq!(many.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn a_lone_surrogate_spoils_nothing() {
        let text = r#"[{"item":"1"},{"item":"2","title":"hi \ud83d"},{"item":"3"}]"#;
        let Views::Many(many) = views(text, 10).unwrap() else { panic!() };
        assert!(many.iter().all(Result::is_ok), "{many:?}");
    }

    #[test]
    fn gzip_is_bounded() {
        let plain = Bytes::from_static(b"{}");
        assert_eq!(unpack(plain.clone(), 10).unwrap(), plain);
        assert_eq!(unpack(gzip(b"{}").into(), 10).unwrap(), plain);
        let two = [gzip(b"{\"a\":"), gzip(b"1}")].concat();
        assert_eq!(
            unpack(two.into(), 10).unwrap(),
            Bytes::from_static(b"{\"a\":1}"),
            "two members are one body"
        );
        let bomb = gzip(&vec![0; 64 << 20]);
        assert!(bomb.len() < 100_000);
        assert_eq!(unpack(bomb.into(), 1 << 20).unwrap_err().status(), 413);
        let whole = gzip(b"{\"item\":\"a\"}");
        assert_eq!(unpack(whole[..whole.len() - 6].to_vec().into(), 100).unwrap_err().status(), 400);
        assert_eq!(unpack(gzip(&gzip(b"{}")).into(), 100).unwrap_err().detail().code, "bad_gzip");
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
            let _ = unpack(bytes.clone().into(), 100);
        }

        #[test]
        fn nothing_like_json_brings_it_down(text in r#"[\[\]{}":,a-z\\u0-9 \n]{0,60}"#) {
            let _ = views(&text, 10);
        }
    }
}
