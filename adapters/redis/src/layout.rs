//! The keys that say which log the data beside them is a function of.

use std::sync::OnceLock;

use onlooker_ports::PortError;
use redis::{Cmd, Value};

use crate::client::Client;
use crate::keys::{Layout, slot_of_tag};
use crate::reply::Reader;

fn key(client: &Client, name: &str) -> (u16, Vec<u8>) {
    // No hash tag, so that the whole name decides where it stands.
    let key = [client.prefix().as_bytes(), name.as_bytes()].concat();
    (slot_of_tag(&key), key)
}

/// Writes the layout where there is none, and refuses another one.
///
/// With another number of partitions an item's records lie elsewhere, and with another generation offsets mean other
/// records: what is in Redis would be a function of no log at all.
pub(crate) async fn check_layout(client: &Client, name: &str, layout: &Layout) -> Result<(), PortError> {
    let Some(found) = read(client, name).await? else {
        let (slot, key) = key(client, name);
        let mut command = Cmd::new();
        command.arg("SET").arg(&key).arg(layout.encode()).arg("NX");
        let answer = client.command(slot, &command).await?;
        // Nil: another instance was faster. It is asked anew, since it may have another layout.
        return match answer {
            Value::Nil => Box::pin(check_layout(client, name, layout)).await,
            _ => Ok(()),
        };
    };
    if Layout::decode(&found).as_ref() == Some(layout) {
        return Ok(());
    }
    let detail = format!(
        "its data belong to log generation and partitions {:?}, not to {:?}: look at layout.generation and layout.partitions; if the log was replaced on purpose, empty this Redis",
        String::from_utf8_lossy(&found),
        layout.encode(),
    );
    Err(PortError::Misconfigured { server: client.server(), detail })
}

/// The topic that a log is, once somebody who can ask has said so. Its id is never another topic's, while generations are
/// named by people, and two systems may have the same name for theirs.
#[derive(Debug, Default)]
pub(crate) struct TopicId(OnceLock<Box<str>>);

impl TopicId {
    /// From here on, data of any other topic is refused.
    pub(crate) fn set(&self, server: &'static str, id: &str) -> Result<(), PortError> {
        let known = self.0.get_or_init(|| id.into());
        if **known == *id {
            return Ok(());
        }
        let detail = format!(
            "what is in it belongs to topic {known}, which was made anew meanwhile as {id}: a new topic is another log \
             generation"
        );
        Err(PortError::Misconfigured { server, detail })
    }

    /// Writes the topic's id where there is none, and refuses another one: offsets of two topics mean different records.
    pub(crate) async fn check(&self, client: &Client, name: &str) -> Result<(), PortError> {
        let Some(ours) = self.0.get() else { return Ok(()) };
        let mut found = read(client, name).await?;
        if found.is_none() {
            let (slot, key) = key(client, name);
            let mut command = Cmd::new();
            command.arg("SET").arg(&key).arg(&**ours).arg("NX");
            client.command(slot, &command).await?;
            // Somebody else may have been faster.
            found = read(client, name).await?;
        }
        match found {
            Some(found) if found != ours.as_bytes() => Err(PortError::Misconfigured {
                server: client.server(),
                detail: format!(
                    "its data belong to topic {}, and this log is topic {ours}: if two systems share this Redis, give one \
                     of them another or a prefix; if the topic was made anew on purpose, empty it",
                    String::from_utf8_lossy(&found),
                ),
            }),
            _ => Ok(()),
        }
    }
}

/// The layout that stands there; none if there is none.
pub(crate) async fn read_layout(client: &Client, name: &str) -> Result<Option<Layout>, PortError> {
    let Some(text) = read(client, name).await? else { return Ok(None) };
    let detail = "its layout key holds something that is no layout".to_owned();
    Layout::decode(&text).map(Some).ok_or(PortError::Misconfigured { server: client.server(), detail })
}

async fn read(client: &Client, name: &str) -> Result<Option<Vec<u8>>, PortError> {
    let (slot, key) = key(client, name);
    let mut command = Cmd::new();
    command.arg("GET").arg(&key);
    Reader { server: client.server(), command: "GET" }.bytes(client.command(slot, &command).await?)
}
