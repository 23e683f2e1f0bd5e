//! Records of the log, decoded for people and scripts.

use super::look::time;
use crate::import::hex;
use onlooker_event::{Facts, TraceParent, View};
use onlooker_ports::{RecordRef, Topic};
use onlooker_proto::{
    CARRIED_OVER, Dead, DeadEntry, DeadMark, DecodeError, decode_counted, decode_dead_entry, decode_ignored,
    decode_view,
};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The topics, as commands call them on every system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
pub(super) enum TopicName {
    #[value(name = "views")]
    #[serde(rename = "views")]
    Views,
    #[value(name = "views.counted")]
    #[serde(rename = "views.counted")]
    Counted,
    #[value(name = "views.ignored")]
    #[serde(rename = "views.ignored")]
    Ignored,
    #[value(name = "views.dead")]
    #[serde(rename = "views.dead")]
    Dead,
}

impl TopicName {
    /// Where outcomes are.
    pub(super) const VERDICTS: [Self; 3] = [Self::Counted, Self::Ignored, Self::Dead];

    pub(super) fn topic(self) -> Topic {
        match self {
            Self::Views => Topic::Views,
            Self::Counted => Topic::Counted,
            Self::Ignored => Topic::Ignored,
            Self::Dead => Topic::Dead,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Views => "views",
            Self::Counted => "views.counted",
            Self::Ignored => "views.ignored",
            Self::Dead => "views.dead",
        }
    }
}

/// A record of any topic. What its kind does not have, or could not be read, is none. Times in milliseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) append_ms: i64,
    /// `view`, `counted`, `ignored`, `dead`, `mark` (what became of a dead letter), or `unreadable`.
    pub(super) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) view_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) site: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) item: Option<String>,
    /// The viewer's hash, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) viewer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key_version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) received_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) facts: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user_agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) referrer: Option<String>,
    /// Why it does not count, or could not be judged; what was done with a letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
    /// What the record is about: a view, or of a mark the letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source_topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source_partition: Option<i32>,
    /// None of a counted view: it was carried over from another log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source_offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rule_version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) slice: Option<i64>,
    /// The trace that the view's request was part of, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trace_id: Option<String>,
    /// Why it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
}

/// A view's id as people write it.
pub(super) fn uuid(id: [u8; 16]) -> String {
    uuid::Uuid::from_bytes(id).hyphenated().to_string()
}

/// A trace's id as people write it.
pub(super) fn trace_id(trace: &TraceParent) -> String {
    trace.trace_id().to_string()
}

fn facts(facts: Facts) -> Vec<String> {
    let known = [
        (Facts::PREFETCH, "prefetch"),
        (Facts::SELF_VIEW, "self_view"),
        (Facts::BAD_VIEWER, "bad_viewer"),
        (Facts::TRUSTED, "trusted"),
    ];
    known.iter().filter(|(fact, _)| facts.has(*fact)).map(|(_, name)| (*name).to_owned()).collect()
}

impl Record {
    /// Decodes as far as it can be. `headers`: with user agent and referrer.
    pub(super) fn read(name: TopicName, partition: i32, record: &RecordRef<'_>, headers: bool) -> Self {
        let mut read = Self {
            topic: name.as_str().to_owned(),
            partition,
            offset: record.offset,
            append_ms: record.append_ms,
            trace_id: record.trace.map(trace_id),
            ..Self::default()
        };
        let outcome = match name {
            TopicName::Views => decode_view(record.payload).map(|view| {
                read.kind = "view".into();
                read.view(view, headers);
            }),
            TopicName::Counted => decode_counted(record.payload).map(|counted| {
                read.kind = "counted".into();
                read.ids(counted.view_id.0, counted.site.as_str(), counted.item.as_str(), counted.viewer.0);
                read.event_ms = Some(counted.event_ms);
                read.source_partition = Some(counted.source_partition);
                read.source_offset = Some(counted.source_offset).filter(|offset| *offset != CARRIED_OVER);
                read.rule_version = Some(counted.rule_version);
                read.slice = Some(counted.slice);
            }),
            TopicName::Ignored => decode_ignored(record.payload).map(|ignored| {
                read.kind = "ignored".into();
                read.ids(ignored.view_id.0, ignored.site.as_str(), ignored.item.as_str(), ignored.viewer.0);
                read.event_ms = Some(ignored.event_ms);
                read.source_partition = Some(ignored.source_partition);
                read.source_offset = Some(ignored.source_offset);
                read.reason = Some(ignored.reason.as_str().to_owned());
                read.rule_version = Some(ignored.rule_version);
                read.slice = Some(ignored.slice);
            }),
            TopicName::Dead => decode_dead_entry(record.payload).map(|entry| match entry {
                DeadEntry::Letter(letter) => read.letter(letter, headers),
                DeadEntry::Mark(mark) => read.mark(mark),
            }),
        };
        if let Err(error) = outcome {
            read.unreadable(&error);
        }
        read
    }

    fn ids(&mut self, view_id: [u8; 16], site: &str, item: &str, viewer: [u8; 16]) {
        self.view_id = Some(uuid(view_id));
        self.site = Some(site.to_owned());
        self.item = Some(item.to_owned());
        self.viewer = Some(hex(&viewer));
    }

    fn view(&mut self, view: View, headers: bool) {
        self.ids(view.view_id.0, view.site.as_str(), view.item.as_str(), view.viewer.0);
        self.key_version = Some(view.key_version);
        self.event_ms = Some(view.event_ms);
        self.received_ms = Some(view.received_ms);
        self.client_id = view.client_id.map(|id| id.as_str().to_owned());
        self.facts = facts(view.facts);
        if headers {
            self.user_agent = view.user_agent.map(String::from);
            self.referrer = view.referrer.map(String::from);
        }
    }

    /// A dead letter.
    pub(super) fn of_letter(
        partition: i32,
        offset: i64,
        append_ms: i64,
        letter: Dead,
        headers: bool,
    ) -> Self {
        let topic = TopicName::Dead.as_str().to_owned();
        let mut read = Self { topic, partition, offset, append_ms, ..Self::default() };
        read.letter(letter, headers);
        read
    }

    fn letter(&mut self, letter: Dead, headers: bool) {
        self.kind = "dead".into();
        if let Ok(view) = decode_view(Some(&letter.payload)) {
            self.view(view, headers);
        } else if let Ok(counted) = decode_counted(Some(&letter.payload)) {
            self.ids(counted.view_id.0, counted.site.as_str(), counted.item.as_str(), counted.viewer.0);
        }
        self.reason = Some(letter.reason.as_str().to_owned());
        self.detail = Some(letter.detail);
        self.source_topic = Some(letter.source_topic);
        self.source_partition = Some(letter.source_partition);
        self.source_offset = Some(letter.source_offset);
    }

    fn mark(&mut self, mark: DeadMark) {
        self.kind = "mark".into();
        self.reason = Some(mark.step.as_str().to_owned());
        self.source_topic = Some(TopicName::Dead.as_str().to_owned());
        self.source_partition = Some(mark.letter_partition);
        self.source_offset = Some(mark.letter_offset);
    }

    fn unreadable(&mut self, error: &DecodeError) {
        self.kind = "unreadable".into();
        self.reason = Some(error.reason().as_str().to_owned());
        self.problem = Some(error.to_string());
    }

    /// One line for people.
    pub(super) fn line(&self) -> String {
        let Self { topic, partition, offset, kind, .. } = self;
        let mut out = format!("{}  {topic} {partition}:{offset}  {kind}", time(self.append_ms));
        let mut put = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                // What a client sent must not move a terminal's cursor.
                let value: String = value.chars().flat_map(printable).collect();
                let _ =
                    if name.is_empty() { write!(out, " {value}") } else { write!(out, "  {name} {value}") };
            }
        };
        put("", self.reason.clone());
        put("site", self.site.clone());
        put("item", self.item.clone());
        put("viewer", self.viewer.clone());
        put("view", self.view_id.clone());
        put("id", self.client_id.clone());
        put("trace", self.trace_id.clone());
        put("event", self.event_ms.map(time));
        let source = self.source_partition.map(|partition| match (self.source_offset, &self.source_topic) {
            (None, _) => "another log".to_owned(),
            (Some(offset), None) => format!("{partition}:{offset}"),
            (Some(offset), Some(topic)) => format!("{topic} {partition}:{offset}"),
        });
        put("of", source);
        put("rules", self.rule_version.map(|version| version.to_string()));
        put("facts", (!self.facts.is_empty()).then(|| self.facts.join(",")));
        put("agent", self.user_agent.clone());
        put("referrer", self.referrer.clone());
        put("detail", self.detail.clone().or_else(|| self.problem.clone()));
        out
    }
}

/// A character, or how it is written where it would do something to a terminal.
fn printable(c: char) -> impl Iterator<Item = char> {
    let (plain, escaped) = if c.is_control() { (None, Some(c.escape_default())) } else { (Some(c), None) };
    plain.into_iter().chain(escaped.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_event::{DeadReason, ItemId, SiteId, ViewId, ViewerHash};
    use onlooker_proto::{MarkStep, encode_dead, encode_dead_mark, encode_view};

    fn view() -> View {
        View {
            view_id: ViewId([1; 16]),
            site: SiteId::new("blog").unwrap(),
            item: ItemId::new("/a").unwrap(),
            viewer: ViewerHash([0xab; 16]),
            key_version: 1,
            event_ms: 1_000,
            received_ms: 2_000,
            client_id: None,
            user_agent: Some("secret agent\u{1b}[2J".into()),
            referrer: Some("from where".into()),
            facts: Facts::TRUSTED,
        }
    }

    fn read(name: TopicName, payload: &[u8], headers: bool) -> Record {
        let record =
            RecordRef { offset: 7, append_ms: 3_000, key: None, payload: Some(payload), trace: None };
        Record::read(name, 2, &record, headers)
    }

    #[test]
    fn headers_are_shown_when_asked_for_alone() {
        let mut bytes = Vec::new();
        encode_view(&view(), &mut bytes);
        let shown = read(TopicName::Views, &bytes, false);
        assert_eq!((shown.user_agent.as_deref(), shown.referrer.as_deref()), (None, None));
        assert!(!shown.line().contains("secret agent"), "{}", shown.line());
        let shown = read(TopicName::Views, &bytes, true).line();
        assert!(shown.contains("agent secret agent\\u{1b}[2J  referrer from where"), "{shown}");
        assert!(shown.contains("facts trusted"), "{shown}");
    }

    #[test]
    fn letters_show_what_can_be_read_of_them() {
        let mut payload = Vec::new();
        encode_view(&view(), &mut payload);
        let letter = |payload: &[u8]| Dead {
            reason: DeadReason::UnknownSite,
            detail: "no such site".into(),
            source_topic: "views".into(),
            source_partition: 1,
            source_offset: 9,
            source_append_ms: 5,
            key: bytes::Bytes::new(),
            payload: bytes::Bytes::copy_from_slice(payload),
        };
        for (payload, site) in [(&payload[..], Some("blog")), (b"garbage", None)] {
            let mut bytes = Vec::new();
            encode_dead(&letter(payload), &mut bytes);
            let shown = read(TopicName::Dead, &bytes, false);
            assert_eq!((shown.kind.as_str(), shown.site.as_deref()), ("dead", site));
            assert!(shown.line().contains("dead unknown_site"), "{}", shown.line());
            assert!(shown.line().contains("of views 1:9"), "{}", shown.line());
            assert_eq!(shown.user_agent, None);
        }
    }

    #[test]
    fn marks_and_garbage_are_told_apart() {
        let mut bytes = Vec::new();
        let mark = DeadMark {
            step: MarkStep::Retried,
            letter_partition: 1,
            letter_offset: 5,
            attempt: [0; 16],
            replaces: None,
        };
        encode_dead_mark(&mark, &mut bytes);
        let shown = read(TopicName::Dead, &bytes, false);
        assert!(shown.line().contains("mark retried  of views.dead 1:5"), "{}", shown.line());
        let shown = read(TopicName::Counted, b"garbage", false);
        assert_eq!((shown.kind.as_str(), shown.reason.as_deref()), ("unreadable", Some("malformed")));
    }
}
