//! One connection to one Redis or Redis Cluster: made when needed, shared by all, replaced when it fails.

mod link;
mod silence;

use std::sync::Arc;
use std::time::{Duration, Instant};

use onlooker_ports::PortError;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::Mutex;
use tracing::{debug, info, warn};

use self::link::{Link, Request, Target, target};
use self::silence::Silence;
use crate::config::RedisConfig;
use crate::error::{Blame, blame, port_error};
use crate::metrics::ClientMetrics;
use crate::script::Script;

/// After a failed attempt to connect, callers get the same error for this long and the server its peace.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

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

#[derive(Default)]
struct State {
    link: Option<Link>,
    /// Counts connections, so that two callers who saw the same one fail do not throw away two.
    generation: u64,
    failure: Option<(Instant, RedisError)>,
}

struct Inner {
    role: Role,
    server: &'static str,
    metrics: ClientMetrics,
    prefix: Box<str>,
    target: Target,
    connect_timeout: Duration,
    tls: bool,
    silence: Silence,
    state: Mutex<State>,
}

/// A connection that is made with the first command, shared by all clones, and replaced when it fails.
///
/// A command whose connection breaks is sent once more: every command that this crate sends may be repeated. A
/// command without an answer in time is not, and says nothing about whether it was carried out.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("server", &self.0.server).finish_non_exhaustive()
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
        Ok(Self(Arc::new(Inner {
            role,
            server,
            metrics: ClientMetrics::register(),
            prefix: config.prefix.as_str().into(),
            target,
            connect_timeout: config.connect_timeout(),
            tls: config.tls.is_some(),
            silence: Silence::default(),
            state: Mutex::default(),
        })))
    }

    pub(crate) fn server(&self) -> &'static str {
        self.0.server
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.0.prefix
    }

    /// Sends one command to the master of a slot.
    pub(crate) async fn command(&self, slot: u16, command: &Cmd) -> Result<Value, PortError> {
        let mut values = self.run(slot, Request::Command(command)).await.map_err(|e| self.error(&e))?;
        self.checked(values.pop().unwrap_or_default())
    }

    /// Sends commands as one transaction; each answer stands at its command's place. An error among them fails all.
    pub(crate) async fn transaction(&self, slot: u16, commands: &Pipeline) -> Result<Vec<Value>, PortError> {
        let mut values = self.run(slot, Request::Transaction(commands)).await.map_err(|e| self.error(&e))?;
        match values.pop() {
            Some(Value::Array(answers)) if answers.len() == commands.len() => {
                answers.into_iter().map(|answer| self.checked(answer)).collect()
            }
            other => Err(crate::error::unexpected(self.server(), "EXEC", &other.unwrap_or_default())),
        }
    }

    /// Sends commands one behind the other; errors stay at their command's place.
    pub(crate) async fn pipeline(&self, slot: u16, commands: &Pipeline) -> Result<Vec<Value>, PortError> {
        let values = self.run(slot, Request::Pipeline(commands)).await.map_err(|e| self.error(&e))?;
        if values.len() != commands.len() {
            let detail = format!("{} answers to {} commands", values.len(), commands.len());
            return Err(PortError::Failed { server: self.server(), detail });
        }
        Ok(values)
    }

    /// Runs a script whose `EVALSHA` was built by [`Script::call`]; loads it where the server does not have it.
    pub(crate) async fn script(&self, slot: u16, script: &Script, call: &Cmd) -> Result<Value, PortError> {
        let mut values = self.run(slot, Request::Command(call)).await;
        if values.as_ref().is_err_and(is_no_script) || values.as_ref().is_ok_and(|v| v.iter().any(no_script))
        {
            // A restart or a failover: scripts are not part of the data.
            self.run(slot, Request::Command(&script.load())).await.map_err(|e| self.error(&e))?;
            values = self.run(slot, Request::Command(call)).await;
        }
        let mut values = values.map_err(|e| self.error(&e))?;
        self.checked(values.pop().unwrap_or_default())
    }

    /// The answer, or the error that stands in its place.
    pub(crate) fn checked(&self, answer: Value) -> Result<Value, PortError> {
        answer.extract_error().map_err(|error| self.error(&error))
    }

    fn error(&self, error: &RedisError) -> PortError {
        let error = port_error(self.0.server, error);
        if matches!(error, PortError::Full { .. }) {
            self.0.metrics.refused.get(self.0.role).increment(1);
        }
        error
    }

    async fn run(&self, slot: u16, request: Request<'_>) -> RedisResult<Vec<Value>> {
        let mut second_try = false;
        loop {
            let (generation, mut link) = self.link().await?;
            let sent = Instant::now();
            let error = match link.send(slot, request).await {
                Ok(values) => {
                    self.0.silence.answered(slot);
                    self.0.metrics.duration.get(self.0.role).record(sent.elapsed());
                    return Ok(values);
                }
                Err(error) => error,
            };
            match blame(&error) {
                Blame::Nothing => return Err(error),
                Blame::TimedOut => {
                    self.0.metrics.timed_out.get(self.0.role).increment(1);
                    if self.0.silence.timed_out(slot) {
                        self.discard(generation, &error).await;
                    }
                    return Err(error);
                }
                Blame::Dropped | Blame::Topology => self.discard(generation, &error).await,
            }
            if second_try {
                return Err(error);
            }
            second_try = true;
        }
    }

    async fn link(&self) -> RedisResult<(u64, Link)> {
        let asked = Instant::now();
        let mut state = self.0.state.lock().await;
        if let Some(link) = &state.link {
            return Ok((state.generation, link.clone()));
        }
        // Whoever waited while another tried and failed shares that failure, or a hundred callers would each wait
        // out the connect time-out behind one another.
        if let Some((when, error)) = &state.failure
            && (*when >= asked || when.elapsed() < PAUSE_AFTER_FAILURE)
        {
            return Err(error.clone());
        }
        match self.0.connect().await {
            Ok(link) => {
                self.0.metrics.connected.get(self.0.role).increment(1);
                state.generation += 1;
                state.link = Some(link.clone());
                if state.failure.take().is_some() {
                    info!(server = self.0.server, "connected again");
                } else {
                    debug!(server = self.0.server, "connected");
                }
                Ok((state.generation, link))
            }
            Err(error) => {
                self.0.metrics.unreachable.get(self.0.role).increment(1);
                // Once for every outage, not for every attempt.
                if state.failure.is_none() {
                    warn!(server = self.0.server, %error, "cannot connect");
                }
                state.failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn discard(&self, generation: u64, error: &RedisError) {
        let mut state = self.0.state.lock().await;
        if state.generation == generation && state.link.take().is_some() {
            self.0.silence.forget();
            debug!(server = self.0.server, %error, "connection given up");
        }
    }
}

fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(redis::ServerErrorKind::NoScript)
}

fn no_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.kind() == Some(redis::ServerErrorKind::NoScript))
}

impl Inner {
    async fn connect(&self) -> RedisResult<Link> {
        let outcome = self.target.connect(self.connect_timeout).await;
        match outcome {
            // A server without TLS waits for the rest of what it takes for a command.
            Err(error) if self.tls && error.is_timeout() => {
                Err((ErrorKind::Io, "no answer to the TLS handshake; is this the server's TLS port?").into())
            }
            outcome => outcome,
        }
    }
}
