//! From a view as it was sent to a record: every field checked, the viewer hashed.

use crate::fields::{Fields, Value, shown};
use crate::identity::{Hasher, Identity};
use crate::sites::{Site, Sites};
use crate::text::free_text;
use onlooker_event::{ClientId, Facts, IdError, TraceParent, ViewId, ViewerHash, usable_viewer};
use onlooker_ports::{OutgoingBatch, Topic};
use onlooker_proto::NewView;
use onlooker_stage::http::ErrorDetail;
use rand::RngCore;
use std::borrow::Cow;
use std::net::IpAddr;

/// Longest user agent that is kept, in bytes; more is cut.
const MAX_AGENT_BYTES: usize = 512;
/// Longest referrer that is kept, in bytes; more is cut.
const MAX_REFERRER_BYTES: usize = 1024;
/// What a record has besides texts: key, ids, hash, numbers.
const RECORD_BYTES: usize = 96;
/// No view is older than the World Wide Web's common logs: 1990-01-01T00:00Z. What is, is seconds where milliseconds
/// were meant, or a clock that was never set.
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
    /// The `Origin` header, unless it is `null`.
    pub(crate) page_origin: Option<Cow<'a, str>>,
    /// What the headers say.
    pub(crate) facts: Facts,
    /// The trace that the request is part of.
    pub(crate) trace: Option<TraceParent>,
    /// When the request was received. Milliseconds since 1970 (UTC).
    pub(crate) now_ms: i64,
}

/// Makes records.
#[derive(Debug)]
pub(crate) struct Maker<'a> {
    pub(crate) sites: &'a Sites,
    pub(crate) hasher: &'a Hasher,
    pub(crate) origin: Origin<'a>,
}

/// A user agent as it identifies: none, empty and `-`, which access logs write for none, are one.
fn known_agent(agent: Option<&str>) -> Option<&str> {
    agent.filter(|agent| !agent.is_empty() && *agent != "-")
}

impl Maker<'_> {
    /// An empty batch with room for the records of so many views, whose JSON has so many bytes.
    pub(crate) fn batch_for(&self, views: usize, json_bytes: usize) -> OutgoingBatch {
        let agent = self.origin.agent.as_deref().map_or(0, |agent| agent.len().min(MAX_AGENT_BYTES));
        OutgoingBatch::with_capacity(views, json_bytes + views * (RECORD_BYTES + agent))
    }

    /// Appends one view's record to `out`, or says what is wrong with it. Returns the view's facts too.
    pub(crate) fn make(
        &self,
        fields: &Fields<'_>,
        out: &mut OutgoingBatch,
    ) -> Result<(ViewId, Facts), ErrorDetail> {
        let site = self.site(fields)?;
        let mut facts = self.origin.facts;
        if self.origin.trusted.is_some() {
            facts = facts.with(Facts::TRUSTED);
        } else {
            self.check_untrusted(fields, site)?;
        }
        let item = fields.item.text("item")?.ok_or_else(|| missing("item", "a view needs its item"))?;
        let item = site.config.items.read(item).map_err(|problem| invalid("item", problem))?;
        let client_id = fields.id.text("id")?;
        if let Some(id) = client_id {
            ClientId::check(id).map_err(|problem| invalid("id", problem))?;
        }
        let agent = known_agent(match self.origin.trusted {
            Some(_) => fields.ua.text("ua")?,
            None => self.origin.agent.as_deref(),
        });
        let viewer = self.viewer(fields, site, agent, &mut facts)?;
        let referrer = match fields.referrer.text("referrer")? {
            Some(text) => Some(text),
            // A back end's own Referer says nothing of its viewers.
            None if self.origin.trusted.is_some() => None,
            None => self.origin.referrer.as_deref(),
        };
        let now_ms = self.origin.now_ms;
        // A future time would wait in the log for a window that has not begun.
        let event_ms = time(&fields.at)?.map_or(now_ms, |at_ms| at_ms.min(now_ms));
        let (agent, referrer) = (
            agent.and_then(|text| free_text(text, MAX_AGENT_BYTES)),
            referrer.and_then(|text| free_text(text, MAX_REFERRER_BYTES)),
        );
        let view = NewView {
            view_id: view_id(now_ms),
            site: site.id.as_str(),
            item: &item,
            viewer,
            key_version: self.hasher.version(),
            event_ms,
            received_ms: now_ms,
            client_id,
            user_agent: agent.as_deref(),
            referrer: referrer.as_deref(),
            facts,
        };
        out.push_with(Topic::Views, &viewer.0, |buffer| view.put(buffer));
        out.trace_last(self.origin.trace.as_ref());
        Ok((view.view_id, facts))
    }

    /// The site by name, by key, or by the token; or the only one.
    fn site(&self, fields: &Fields<'_>) -> Result<&Site, ErrorDetail> {
        let (name, key) = (fields.site.text("site")?, fields.key.text("key")?);
        let by_name = match name {
            None => None,
            Some(name) => Some(self.sites.by_name(name).ok_or_else(|| {
                ErrorDetail::new("unknown_site", "there is no such site").field("site").got(shown(name))
            })?),
        };
        let by_key = match key {
            None => None,
            Some(key) => Some(
                self.sites
                    .by_key(key)
                    .ok_or_else(|| ErrorDetail::new("unknown_key", "no site has this key").field("key"))?,
            ),
        };
        if let (Some(a), Some(b)) = (by_name, by_key)
            && a.id != b.id
        {
            return Err(ErrorDetail::new("unknown_key", "the key is another site's").field("key"));
        }
        let site = by_name
            .or(by_key)
            .or(self.origin.trusted)
            .or_else(|| self.sites.only())
            .ok_or_else(|| missing("site", "a view needs its site"))?;
        if self.origin.trusted.is_some_and(|trusted| trusted.id != site.id) {
            return Err(ErrorDetail::new("wrong_site", "the token is another site's").field("site"));
        }
        Ok(site)
    }

    /// What a page must show, and what only a back end may say. A field that is not believed is refused and not left
    /// out: a back end that lost its token would otherwise count all its viewers as one, and nobody would notice.
    fn check_untrusted(&self, fields: &Fields<'_>, site: &Site) -> Result<(), ErrorDetail> {
        // Whether it is this site's key was seen when the site was found.
        if site.config.key.is_some() && fields.key.is_absent() {
            return Err(missing("key", "the site asks for its public key"));
        }
        if let Some(origin) = self.origin.page_origin.as_deref()
            && !site.allows(origin)
        {
            let message = "pages of this origin may not send views of the site";
            return Err(ErrorDetail::new("origin_not_allowed", message).field("Origin").got(shown(origin)));
        }
        let told = [
            ("viewer", &fields.viewer),
            ("ip", &fields.ip),
            ("ua", &fields.ua),
            ("at", &fields.at),
            ("owner", &fields.owner),
        ];
        match told.into_iter().find(|(_, value)| !value.is_absent()) {
            Some((field, _)) => {
                let message = "only a request with the site's server token may say this";
                Err(ErrorDetail::new("trusted_only", message).field(field))
            }
            None => Ok(()),
        }
    }

    /// Who looked. A viewer id that cannot be one never becomes a person whom everybody shares.
    fn viewer(
        &self,
        fields: &Fields<'_>,
        site: &Site,
        agent: Option<&str>,
        facts: &mut Facts,
    ) -> Result<ViewerHash, ErrorDetail> {
        let hash = |identity: Identity<'_>| self.hasher.hash(&site.id, identity);
        let named = fields.viewer.text("viewer")?;
        let session = if site.config.sessions { fields.session.text("session")? } else { None };
        let mut unusable = None;
        for identity in [named.map(Identity::Named), session.map(Identity::Session)].into_iter().flatten() {
            let (Identity::Named(id) | Identity::Session(id)) = identity else { continue };
            match usable_viewer(id) {
                Ok(()) => {
                    if identity == Identity::Named(id) && fields.owner.text("owner")? == Some(id) {
                        *facts = facts.with(Facts::SELF_VIEW);
                    }
                    return Ok(hash(identity));
                }
                Err(problem) => {
                    unusable = unusable.or(Some(problem));
                    *facts = facts.with(Facts::BAD_VIEWER);
                }
            }
        }
        if self.origin.trusted.is_none() {
            return Ok(hash(Identity::Anonymous(self.origin.address, agent)));
        }
        match (fields.ip.text("ip")?, unusable) {
            (Some(ip), _) => {
                let address = ip.trim().parse().map_err(|_| {
                    ErrorDetail::new("invalid_ip", "ip is not an IPv4 or IPv6 address").field("ip")
                })?;
                Ok(hash(Identity::Anonymous(address, agent)))
            }
            // The request's own address is the back end's: it would make one person of all viewers.
            (None, Some(problem)) => {
                Err(ErrorDetail::new("invalid_viewer", format!("viewer {problem}")).field("viewer"))
            }
            (None, None) => Err(missing("viewer", "a back end's view needs viewer or ip")),
        }
    }
}

fn missing(field: &'static str, message: &'static str) -> ErrorDetail {
    ErrorDetail::new("missing_field", message).field(field)
}

fn invalid(field: &'static str, problem: IdError) -> ErrorDetail {
    let detail = ErrorDetail::new("invalid_id", format!("{field} {problem}")).field(field);
    match problem {
        IdError::TooLong { limit, got } => detail.limit(limit).got(got),
        _ => detail,
    }
}

/// A UUIDv7 (RFC 9562 §5.7): the receive time and random bits. Not by the library's own clock, which is a lock and
/// another look at the time for every view.
fn view_id(now_ms: i64) -> ViewId {
    let mut random = [0; 10];
    rand::rng().fill_bytes(&mut random);
    let ms = u64::try_from(now_ms).unwrap_or(0);
    ViewId(uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid().into_bytes())
}

/// RFC 3339, or milliseconds since 1970.
fn time(at: &Value<'_>) -> Result<Option<i64>, ErrorDetail> {
    let (ms, text) = match at {
        Value::Absent => return Ok(None),
        Value::Text(text) => {
            let ms = text.parse::<i64>().ok();
            let stamp = || text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond);
            (ms.or_else(stamp), &**text)
        }
        Value::Other(json) => (None, *json),
    };
    match ms.filter(|ms| *ms >= OLDEST_MS) {
        Some(ms) => Ok(Some(ms)),
        None => {
            let message = "at must be RFC 3339 or milliseconds since 1970, and not before 1990";
            Err(ErrorDetail::new("invalid_at", message)
                .field("at")
                .limit("1990-01-01T00:00:00Z")
                .got(shown(text)))
        }
    }
}
