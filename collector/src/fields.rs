//! A view as it was sent: its fields, read tolerantly, so that one broken text spoils no more than itself.

use crate::text::{MAX_SAFE_INTEGER, Scalar, free_text, scalar};
use onlooker_stage::http::ErrorDetail;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// A field's value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Value<'a> {
    /// Not there, or `null`.
    #[default]
    Absent,
    /// A string, or an integer that JavaScript keeps exactly, as its decimal digits.
    Text(Cow<'a, str>),
    /// Any other JSON, as it was written.
    Other(&'a str),
}

impl<'a> Value<'a> {
    /// The text, if there is one; what is neither text nor a safe integer is refused.
    pub(crate) fn text(&self, field: &'static str) -> Result<Option<&str>, ErrorDetail> {
        match self {
            Value::Absent => Ok(None),
            Value::Text(text) => Ok(Some(text)),
            Value::Other(json) => {
                let message =
                    format!("{field} must be a string, or an integer of at most {MAX_SAFE_INTEGER}");
                Err(ErrorDetail::new("id_must_be_string", message).field(field).got(shown(json)))
            }
        }
    }

    pub(crate) fn is_absent(&self) -> bool {
        *self == Value::Absent
    }

    fn from_raw(raw: Option<&'a RawValue>) -> Self {
        match raw.map(|raw| (raw, scalar(raw.get()))) {
            None | Some((_, Scalar::Null)) => Value::Absent,
            Some((_, Scalar::Text(text))) => Value::Text(text),
            Some((raw, Scalar::Other)) => Value::Other(raw.get()),
        }
    }
}

/// What may be shown of something that a client sent.
pub(crate) fn shown(text: &str) -> String {
    free_text(text, 40).map(Cow::into_owned).unwrap_or_default()
}

macro_rules! fields {
    ($($name:ident),+) => {
        /// The fields of one view. Others are ignored.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
        #[serde(default)]
        pub(crate) struct Fields<'a> {
            $(#[serde(borrow)] pub(crate) $name: Value<'a>,)+
        }

        #[derive(Deserialize)]
        struct RawFields<'a> {
            $(#[serde(borrow)] $name: Option<&'a RawValue>,)+
        }

        impl<'a> From<RawFields<'a>> for Fields<'a> {
            fn from(raw: RawFields<'a>) -> Self {
                Self { $($name: Value::from_raw(raw.$name),)+ }
            }
        }
    };
}

fields!(site, key, item, id, session, referrer, viewer, ip, ua, at, owner);

impl<'a> Fields<'a> {
    /// Reads one JSON object.
    pub(crate) fn read(json: &'a str) -> Result<Self, ErrorDetail> {
        // An array would be taken for the fields' values in order.
        if !json.trim_start().starts_with('{') {
            return Err(ErrorDetail::new("malformed", "a view is a JSON object").got(shown(json)));
        }
        // Strictly first, in one pass: nearly every view is plain strings and small integers. Whatever else it is, down
        // to half a surrogate pair, is then read value by value, in twice the time.
        if let Ok(fields) = serde_json::from_str(json) {
            return Ok(fields);
        }
        match serde_json::from_str::<RawFields<'_>>(json) {
            Ok(raw) => Ok(raw.into()),
            Err(error) => Err(ErrorDetail::new("malformed", format!("not a JSON object of a view: {error}"))),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Value<'a> {
    /// Strings, safe integers and `null`; fails on everything else.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Strict)
    }
}

struct Strict;

impl<'de> Visitor<'de> for Strict {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a safe integer")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Value::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Value::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        if number > MAX_SAFE_INTEGER {
            return Err(E::invalid_value(Unexpected::Unsigned(number), &self));
        }
        Ok(Value::Text(Cow::Owned(number.to_string())))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        if number.unsigned_abs() > MAX_SAFE_INTEGER {
            return Err(E::invalid_value(Unexpected::Signed(number), &self));
        }
        Ok(Value::Text(Cow::Owned(number.to_string())))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Value::Absent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text<'a>(value: &'a Value<'_>) -> Option<&'a str> {
        value.text("item").unwrap()
    }

    #[test]
    fn fields_are_read_and_others_ignored() {
        let fields = Fields::read(
            r#" {"site":"b","item":7,"id":null,"title":"t\ud83d","x":[{"item":1}],"referrer":"a\nb"}"#,
        )
        .unwrap();
        assert_eq!((text(&fields.site), text(&fields.item), text(&fields.id)), (Some("b"), Some("7"), None));
        assert_eq!(text(&fields.referrer), Some("a\nb"));
        assert!(fields.viewer.is_absent());
    }

    #[test]
    fn a_broken_text_spoils_itself_alone() {
        let fields = Fields::read(r#"{"site":"b","item":"a\ud83d","referrer":"\ud83d\ude00"}"#).unwrap();
        assert_eq!(text(&fields.item), Some("a\u{FFFD}"));
        assert_eq!((text(&fields.site), text(&fields.referrer)), (Some("b"), Some("\u{1F600}")));
    }

    #[test]
    fn what_is_no_id_is_named() {
        for other in ["9007199254740993", "1161888007138312192", "1e3", "1.0", "-0", "true", "[]", "{}"] {
            let json = format!(r#"{{"site":"b","item":{other}}}"#);
            let fields = Fields::read(&json).unwrap();
            let error = fields.item.text("item").unwrap_err();
            assert_eq!((error.code, error.field.as_deref()), ("id_must_be_string", Some("item")), "{other}");
            assert_eq!(error.got, Some(other.to_owned().into()));
            assert_eq!(text(&fields.site), Some("b"));
        }
    }

    #[test]
    fn what_is_no_object_is_no_view() {
        for json in
            [r#"["blog",null,"x"]"#, "7", "null", "", "{", r#"{"item":"a","item":"b"}"#, r#"{"a":1}x"#]
        {
            assert_eq!(Fields::read(json).unwrap_err().code, "malformed", "{json}");
        }
    }

    proptest! {
        #[test]
        fn both_ways_of_reading_agree(
            names in proptest::sample::subsequence(vec!["site", "item", "id", "viewer", "at", "title"], 0..6),
            values in proptest::collection::vec(
                r#"-?[0-9]{1,20}|[0-9]\.[0-9]|null|true|\[1\]|"[a-z ü]{0,5}"|"(\\u[0-9a-f]{4}|\\n|\\\\|a){0,4}""#, 6),
        ) {
            let pairs: Vec<_> = names.iter().zip(&values).map(|(n, v)| format!("\"{n}\":{v}")).collect();
            let json = format!("{{{}}}", pairs.join(","));
            let strict = serde_json::from_str::<Fields<'_>>(&json);
            let tolerant = serde_json::from_str::<RawFields<'_>>(&json).map(Fields::from);
            if let Ok(strict) = strict {
                prop_assert_eq!(strict, tolerant.unwrap());
            }
        }

        #[test]
        fn nothing_like_json_brings_it_down(json in r#"\{?[\[\]{}":,a-z\\u0-9 \n]{0,60}"#) {
            let _ = Fields::read(&json);
        }
    }
}
