//! One connection to one Redis or Redis Cluster: made when needed, shared by all, replaced when it fails.

mod connection;
mod link;
mod silence;

use std::sync::Arc;

use onlooker_ports::PortError;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};

use self::connection::Connection;
use self::link::{Request, target};
use crate::config::RedisConfig;
use crate::error::{port_error, unexpected};
use crate::metrics::ClientMetrics;
use crate::script::Script;

/// Which of the two servers a client talks to; names it in errors and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The filter's memory.
    Dedup,
    /// Sketches and numbers.
    Counters,
}

impl Role {
    pub(crate) const ALL: &'static [Role] = &[Role::Dedup, Role::Counters];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Role::Dedup => "dedup",
            Role::Counters => "counters",
        }
    }

    /// As errors and logs call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Dedup => "dedup redis",
            Role::Counters => "counters redis",
        }
    }
}

/// A connection that is made with the first command, shared by all clones, and replaced when it fails.
///
/// A command whose connection breaks is sent once more: every command that this crate sends may be repeated. A
/// command without an answer in time is not, and says nothing about whether it was carried out.
#[derive(Clone)]
pub struct Client {
    role: Role,
    prefix: Arc<str>,
    metrics: ClientMetrics,
    connection: Arc<Connection>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("role", &self.role)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client that is not connected yet.
    ///
    /// # Errors
    /// `Misconfigured`: the settings are wrong in themselves, or a certificate file cannot be used.
    pub fn new(role: Role, config: &RedisConfig) -> Result<Self, PortError> {
        let server = role.as_str();
        let misconfigured = |detail: String| PortError::Misconfigured { server, detail };
        config.validate().map_err(|error| misconfigured(error.to_string()))?;
        let target = target(config).map_err(misconfigured)?;
        let metrics = ClientMetrics::register();
        let connection = Arc::new(Connection::new(role, target, config, metrics.clone()));
        Ok(Self { role, prefix: config.prefix.as_str().into(), metrics, connection })
    }

    pub(crate) fn server(&self) -> &'static str {
        self.role.as_str()
    }

    /// What all masters together use, may use (0: one of them has no limit) and have evicted.
    #[expect(clippy::cast_precision_loss, reason = "gauges; bytes of a machine stay below 2^53")]
    pub(crate) fn show_memory(&self, used_bytes: u64, limit_bytes: u64, evicted: u64) {
        self.metrics.used.get(self.role).set(used_bytes as f64);
        self.metrics.limit.get(self.role).set(limit_bytes as f64);
        self.metrics.evicted.get(self.role).set(evicted as f64);
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Sends one command to the master of a slot.
    pub(crate) async fn command(&self, slot: u16, command: &Cmd) -> Result<Value, PortError> {
        let mut values =
            self.connection.run(slot, Request::Command(command)).await.map_err(|e| self.error(&e))?;
        self.checked(values.pop().unwrap_or_default())
    }

    /// Sends commands as one transaction; each answer stands at its command's place. An error among them fails all.
    pub(crate) async fn transaction(&self, slot: u16, commands: &Pipeline) -> Result<Vec<Value>, PortError> {
        let mut values =
            self.connection.run(slot, Request::Transaction(commands)).await.map_err(|e| self.error(&e))?;
        match values.pop() {
            Some(Value::Array(answers)) if answers.len() == commands.len() => {
                answers.into_iter().map(|answer| self.checked(answer)).collect()
            }
            other => Err(unexpected(self.server(), "EXEC", &other.unwrap_or_default())),
        }
    }

    /// Sends commands one behind the other; errors stay at their command's place.
    pub(crate) async fn pipeline(&self, slot: u16, commands: &Pipeline) -> Result<Vec<Value>, PortError> {
        let values =
            self.connection.run(slot, Request::Pipeline(commands)).await.map_err(|e| self.error(&e))?;
        if values.len() != commands.len() {
            let detail = format!("{} answers to {} commands", values.len(), commands.len());
            return Err(PortError::Failed { server: self.server(), detail });
        }
        Ok(values)
    }

    /// Runs a script whose `EVALSHA` was built by [`Script::call`]; loads it where the server does not have it.
    pub(crate) async fn script(&self, slot: u16, script: &Script, call: &Cmd) -> Result<Value, PortError> {
        let mut values = self.connection.run(slot, Request::Command(call)).await;
        if values.as_ref().is_err_and(is_no_script) || values.as_ref().is_ok_and(|v| v.iter().any(no_script))
        {
            // A restart or a failover: scripts are not part of the data.
            self.connection.run(slot, Request::Command(&script.load())).await.map_err(|e| self.error(&e))?;
            values = self.connection.run(slot, Request::Command(call)).await;
        }
        let mut values = values.map_err(|e| self.error(&e))?;
        self.checked(values.pop().unwrap_or_default())
    }

    /// The answer, or the error that stands in its place.
    pub(crate) fn checked(&self, answer: Value) -> Result<Value, PortError> {
        answer.extract_error().map_err(|error| self.error(&error))
    }

    fn error(&self, error: &RedisError) -> PortError {
        let error = port_error(self.server(), error);
        if matches!(error, PortError::Full { .. }) {
            self.metrics.refused.get(self.role).increment(1);
        }
        error
    }
}

fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

fn no_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}
