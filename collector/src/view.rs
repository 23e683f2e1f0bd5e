//! From a view as it was sent to a view as it is recorded: every field checked, the viewer hashed.

use crate::config::{ItemMode, Site};
use crate::identity::{Hasher, Identity};
use crate::input::RawView;
use crate::text::{Scalar, canonical_path, free_text, scalar};
use axum::http::HeaderMap;
use onlooker_event::{ClientId, Facts, IdError, ItemId, View, ViewId, usable_viewer};
use onlooker_stage::http::ErrorDetail;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::net::IpAddr;
use subtle::ConstantTimeEq;

/// Longest user agent that is kept, in bytes; more is cut.
const MAX_AGENT_BYTES: usize = 512;
/// Longest referrer that is kept, in bytes; more is cut.
const MAX_REFERRER_BYTES: usize = 1024;
/// No view is older than the World Wide Web's common logs: 1990-01-01T00:00Z.
const OLDEST_MS: i64 = 631_152_000_000;

/// What all views of one request share.
#[derive(Debug)]
pub(crate) struct Origin<'a> {
    /// The site whose back end sent the request, if a token said so.
    pub(crate) trusted: Option<&'a Site>,
    /// The client's address.
    pub(crate) address: IpAddr,
    /// The `User-Agent` header.
    pub(crate) agent: Option<Cow<'a, str>>,
    /// The `Referer` header.
    pub(crate) referrer: Option<Cow<'a, str>>,
    /// The `Origin` header.
    pub(crate) page_origin: Option<&'a str>,
    /// What the headers say.
    pub(crate) facts: Facts,
    /// When the request was received. Milliseconds since 1970 (UTC).
    pub(crate) now_ms: i64,
}

/// Makes views.
#[derive(Debug)]
pub(crate) struct Maker<'a> {
    pub(crate) sites: &'a [Site],
    pub(crate) hasher: &'a Hasher,
    pub(crate) origin: Origin<'a>,
}

/// Facts that the request's headers tell: the browser fetched ahead of anybody looking.
pub(crate) fn header_facts(headers: &HeaderMap) -> Facts {
    let says = |name: &str, word: &str| {
        headers.get_all(name).iter().any(|v| {
            v.to_str().is_ok_and(|v| v.to_ascii_lowercase().split([';', ',']).any(|part| part.trim() == word))
        })
    };
    let ahead = says("sec-purpose", "prefetch")
        || says("sec-purpose", "prerender")
        || says("purpose", "prefetch")
        || says("x-purpose", "preview")
        || says("x-moz", "prefetch")
        || says("next-router-prefetch", "1");
    if ahead { Facts::PREFETCH } else { Facts::default() }
}

impl<'a> Maker<'a> {
    /// One view, or what is wrong with it.
    pub(crate) fn make(&self, raw: &RawView<'_>) -> Result<View, ErrorDetail> {
        let site = self.site(raw)?;
        if self.origin.trusted.is_none() {
            self.check_untrusted(raw, site)?;
        }
        let item = item(raw.item, site)?;
        let client_id = client_id(raw.id)?;
        let mut facts = self.origin.facts;
        if self.origin.trusted.is_some() {
            facts = facts.with(Facts::TRUSTED);
        }
        let (viewer, agent) = self.viewer(raw, site, &mut facts)?;
        let referrer = match text_field("referrer", raw.referrer)? {
            Some(text) => free_text(&text, MAX_REFERRER_BYTES),
            // A back end's own Referer says nothing of its viewers.
            None if self.origin.trusted.is_some() => None,
            None => self.origin.referrer.as_deref().and_then(|r| free_text(r, MAX_REFERRER_BYTES)),
        };
        let event_ms = match raw.at {
            Some(at) => time(at)?.min(self.origin.now_ms),
            None => self.origin.now_ms,
        };
        Ok(View {
            view_id: ViewId(uuid::Uuid::now_v7().into_bytes()),
            site: site.id.clone(),
            item,
            viewer,
            key_version: self.hasher.version(),
            event_ms,
            received_ms: self.origin.now_ms,
            client_id,
            user_agent: agent.and_then(|a| free_text(&a, MAX_AGENT_BYTES)),
            referrer,
            facts,
        })
    }

    /// The site by name, by key, or by the token.
    fn site(&self, raw: &RawView<'_>) -> Result<&'a Site, ErrorDetail> {
        let name = text_field("site", raw.site)?;
        let key = text_field("key", raw.key)?;
        let by_name = name.as_deref().map(|n| self.sites.iter().find(|s| s.id.as_str() == n));
        let by_key = key.as_deref().map(|k| self.sites.iter().find(|s| s.config.key.as_deref() == Some(k)));
        let site = match (by_name, by_key, self.origin.trusted) {
            (Some(None), _, _) => {
                return Err(ErrorDetail::new("unknown_site", "there is no such site")
                    .field("site")
                    .got(name.unwrap_or_default().into_owned()));
            }
            (_, Some(None), _) => {
                return Err(ErrorDetail::new("unknown_key", "no site has this key").field("key"));
            }
            (Some(Some(a)), Some(Some(b)), _) if a.id != b.id => {
                return Err(ErrorDetail::new("unknown_key", "the key is another site's").field("key"));
            }
            (Some(Some(site)), _, _) | (None, Some(Some(site)), _) => site,
            (None, None, Some(site)) => site,
            (None, None, None) => {
                return Err(ErrorDetail::new("missing_field", "a view needs its site").field("site"));
            }
        };
        match self.origin.trusted {
            Some(trusted) if trusted.id != site.id => {
                Err(ErrorDetail::new("wrong_site", "the token is another site's").field("site"))
            }
            _ => Ok(site),
        }
    }

    /// What a page must show, and what only a back end may say.
    fn check_untrusted(&self, raw: &RawView<'_>, site: &Site) -> Result<(), ErrorDetail> {
        if let Some(expected) = site.config.key.as_deref() {
            let key = text_field("key", raw.key)?;
            if key.as_deref() != Some(expected) {
                let problem = "the site asks for its public key";
                return Err(ErrorDetail::new(
                    if key.is_some() { "unknown_key" } else { "missing_field" },
                    problem,
                )
                .field("key"));
            }
        }
        if let Some(origin) = self.origin.page_origin
            && !allows(site, origin)
        {
            return Err(ErrorDetail::new(
                "origin_not_allowed",
                "pages of this origin may not send views of the site",
            )
            .field("Origin")
            .got(origin.to_owned()));
        }
        let told =
            [("viewer", raw.viewer), ("ip", raw.ip), ("ua", raw.ua), ("at", raw.at), ("owner", raw.owner)];
        match told.iter().find(|(_, value)| value.is_some()) {
            Some((field, _)) => Err(ErrorDetail::new(
                "trusted_only",
                "only a request with the site's server token may say this",
            )
            .field(*field)),
            None => Ok(()),
        }
    }

    /// Who looked, and with what user agent. A viewer id that cannot be one never becomes a person whom everybody
    /// shares.
    fn viewer(
        &self,
        raw: &RawView<'_>,
        site: &Site,
        facts: &mut Facts,
    ) -> Result<(onlooker_event::ViewerHash, Option<Cow<'_, str>>), ErrorDetail> {
        let trusted = self.origin.trusted.is_some();
        let agent = if trusted {
            // "-" is how access logs write that there is none.
            text_field("ua", raw.ua)?.filter(|ua| ua != "-").map(|ua| Cow::Owned(ua.into_owned()))
        } else {
            self.origin.agent.clone()
        };
        let named = if trusted { text_field("viewer", raw.viewer)? } else { None };
        let session = if site.config.sessions { text_field("session", raw.session)? } else { None };
        let mut usable = |text: &Option<Cow<'_, str>>| match text.as_deref().map(usable_viewer) {
            Some(Err(problem)) => {
                *facts = facts.with(Facts::BAD_VIEWER);
                Some(problem)
            }
            _ => None,
        };
        let (bad_name, bad_session) = (usable(&named), usable(&session));
        let named = named.filter(|_| bad_name.is_none());
        let session = session.filter(|_| bad_session.is_none());

        if let (Some(viewer), Some(owner)) = (&named, text_field("owner", raw.owner)?)
            && bool::from(viewer.as_bytes().ct_eq(owner.as_bytes()))
        {
            *facts = facts.with(Facts::SELF_VIEW);
        }
        let hash = |identity: Identity<'_>| self.hasher.hash(&site.id, identity);
        if let Some(viewer) = &named {
            return Ok((hash(Identity::Named(viewer)), agent));
        }
        if let Some(session) = &session {
            return Ok((hash(Identity::Session(session)), agent));
        }
        let address = match (trusted, text_field("ip", raw.ip)?) {
            (false, _) => self.origin.address,
            (true, Some(ip)) => ip
                .parse()
                .map_err(|_| ErrorDetail::new("invalid_ip", "is not an IPv4 or IPv6 address").field("ip"))?,
            // The request's own address is the back end's: it would make one person of all viewers.
            (true, None) => {
                let detail = match bad_name {
                    Some(problem) => ErrorDetail::new("invalid_viewer", format!("viewer {problem}")),
                    None => ErrorDetail::new("missing_field", "a back end's view needs viewer or ip"),
                };
                return Err(detail.field("viewer"));
            }
        };
        let viewer = hash(Identity::Anonymous(address, agent.as_deref()));
        Ok((viewer, agent))
    }
}

/// Whether pages of this origin may send views of the site.
pub(crate) fn allows(site: &Site, origin: &str) -> bool {
    site.config.origins.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin))
}

/// A text field: absent and `null` are one; what is neither text nor a safe integer is refused.
fn text_field<'a>(
    field: &'static str,
    raw: Option<&'a RawValue>,
) -> Result<Option<Cow<'a, str>>, ErrorDetail> {
    match raw.map(|r| scalar(r.get())) {
        None | Some(Scalar::Null) => Ok(None),
        Some(Scalar::Text(text)) => Ok(Some(text)),
        Some(Scalar::Other) => {
            let got = free_text(raw.map_or("", RawValue::get), 40).map(String::from).unwrap_or_default();
            Err(ErrorDetail::new(
                "id_must_be_string",
                format!("{field} must be a string, or an integer of at most 9007199254740991"),
            )
            .field(field)
            .got(got))
        }
    }
}

fn invalid(field: &'static str, code: &'static str, problem: IdError) -> ErrorDetail {
    let detail = ErrorDetail::new(code, format!("{field} {problem}")).field(field);
    match problem {
        IdError::TooLong { limit, got } => detail.limit(limit).got(got),
        _ => detail,
    }
}

fn item(raw: Option<&RawValue>, site: &Site) -> Result<ItemId, ErrorDetail> {
    let text = text_field("item", raw)?
        .ok_or_else(|| ErrorDetail::new("missing_field", "a view needs its item").field("item"))?;
    let text = match site.config.items {
        ItemMode::Opaque => text,
        ItemMode::Url => Cow::Owned(canonical_path(&text).into_owned()),
    };
    ItemId::new(&text).map_err(|problem| invalid("item", "invalid_id", problem))
}

fn client_id(raw: Option<&RawValue>) -> Result<Option<ClientId>, ErrorDetail> {
    let text = text_field("id", raw)?;
    text.map(|t| ClientId::new(&t).map_err(|problem| invalid("id", "invalid_id", problem))).transpose()
}

/// RFC 3339, or milliseconds since 1970.
fn time(raw: &RawValue) -> Result<i64, ErrorDetail> {
    let text = raw.get();
    let ms = match text.as_bytes().first() {
        Some(b'"') => {
            text.trim_matches('"').parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
        }
        _ => text.parse().ok(),
    };
    ms.filter(|ms| *ms >= OLDEST_MS).ok_or_else(|| {
        ErrorDetail::new("invalid_at", "at must be RFC 3339 or milliseconds since 1970, and not before 1990")
            .field("at")
            .limit("1990-01-01T00:00:00Z")
            .got(free_text(text, 40).map(String::from).unwrap_or_default())
    })
}
