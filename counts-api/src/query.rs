//! From what a client sends to which keys are read.

use crate::config::CountsApiConfig;
use axum::http::StatusCode;
use onlooker_event::{CountKey, DayNumber, ItemId, ItemKey, ItemMode, MAX_ITEM_BYTES, Scope, SiteId};
use onlooker_stage::http::{ApiError, ErrorDetail};
use percent_encoding::percent_decode;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, Visitor};
use std::borrow::Cow;
use std::fmt;

/// The largest integer that a JavaScript number holds exactly, 2⁵³ − 1.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// A request, checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) site: SiteId,
    /// In the request's order, repetitions included.
    pub(crate) items: Vec<Asked>,
    /// First and last UTC day, both included; none: all time.
    pub(crate) days: Option<(DayNumber, DayNumber)>,
}

/// One item of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// As the client wrote it, to be found again in the answer.
    pub(crate) label: String,
    pub(crate) key: ItemKey,
}

impl Asked {
    pub(crate) fn key(&self, scope: Scope) -> CountKey {
        CountKey::new(scope, self.key.as_bytes())
    }
}

fn refused(detail: ErrorDetail) -> ApiError {
    detail.with_status(StatusCode::BAD_REQUEST)
}

fn missing(field: &'static str) -> ApiError {
    refused(ErrorDetail::new("missing_field", "this field has to be there").field(field))
}

/// The only site, for questions that name none.
fn only(config: &CountsApiConfig) -> Option<&str> {
    let mut names = config.sites.keys();
    let first = names.next()?;
    names.next().is_none().then_some(first.as_str())
}

/// Reads the query of a GET: `site=…&item=…&item=…&from=…&to=…`.
pub(crate) fn from_url(query: &str, config: &CountsApiConfig) -> Result<Query, ApiError> {
    let (mut site, mut from, mut to) = (None, None, None);
    let mut items = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let slot = match name {
            "item" => {
                // Before the next one is decoded: a query is as long as its sender likes.
                if items.len() == config.max_items {
                    let sent = query.split('&').filter(|pair| pair.starts_with("item=")).count();
                    return Err(too_many_items("item", config.max_items, sent));
                }
                items.push(decode(value).ok_or_else(|| not_text("item", items.len()))?);
                continue;
            }
            "site" => &mut site,
            "from" => &mut from,
            "to" => &mut to,
            // What scripts add to get around caches.
            "_" => continue,
            // A misspelt `from` would otherwise be answered with all time.
            other => {
                return Err(refused(
                    ErrorDetail::new("unknown_field", "there is no such parameter").got(other.to_owned()),
                ));
            }
        };
        *slot = Some(decode(value).ok_or_else(|| refused(ErrorDetail::new("malformed", "is not UTF-8")))?);
    }
    let site = site.as_deref().or_else(|| only(config)).ok_or_else(|| missing("site"))?;
    let items = items.into_iter().map(Given::Text);
    check("item", site, items.collect(), from.as_deref(), to.as_deref(), config)
}

fn not_text(field: &str, at: usize) -> ApiError {
    refused(ErrorDetail::new("invalid_id", "is not UTF-8").field(format!("{field}[{at}]")))
}

/// Undoes the encoding of a query's value; none if the result is no UTF-8.
fn decode(value: &str) -> Option<String> {
    let spaces = value.replace('+', " ");
    percent_decode(spaces.as_bytes()).decode_utf8().ok().map(Cow::into_owned)
}

/// Reads the body of a POST: `{"site": …, "items": […], "from": …, "to": …}`.
pub(crate) fn from_json(body: &[u8], config: &CountsApiConfig) -> Result<Query, ApiError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body<'a> {
        #[serde(borrow)]
        site: Option<Cow<'a, str>>,
        #[serde(borrow)]
        items: Option<Vec<Given<'a>>>,
        #[serde(borrow)]
        from: Option<Cow<'a, str>>,
        #[serde(borrow)]
        to: Option<Cow<'a, str>>,
    }
    let body: Body<'_> = serde_json::from_slice(body).map_err(|error| {
        // The words are the parser's own and name fields, not what stood in them.
        refused(ErrorDetail::new("malformed", format!("the body is not the expected JSON: {error}")))
    })?;
    let site = body.site.as_deref().or_else(|| only(config)).ok_or_else(|| missing("site"))?;
    let items = body.items.ok_or_else(|| missing("items"))?;
    check("items", site, items, body.from.as_deref(), body.to.as_deref(), config)
}

/// An item's id as it was given.
#[derive(Debug)]
enum Given<'a> {
    Borrowed(&'a str),
    Text(String),
    /// A number that JavaScript may have rounded, or no id at all.
    NotAnId,
}

impl<'de: 'a, 'a> Deserialize<'de> for Given<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ids;
        impl<'de> Visitor<'de> for Ids {
            type Value = Given<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an item id")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Given<'de>, E> {
                Ok(Given::Borrowed(text))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Given<'de>, E> {
                Ok(Given::Text(text.to_owned()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Given<'de>, E> {
                let exact = number <= MAX_SAFE_INTEGER;
                Ok(if exact { Given::Text(number.to_string()) } else { Given::NotAnId })
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Given<'de>, E> {
                let exact = number.unsigned_abs() <= MAX_SAFE_INTEGER;
                Ok(if exact { Given::Text(number.to_string()) } else { Given::NotAnId })
            }

            fn visit_f64<E: Error>(self, _: f64) -> Result<Given<'de>, E> {
                Ok(Given::NotAnId)
            }

            fn visit_bool<E: Error>(self, _: bool) -> Result<Given<'de>, E> {
                Ok(Given::NotAnId)
            }

            fn visit_unit<E: Error>(self) -> Result<Given<'de>, E> {
                Ok(Given::NotAnId)
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Given<'de>, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Given::NotAnId)
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Given<'de>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Given::NotAnId)
            }
        }
        deserializer.deserialize_any(Ids)
    }
}

fn check(
    field: &'static str,
    site: &str,
    given: Vec<Given<'_>>,
    from: Option<&str>,
    to: Option<&str>,
    config: &CountsApiConfig,
) -> Result<Query, ApiError> {
    let site_id = SiteId::new(site)
        .map_err(|e| refused(ErrorDetail::new("invalid_site", format!("the site {e}")).field("site")))?;
    let mode = match config.sites.get(site) {
        Some(site) => site.items,
        None if config.sites.is_empty() => ItemMode::Opaque,
        None => {
            let detail = ErrorDetail::new("unknown_site", "there is no such site").field("site");
            return Err(detail.with_status(StatusCode::NOT_FOUND));
        }
    };
    if given.is_empty() {
        return Err(missing(field));
    }
    if given.len() > config.max_items {
        return Err(too_many_items(field, config.max_items, given.len()));
    }
    let items = given.into_iter().enumerate();
    let items =
        items.map(|(at, given)| item(field, at, given, &site_id, mode)).collect::<Result<Vec<_>, _>>()?;
    let days = days(from, to, items.len(), config)?;
    Ok(Query { site: site_id, items, days })
}

fn too_many_items(field: &'static str, limit: usize, got: usize) -> ApiError {
    let detail = ErrorDetail::new("too_many_items", "a request may name so many items");
    refused(detail.field(field).limit(limit).got(got))
}

fn item(
    field: &'static str,
    at: usize,
    given: Given<'_>,
    site: &SiteId,
    mode: ItemMode,
) -> Result<Asked, ApiError> {
    let place = || format!("{field}[{at}]");
    let label = match given {
        Given::Text(text) => text,
        Given::Borrowed(text) => text.to_owned(),
        Given::NotAnId => {
            let message = "an id is a string; an integer of at most 2^53 - 1 may stand for its digits";
            return Err(refused(ErrorDetail::new("id_must_be_string", message).field(place())));
        }
    };
    let read = mode.read(&label).and_then(|text| ItemId::new(&text));
    let id = read.map_err(|error| {
        let detail = ErrorDetail::new("invalid_id", format!("the id {error}")).field(place());
        refused(match error {
            onlooker_event::IdError::TooLong { got, .. } => detail.limit(MAX_ITEM_BYTES).got(got),
            _ => detail,
        })
    })?;
    Ok(Asked { label, key: ItemKey::new(site, &id) })
}

fn days(
    from: Option<&str>,
    to: Option<&str>,
    items: usize,
    config: &CountsApiConfig,
) -> Result<Option<(DayNumber, DayNumber)>, ApiError> {
    let (from, to) = match (from, to) {
        (None, None) => return Ok(None),
        (Some(from), Some(to)) => (day("from", from)?, day("to", to)?),
        (Some(_), None) => return Err(missing("to")),
        (None, Some(_)) => return Err(missing("from")),
    };
    if from > to {
        let detail = ErrorDetail::new("invalid_range", "the first day is after the last").field("from");
        return Err(refused(detail));
    }
    let count = usize::try_from(i64::from(to.0) - i64::from(from.0) + 1).unwrap_or(usize::MAX);
    if count > config.max_days {
        let detail = ErrorDetail::new("too_many_days", "a range may have so many days").field("to");
        return Err(refused(detail.limit(config.max_days).got(count)));
    }
    let reads = count.saturating_mul(items);
    if reads > config.max_day_reads {
        let message = "items times days may be so many; ask for fewer items or a shorter range";
        let detail = ErrorDetail::new("too_many_day_reads", message).field("to");
        return Err(refused(detail.limit(config.max_day_reads).got(reads)));
    }
    Ok(Some((from, to)))
}

/// `YYYY-MM-DD`.
fn day(field: &'static str, text: &str) -> Result<DayNumber, ApiError> {
    let bytes = text.as_bytes();
    let parsed = match bytes {
        [y @ .., b'-', m1, m2, b'-', d1, d2] if y.len() == 4 => {
            DayNumber::parse_compact(&[y[0], y[1], y[2], y[3], *m1, *m2, *d1, *d2])
        }
        _ => None,
    };
    parsed.ok_or_else(|| {
        let detail = ErrorDetail::new("invalid_day", "a day is written YYYY-MM-DD, in UTC").field(field);
        refused(detail.got(text.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SiteConfig;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn url(query: &str) -> Result<Query, ApiError> {
        from_url(query, &CountsApiConfig::default())
    }

    fn json(body: &str) -> Result<Query, ApiError> {
        from_json(body.as_bytes(), &CountsApiConfig::default())
    }

    fn labels(query: Query) -> Vec<String> {
        query.items.into_iter().map(|asked| asked.label).collect()
    }

    /// Code, field, limit and got of a refusal.
    fn refusal(result: Result<Query, ApiError>) -> (&'static str, String, String, String) {
        let error = result.unwrap_err();
        let detail = error.detail();
        let fact = |fact: &Option<onlooker_stage::http::Fact>| {
            fact.as_ref().map_or_else(String::new, |f| serde_json::to_string(f).unwrap())
        };
        let field = detail.field.clone().unwrap_or_default().into_owned();
        (detail.code, field, fact(&detail.limit), fact(&detail.got))
    }

    #[test]
    fn the_only_site_need_not_be_named() {
        let mut config = CountsApiConfig::default();
        assert_eq!(refusal(from_url("item=a", &config)).1, "site");
        config.sites.insert("blog".into(), crate::SiteConfig::default());
        assert_eq!(from_url("item=a", &config).unwrap().site.as_str(), "blog");
        assert_eq!(from_json(br#"{"items":["a"]}"#, &config).unwrap().site.as_str(), "blog");
        config.sites.insert("shop".into(), crate::SiteConfig::default());
        assert_eq!(refusal(from_url("item=a", &config)).1, "site");
    }

    #[test]
    fn order_and_repetitions_are_kept() {
        let query = url("site=s&item=b&item=a&item=b&_=17").unwrap();
        assert_eq!(labels(query), ["b", "a", "b"]);
        let query = json(r#"{"site":"s","items":["b",7,"a",-3]}"#).unwrap();
        assert_eq!(labels(query), ["b", "7", "a", "-3"]);
    }

    #[test]
    fn a_query_is_decoded_once() {
        let query =
            url("site=s&item=a%20b&item=a+b&item=a%2Bb&item=%25C3&item=%C3%BC&item=x%3Dy%26z").unwrap();
        assert_eq!(labels(query), ["a b", "a b", "a+b", "%C3", "\u{fc}", "x=y&z"]);
        assert_eq!(refusal(url("site=s&item=a&item=%FF")).1, "item[1]");
        assert_eq!(refusal(url("site=s&item=")).0, "invalid_id");
    }

    #[test]
    fn numbers_that_javascript_rounds_are_refused() {
        for exact in ["9007199254740991", "0", "-9007199254740991"] {
            assert_eq!(labels(json(&format!(r#"{{"site":"s","items":[{exact}]}}"#)).unwrap()), [exact]);
        }
        for bad in ["9007199254740992", "1161888007138312192", "1e3", "1.0", "-0", "true", "null", "[]", "{}"]
        {
            let (code, field, ..) = refusal(json(&format!(r#"{{"site":"s","items":["a",{bad}]}}"#)));
            assert_eq!((code, field.as_str()), ("id_must_be_string", "items[1]"), "{bad}");
        }
        // As text every id is what it is.
        let query = json(r#"{"site":"s","items":["1161888007138312192","0123","1.0"]}"#).unwrap();
        assert_eq!(labels(query), ["1161888007138312192", "0123", "1.0"]);
    }

    #[test]
    fn limits_are_named_with_what_came() {
        let many = vec!["item=a"; 1001].join("&");
        let got = refusal(url(&format!("site=s&{many}")));
        assert_eq!(got, ("too_many_items", "item".into(), "1000".into(), "1001".into()));
        let long = "x".repeat(1025);
        let got = refusal(url(&format!("site=s&item={long}")));
        assert_eq!(got, ("invalid_id", "item[0]".into(), "1024".into(), "1025".into()));
        let got = refusal(url("site=s&item=a&from=2025-01-01&to=2026-01-02"));
        assert_eq!(got, ("too_many_days", "to".into(), "366".into(), "367".into()));
        let items = ["item=a"; 11].join("&");
        let got = refusal(url(&format!("site=s&{items}&from=2025-01-01&to=2026-01-01")));
        assert_eq!(got, ("too_many_day_reads", "to".into(), "4000".into(), "4026".into()));
    }

    #[test]
    fn what_is_not_understood_is_not_answered() {
        for (query, code, field) in [
            ("item=a", "missing_field", "site"),
            ("site=s", "missing_field", "item"),
            ("site=S&item=a", "invalid_site", "site"),
            ("site=s&item=a&form=2026-01-01", "unknown_field", ""),
            ("site=s&item=a&from=2026-01-01", "missing_field", "to"),
            ("site=s&item=a&to=2026-01-01", "missing_field", "from"),
            ("site=s&item=a&from=2026-01-02&to=2026-01-01", "invalid_range", "from"),
            ("site=s&item=a&from=2026-02-30&to=2026-03-01", "invalid_day", "from"),
            ("site=s&item=a&from=20260201&to=2026-03-01", "invalid_day", "from"),
            ("site=s&item=a&from=2026-2-1&to=2026-03-01", "invalid_day", "from"),
            ("site=s&item=undefined", "invalid_id", "item[0]"),
            ("site=s&item=a%00b", "invalid_id", "item[0]"),
        ] {
            let (got, at, ..) = refusal(url(query));
            assert_eq!((got, at.as_str()), (code, field), "{query}");
        }
        for body in [
            "",
            "[]",
            r#"{"site":"s","items":"a"}"#,
            r#"{"site":"s","items":["a"],"form":"x"}"#,
            "{\"site\":\"\\ud83d\"}",
        ] {
            assert_eq!(refusal(json(body)).0, "malformed", "{body}");
        }
        assert_eq!(refusal(json(r#"{"site":"s","items":[]}"#)).1, "items");
    }

    #[test]
    fn a_known_site_reads_ids_as_its_collector_does() {
        let url_site = SiteConfig { items: ItemMode::Url };
        let config =
            CountsApiConfig { sites: BTreeMap::from([("s".into(), url_site)]), ..CountsApiConfig::default() };
        let query = from_url("site=s&item=/%25C3%25BCber&item=/%C3%BCber", &config).unwrap();
        let keys: Vec<_> = query.items.iter().map(|asked| asked.key.parts().1).collect();
        assert_eq!(keys, ["/\u{fc}ber", "/\u{fc}ber"]);
        assert_eq!(labels(query), ["/%C3%BCber", "/\u{fc}ber"]);
        let error = from_url("site=t&item=a", &config).unwrap_err();
        assert_eq!((error.status(), error.detail().code), (StatusCode::NOT_FOUND, "unknown_site"));
    }

    proptest! {
        #[test]
        fn any_query_is_read_or_refused(query in "([a-z_=&%+]|site=|item=|from=|%[0-9a-fA-F]{2}|\\PC){0,30}") {
            let _ = url(&query);
        }

        #[test]
        fn any_body_is_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = from_json(&body, &CountsApiConfig::default());
        }

        #[test]
        fn an_encoded_item_comes_back(item in "\\PC{1,20}") {
            let encoded: String = item.bytes().map(|b| format!("%{b:02x}")).collect();
            if let Ok(query) = url(&format!("site=s&item={encoded}")) {
                prop_assert_eq!(labels(query), [item]);
            }
        }
    }
}
