//! What a request's headers say. Read in one pass over them: a look-up each is a hash each, and a request needs ten.

use axum::http::{HeaderMap, HeaderValue};
use onlooker_event::{Facts, TraceParent};
use std::borrow::Cow;

/// The headers that a view is judged by. Of a header that came twice the first counts.
#[derive(Debug, Default)]
pub(crate) struct Head<'a> {
    pub(crate) authorization: Option<&'a HeaderValue>,
    pub(crate) content_encoding: Option<&'a HeaderValue>,
    pub(crate) origin: Option<&'a HeaderValue>,
    pub(crate) referrer: Option<&'a HeaderValue>,
    pub(crate) user_agent: Option<&'a HeaderValue>,
    /// Who sends two of them says nothing.
    traceparent: Option<&'a HeaderValue>,
    traceparents: u32,
    /// There is an `X-Forwarded-For`.
    pub(crate) forwarded_for: bool,
    /// Only a part of the answer is wanted.
    pub(crate) range: bool,
    /// The browser fetched ahead of anybody looking.
    pub(crate) facts: Facts,
}

impl<'a> Head<'a> {
    pub(crate) fn read(headers: &'a HeaderMap) -> Self {
        let mut head = Self::default();
        for (name, value) in headers {
            match name.as_str() {
                "authorization" => first(&mut head.authorization, value),
                "content-encoding" => first(&mut head.content_encoding, value),
                "origin" => first(&mut head.origin, value),
                "referer" => first(&mut head.referrer, value),
                "user-agent" => first(&mut head.user_agent, value),
                "traceparent" => {
                    head.traceparent = Some(value);
                    head.traceparents += 1;
                }
                "x-forwarded-for" => head.forwarded_for = true,
                "range" => head.range = true,
                "sec-purpose" => head.note_ahead(value, &["prefetch", "prerender"]),
                "purpose" | "x-moz" => head.note_ahead(value, &["prefetch"]),
                "x-purpose" => head.note_ahead(value, &["preview"]),
                "next-router-prefetch" => head.note_ahead(value, &["1"]),
                _ => {}
            }
        }
        head
    }

    /// Where the request stands in its sender's trace; none if it does not say, or not so that it can be read.
    pub(crate) fn trace(&self) -> Option<TraceParent> {
        let only = self.traceparent.filter(|_| self.traceparents == 1)?;
        TraceParent::parse(only.as_bytes().trim_ascii())
    }

    fn note_ahead(&mut self, value: &HeaderValue, words: &[&str]) {
        let mut parts = value.as_bytes().split(|byte| matches!(byte, b';' | b','));
        let says =
            |part: &[u8]| words.iter().any(|word| part.trim_ascii().eq_ignore_ascii_case(word.as_bytes()));
        if parts.any(says) {
            self.facts = self.facts.with(Facts::PREFETCH);
        }
    }
}

fn first<'a>(slot: &mut Option<&'a HeaderValue>, value: &'a HeaderValue) {
    slot.get_or_insert(value);
}

/// A header's text. Bytes that are not UTF-8 are replaced: a site does not control what its visitors' browsers send.
pub(crate) fn text(value: &HeaderValue) -> Cow<'_, str> {
    tolerant(value.as_bytes())
}

/// UTF-8, with U+FFFD where it is none. Nearly everything is UTF-8, and the strict check is ten times faster than the
/// tolerant one.
pub(crate) fn tolerant(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_two_counts() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("user-agent", "a"), ("x-other", "x"), ("user-agent", "b"), ("range", "")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let head = Head::read(&headers);
        assert_eq!(head.user_agent.map(text).as_deref(), Some("a"));
        assert!(head.range && !head.forwarded_for && head.origin.is_none());
    }

    #[test]
    fn a_trace_is_said_once_or_not_at_all() {
        const ONE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        const OTHER: &str = "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for (told, known) in [
            (vec![ONE], Some(ONE)),
            (vec![], None),
            (vec![ONE, ONE], None),
            (vec![ONE, OTHER], None),
            (vec!["nonsense"], None),
            (vec!["nonsense", ONE], None),
        ] {
            let mut headers = HeaderMap::new();
            told.iter().for_each(|value| {
                headers.append("traceparent", HeaderValue::from_static(value));
            });
            let trace = Head::read(&headers).trace().map(|trace| trace.to_string());
            assert_eq!(trace.as_deref(), known, "{told:?}");
        }
    }

    #[test]
    fn what_is_no_utf8_is_replaced() {
        let value = HeaderValue::from_bytes(b"caf\xe9 \xc3\xbc").unwrap();
        assert_eq!(text(&value), "caf\u{FFFD} ü");
    }
}
