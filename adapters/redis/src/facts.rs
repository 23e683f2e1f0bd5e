//! What a server says of itself, for people. Changes nothing.

use std::collections::BTreeMap;

use onlooker_ports::PortError;
use redis::Pipeline;

use crate::check::field;
use crate::client::Client;
use crate::counts::RedisCounters;
use crate::dedup::RedisDedup;
use crate::keys::Namespace;
use crate::layout::read_layout;
use crate::reply::Reader;

/// One master that holds a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    /// Names the process, until it starts anew.
    pub run_id: String,
    /// As the server calls itself: its version.
    pub version: String,
    /// `maxmemory-policy`.
    pub policy: String,
    /// Bytes in use.
    pub used_bytes: u64,
    /// `maxmemory`; 0: none.
    pub limit_bytes: u64,
    /// Its clock when it answered, milliseconds since 1970; none if it does not say.
    pub clock_ms: Option<i64>,
}

/// All masters, and whether what they hold is of this log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Each once.
    pub masters: Vec<ServerFacts>,
    /// False: the data belong to another generation, or to another number of partitions.
    pub is_of_this_log: bool,
}

async fn facts(client: &Client, names: &Namespace, layout: &str) -> Result<Facts, PortError> {
    let mut info = Pipeline::new();
    info.cmd("INFO").arg("server").cmd("INFO").arg("memory");
    let reader = Reader { server: client.server(), command: "INFO" };
    let mut masters = BTreeMap::new();
    for names in names.all() {
        let mut text = String::new();
        for answer in client.pipeline(names.slot(), &info).await? {
            let bytes = reader.bytes(client.checked(answer)?)?.unwrap_or_default();
            text.push_str(&String::from_utf8_lossy(&bytes));
            text.push('\n');
        }
        let word = |name| field(&text, name).map(|word| word.trim().to_owned());
        let number = |name| word(name).and_then(|digits| digits.parse::<u64>().ok());
        let facts = ServerFacts {
            run_id: word("run_id").unwrap_or_default(),
            version: word("valkey_version").or_else(|| word("redis_version")).unwrap_or_default(),
            policy: word("maxmemory_policy").unwrap_or_default(),
            used_bytes: number("used_memory").unwrap_or(0),
            limit_bytes: number("maxmemory").unwrap_or(0),
            clock_ms: number("server_time_usec").and_then(|us| i64::try_from(us / 1_000).ok()),
        };
        masters.insert(facts.run_id.clone(), facts);
    }
    let held = read_layout(client, layout).await?;
    Ok(Facts {
        masters: masters.into_values().collect(),
        is_of_this_log: held.is_none_or(|held| held == *names.layout()),
    })
}

impl RedisDedup {
    /// What the servers of the filter's memory say of themselves.
    ///
    /// # Errors
    /// One of them cannot be reached, or does not let us in.
    pub async fn facts(&self) -> Result<Facts, PortError> {
        facts(&self.client, &self.names, crate::dedup::LAYOUT).await
    }
}

impl RedisCounters {
    /// What the servers of the counters say of themselves.
    ///
    /// # Errors
    /// As for the filter's memory.
    pub async fn facts(&self) -> Result<Facts, PortError> {
        facts(&self.client, &self.names, crate::counts::LAYOUT).await
    }
}
