//! A writer of views that appends straight to a buffer, for the collector's hot path.

use crate::VERSION;
use crate::verdict::{put_bytes, put_int};
use onlooker_event::{Facts, ViewId, ViewerHash};

/// A view to be written, borrowed: the fields of `onlooker_event::View`. Who makes it has checked the ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewView<'a> {
    /// Minted by the collector.
    pub view_id: ViewId,
    /// A configured site.
    pub site: &'a str,
    /// A valid item id.
    pub item: &'a str,
    /// Who looked.
    pub viewer: ViewerHash,
    /// The version of the key that `viewer` was made with.
    pub key_version: u32,
    /// Milliseconds since 1970 (UTC).
    pub event_ms: i64,
    /// Milliseconds since 1970 (UTC).
    pub received_ms: i64,
    /// A valid client id. None and empty are one.
    pub client_id: Option<&'a str>,
    /// None and empty are one.
    pub user_agent: Option<&'a str>,
    /// None and empty are one.
    pub referrer: Option<&'a str>,
    /// What the collector saw.
    pub facts: Facts,
}

impl NewView<'_> {
    /// Appends the wire form (topic `views`).
    pub fn put(&self, out: &mut Vec<u8>) {
        put_int(out, 1, VERSION.into());
        put_bytes(out, 2, &self.view_id.0);
        put_bytes(out, 3, self.site.as_bytes());
        put_bytes(out, 4, self.item.as_bytes());
        put_bytes(out, 5, &self.viewer.0);
        put_int(out, 6, self.key_version.into());
        put_int(out, 7, self.event_ms);
        put_int(out, 8, self.received_ms);
        for (field, text) in [(9, self.client_id), (10, self.user_agent), (11, self.referrer)] {
            put_bytes(out, field, text.unwrap_or_default().as_bytes());
        }
        put_int(out, 12, self.facts.0.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire;
    use proptest::prelude::*;
    use prost::Message;

    proptest! {
        #[test]
        fn writes_what_the_library_writes(
            ids in any::<([u8; 16], [u8; 16])>(),
            texts in any::<[String; 5]>(),
            numbers in any::<(u32, i64, i64, u32)>(),
        ) {
            let [site, item, client_id, user_agent, referrer] = texts;
            let view = NewView {
                view_id: ViewId(ids.0),
                site: &site,
                item: &item,
                viewer: ViewerHash(ids.1),
                key_version: numbers.0,
                event_ms: numbers.1,
                received_ms: numbers.2,
                client_id: Some(&client_id),
                user_agent: Some(&user_agent),
                referrer: Some(&referrer),
                facts: Facts(numbers.3),
            };
            let mut out = Vec::new();
            view.put(&mut out);
            let message = wire::View {
                version: VERSION,
                view_id: ids.0.to_vec(),
                site,
                item,
                viewer: ids.1.to_vec(),
                key_version: numbers.0,
                event_ms: numbers.1,
                received_ms: numbers.2,
                client_id,
                user_agent,
                referrer,
                facts: numbers.3,
            };
            prop_assert_eq!(out, message.encode_to_vec());
        }
    }
}
