//! What is asked of a server before it is trusted with anything.

use std::collections::{BTreeMap, BTreeSet};

use onlooker_ports::PortError;
use onlooker_sketch::Sketch;
use redis::{Cmd, Pipeline, Value};

use crate::client::Client;
use crate::counts::RedisCounters;
use crate::dedup::RedisDedup;
use crate::keys::Namespace;
use crate::reply::Reader;

/// What works but should be looked at, one line each.
pub type Warnings = Vec<String>;

/// One master's settings that the protocols rest on.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Settings {
    run_id: String,
    policy: String,
    limit_bytes: u64,
}

pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// Settings of every master that holds a partition. What they say of their memory besides goes to the metrics.
async fn settings(client: &Client, names: &Namespace) -> Result<BTreeSet<Settings>, PortError> {
    let mut found = BTreeSet::new();
    let mut memory = BTreeMap::new();
    // INFO and not CONFIG GET, which services that rent out Redis forbid.
    let mut info = Pipeline::new();
    info.cmd("INFO").arg("server").cmd("INFO").arg("memory").cmd("INFO").arg("stats");
    let reader = Reader { server: client.server(), command: "INFO" };
    for names in names.all() {
        let mut text = String::new();
        for answer in client.pipeline(names.slot(), &info).await? {
            let bytes = reader.bytes(client.checked(answer)?)?.unwrap_or_default();
            text.push_str(&String::from_utf8_lossy(&bytes));
            text.push('\n');
        }
        let missing = || PortError::Misconfigured {
            server: client.server(),
            detail: "INFO does not say maxmemory_policy: is it a Redis or a Valkey?".to_owned(),
        };
        let number = |name| field(&text, name).and_then(|digits| digits.parse().ok()).unwrap_or(0_u64);
        let run_id = field(&text, "run_id").unwrap_or_default().to_owned();
        let limit_bytes = number("maxmemory");
        memory.insert(run_id.clone(), (number("used_memory"), limit_bytes, number("evicted_keys")));
        let policy = field(&text, "maxmemory_policy").ok_or_else(missing)?.to_owned();
        found.insert(Settings { run_id, policy, limit_bytes });
    }
    let sum = |part: fn(&(u64, u64, u64)) -> u64| memory.values().map(part).sum::<u64>();
    let limited = memory.values().all(|(_, limit, _)| *limit > 0);
    client.show_memory(sum(|m| m.0), if limited { sum(|m| m.1) } else { 0 }, sum(|m| m.2));
    Ok(found)
}

impl RedisDedup {
    /// Refuses a server that evicts (a memory with holes counts views twice) or that holds another log's memory.
    ///
    /// # Errors
    /// `Misconfigured` names the setting and what it should be; or the server cannot be reached.
    pub async fn check(&self) -> Result<Warnings, PortError> {
        self.check_log().await?;
        for settings in settings(&self.client, &self.names).await? {
            if settings.policy != "noeviction" {
                let detail = format!(
                    "maxmemory-policy is {}: set noeviction, since a claim that is evicted lets a view count twice",
                    settings.policy
                );
                return Err(PortError::Misconfigured { server: self.client.server(), detail });
            }
        }
        Ok(Warnings::new())
    }
}

impl RedisCounters {
    /// Refuses a server that may evict what changed since it was archived, whose sketches are not Redis's, or that
    /// holds another log's counters. Warns of one that cannot evict at all.
    ///
    /// # Errors
    /// `Misconfigured` names the setting and what it should be; or the server cannot be reached.
    pub async fn check(&self) -> Result<Warnings, PortError> {
        let warnings = self.check_again().await?;
        self.check_sketches().await?;
        Ok(warnings)
    }

    /// Of [`RedisCounters::check`], what may change while a server runs, or when it starts again. Costs it next to nothing.
    ///
    /// # Errors
    /// As there.
    pub async fn check_again(&self) -> Result<Warnings, PortError> {
        self.check_log().await?;
        let mut warnings = Warnings::new();
        for settings in settings(&self.client, &self.names).await? {
            if settings.policy.starts_with("allkeys") {
                let detail = format!(
                    "maxmemory-policy is {}: set volatile-lru, or sketches that are not archived yet are evicted",
                    settings.policy
                );
                return Err(PortError::Misconfigured { server: self.client.server(), detail });
            }
            if settings.limit_bytes == 0 {
                warnings.push(
                    "maxmemory is not set: sketches are kept until the machine's memory ends".to_owned(),
                );
            } else if settings.policy == "noeviction" {
                warnings.push(
                    "maxmemory-policy is noeviction: when memory is full, counting waits; set volatile-lru"
                        .to_owned(),
                );
            }
        }
        Ok(warnings)
    }

    /// Adds, merges and counts on the server and here, and compares. Some servers that speak Redis's language add up
    /// when they merge, or hash differently; their sketches could not be united with ours.
    async fn check_sketches(&self) -> Result<(), PortError> {
        let server = self.client.server();
        let Some(names) = self.names.all().next() else { return Ok(()) };
        let keys = ["a", "b", "union"].map(|name| names.selftest(name));
        let member = |n: u32| n.wrapping_mul(2_654_435_769).to_le_bytes();
        let mut ours = [Sketch::new(), Sketch::new()];
        // One transaction: two instances that start at once use the same keys.
        let mut pipeline = Pipeline::new();
        pipeline.atomic().cmd("UNLINK").arg(&keys[..]);
        // One that stays sparse, and one that becomes dense.
        for (sketch, (key, range)) in ours.iter_mut().zip(keys.iter().zip([0..300, 200..3_000])) {
            let mut command = Cmd::new();
            command.arg("PFADD").arg(key);
            for n in range {
                sketch.add(&member(n));
                command.arg(&member(n)[..]);
            }
            pipeline.add_command(command);
        }
        for _ in 0..2 {
            pipeline.cmd("PFMERGE").arg(&keys[2]).arg(&keys[0]).arg(&keys[1]);
        }
        pipeline.cmd("PFADD").arg(&keys[0]).arg(&member(7)[..]);
        pipeline.cmd("PFCOUNT").arg(&keys[2]);
        for key in &keys {
            pipeline.cmd("GET").arg(key);
        }
        pipeline.cmd("UNLINK").arg(&keys[..]);

        let answers = self.client.transaction(names.slot(), &pipeline).await?;
        let [_, _, _, _, _, again, count, contents @ .., _] = answers.as_slice() else { return Ok(()) };
        let [mut union, second] = ours.clone();
        union.merge(&second);
        let same = |content: &Value, ours: &Sketch| match content {
            Value::BulkString(bytes) => {
                Sketch::from_redis(bytes).is_ok_and(|theirs| theirs.register_eq(ours))
            }
            _ => false,
        };
        let expected = [&ours[0], &ours[1], &union];
        let faults = [
            (*again != Value::Int(0), "PFADD of a known member reports a change"),
            (*count != Value::Int(union.count().cast_signed()), "PFMERGE twice is not PFMERGE once"),
            (
                !contents.iter().zip(expected).all(|(content, ours)| same(content, ours)),
                "its sketches do not have Redis's registers",
            ),
        ];
        match faults.iter().find(|(fault, _)| *fault) {
            Some((_, fault)) => {
                let detail = format!("{fault}: use a Redis or a Valkey");
                Err(PortError::Misconfigured { server, detail })
            }
            None => Ok(()),
        }
    }
}
