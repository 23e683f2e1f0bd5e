//! `GET /v1/view.gif`: a view in a query string.

use crate::fields::{Fields, Value};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// The fields in a query string. Later ones win; others are ignored.
pub(crate) fn fields(query: &str) -> Fields<'_> {
    let mut fields = Fields::default();
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let slot = match name {
            "site" => &mut fields.site,
            "key" => &mut fields.key,
            "item" => &mut fields.item,
            "id" => &mut fields.id,
            "session" => &mut fields.session,
            "referrer" => &mut fields.referrer,
            "viewer" => &mut fields.viewer,
            "ip" => &mut fields.ip,
            "ua" => &mut fields.ua,
            "at" => &mut fields.at,
            "owner" => &mut fields.owner,
            _ => continue,
        };
        *slot = Value::Text(decoded(value));
    }
    fields
}

/// A form's spelling: `+` is a space, `%XX` a byte. What is no UTF-8 becomes U+FFFD.
fn decoded(value: &str) -> Cow<'_, str> {
    if !value.contains(['+', '%']) {
        return Cow::Borrowed(value);
    }
    let spaces = value.replace('+', " ");
    Cow::Owned(percent_decode_str(&spaces).decode_utf8_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_decoded() {
        let fields = fields("site=blog&item=%2Fa+b%2B%C3%BC&item&title=x&id=%FF&site=shop&viewer=ada");
        let text = |value: &Value<'_>| value.text("x").unwrap().map(str::to_owned);
        assert_eq!(text(&fields.site).as_deref(), Some("shop"));
        assert_eq!(text(&fields.item).as_deref(), Some(""));
        assert_eq!(text(&fields.id).as_deref(), Some("\u{FFFD}"));
        assert_eq!(text(&fields.viewer).as_deref(), Some("ada"));
        assert_eq!(text(&super::fields("item=%2Fa+b%2B%C3%BC").item).as_deref(), Some("/a b+ü"));
    }

    proptest! {
        #[test]
        fn no_query_brings_it_down(query in "[a-z=&%+0-9é]{0,60}") {
            let _ = fields(&query);
        }
    }
}
